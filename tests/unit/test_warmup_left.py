"""Time left in warm-up: honest bounds, or a reason why there is no estimate."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpuwatch.events import Event, Value
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
from hpuwatch.state.snapshot import Left
from hpuwatch.state.warmup_left import FEWEST_TIMED, estimate_left

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
