"""``hpuwatch explain``: every name that hpuwatch uses has a meaning, and only those."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from hpuwatch.advise.findings import CODES
from hpuwatch.app.explain import explain
from hpuwatch.app.rules import shipped_rules
from hpuwatch.cli.main import build
from hpuwatch.errors import UsageError
from hpuwatch.gaudi.knobs import KNOBS
from hpuwatch.life.phases import Phase
from hpuwatch.metrics.catalogue import BY_NAME
from hpuwatch.metrics.faults import FAULT_CLASSES

pytestmark = pytest.mark.unit


def run(*words: str) -> Result:
    return CliRunner().invoke(build(), ["explain", *words])


def kinds(name: str) -> list[str]:
    return [meaning.kind for meaning in explain(name).meanings]


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("event", sorted({rule.event for rule in shipped_rules().rules})[::7]),
        ("fault", sorted(FAULT_CLASSES)[::5]),
        ("finding", CODES[::5]),
        ("knob", sorted(KNOBS)[::20]),
        ("metric", sorted(BY_NAME)[::7]),
        ("phase", [phase.value for phase in Phase][::4]),
    ],
)
def test_every_table_is_looked_into(kind: str, names: list[str]) -> None:
    for name in names:
        assert kind in kinds(name), name


def test_every_fault_class_that_is_a_label_is_explained() -> None:
    rules = shipped_rules().rules
    declared = {str(rule.text.constants.get("name")) for rule in rules}
    assert set(FAULT_CLASSES) <= declared | {"unknown_exception"}


def test_a_rule_tells_where_it_stands_and_what_it_reads() -> None:
    (meaning,) = explain("warmup_finished").meanings
    rules = meaning.facts["rules"]
    (rule,) = (each for each in rules if each["where"].startswith("plugin.yaml:"))
    assert rule["fields"] == ["s", "mem"]
    assert "Warmup finished in" in rule["example"]


def test_a_knob_is_found_in_any_case_and_by_its_family() -> None:
    assert kinds("vllm_graph_reserved_mem") == ["knob"]
    assert kinds("-tp") == ["knob"]


def test_a_phase_tells_how_it_is_reached() -> None:
    (meaning,) = explain("draining").meanings
    assert "ready" in meaning.facts["reached from"]
    assert "stopping" in meaning.facts["leads to"]


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("VLLM_GRAPH_RESERVE_MEM", "VLLM_GRAPH_RESERVED_MEM"),
        ("warmup_oom_", "warmup-oom"),
        ("devise_oom_devmem", "device_oom_devmem"),
        ("hpuwatch_bucket", "hpuwatch_buckets"),
    ],
)
def test_an_unknown_name_gets_the_nearest_ones(name: str, near: str) -> None:
    with pytest.raises(UsageError, match=rf"did you mean .*{near}"):
        explain(name)
    assert UsageError.exit_code == 2


def test_a_name_like_no_other_gets_none() -> None:
    with pytest.raises(UsageError, match=r"metric or phase$"):
        explain("0000")


def test_text_and_json_say_the_same() -> None:
    document = json.loads(run("kv-none", "--format", "json").stdout)
    assert document["schema"] == "hpuwatch.explain/1"
    assert document["name"] == "kv-none"
    (meaning,) = document["meanings"]
    told = run("kv-none").stdout
    assert told.startswith("kv-none: finding\n")
    assert meaning["text"] in told
    assert f"severity: {meaning['facts']['severity']}" in told


def test_every_pattern_is_shown() -> None:
    told = run("memory_split").stdout
    for rule in shipped_rules().rules:
        if rule.event == "memory_split":
            assert all(pattern in told for pattern in rule.text.patterns)


def test_rules_of_ones_own_are_explained_too(tmp_path: Path) -> None:
    own = tmp_path / "own.yaml"
    own.write_text(
        'config_version: 1\nrules:\n  - event: mine\n    patterns: ["said so"]\n'
    )
    assert "own.yaml:3" in run("mine", "--rules", str(own)).stdout
    assert isinstance(run("mine").exception, UsageError)


def test_a_wrong_format() -> None:
    assert isinstance(run("ready", "--format", "xml").exception, UsageError)
