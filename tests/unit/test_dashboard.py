"""The dashboard and the alerting rules name what exists, and only that."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import yaml

from hpuwatch.life.phases import Phase
from hpuwatch.metrics.catalogue import BY_NAME, MEMORY_KINDS, SEVERITIES
from hpuwatch.metrics.readings import MISS_REASONS

pytestmark = pytest.mark.unit

PROMETHEUS_METRICS = {"up"}  # of every target, by Prometheus itself
VLLM_METRICS = {
    "vllm:gpu_cache_usage_perc",  # the name before vLLM 0.10
    "vllm:kv_cache_usage_perc",
    "vllm:num_preemptions_total",
    "vllm:time_to_first_token_seconds_bucket",
}
TARGET_LABELS = {"job", "instance"}
KNOWN_VALUES = {
    "state": {phase.value for phase in Phase},
    "asked": {"true", "false"},
    "kind": set(MEMORY_KINDS),
    "severity": set(SEVERITIES),
    "reason": set(MISS_REASONS),
}
WORDS = {
    "and",
    "or",
    "unless",
    "by",
    "on",
    "without",
    "bool",
    "ignoring",
    "group_right",
}

Json = Any  # the dashboard's form is Grafana's, and checked below


@pytest.fixture(scope="module")
def grafana() -> Path:
    return Path(__file__).resolve().parents[2] / "grafana"


@pytest.fixture(scope="module")
def dashboard(grafana: Path) -> Json:
    return json.loads((grafana / "hpuwatch.json").read_text("utf-8"))


@pytest.fixture(scope="module")
def alerts(grafana: Path) -> list[Json]:
    document = yaml.safe_load((grafana / "alerts.yaml").read_text("utf-8"))
    return [rule for group in document["groups"] for rule in group["rules"]]


def dashboard_expressions(dashboard: Json) -> Iterator[str]:
    for panel in dashboard["panels"]:
        yield from (target["expr"] for target in panel.get("targets", ()))
    for variable in dashboard["templating"]["list"]:
        match = re.match(r"label_values\((.*), \w+\)$", str(variable.get("definition")))
        if match:
            yield match[1]
    for annotation in dashboard["annotations"]["list"]:
        if "expr" in annotation:
            yield annotation["expr"]


def metric_names(expression: str) -> set[str]:
    """Every name in it that is not a function, a keyword or a label."""
    bare = re.sub(r'"(?:\\.|[^"\\])*"', "", expression)
    bare = re.sub(r"\{[^}]*\}|\[[^\]]*\]|\boffset\s+\w+", "", bare)
    bare = re.sub(r"\b(by|on|without|ignoring|group_right)\s*\([^)]*\)", "", bare)
    names = re.findall(r"[A-Za-z_:][\w:]*(?![\w:]|\s*\()", bare)
    return set(names) - WORDS


def matchers(expression: str) -> Iterator[tuple[str, str, str]]:
    """(metric, label, pattern) for each label matcher."""
    for name, inside in re.findall(r"([A-Za-z_:][\w:]*)\{([^}]*)\}", expression):
        for label, pattern in re.findall(r'(\w+)\s*[=!]=?~?\s*"([^"]*)"', inside):
            yield name, label, pattern


def check(expression: str) -> None:
    names = metric_names(expression)
    assert names
    assert names <= set(BY_NAME) | VLLM_METRICS | PROMETHEUS_METRICS, expression
    for name, label, pattern in matchers(expression):
        allowed = TARGET_LABELS | set(BY_NAME[name].labels)
        assert label in allowed, f"{name} has no label {label}: {expression}"
        if label in KNOWN_VALUES:
            assert set(pattern.split("|")) <= KNOWN_VALUES[label], expression


def test_the_names_of_an_expression_are_found() -> None:
    """The reader of expressions must see a wrong name, wherever it stands."""
    expression = (
        'sum by (job, x) (rate(aa_total{l="bb", m=~"c{1}"}[5m])) > 2'
        " and on (model_name) (dd == 1) or ee / ff offset 5m"
    )

    assert metric_names(expression) == {"aa_total", "dd", "ee", "ff"}


def test_the_dashboard_names_only_metrics_that_exist(dashboard: Json) -> None:
    for expression in dashboard_expressions(dashboard):
        check(expression)


def test_the_alerts_name_only_metrics_that_exist(alerts: list[Json]) -> None:
    for rule in alerts:
        check(rule["expr"])


def test_every_metric_of_the_catalogue_is_on_the_dashboard(dashboard: Json) -> None:
    shown = set().union(*map(metric_names, dashboard_expressions(dashboard)))

    assert set(BY_NAME) <= shown


def test_panels_have_a_place_each(dashboard: Json) -> None:
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)

    def cells(panel: Json) -> set[tuple[int, int]]:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24
        return {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }

    for one, other in combinations(panels, 2):
        assert not cells(one) & cells(other), (one["title"], other["title"])


def test_panels_ask_the_chosen_source_and_explain_themselves(dashboard: Json) -> None:
    chosen = {"type": "prometheus", "uid": "${datasource}"}
    for panel in dashboard["panels"]:
        assert panel["title"]
        if panel["type"] == "row":
            continue
        assert panel["description"].endswith(".")
        assert panel["datasource"] == chosen
        assert panel["targets"]
        assert all(target["datasource"] == chosen for target in panel["targets"])
        references = [target["refId"] for target in panel["targets"]]
        assert len(set(references)) == len(references)


def test_rows_repeat_by_instance(dashboard: Json) -> None:
    rows = [panel for panel in dashboard["panels"] if panel["type"] == "row"]

    assert [row["title"].partition(":")[0] for row in rows] == [
        "State and readiness",
        "Device memory",
        "Warm-up",
        "Bucket misses",
        "Faults",
        "Log health",
    ]
    assert all(row["repeat"] == "instance" for row in rows)
    names = {variable["name"] for variable in dashboard["templating"]["list"]}
    assert {"datasource", "instance"} <= names


def test_every_expression_about_us_is_of_the_chosen_instance(dashboard: Json) -> None:
    for panel in dashboard["panels"]:
        for target in panel.get("targets", ()):
            ours = re.findall(r"hpuwatch_\w+(?:\{[^}]*\})?", target["expr"])
            assert all('instance=~"$instance"' in each for each in ours), target["expr"]


def test_alerts_say_how_bad_it_is_and_what_to_do(alerts: list[Json]) -> None:
    assert len({rule["alert"] for rule in alerts}) == len(alerts)
    for rule in alerts:
        assert re.fullmatch(r"Hpuwatch([A-Z][a-z]+)+", rule["alert"])
        assert rule["labels"]["severity"] in {"critical", "warning", "info"}
        assert "{{ $labels.instance }}" in rule["annotations"]["summary"]
        assert rule["annotations"]["description"].endswith(".")


def test_every_alert_fires_in_its_test(alerts: list[Json]) -> None:
    path = Path(__file__).resolve().parents[1] / "prometheus" / "alerts.test.yaml"
    expected = re.findall(r'alertname="(\w+)", alertstate="firing"', path.read_text())

    assert {rule["alert"] for rule in alerts} == set(expected)


def test_the_page_about_alerts_lists_each_with_its_severity(
    alerts: list[Json], checkout: Path
) -> None:
    page = (checkout / "docs/dashboards.md").read_text("utf-8")
    listed = re.findall(r"^\| (Hpuwatch\w+) \| (\w+) \|", page, re.MULTILINE)

    assert sorted(listed) == sorted(
        (rule["alert"], rule["labels"]["severity"]) for rule in alerts
    )
