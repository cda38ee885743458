"""Prometheus' own checker is content with what we export and ship."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import yaml

from hpuwatch.life.phases import Phase
from hpuwatch.metrics.collector import exposition
from hpuwatch.state.snapshot import Snapshot
from hpuwatch.testing.snapshots import full_snapshot


def test_the_exposition_is_clean(promtool: Callable[..., str]) -> None:
    for snapshot in (full_snapshot(), Snapshot(name="x", phase=Phase.STARTING)):
        said = promtool("check", "metrics", stdin=exposition(snapshot))

        assert said == ""


def test_the_alerts_are_valid(promtool: Callable[..., str], checkout: Path) -> None:
    said = promtool("check", "rules", str(checkout / "grafana/alerts.yaml"))

    assert "SUCCESS" in said


def test_the_alerts_fire_when_they_should(
    promtool: Callable[..., str], checkout: Path
) -> None:
    said = promtool(
        "test", "rules", str(checkout / "tests/prometheus/alerts.test.yaml")
    )

    assert "SUCCESS" in said


def test_the_dashboard_asks_in_valid_promql(
    promtool: Callable[..., str], checkout: Path, tmp_path: Path
) -> None:
    dashboard = json.loads((checkout / "grafana/hpuwatch.json").read_text("utf-8"))
    expressions = {
        re.sub(r"\$__\w+", "5m", target["expr"])
        for panel in dashboard["panels"]
        for target in panel.get("targets", ())
    }
    rules = [
        {"record": f"dashboard:{n}", "expr": expression}
        for n, expression in enumerate(sorted(expressions))
    ]
    path = tmp_path / "dashboard.yaml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "d", "rules": rules}]}))

    said = promtool("check", "rules", str(path))

    assert f"{len(rules)} rules found" in said
