"""Time left in warm-up: honest bounds, or a reason why there is no estimate."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpuwatch.events import Event, Value
from hpuwatch.life.phases import Phase
from hpuwatch.records import Line
from hpuwatch.state.model import (
    DECODE,
    PROMPT,
    BucketList,
    Known,
    Start,
    State,
    Warmup,
)
from hpuwatch.state.reduce import reduce
from hpuwatch.state.snapshot import Left, Snapshot
from hpuwatch.state.warmup_left import FEWEST_TIMED, estimate_left
from hpuwatch.testing.logs import start_of_text, state_of_text
from hpuwatch.web.ready import ready_of

pytestmark = pytest.mark.unit

NOTHING = Line("")


def warming(
    phase: str, ends: list[float], total: int, decode_buckets: int = 0
) -> Start:
    """A start whose bars said at these times that one more bucket was done."""
    state = State()
    for done, at in enumerate(ends):
        fields: dict[str, Value] = {
            "phase": phase,
            "i": done,
            "n": total,
            "elapsed": float(at),
        }
        line = Line("bar", received_at=at)
        state = reduce(state, Event("warmup_progress", fields, line))
    start = state.current
    assert start is not None
    if decode_buckets:
        listed = Known(BucketList(decode_buckets), NOTHING)
        start = replace(start, buckets={DECODE: listed})
    return start


def test_nothing_is_said_before_enough_buckets_are_timed() -> None:
    for count in range(1, FEWEST_TIMED + 1):
        left = estimate_left(warming(PROMPT, [10.0 * n for n in range(count)], 20), 100)
        assert left.value is left.low is left.high is None
        assert left.reason == "the first prompt buckets are still being timed"
    assert estimate_left(warming(PROMPT, [0, 10, 20, 30], 20), 30).value is not None


def test_equal_buckets_give_their_number_times_their_price() -> None:
    left = estimate_left(warming(DECODE, [10.0 * n for n in range(7)], 20), 60)
    assert left.value == pytest.approx(140)
    assert left.low is not None
    assert left.high is not None
    assert left.low < 140 < left.high


def test_time_since_the_last_bucket_counts_up_to_the_price_of_one() -> None:
    start = warming(DECODE, [10.0 * n for n in range(7)], 20)
    assert estimate_left(start, 64).value == pytest.approx(136)
    assert estimate_left(start, 1000).value == pytest.approx(130)


def test_buckets_that_get_cheaper_lower_the_estimate_below_the_mean() -> None:
    ends, at = [0.0], 0.0
    for price in (40, 20, 10, 8, 6, 5, 4, 4, 4):
        at += price
        ends.append(at)
    left = estimate_left(warming(PROMPT, ends, 20), at)
    assert left.value is not None
    assert left.value < 11 * at / 9
    assert left.value == pytest.approx(11 * 4)


def test_decode_buckets_to_come_are_priced_by_the_prompt_buckets() -> None:
    ends = [2.0 * n for n in range(9)]
    alone = estimate_left(warming(PROMPT, ends, 10), 16)
    both = estimate_left(warming(PROMPT, ends, 10, decode_buckets=100), 16)
    assert alone.value is not None
    assert both.value is not None
    assert both.low is not None
    assert both.high is not None
    assert both.value > alone.value + 100
    # Decode buckets of public logs took 0.45 to 1.6 times as long as prompt buckets.
    assert both.low < 100 * 2 * 0.45
    assert both.high > 100 * 2 * 1.6


def test_buckets_learnt_of_at_one_moment_are_not_taken_for_fast_ones() -> None:
    start = warming(PROMPT, [100.0] * 30, 40)
    assert estimate_left(start, 100).value is None
    later = warming(PROMPT, [100.0] * 30 + [103.0, 106.0, 109.0], 40)
    assert estimate_left(later, 109).value == pytest.approx(3 * 8)


def test_multimodal_buckets_say_nothing_of_the_others() -> None:
    left = estimate_left(warming("multimodal", [float(n) for n in range(9)], 36), 9)
    assert left.value is None
    assert "images" in left.reason


def test_after_the_last_bucket_there_is_nothing_to_estimate() -> None:
    left = estimate_left(warming(DECODE, [0, 1, 2, 3, 4], 4), 9)
    assert left.value is None
    assert "every bucket is done" in left.reason


def test_skipped_and_finished_warm_ups() -> None:
    start = warming(PROMPT, [0, 1, 2, 3, 4], 5)
    skipped = replace(start, warmup=Warmup(skipped=Known(value=True, line=NOTHING)))
    assert estimate_left(skipped, 9) == Left(reason="warm-up is skipped")
    finished = replace(start, warmup=replace(start.warmup, seconds=Known(9.0, NOTHING)))
    assert estimate_left(finished, 9).value == 0
    assert estimate_left(Start(NOTHING), 9) == Left()


AT = "INFO 01-02 03:04:05 [x.py:1]"
ENGINE = (
    f"{AT} Initializing a V1 LLM engine (v0.26.0) with config: model='m', "
    "max_seq_len=1024, tensor_parallel_size=1, device_config=hpu\n"
)
LISTS = (
    f"{AT} Generated 4 prompt buckets [bs, query, num_blocks]: [(1, 128, 0)]\n"
    f"{AT} Generated 6 decode buckets [bs, query, num_blocks]: [(1, 1, 128)]\n"
)
SILENT = f"{AT} Warming up sampler with batch sizes: [1] and following configs:\n"
ENDED = f"{AT} Warmup finished in 20 secs, allocated 1 GiB of device memory\n"


def silent(text: str = ENGINE + LISTS, since: float | None = None) -> Start:
    """A start in a warm-up of which nothing but the beginning is told."""
    return replace(start_of_text(text + SILENT), phase_since=since)


def test_without_any_sign_of_progress_earlier_starts_price_the_buckets() -> None:
    before = start_of_text(ENGINE + LISTS + SILENT + ENDED)
    left = estimate_left(silent(), 99, [before])
    assert left.value == pytest.approx(20)
    assert left.low is not None
    assert left.high is not None
    assert left.low < 20 < left.high
    assert left.basis == "the seconds per bucket of this server's earlier starts"
    gone = estimate_left(silent(since=90), 99, [before])
    assert gone.value == pytest.approx(11)
    assert estimate_left(silent(since=0), 99, [before]).value == 0


@pytest.mark.parametrize(
    "before",
    [
        [],
        [ENGINE + LISTS + SILENT],
        [ENGINE.replace("='m'", "='other'") + LISTS + SILENT + ENDED],
    ],
    ids=["none", "unfinished", "another model"],
)
def test_without_an_earlier_start_of_the_same_model_nothing_is_said(
    before: list[str],
) -> None:
    left = estimate_left(silent(), 99, list(map(start_of_text, before)))
    assert (left.value, left.basis) == (None, "")
    assert left.reason == "no bucket has been told of yet"


def test_buckets_that_no_line_lists_are_predicted_and_called_so() -> None:
    blocks = (
        f"{AT} Usable num_blocks: 4000, actual allocated num_blocks: 512128 "
        "(_PAD_BLOCK_ID=4000, _PAD_SLOT_ID=512000)\n"
        f"{AT} non-default args: {{'model': 'm', 'max_num_seqs': 4, "
        "'max_num_batched_tokens': 2048}\n"
    )
    # plugin-0.26: 30 prompt and 13 decode buckets for these sizes.
    lists = LISTS.replace("4 prompt", "30 prompt").replace("6 decode", "13 decode")
    before = start_of_text(ENGINE + blocks + lists + SILENT + ENDED)
    left = estimate_left(silent(ENGINE + blocks), 99, [before])
    assert left.value == pytest.approx(20)
    assert left.basis.endswith("and the buckets that its configuration should make")


def test_decode_buckets_that_no_line_lists_are_predicted_too() -> None:
    start = warming(PROMPT, [0, 10, 20, 30], 20)
    assert estimate_left(start, 30).basis == ""
    sized = start_of_text(
        ENGINE + f"{AT} Usable num_blocks: 4000, actual allocated num_blocks: 512128 "
        "(_PAD_BLOCK_ID=4000, _PAD_SLOT_ID=512000)\n"
        f"{AT} non-default args: {{'model': 'm', 'max_num_seqs': 4}}\n"
    )
    known = replace(start, server=sized.server, kv=sized.kv)
    left = estimate_left(known, 30)
    assert left.value == pytest.approx(17 * 10 + 13 * 0.9 * 10)
    assert left.basis == "the buckets that its configuration should make"


def test_the_warm_up_of_a_switched_model_is_timed_as_well() -> None:
    start = replace(warming(DECODE, [0, 1, 2, 3, 4], 10), phase=Phase.SWITCHING)
    assert estimate_left(start, 4).value == pytest.approx(6)


def compiling(graph: str | None, phase: str, count: int, flags: str = "False") -> Start:
    """A V0 server that names a bucket every 10 s; the newest is under way."""
    state = state_of_text(
        f"{AT} Initializing a V0 LLM engine (v0.9.0.1) with config: model='m', "
        f"max_seq_len=2048, enforce_eager={flags}, device_config=hpu\n"
        f"{AT} Generated 8 prompt buckets [bs, seq]: [(1, 128)]\n"
        f"{AT} Generated 4 decode buckets [bs, total_blocks]: [(1, 128)]\n"
    )
    total = {PROMPT: 8, DECODE: 4}[phase]
    for place in range(1, count + 1):
        fields: dict[str, Value] = {
            "phase": phase,
            "i": place,
            "n": total,
            "graph": graph,
        }
        line = Line("bucket", 1000, received_at=10.0 * place)
        state = reduce(state, Event("warmup_bucket", fields, line))
    start = state.current
    assert start is not None
    return start


def test_the_first_of_two_passes_is_followed_by_the_second() -> None:
    # 5 of 8 prompts are done; 4 decodes at 9 s each follow; then both once more.
    compile_seconds = 3 * 10 + 4 * 9
    second = 0.75 * (8 * 10 + 4 * 9)
    first = estimate_left(compiling(None, PROMPT, 6), 60)
    assert first.value == pytest.approx(compile_seconds + second)
    capturing = estimate_left(compiling("Graph/", PROMPT, 6), 60)
    assert capturing.value == pytest.approx(compile_seconds)
    eager = estimate_left(compiling(None, PROMPT, 6, "True"), 60)
    assert eager.value == pytest.approx(compile_seconds)
    decodes = estimate_left(compiling(None, DECODE, 4), 40)
    assert decodes.value == pytest.approx(10 + 0.75 * (8 * 10 + 4 * 10))


def test_what_an_estimate_rests_on_is_told_with_it() -> None:
    basis = "the seconds per bucket of this server's earlier starts"
    snapshot = Snapshot(
        "n", Phase.WARMING, reason="it warms up", left=Left(9.0, 5.0, 12.0, "", basis)
    )
    assert ready_of(snapshot).reason == f"it warms up; time left by {basis}"
    measured = replace(snapshot, left=Left(9.0, 5.0, 12.0, ""))
    assert ready_of(measured).reason == "it warms up"


@given(
    st.lists(st.floats(0.01, 50), min_size=1, max_size=80),
    st.integers(0, 100),
    st.floats(0, 500),
)
def test_the_bounds_always_hold_the_estimate(
    prices: list[float], more: int, later: float
) -> None:
    ends = [0.0]
    for price in prices:
        ends.append(ends[-1] + price)
    start = warming(PROMPT, ends, len(prices) + more, decode_buckets=7)
    left = estimate_left(start, ends[-1] + later)
    if left.value is None:
        assert left.reason
        assert left.low is left.high is None
    else:
        assert left.low is not None
        assert left.high is not None
        assert 0 <= left.low <= left.value <= left.high
