"""``hpuwatch explain``: every name that hpuwatch uses has a meaning, and only those."""

from __future__ import annotations

import ast
import inspect
import json
import re
from pathlib import Path
from types import ModuleType

import pytest
from typer.testing import CliRunner, Result

from hpuwatch.app.catalogue import shipped_findings
from hpuwatch.app.explain import explain
from hpuwatch.app.rules import shipped_rules
from hpuwatch.cli.main import build
from hpuwatch.errors import UsageError
from hpuwatch.gaudi import caution, refusal
from hpuwatch.gaudi.estimate import ORIGINS
from hpuwatch.gaudi.knobs import KNOBS
from hpuwatch.gaudi.terms import CAUTIONS, REFUSALS
from hpuwatch.life.phases import Phase
from hpuwatch.metrics.catalogue import BY_NAME
from hpuwatch.metrics.faults import FAULT_CLASSES
from hpuwatch.testing.logs import rules

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
        ("finding", [kind.code for kind in shipped_findings().kinds][::5]),
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
    with pytest.raises(UsageError, match=r"word or phase$"):
        explain("0000")


def test_text_and_json_say_the_same() -> None:
    document = json.loads(run("warmup-oom", "--format", "json").stdout)
    assert document["schema"] == "hpuwatch.explain/1"
    assert document["name"] == "warmup-oom"
    (meaning,) = document["meanings"]
    told = run("warmup-oom").stdout
    assert told.startswith("warmup-oom: finding\n")
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


@pytest.mark.parametrize("name", ["", " "])
def test_no_name_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="needs a name"):
        explain(name)


def test_words_of_predict_are_explained() -> None:
    assert kinds("kv-none") == ["finding", "refusal of predict"]
    assert kinds("rules-differ") == ["caution of predict"]
    assert [kinds(name) for name in ORIGINS] == [["word"]] * len(ORIGINS)
    assert "word" in kinds("margin")
    assert kinds("tensor-parallel-size") == kinds("tensor_parallel_size") == ["knob"]


@pytest.mark.parametrize(
    ("module", "table"), [(refusal, REFUSALS), (caution, CAUTIONS)]
)
def test_every_code_of_a_remark_stands_in_the_table(
    module: ModuleType, table: dict[str, str]
) -> None:
    calls = [
        node
        for node in ast.walk(ast.parse(inspect.getsource(module)))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "Remark"
    ]
    codes = {
        each.value
        for call in calls
        for each in ast.walk(call.args[0])
        if isinstance(each, ast.Constant) and isinstance(each.value, str)
    }
    assert codes == table.keys()


@pytest.mark.parametrize(
    "name",
    [
        "bucket",
        "graphs",
        "Activation",
        "profile run",
        "KV cache",
        "exponential",
        "fork",
    ],
)
def test_words_of_a_report_are_explained_in_any_form(name: str) -> None:
    assert kinds(name) == ["word"]


def test_a_wrong_format() -> None:
    assert isinstance(run("ready", "--format", "xml").exception, UsageError)


@pytest.fixture
def rules_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hpuwatch.app.explain.shipped_rules", lambda _path: rules())


@pytest.mark.usefixtures("rules_read_once")
@pytest.mark.parametrize("code", [kind.code for kind in shipped_findings().kinds])
def test_every_finding_tells_its_meaning_evidence_formula_sources_and_example(
    code: str,
) -> None:
    (meaning,) = explain(code).meanings
    assert meaning.text
    for fact in ("evidence needed", "formula", "sources", "example", "what helps"):
        assert meaning.facts[fact], fact
    said = run(code).output
    kind = shipped_findings().kind(code)
    assert kind is not None
    for text in (kind.when, kind.evidence, kind.formula, kind.example, *kind.sources):
        assert " ".join(text.split()) in " ".join(said.split())
    for name, limit in kind.limits.items():
        assert f"{limit:g} ({name})" in said


def test_a_finding_tells_what_can_help_and_what_cannot() -> None:
    said = run("HPW009").output
    assert "lower --gpu-memory-utilization: Activations" in said
    assert "raise --gpu-memory-utilization: The KV cache" in said


def test_an_example_reads_like_the_title_of_its_kind() -> None:
    """Most of an example's words stand in a title: it shows what the finding says."""
    for kind in shipped_findings().kinds:
        titles = [text for name, text in kind.says.items() if name.startswith("title")]
        fixed = set(
            re.findall(r"[a-z]{3,}", re.sub(r"\{[^}]*\}", " ", " ".join(titles)))
        )
        words = set(re.findall(r"[a-z]{3,}", kind.example))
        assert not fixed or len(fixed & words) >= 1, kind.code
