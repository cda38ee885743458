"""The catalogue keeps Prometheus' conventions, and its page is what it says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from hpuwatch.metrics.catalogue import BY_NAME, CONSEQUENCE, METRICS, Kind, Metric
from hpuwatch.metrics.document import markdown
from hpuwatch.metrics.faults import FAULT_CLASSES
from hpuwatch.metrics.readings import readings
from hpuwatch.testing.snapshots import full_snapshot

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_a_name_ends_as_its_kind_and_unit_ask(metric: Metric) -> None:
    bare = metric.name.removesuffix("_total").removesuffix("_info")

    assert re.fullmatch(r"hpuwatch(_[a-z]+)+", metric.name)
    assert metric.name.endswith("_total") == (metric.kind is Kind.COUNTER)
    assert metric.name.endswith("_info") == (metric.kind is Kind.INFO)
    assert bare.endswith(metric.unit)
    assert not re.search(
        r"_(ms|milliseconds|minutes|percent|kb|mb|gib)(_|$)", metric.name
    )
    assert metric.help.endswith(".")
    assert "\n" not in metric.help


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_no_label_tells_one_start_from_another(metric: Metric) -> None:
    assert not {"start", "start_id", "run_id", "pid"} & set(metric.labels)
    assert len(set(metric.labels)) == len(metric.labels)


def test_the_fault_classes_are_those_of_the_rules(checkout: Path) -> None:
    usual: dict[str, str] = {"unknown_exception": "fatal"}  # the parser's own
    for path in (checkout / "rules/parse").glob("*.yaml"):
        for rule in yaml.safe_load(path.read_text("utf-8"))["rules"]:
            if rule["event"] == "fault":
                follows = rule["severity"] == "fatal" and not rule["set"].get(
                    "root", True
                )
                severity = CONSEQUENCE if follows else rule["severity"]
                usual.setdefault(rule["set"]["name"], severity)

    assert dict(FAULT_CLASSES) == usual


def test_names_are_unique() -> None:
    assert len(BY_NAME) == len(METRICS)


def test_the_catalogue_is_what_is_read() -> None:
    drawn = readings(full_snapshot())

    assert set(drawn) | {"hpuwatch_page_errors_total"} == set(BY_NAME)
    for name, series in drawn.items():
        for labels in series:
            assert len(labels) == len(BY_NAME[name].labels), name


def test_the_page_is_made_from_the_catalogue(checkout: Path) -> None:
    page = (checkout / "docs" / "metrics.md").read_text("utf-8")

    assert page == markdown(), "run `make docs`"
