"""What upgrades change without a word, and what a log gives away."""

from __future__ import annotations

import pytest

from hpuwatch.advise.finding import Finding
from hpuwatch.advise.findings import findings_of
from hpuwatch.advise.report import build_report
from hpuwatch.app.catalogue import shipped_findings
from hpuwatch.testing.lives import Told
from hpuwatch.testing.logs import state_of_text

pytestmark = pytest.mark.unit

OPEN = "http://0.0.0.0:8000"


def found(text: str) -> dict[str, Finding]:
    starts = state_of_text(text).starts
    findings = findings_of(starts[-1], shipped_findings(), starts[:-1])
    assert all(each.lines for each in findings), "a finding without evidence"
    return {each.name: each for each in findings}


@pytest.mark.parametrize(
    ("version", "name", "said"),
    [
        ("0.26.0", "VLLM_GRAPH_PROMPT_RATIO", "acts in fork-1.17 to fork-1.21"),
        ("0.26.0", "VLLM_UNIFIED_ATTN", "acts in plugin-0.11 to plugin-0.17"),
        (
            "0.26.0",
            "VLLM_REGIONAL_COMPILATION",
            "is called VLLM_T_COMPILE_REGIONAL_COMPILATION now",
        ),
    ],
)
def test_a_variable_that_died(version: str, name: str, said: str) -> None:
    seen = found(Told(version=version, env={name: "1"}).text())["knob-dead"]
    assert name in seen.title
    assert said in seen.why
    assert f"{name}: 1" in seen.lines[0].text


def test_a_variable_that_acts_is_not_dead() -> None:
    acting = Told(env={"VLLM_GRAPH_RESERVED_MEM": "0.1", "VLLM_SKIP_WARMUP": "false"})
    assert "knob-dead" not in found(acting.text())
    acting = Told(version="0.16.0", env={"VLLM_UNIFIED_ATTN": "1"})
    assert "knob-dead" not in found(acting.text())


def test_a_default_that_an_upgrade_changed() -> None:
    before, now = Told(version="0.24.0"), Told(version="0.26.0", utilisation=0.92)
    seen = found(before.text() + now.text())["default-changed"]
    assert "--gpu-memory-utilization 0.9 → 0.92" in seen.title
    assert [line.number for line in seen.lines] == [3, 29]
    assert "default-changed" not in found(now.text() + now.text())
    kept = Told(version="0.26.0", utilisation=0.9)
    assert "default-changed" not in found(before.text() + kept.text())


def test_a_kv_cache_that_shrank_without_anybody_asking() -> None:
    before, now = Told(version="0.24.0"), Told(free=77.0, blocks=3990)
    seen = found(before.text() + now.text())["kv-regressed"]
    assert "smaller than in the last good start" in seen.title
    assert "free memory -3.0 GiB; weights and profile run as before" in seen.why
    assert "release plugin-0.24.0 → plugin-0.26.0" in seen.why
    assert "go back to that of the last good start" in seen.cure
    assert "hl-smi" in found(Told().text() + now.text())["kv-regressed"].cure
    longer = Told(free=77.0, blocks=3990, args={"max_num_batched_tokens": 16384})
    cure = found(Told().text() + longer.text())["kv-regressed"].cure
    assert cure.startswith("Undo what you don't need")


def test_print_rounding_is_no_regression() -> None:
    now = Told(free=78.8, blocks=4080)
    assert "kv-regressed" not in found(Told().text() + now.text())


@pytest.mark.parametrize("asked", [{"reserve": 0.2}, {"utilisation": 0.8}])
def test_a_kv_cache_that_somebody_made_smaller(asked: dict[str, float]) -> None:
    now = Told(blocks=3500, **asked)  # type: ignore[arg-type]  # floats only
    assert "kv-regressed" not in found(Told().text() + now.text())


DIES = Told(version="0.26.0", stops_in="prompt", stops_after=1)
SYN = "RuntimeError: Graph compile failed. synStatus=synStatus 26 [Generic failure]. "


def test_the_same_configuration_served_on_another_release() -> None:
    findings = found(Told(version="0.24.0").text() + DIES.dies(SYN))
    seen = findings["worked-before"]
    assert seen.title.startswith(
        "This very configuration served on plugin-0.24.0 and breaks on plugin-0.26.0"
    )
    assert "Go back to plugin-0.24.0" in seen.cure
    assert "startup complete" in seen.lines[0].text


def test_a_default_of_the_release_is_no_other_configuration() -> None:
    now = Told(version="0.26.0", utilisation=0.92, stops_in="prompt", stops_after=1)
    findings = found(Told(version="0.24.0").text() + now.dies(SYN))
    assert "worked-before" in findings


def test_the_same_configuration_on_the_same_release_points_at_the_machine() -> None:
    seen = found(Told().text() + DIES.dies(SYN))["worked-before"]
    assert "Look at the card" in seen.cure


@pytest.mark.parametrize(
    "broken",
    [
        Told().dies(SYN),  # under load: both starts came up
        DIES.dies("OSError: [Errno 98] Address already in use"),
    ],
)
def test_what_an_earlier_start_tells_nothing_of(broken: str) -> None:
    assert "worked-before" not in found(Told(version="0.24.0").text() + broken)


def test_a_death_before_the_split_of_memory_is_of_the_same_configuration() -> None:
    """What it had no time to print is not unset."""
    before = Told(version="0.24.0", args={"max_num_seqs": 64})
    now = Told(stops_in="loading", args={"max_num_seqs": 64})
    assert "worked-before" in found(before.text() + now.dies(SYN))
    other = Told(stops_in="loading")
    assert "worked-before" not in found(before.text() + other.dies(SYN))


def test_another_configuration_proves_nothing() -> None:
    before = Told(version="0.24.0", env={"VLLM_DEFRAG": "true"})
    assert "worked-before" not in found(before.text() + DIES.dies(SYN))
    assert "worked-before" not in found(DIES.dies(SYN))


@pytest.mark.parametrize(
    ("version", "newer"), [("0.26.0", False), ("0.31.0", True), ("0.12.0", False)]
)
def test_a_release_newer_than_we_know(version: str, newer: bool) -> None:
    findings = found(Told(version=version).text())
    assert ("release-newer" in findings) is newer


def test_a_secret_on_the_command_line_is_named_and_not_told() -> None:
    findings = found(Told(args={"api_key": "sk-1234567890abcdef"}).text())
    seen = findings["secret-shown"]
    assert "api_key" in seen.title
    assert "VLLM_API_KEY" in seen.cure
    said = f"{seen} {seen.lines}"
    assert "1234567890abcdef" not in said


def test_a_secret_in_the_dump() -> None:
    seen = found(Told(env={"VLLM_API_KEY": "abcdef0123456789"}).text())["secret-shown"]
    assert "VLLM_API_KEY" in seen.title
    assert "keep it out" in seen.cure
    assert "abcdef0123456789" not in str(seen)


def test_a_token_of_the_model_is_no_secret() -> None:
    args = {"eos_token_id": 7, "api_key": None, "max_num_batched_tokens": 4096}
    assert "secret-shown" not in found(Told(args=args).text())


@pytest.mark.parametrize(
    ("start", "is_open"),
    [
        (Told(address=OPEN), True),
        (Told(address="http://[::]:8000"), True),
        (Told(address="http://10.0.0.5:8000"), False),
        (Told(address=OPEN, args={"api_key": "sk-1234567890abcdef"}), False),
        (Told(address=OPEN, env={"VLLM_API_KEY": "abcdef0123456789"}), False),
    ],
)
def test_who_may_reach_the_server(start: Told, is_open: bool) -> None:
    findings = found(start.text())
    assert ("open-to-all" in findings) is is_open
    if is_open:
        assert findings["open-to-all"].severity == "info"
        assert next(iter(findings)) == "all-good", "the server's own work comes first"


def test_a_log_is_compared_with_those_before_it_and_quotes_each_by_its_name() -> None:
    logs = {"may.log": Told(), "june.log": Told(free=77.0, blocks=3990, pid=12)}
    states = [(name, state_of_text(each.text())) for name, each in logs.items()]
    first, second = build_report(states, shipped_findings()).reports
    assert "kv-regressed" not in {each.name for each in first.findings}
    (seen,) = (each for each in second.findings if each.name == "kv-regressed")
    assert [line.file for line in seen.evidence] == ["may.log", "june.log"]
    assert "80 GiB" in seen.evidence[0].text
    assert "77 GiB" in seen.evidence[1].text
    backwards = build_report(states[::-1], shipped_findings()).reports
    assert "kv-regressed" not in {each.name for each in backwards[1].findings}


def test_starts_of_several_logs_are_no_row_of_restarts() -> None:
    died = Told(stops_in="prompt", stops_after=1).dies("KeyError: 7")
    states = [(f"{n}.log", state_of_text(died)) for n in range(3)]
    for report in build_report(states, shipped_findings()).reports:
        assert "restart-loop" not in {each.name for each in report.findings}
