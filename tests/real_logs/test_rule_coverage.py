"""On real logs every warning and every error is known, or known to mean nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from hpuwatch.app.rules import shipped_rules
from hpuwatch.cli.main import build
from hpuwatch.parse.parser import Parser
from hpuwatch.parse.tally import Tally
from hpuwatch.records import Line

LOGS = (
    "gaudi2-llama70b-tp4-fork-0.6.3-skip-warmup.log.gz",
    "gaudi3-qwen3vl32b-plugin-0.15-dies-in-warmup.log.gz",
    "gaudi3-qwen3vl32b-plugin-0.15-start-and-traffic.log.gz",
)


@pytest.mark.parametrize("name", LOGS)
def test_no_grave_line_is_unmatched(shared: Path, name: str) -> None:
    words = ["parse", str(shared / "corpus" / name), "--stats", "--format", "json"]
    document = json.loads(CliRunner().invoke(build(), words).stdout)
    assert document["schema"] == "hpuwatch.stats/1"
    graves = [document["levels"].get(each) for each in ("WARNING", "ERROR", "CRITICAL")]
    known = [level for level in graves if level is not None]
    assert sum(level["records"] for level in known) > 0
    assert [level["unmatched"] for level in known] == [0] * len(known)
    assert document["unparsed"] == 0
    assert document["levels"]["all"]["matched"] == sum(
        level["matched"] for row, level in document["levels"].items() if row != "all"
    )


@pytest.mark.parametrize("name", LOGS)
def test_all_that_is_counted_as_unmatched_is_listed(shared: Path, name: str) -> None:
    words = ["parse", str(shared / "corpus" / name), "--format", "json"]
    counted, listed = (
        json.loads(CliRunner().invoke(build(), [*words, option]).stdout)
        for option in ("--stats", "--unmatched")
    )
    rows = listed["templates"]
    assert sum(row["count"] for row in rows) == counted["levels"]["all"]["unmatched"]


def test_no_line_of_the_catalogue_is_unmatched(shared: Path) -> None:
    text = (shared / "reference" / "log-lines.yaml").read_text(encoding="utf-8")
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    kinds = yaml.load(text, Loader=loader)["kinds"]  # noqa: S506  a safe loader, in C
    rules, examples = shipped_rules(), 0
    for variant in (each for kind in kinds for each in kind["variants"]):
        example = variant.get("example") or ""
        tally = Tally()
        parser = Parser(rules, tally)
        for number, line in enumerate(example.splitlines(), 1):
            parser.feed(Line(line, number=number))
        parser.close()
        assert tally.total().unmatched == 0, example
        examples += bool(tally.total().records)
    assert examples > 250
