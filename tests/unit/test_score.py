"""What predictions were worth, and by how much later intervals grow for it."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpuwatch.advise.account.score import (
    COVERAGE,
    MOST,
    NEWEST,
    Scored,
    scores,
    widening,
    widenings,
)

pytestmark = pytest.mark.unit

WARMUP = Scored("warmup_seconds", 100, 90, 120, 105)


def off_by(distance: float, factor: float = 1.0) -> Scored:
    """An outcome that lies so many half-widths above what was predicted."""
    return Scored("kv_blocks", 100, 90, 110, 100 + 10 * distance, factor)


@pytest.mark.parametrize(
    ("observed", "distance"),
    [(100, 0), (110, 0.5), (120, 1), (140, 2), (95, 0.5), (80, 2), (None, inf)],
)
def test_a_distance_counts_half_widths_on_its_own_side(
    observed: float | None, distance: float
) -> None:
    outcome = replace(WARMUP, observed=observed)
    assert outcome.distance == distance
    assert outcome.inside == (distance <= 1)


def test_what_a_log_rounds_away_is_no_miss() -> None:
    exact = Scored("reserve_bytes", 3.6362e9, 3.6362e9, 3.6362e9, 3.637e9)
    assert exact.inside
    assert not replace(exact, observed=3.65e9).inside
    seconds = Scored("warmup_seconds", 31.6, 31.6, 31.6, 32)
    assert seconds.inside
    blocks = Scored("kv_blocks", 4330, 4329, 4331, 4332)
    assert not blocks.inside  # a count is printed whole


def test_good_luck_narrows_nothing() -> None:
    assert widening([]) == 1
    assert widening([off_by(0.1)] * 5) == 1


def test_few_outcomes_count_by_their_worst() -> None:
    assert widening([off_by(0.5), off_by(3), off_by(0.2)]) == pytest.approx(3)


def test_with_enough_outcomes_one_in_ten_may_miss() -> None:
    """With 19 the rank is ceil(0.9 * 20) = 18, so the worst one doesn't count."""
    good, bad = [off_by(0.5)] * 18, [off_by(5)]
    assert widening(good + bad) == 1
    assert widening(good[:-2] + bad * 3) == pytest.approx(5)


def test_old_outcomes_are_forgotten() -> None:
    assert widening([off_by(5)] * 9 + [off_by(0.5)] * NEWEST) == 1


def test_what_never_came_widens_as_far_as_anything_does() -> None:
    assert widening([replace(WARMUP, observed=None)]) == MOST


def test_a_wide_interval_that_held_does_not_make_the_next_one_narrow() -> None:
    """The distance counts in the interval before it was widened."""
    first = off_by(4)
    factor = widening([first])
    second = Scored("kv_blocks", 100, 100 - 10 * factor, 100 + 10 * factor, 130, factor)
    assert second.inside
    assert widening([first, second]) == pytest.approx(4)
    assert widening([second]) == pytest.approx(3)


@given(st.lists(st.floats(0, MOST), min_size=1, max_size=NEWEST))
def test_wider_by_the_factor_the_past_would_have_been_inside(
    distances: list[float],
) -> None:
    factor = widening([off_by(each) for each in distances])
    held = sum(each <= factor * (1 + 1e-9) for each in distances)
    assert held >= COVERAGE * len(distances)
    assert 1 <= factor <= MOST


def test_figures_are_scored_apart() -> None:
    several = [off_by(3), WARMUP, replace(WARMUP, observed=80), off_by(-1)]
    assert widenings(several) == {
        "kv_blocks": pytest.approx(3),
        "warmup_seconds": pytest.approx(2),
    }
    blocks, warmup = scores(several)
    assert (blocks.figure, blocks.count, blocks.inside) == ("kv_blocks", 2, 1)
    assert blocks.hit_rate == 0.5
    assert blocks.mean_error_percent == pytest.approx(10)  # +30 % and -10 %
    assert blocks.mean_off_percent == pytest.approx(20)
    assert warmup.mean_error_percent == pytest.approx(-7.5)
    assert warmup.factor == pytest.approx(2)


def test_a_figure_that_never_came_has_no_mean_error() -> None:
    (only,) = scores([replace(WARMUP, observed=None)])
    assert (only.count, only.inside) == (1, 0)
    assert only.mean_error_percent is None
