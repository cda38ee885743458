"""Public troubles 14 to 25, and advice that contradicts itself, as synthetic logs.

The logs have the form of the real ones and figures of no real server.  Each row says which
finding must come, with which severity and figures, and what must not be advised.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache

import pytest

from hpuwatch.advise.document import FindingPart, Report
from hpuwatch.advise.report import build_report
from hpuwatch.app.catalogue import shipped_findings
from hpuwatch.gaudi.knobs import KNOBS
from hpuwatch.gaudi.releases import NEWEST
from hpuwatch.gaudi.spans import point_of
from hpuwatch.testing.agreement import contradictions
from hpuwatch.testing.lives import Told
from hpuwatch.testing.logs import state_of_text

pytestmark = pytest.mark.unit

OOM = (
    "RuntimeError: [Rank:0] FATAL ERROR :: MODULE:PT_DEVMEM Allocation failed for "
    "size::2147483648 (2048)MB"
)
SYN = "RuntimeError: Graph compile failed. synStatus=synStatus 26 [Generic failure]. "
SHORT = (
    "ValueError: To serve at least one request with the model's max seq len (8192), "
    "(80.00 GiB KV cache is needed, which is larger than the available KV cache memory "
    "(64.80 GiB). Based on the available memory, the estimated maximum model length is "
    "6656. Try increasing `gpu_memory_utilization`."
)
CROWDED = "AssertionError: req_id: cmpl-benchmark-serving39-0, 236"


def not_warmed(batch: int, blocks: int, second: int = 0) -> str:
    at = f"03-04 12:{second // 60 % 60:02d}:{second % 60:02d}"
    return (
        f"(EngineCore pid=30) WARNING {at} [m.py:1] Configuration: ('decode', {batch}, 1, "
        f"{blocks}) was not warmed-up!\n"
    )


def stats(tokens: float = 90.0, preempted: int = 0) -> str:
    told = f", Preemptions: {preempted}" if preempted else ""
    return (
        "(APIServer pid=11) INFO 03-04 12:00:00 [loggers.py:1] Engine 000: Avg prompt "
        f"throughput: 0.0 tokens/s, Avg generation throughput: {tokens} tokens/s, "
        f"Running: 8 reqs, Waiting: 0 reqs{told}, GPU KV cache usage: 96.0%, Prefix cache "
        "hit rate: 0.0%\n"
    )


@cache
def decode_buckets(count: int) -> tuple[tuple[int, int, int], ...]:
    return tuple((1 + n // 32, 1, 32 * (1 + n % 32)) for n in range(count))


@dataclass(frozen=True)
class Pain:
    """One case: the log, and what a report on it must hold.

    ``never`` are words that no cure, no knob that helps and no proposal may have.
    """

    log: str
    code: str
    severity: str
    numbers: Mapping[str, float] = field(default_factory=dict)
    words: tuple[str, ...] = ()
    never: tuple[str, ...] = ()


MEMORY = ("VLLM_GRAPH_RESERVED_MEM", "--gpu-memory-utilization")

KILLED = Told(
    load_seconds=200.0,
    decode=decode_buckets(162),
    decode_seconds=11.2,
    stops_in="decode",
    stops_after=61,
)
FAST = Told(decode=decode_buckets(60), decode_seconds=6.7)
PACE = {"RUNTIME_SCALE_PATCHING": "1", "FUSER_ENABLE_MULTI_THREADED_INVOCATIONS": "1"}
CACHE = "/var/cache/recipes,false,8192"

PAINS = {
    "14 a release that breaks what served before": Pain(
        Told(version="0.24.0").text()
        + Told(stops_in="decode", stops_after=0).dies(SYN),
        "HPW504",
        "warning",
        words=("served on plugin-0.24.0 and breaks on plugin-0.26.0", "Go back to"),
        never=MEMORY,
    ),
    "15 a probe that ends warm-up": Pain(
        KILLED.ended(),
        "HPW013",
        "warning",
        numbers={
            "stopped_after_seconds": 896,
            "decode_done": 61,
            "decode_buckets": 162,
        },
        words=("(decode 61 of 162)", "startup probe"),
        never=MEMORY,
    ),
    "15 again and again": Pain(
        KILLED.ended() * 3,
        "HPW014",
        "error",
        numbers={"starts": 3},
        words=("time limit outside of vLLM",),
        never=MEMORY,
    ),
    "16 nobody knows how long it takes": Pain(
        Told(decode=decode_buckets(126), decode_seconds=14.0).text(),
        "HPW302",
        "info",
        numbers={"probe_seconds": 3900},
        words=("30 min", "failureThreshold"),
        never=MEMORY,
    ),
    "17 the price of fewer buckets": Pain(
        Told(decode=decode_buckets(49), decode_seconds=13.5).text()
        + not_warmed(8, 2048)
        + not_warmed(8, 3072, 1),
        "HPW402",
        "warning",
        words=("would take about 27 s more", "2 decode shapes"),
        never=MEMORY,
    ),
    "18 a linear range that warms for days": Pain(
        Told(
            decode=decode_buckets(4042),
            decode_seconds=60.0,
            stops_in="decode",
            stops_after=9,
        ).text(),
        "HPW302",
        "warning",
        words=("2.8 days", "VLLM_ENGINE_READY_TIMEOUT_S"),
        never=MEMORY,
    ),
    "19 buckets that take 15 times as long": Pain(
        Told(decode=FAST.decode, decode_seconds=6.7, env=PACE).text()
        + Told(
            decode=FAST.decode, decode_seconds=100.5, stops_in="decode", stops_after=9
        ).text(),
        "HPW303",
        "warning",
        numbers={"times": 15},
        words=("RUNTIME_SCALE_PATCHING 1 → unset", "FUSER_ENABLE", "to stop it now"),
        never=MEMORY,
    ),
    "20 recipes of another number of blocks": Pain(
        Told(recipes=CACHE).text() + Told(recipes=CACHE, blocks=4010, free=77.5).text(),
        "HPW305",
        "info",
        numbers={"kv_blocks": 4010, "kv_blocks_before": 4146},
        words=("--num-gpu-blocks-override",),
    ),
    "21 each start as long as the first": Pain(
        Told(
            recipes=",false,1024,false", decode=FAST.decode, decode_seconds=15.0
        ).text(),
        "HPW304",
        "info",
        words=("PT_HPU_RECIPE_CACHE_CONFIG=DIRECTORY",),
        never=MEMORY,
    ),
    "22 a storm of recompilations": Pain(
        Told().text() + "".join(not_warmed(8, 300 + n, n) for n in range(1996)),
        "HPW403",
        "error",
        numbers={"shapes": 1996, "shapes_per_minute": 60},
        words=("blocks, 9.0 times the largest bucket (256)",),
        never=MEMORY,
    ),
    "23 a first pass that no line tells of": Pain(
        Told(compile_only=True).text() + stats(),
        "HPW404",
        "info",
        words=("first pass", "Leave the first pass out"),
    ),
    "24 a range five times too small": Pain(
        Told().text() + not_warmed(64, 1280),
        "HPW402",
        "warning",
        words=("blocks 1,280 (5.0 times the largest, 256)",),
        never=MEMORY,
    ),
    "24 misses beside preemptions": Pain(
        Told().text() + not_warmed(64, 1280) + stats(preempted=5) * 4,
        "HPW401",
        "warning",
        numbers={"preemptions": 20},
        words=("fewer requests at once",),
    ),
    "25 not a word after the weights": Pain(
        Told(stops_in="sizing").text(),
        "HPW012",
        "warning",
        numbers={"age_seconds": 65},
        words=("while sizing memory",),
        never=MEMORY,
    ),
    "25 requests that get no token": Pain(
        Told().text() + stats(tokens=0.0) * 18,
        "HPW405",
        "warning",
        numbers={"seconds": 180},
        words=("hl-smi",),
        never=MEMORY,
    ),
}


def reported(log: str) -> Report:
    return build_report([("s.log", state_of_text(log))], shipped_findings())


def finding(report: Report, code: str) -> FindingPart:
    (only,) = report.reports
    found = {each.code: each for each in only.findings}
    assert code in found, f"{code} is not among {sorted(found)}"
    return found[code]


@pytest.mark.parametrize("name", PAINS)
def test_a_public_trouble_is_recognised(name: str) -> None:
    pain = PAINS[name]
    seen = finding(reported(pain.log), pain.code)
    assert seen.severity == pain.severity
    for number, value in pain.numbers.items():
        assert seen.numbers[number] == pytest.approx(value, rel=0.02), number
    said = f"{seen.title} {seen.why} {seen.cure}"
    for words in pain.words:
        assert words in said
    for word in pain.never:
        assert word not in seen.cure
        assert word not in {each.knob for each in seen.helps}
    assert seen.evidence
    assert all(line.line > 0 and line.text for line in seen.evidence)


def helps(part: FindingPart) -> set[tuple[str, str]]:
    return {(each.knob, each.change) for each in part.helps}


def cannot(part: FindingPart) -> set[tuple[str, str]]:
    return {(each.knob, each.change) for each in part.cannot_help}


UTILISATION = "--gpu-memory-utilization"


@pytest.mark.parametrize(
    ("log", "code"),
    [
        (Told().dies(OOM), "HPW009"),
        (Told(stops_in="decode", stops_after=3).dies(OOM), "HPW005"),
    ],
)
def test_memory_that_runs_out_late_wants_a_lower_utilisation(
    log: str, code: str
) -> None:
    """A public page says to raise it: that takes from the memory that ran out."""
    report = reported(log)
    part = finding(report, code)
    assert (UTILISATION, "lower") in helps(part)
    assert (UTILISATION, "raise") in cannot(part)
    (only,) = report.reports
    proposal = only.proposal
    assert proposal is not None
    assert UTILISATION not in proposal.flags
    assert float(proposal.env["VLLM_GRAPH_RESERVED_MEM"]) > 0.1


def test_a_kv_cache_that_is_too_small_wants_a_higher_one() -> None:
    part = finding(reported(Told(stops_in="prompt").dies(SHORT)), "HPW004")
    assert (UTILISATION, "raise") in helps(part)
    assert UTILISATION not in {knob for knob, _ in cannot(part)}
    assert ("--max-num-seqs", "lower") in cannot(part)


@pytest.mark.parametrize(
    ("start", "code", "tried"),
    [
        (Told(stops_in="loading"), "HPW001", "VLLM_GRAPH_RESERVED_MEM"),
        (Told(stops_in="loading"), "HPW001", UTILISATION),
        (Told(stops_in="sizing"), "HPW002", "VLLM_GRAPH_RESERVED_MEM"),
        (Told(stops_in="sizing"), "HPW002", UTILISATION),
    ],
)
def test_memory_that_runs_out_early_is_no_matter_of_the_split(
    start: Told, code: str, tried: str
) -> None:
    report = reported(start.dies(OOM))
    part = finding(report, code)
    assert tried in {knob for knob, _ in cannot(part)}
    assert tried not in {knob for knob, _ in helps(part)}
    assert report.reports[0].proposal is None


def test_more_requests_than_the_cache_holds_is_answered_for_clients() -> None:
    """The printed concurrency bounds the clients of releases that break beyond it."""
    report = reported(Told().dies(CROWDED))
    part = finding(report, "HPW010")
    assert "printed maximum concurrency" in part.cure
    assert not any(knob in part.cure for knob in MEMORY)
    assert report.reports[0].proposal is None


def test_buckets_beyond_the_cache_are_never_clamped_against_what_was_seen() -> None:
    """Two maintainers disagree whether references exceed the cache; traffic decides."""
    report = reported(Told(blocks=200).text() + not_warmed(8, 240))
    part = finding(report, "HPW201")
    assert part.severity == "info"
    (only,) = report.reports
    if only.proposal is not None:
        assert "VLLM_DECODE_BLOCK_BUCKET_MAX" not in only.proposal.env


def test_every_death_by_memory_says_what_can_help_and_what_cannot() -> None:
    for kind in shipped_findings().kinds:
        if kind.name.endswith("-oom") or kind.name.startswith("kv-short"):
            assert kind.helps, kind.code
            assert kind.cannot_help, kind.code


def test_no_row_offers_what_another_row_of_its_case_forbids() -> None:
    for kind in shipped_findings().kinds:
        offered = {(row.knob, row.change, row.only) for row in kind.helps}
        for row in kind.cannot_help:
            for only in {row.only, ""}:
                assert (row.knob, row.change, only) not in offered, kind.code


def test_a_value_that_a_row_names_is_legal() -> None:
    newest = {"": point_of(NEWEST), "fork": point_of("fork-1.22")}
    for kind in shipped_findings().kinds:
        for row in kind.helps:
            knob, (word, _, value) = KNOBS[row.knob], row.change.partition(" ")
            assert word in ("raise", "lower", "set"), (kind.code, row.change)
            if value:
                at = newest["" if knob.acts(newest[""]) else "fork"]
                assert knob.acts(at), (kind.code, row.knob)
                assert knob.judge(value, at) is None, (kind.code, row.knob, value)


DEATHS = [
    *(
        Told(stops_in=phase, stops_after=1).dies(words)
        for phase in ("loading", "sizing", "prompt", "decode", "")
        for words in (OOM, SYN)
    ),
    Told(stops_in="sizing").dies(SHORT),
]


@pytest.mark.parametrize("log", [*(pain.log for pain in PAINS.values()), *DEATHS])
def test_no_part_of_a_report_contradicts_another(log: str) -> None:
    (only,) = reported(log).reports
    assert contradictions(only) == []


@pytest.mark.parametrize("log", [*(pain.log for pain in PAINS.values()), *DEATHS])
def test_no_proposal_moves_a_knob_that_its_finding_calls_useless(log: str) -> None:
    (only,) = reported(log).reports
    if only.proposal is None:
        return
    now = {each.name: each.value for each in only.settings}
    parts = {each.code: each for each in only.findings}
    for step in only.proposal.steps:
        useless = parts[step.answers].cannot_help if step.answers else []
        for typed in step.settings:
            name, value = typed.replace(" ", "=", 1).split("=", 1)
            for each in useless:
                if each.knob == name:
                    assert each.change != "change", (step.answers, typed)
                    before = float(now.get(name, "nan"))
                    moved = "raise" if float(value) > before else "lower"
                    assert moved != each.change, (step.answers, typed)


@pytest.mark.parametrize("log", [pain.log for pain in PAINS.values()])
def test_no_time_out_is_proposed_that_would_end_this_very_start(log: str) -> None:
    (only,) = reported(log).reports
    if only.proposal is None:
        return
    proposed = only.proposal.env.get("VLLM_ENGINE_READY_TIMEOUT_S")
    figures = [each.figures.get("ready_seconds") for each in only.findings]
    for figure in filter(None, figures):
        assert proposed is None or int(proposed) > figure.high
