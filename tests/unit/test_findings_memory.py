"""Findings of the memory split: when each is said, with which figures, and when not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpuwatch.advise.checks.memory_ledger import unexplained_of
from hpuwatch.advise.finding import Finding
from hpuwatch.advise.findings import findings_of
from hpuwatch.app.catalogue import shipped_findings
from hpuwatch.gaudi.model import Bucket
from hpuwatch.state.model import DECODE, PROMPT
from hpuwatch.testing.logs import start_of_text, state_of_text
from hpuwatch.testing.starts import (
    READY,
    Server,
    Split,
    died,
    finished,
    listed,
    logged,
    out_of_memory,
    stats,
    warmed,
)
from hpuwatch.units import GIB

pytestmark = pytest.mark.unit

HEAD = Server().lines()
CARD = Split()
PROMPTS = [Bucket(1, 1024 * n, 0) for n in range(1, 9)]
DECODES = [Bucket(1, 1, 64), Bucket(64, 1, 64)]
LISTS = listed("prompt", PROMPTS) + listed("decode", DECODES)


def found(text: str) -> dict[str, Finding]:
    *earlier, start = state_of_text(text).starts
    return {x.name: x for x in findings_of(start, shipped_findings(), earlier)}


def prompts(frees: list[float]) -> str:
    return warmed("prompt", zip(PROMPTS[::-1], frees, strict=False), len(PROMPTS))


# A peak in warm-up that the graphs don't keep.


@pytest.mark.parametrize(("dip", "said"), [(6.0, True), (3.2, False)])
def test_a_peak_is_told_where_it_is_far_above_what_stays(
    dip: float, said: bool
) -> None:
    frees = [CARD.room - taken for taken in (0, dip, 3, 3, 3, 3, 3, 3)]
    text = HEAD + CARD.lines() + LISTS + prompts(frees) + finished(60, 3.0)
    findings = found(text)
    assert ("warmup-peak" in findings) is said
    if not said:
        return
    peak = findings["warmup-peak"]
    assert peak.severity == "info"
    assert peak.numbers["peak_bytes"] == pytest.approx(6 * GIB, rel=0.01)
    assert peak.numbers["steady_bytes"] == pytest.approx(3 * GIB, rel=0.01)
    # What lies outside of vLLM's budget (8 GiB) holds the peak: the reserve need hold none.
    assert peak.numbers["reserve_floor_bytes"] == 0
    assert peak.cure == ""


def test_the_floor_of_the_reserve_is_the_peak_less_what_lies_outside() -> None:
    frees = [CARD.room - taken for taken in (0, 12, 3, 3, 3, 3, 3, 3)]
    text = HEAD + CARD.lines() + LISTS + prompts(frees) + finished(60, 3.0)
    seen = found(text)["warmup-peak"]
    outside = CARD.room - CARD.reserve
    assert seen.numbers["reserve_floor_bytes"] == pytest.approx(
        (12 - outside) * GIB, rel=0.01
    )
    ratio = float(seen.numbers["reserve_floor_ratio"])
    usable = CARD.free * CARD.utilisation
    assert ratio * usable >= 12 - outside
    assert f"at {ratio:g}" in seen.cure


# A warm-up that died of memory.


def test_what_is_to_come_is_added_to_what_a_failed_warm_up_took() -> None:
    # A graph takes 1 GiB; five of eight prompts were done, then 2 GiB were not there.
    card = Split(ratio=0.02)
    flat = [Bucket(1, 1024, n) for n in range(8)]
    lists = listed("prompt", flat) + listed("decode", DECODES[:1])
    steps = [(each, card.room - n) for n, each in enumerate(flat[:6])]
    text = (
        HEAD + card.lines() + lists + warmed("prompt", steps, 8) + out_of_memory(2048)
    )
    seen = found(text)["warmup-short"]
    assert (seen.numbers["bucket"], seen.numbers["buckets"]) == (6, 8)
    assert seen.numbers["taken_bytes"] == pytest.approx(5 * GIB, rel=0.01)
    need = seen.figures["warmup_need_bytes"]
    # Eight graphs and 2 GiB at the peak, with a decode by public figures on top.
    assert need.value == pytest.approx(10 * GIB, rel=0.02)
    outside = card.room - card.reserve
    wanted = seen.figures["reserve_needed_bytes"]
    assert wanted.value == pytest.approx(need.value - outside * GIB, rel=0.01)
    ratio = seen.figures["reserve_needed_ratio"].value
    usable = card.free * card.utilisation * GIB
    assert ratio * usable == pytest.approx(wanted.value, abs=0.001 * usable)


def test_without_free_memory_in_the_log_only_the_least_is_told() -> None:
    bar = "Prompt warmup processing:   4%|4  | 2/48 [00:06<02:18,  3.00s/item, 1/48]\n"
    seen = found(HEAD + CARD.lines() + bar + out_of_memory(1024))["warmup-short"]
    assert seen.title == "Warm-up ran out at prompt bucket 3 of 48"
    assert "needs more than 15.2 GiB" in seen.why
    assert "VLLM_GRAPH_RESERVED_MEM" not in seen.cure
    assert "idle_after_warmup_bytes" not in seen.figures
    assert "free_bytes" not in seen.numbers


def test_a_need_that_no_reserve_holds_asks_for_fewer_buckets() -> None:
    bar = "Prompt warmup processing:   4%|4  | 2/48 [00:06<02:18,  3.00s/item, 1/48]\n"
    full = Split(utilisation=1.0, ratio=0.88)
    text = HEAD + full.lines() + bar + out_of_memory(20 * 1024)
    cure = found(text)["warmup-short"].cure
    assert "ewer or smaller buckets" in cure
    assert "would have to be" not in cure


def test_another_end_than_memory_is_no_matter_of_the_reserve() -> None:
    bar = "Prompt warmup processing:   4%|4  | 2/48 [00:06<02:18,  3.00s/item, 1/48]\n"
    assert "warmup-short" not in found(HEAD + CARD.lines() + bar + died("KeyError: 0"))


def test_an_earlier_start_of_another_model_says_nothing_of_this_one() -> None:
    other = (HEAD + CARD.lines()).replace("made-up-8b", "made-up-3b")
    before = other + LISTS + finished(60, 3.0)
    bar = "Prompt warmup processing:   4%|4  | 2/48 [00:06<02:18,  3.00s/item, 1/48]\n"
    died_now = HEAD + CARD.lines() + bar + out_of_memory(1024)
    assert "earlier_idle_bytes" not in found(before + died_now)["warmup-short"].numbers
    same = HEAD + CARD.lines() + LISTS + finished(60, 3.0)
    assert "earlier_idle_bytes" in found(same + died_now)["warmup-short"].numbers


# Memory that nobody accounts for.


@pytest.mark.parametrize(
    ("card", "gone", "severity", "before", "after"),
    [
        (Split(others=3.0), 0.0, "info", 3.0, 0.0),
        (Split(others=12.0), 0.0, "info", 12.0, 0.0),  # the split has counted it
        (Split(beside=3.0), 0.0, "info", 0.0, 3.0),
        (Split(), 2.0, "info", 0.0, 2.0),
        (Split(beside=3.0), 6.0, "warning", 0.0, 9.0),
        (Split(utilisation=0.99, beside=2.0), 0.0, "warning", 0.0, 2.0),
    ],
)
def test_memory_without_a_line_is_told_by_when_it_went(
    card: Split, gone: float, severity: str, before: float, after: float
) -> None:
    text = HEAD + card.lines() + LISTS + prompts([card.room - gone])
    seen = found(text)["memory-unexplained"]
    assert seen.severity == severity
    assert seen.numbers["before_split_bytes"] == pytest.approx(
        before * GIB, abs=0.02 * GIB
    )
    assert seen.numbers["after_split_bytes"] == pytest.approx(
        after * GIB, abs=0.02 * GIB
    )
    full = seen.figures["unexplained_bytes"]
    assert full.low < full.value < full.high
    assert full.origin == "measured"
    assert ("--gpu-memory-utilization" in seen.cure) is (severity == "warning")


def test_the_utilisation_is_worked_out_and_leaves_room() -> None:
    card = Split(utilisation=0.99, beside=6.0, others=5.0)
    text = HEAD + card.lines() + LISTS + prompts([card.room])
    ratio = float(
        found(text)["memory-unexplained"].numbers["utilisation_that_holds_it"]
    )
    assert card.free * (1 - ratio) >= 6.0 * 0.999
    assert card.free * (1 - ratio - 0.02) < 6.0


def test_nothing_is_unexplained_where_all_adds_up_or_a_bucket_went_before() -> None:
    text = HEAD + CARD.lines() + LISTS
    assert "memory-unexplained" not in found(text + prompts([CARD.room]))
    later = warmed("prompt", [(PROMPTS[0], 2.0)], 8, first=5)
    assert "memory-unexplained" not in found(text + later)
    only_decodes = warmed("decode", [(DECODES[0], 2.0)], 2)
    assert "memory-unexplained" not in found(text + only_decodes)


def test_without_the_cache_engines_line_nothing_is_said() -> None:
    lines = [
        x for x in CARD.lines().splitlines(keepends=True) if "cache engine" not in x
    ]
    start = start_of_text(HEAD + "".join(lines) + LISTS)
    assert unexplained_of(start) is None
    whole = start_of_text(HEAD + CARD.lines())
    rank = whole.memory[0]
    assert unexplained_of(replace(whole, memory={0: replace(rank, kv_taken=None)}))


# The KV cache against the model's length.


def concurrent(times: float) -> str:
    return (
        HEAD
        + CARD.lines()
        + logged(f"Maximum concurrency for 8192 tokens per request: {times}x")
    )


@pytest.mark.parametrize(
    ("times", "severity"),
    [(0.9, "warning"), (1.05, "warning"), (1.4, "info"), (1.6, None)],
)
def test_a_cache_for_hardly_more_than_one_request(
    times: float, severity: str | None
) -> None:
    seen = found(concurrent(times) + READY).get("kv-one-request")
    assert (seen.severity if seen else None) == severity
    if seen is None:
        return
    assert seen.numbers["concurrency"] == times
    assert ("can never be served" in seen.why) is (times < 1)
    assert seen.numbers["kv_spare_bytes"] == pytest.approx(
        CARD.cache * (1 - 1 / times) * GIB, rel=0.01
    )


def test_one_long_request_at_a_time_is_enough_where_load_shows_it() -> None:
    seen = found(concurrent(1.4) + READY + stats(1, use_percent=30.0, times=5))
    assert seen["kv-one-request"].cure == ""
    assert "was not short" in seen["kv-one-request"].why


def test_concurrency_is_worked_out_where_no_line_prints_it() -> None:
    few = Split(blocks=70)
    seen = found(HEAD + few.lines() + READY)["kv-one-request"]
    assert seen.numbers["concurrency"] == pytest.approx(70 / 64, abs=0.01)


# A cache that is not what was set aside for it.


@pytest.mark.parametrize(
    ("card", "title"),
    [
        (Split(hybrid_to=30.0, taken=30.2), None),
        (Split(hybrid_to=30.0, taken=65.0), None),  # pages and states, as split
        (Split(hybrid_to=30.0, taken=7.5), "75 % less than the 30.0 GiB"),
        (Split(taken=40.0), "38 % less"),
        (Split(taken=80.0), "23 % more"),
        (Split(), None),
    ],
)
def test_a_cache_engine_that_takes_another_share(
    card: Split, title: str | None
) -> None:
    seen = found(HEAD + card.lines() + READY).get("kv-mismatch")
    assert (seen is not None) is (title is not None)
    if seen is not None and title is not None:
        assert title in seen.title
        assert len(seen.lines) == 2


def test_blocks_that_are_not_the_cache_divided_by_one() -> None:
    text = HEAD + CARD.lines() + READY
    wrong = text.replace("num_blocks: 4000", "num_blocks: 1000")
    seen = found(wrong)["kv-mismatch"]
    assert seen.numbers["difference_percent"] == 75
    assert "1,000 KV blocks" in seen.title
    by_hand = wrong + logged(
        "Overriding num_gpu_blocks=4000 with num_gpu_blocks_override=1000"
    )
    assert "kv-mismatch" not in found(
        by_hand.replace("Usable num_blocks: 1000, actual", "x")
    )


# The reserve by phase, and a card that is full.


def test_a_reserve_that_is_short_tells_which_phase_took_what() -> None:
    used = logged("Graph/Prompt captured:8 used_mem:9.5 GiB") + logged(
        "Graph/Decode captured:2 used_mem:1.2 GiB"
    )
    text = HEAD + CARD.lines() + LISTS + used + finished(60, 10.7)
    seen = found(text)["reserve-short"]
    assert seen.numbers["prompt_used_bytes"] == pytest.approx(9.5 * GIB)
    assert seen.numbers["decode_used_bytes"] == pytest.approx(1.2 * GIB)
    assert (
        "9.5 GiB are of the prompt graphs and 1.2 GiB are of the decode graphs"
        in seen.why
    )


def test_budgets_are_kept_by_phase_and_the_poorest_rank_counts() -> None:
    said = (
        "INFO 08-02 17:38:22 hpu_model_runner.py:1159] Using {g} GiB/55.4 GiB of free "
        "device memory for HPUGraphs, {p} GiB for prompt and 11.2 GiB for decode "
        "(VLLM_GRAPH_PROMPT_RATIO=0.3)\n"
    )
    fork = "INFO 08-02 17:36:30 llm_engine.py:176] Initializing an LLM engine (v0.6.4) with "
    start = start_of_text(
        fork
        + "config: model='m', max_seq_len=2048, device_config=hpu\n"
        + said.format(g=16, p=4.8)
        + said.format(g=15, p=4.5)
    )
    budgets = start.warmup.budgets
    assert budgets[PROMPT].value.printed == "4.5 GiB"
    assert budgets[DECODE].value.printed == "11.2 GiB"
    assert start.warmup.prompt_ratio is not None
    assert start.warmup.prompt_ratio.value == 0.3


def test_what_all_prompt_graphs_would_take_follows_from_those_captured(
    checkout: Path,
) -> None:
    log = checkout / "tests/golden/start-fork-1.17/log"
    seen = found(log.read_text(encoding="utf-8"))["graphs-incomplete"]
    need = seen.figures["prompt_need_bytes"]
    # Four of six graphs took 7.8 GiB, 1.95 each whatever their tokens.
    assert need.value == pytest.approx(11.7 * GIB, rel=0.02)
    assert seen.numbers["prompt_budget_bytes"] == pytest.approx(7.91 * GIB, rel=0.001)
    assert "Prompts took 7.8 GiB of their 7.9 GiB" in seen.why
    numbers = [line.number for line in seen.lines]
    assert numbers == sorted(set(numbers))


def test_a_thin_margin_tells_what_the_last_bucket_and_requests_may_still_take() -> None:
    card = Split(utilisation=0.99)
    frees = [3.1, 2.6, 2.2, 1.7]
    text = HEAD + card.lines() + LISTS + prompts(frees) + finished(60, 6.0)
    seen = found(text)["memory-thin"]
    assert seen.numbers["free_bytes"] == pytest.approx(1.7 * GIB)
    left = seen.figures["free_after_warmup_bytes"]
    assert left.high == pytest.approx(1.7 * GIB)
    assert left.low == pytest.approx(1.2 * GIB, rel=0.01)
    need = seen.figures["activations_bytes"]
    assert (need.low, need.high) == pytest.approx(
        (0.056 * 80 * GIB, 0.1 * 80 * GIB), rel=0.01
    )
    assert need.origin == "prior"
    measured = Split(utilisation=0.99, profile=4.0)
    text = HEAD + measured.lines() + LISTS + prompts(frees) + finished(60, 6.0)
    assert "activations_bytes" not in found(text)["memory-thin"].figures


SIZE = st.floats(-20, 120).map(lambda size: round(size, 2))


@settings(max_examples=40, deadline=None)
@given(SIZE, SIZE, st.lists(SIZE, max_size=8), st.booleans(), st.booleans())
def test_no_ledger_can_break_a_check(
    others: float, taken: float, frees: list[float], hybrid: bool, dead: bool
) -> None:
    card = Split(others=others, taken=taken, hybrid_to=taken / 2 if hybrid else None)
    text = HEAD + card.lines() + LISTS + prompts(frees)
    text += out_of_memory(700) if dead else finished(60, 3.0)
    for finding in found(text).values():
        for each in finding.figures.values():
            assert each.low <= each.value <= each.high
        assert "{" not in f"{finding.title}{finding.why}{finding.cure}"
