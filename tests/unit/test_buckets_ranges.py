"""One-dimensional ranges: worked examples, and what holds for all of them."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from hpuwatch.gaudi.buckets import BucketError
from hpuwatch.gaudi.ranges import (
    Axis,
    PaddedAxis,
    check_size,
    exponential,
    filled,
    linear,
    log2_up,
    padded,
)

pytestmark = pytest.mark.unit

steps = st.integers(1, 300)
maxima = st.integers(1, 5000)


@pytest.mark.parametrize(
    ("axis", "values"),
    [
        (Axis(3, 24, 60), [3, 6, 12, 24, 48]),
        (Axis(96, 96, 300), [96, 192, 288]),
        (Axis(0, 5, 21), [5, 10, 15, 20, 0]),
        (Axis(0, 9, 0), [0]),
        (Axis(65, 64, 100), []),
    ],
)
def test_linear_ramps_up_and_then_steps(axis: Axis, values: list[int]) -> None:
    assert linear(axis) == values


@pytest.mark.parametrize(
    ("axis", "zero_ends", "raised"),
    [
        (Axis(33, 32, 32), True, "AssertionError"),
        (Axis(1, 0, 32), True, "ValueError"),
        (Axis(0, 4, 32), False, "HANG"),
        (Axis(0, 4, 0), False, "HANG"),
        (Axis(-2, 4, 32), True, "HANG"),
        (Axis(1, 1, 10**9), True, "TOO_MANY"),
    ],
)
def test_a_linear_range_that_can_not_be(
    axis: Axis, zero_ends: bool, raised: str
) -> None:
    with pytest.raises(BucketError) as caught:
        linear(axis, zero_ends=zero_ends)
    assert caught.value.raised == raised


@given(st.integers(1, 300), steps, maxima)
def test_linear_values_are_doublings_or_multiples(
    minimum: int, step: int, maximum: int
) -> None:
    assume(minimum <= maximum)
    values = linear(Axis(minimum, step, maximum))
    assert values == sorted(set(values))
    for value in values:
        assert minimum <= value <= maximum
        ratio, rest = divmod(value, minimum)
        doubled = rest == 0 and ratio & (ratio - 1) == 0 and value < step
        assert doubled or value % step == 0


@pytest.mark.parametrize(
    ("count", "exact_end", "values"),
    [
        (1, False, [1000]),
        (2, False, [0, 96, 1000]),
        (2, True, [0, 96, 1000]),
        (4, True, [0, 96, 288, 480, 1000]),
    ],
)
def test_exponential_keeps_zero_and_grows_from_the_step(
    count: int, exact_end: bool, values: list[int]
) -> None:
    assert exponential(Axis(0, 96, 1000), count, exact_end=exact_end) == values


def test_an_early_exponential_range_may_exceed_its_maximum() -> None:
    axis = Axis(100, 96, 1000)
    late = exponential(axis, 3, exact_end=False)
    early = exponential(axis, 3, exact_end=False, clipped=False)
    assert late[-1] == 1000
    assert early[-1] == 1056


@given(
    st.sampled_from([0, 1, 7, 128]), steps, maxima, st.integers(2, 15), st.booleans()
)
def test_exponential_values_are_multiples_or_ends(
    minimum: int, step: int, maximum: int, count: int, exact_end: bool
) -> None:
    assume(minimum <= maximum)
    assume(step <= maximum)
    values = exponential(Axis(minimum, step, maximum), count, exact_end=exact_end)
    assert values == sorted(values)
    assert len(values) <= count + 1
    for value in values:
        assert value in {minimum, maximum} or value % step == 0


@given(st.integers(1, 40), st.integers(1, 40), st.integers(2, 2000), st.booleans())
def test_filled_ranges_have_no_doubles(
    minimum: int, step: int, maximum: int, exact_end: bool
) -> None:
    assume(minimum < maximum)
    count = log2_up(maximum) + 1
    values = filled(Axis(minimum, step, maximum), count, exact_end=exact_end)
    assert values == sorted(set(values))
    assert len(values) <= count


def test_filling_takes_the_nearest_unused_value() -> None:
    assert filled(Axis(64, 64, 1024), 9, exact_end=False) == [
        *(64, 128, 192, 256, 320, 384, 512, 768, 1024),
    ]


@pytest.mark.parametrize(("minimum", "long", "count"), [(0, False, 6), (1, True, 3)])
def test_filling_that_divides_by_zero(minimum: int, long: bool, count: int) -> None:
    with pytest.raises(BucketError) as caught:
        filled(Axis(minimum, 1, 31), count, exact_end=True, long=long)
    assert caught.value.raised == "ZeroDivisionError"


@pytest.mark.parametrize(
    ("axis", "values"),
    [
        (PaddedAxis(0, 4, 20, 20, 0), [0, 1, 2, 4, 8, 12, 16, 20]),
        (PaddedAxis(0, 4, 20, 0, 50), [0, 1, 2, 4, 8, 16, 20]),
        (PaddedAxis(0, 4, 30, 8, 50), [0, 1, 2, 4, 8, 16, 24, 30]),
        (PaddedAxis(7, 4, 7, 0, 25), [7]),
    ],
)
def test_padding_decides_which_values_stay(axis: PaddedAxis, values: list[int]) -> None:
    assert padded(axis) == values


@pytest.mark.parametrize(
    ("axis", "raised"),
    [
        (PaddedAxis(9, 4, 8, 2, 25), "AssertionError"),
        (PaddedAxis(1, 0, 8, 2, 25), "AssertionError"),
        (PaddedAxis(1, 2, 8, 2, 51), "AssertionError"),
        (PaddedAxis(-1, 2, 8, 2, 25), "HANG"),
        (PaddedAxis(1, 1, 10**9, 2, 25), "TOO_MANY"),
    ],
)
def test_a_padded_range_that_can_not_be(axis: PaddedAxis, raised: str) -> None:
    with pytest.raises(BucketError) as caught:
        padded(axis)
    assert caught.value.raised == raised


@given(st.integers(0, 64), steps, maxima, st.integers(0, 500), st.integers(0, 50))
def test_padded_ranges_hold_both_ends(
    minimum: int, step: int, maximum: int, pad_max: int, percent: int
) -> None:
    assume(minimum <= maximum)
    values = padded(PaddedAxis(minimum, step, maximum, pad_max, percent))
    assert values == sorted(set(values))
    assert values[0] == minimum
    assert values[-1] == maximum


def test_what_has_no_logarithm_is_told() -> None:
    assert log2_up(1) == 0
    assert log2_up(4107) == 13
    with pytest.raises(BucketError, match="can't end at 0"):
        log2_up(0)


def test_a_product_too_large_to_list_here_is_refused_as_our_own_limit() -> None:
    check_size(1000, 1000)
    with pytest.raises(BucketError, match="more than 1,000,000 candidates") as caught:
        check_size(2000, 4000)
    assert caught.value.raised == "TOO_MANY"
    assert caught.value.end == "would warm up for days"
