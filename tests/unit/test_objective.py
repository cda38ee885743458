"""Which trial wins, and when nobody does."""

from __future__ import annotations

import pytest

from hpuwatch.testing.trials import failed, measured
from hpuwatch.tune.facts import RESERVE
from hpuwatch.tune.objective import judge, score
from hpuwatch.tune.trial import TrialState

pytestmark = pytest.mark.unit

BASELINE = measured(0, {}, 1000, 1004, origin="baseline")


def test_a_failure_has_no_score() -> None:
    assert score(failed(1, {RESERVE: "0.1"})) is None


def test_the_score_of_two_windows_is_their_mean() -> None:
    assert score(measured(1, {RESERVE: "0.1"}, 900, 1100)) == 1000


def test_the_fastest_wins_and_the_gain_is_over_the_baseline() -> None:
    best = measured(2, {RESERVE: "0.02"}, 1199, 1206)
    verdict = judge([BASELINE, measured(1, {RESERVE: "0.2"}, 1100, 1101), best])
    assert verdict is not None
    assert verdict.best is best
    assert verdict.gain == pytest.approx(0.2, abs=0.001)
    assert not verdict.within_noise


def test_a_tie_goes_to_the_larger_reserve() -> None:
    nearer = measured(2, {RESERVE: "0.2"}, 1195, 1195)
    verdict = judge([BASELINE, measured(1, {RESERVE: "0.02"}, 1200, 1201), nearer])
    assert verdict is not None
    assert verdict.best is nearer


def test_a_difference_smaller_than_the_spread_changes_nothing() -> None:
    verdict = judge([BASELINE, measured(1, {RESERVE: "0.02"}, 980, 1080)])
    assert verdict is not None
    assert verdict.best is BASELINE
    assert verdict.within_noise
    assert verdict.gain == 0


def test_windows_that_agree_by_chance_still_have_one_per_cent_of_noise() -> None:
    verdict = judge(
        [
            measured(0, {}, 1000, 1000, origin="baseline"),
            measured(1, {RESERVE: "0.02"}, 1009, 1009),
        ]
    )
    assert verdict is not None
    assert verdict.within_noise


def test_what_ties_with_top_and_baseline_alike_is_not_chosen() -> None:
    top = measured(1, {RESERVE: "0.02"}, 1040, 1040)
    between = measured(2, {RESERVE: "0.3"}, 985, 1050)
    verdict = judge([BASELINE, top, between])
    assert verdict is not None
    assert verdict.best is top


def test_all_that_tie_with_the_fastest_are_named() -> None:
    nearer = measured(3, {RESERVE: "0.2"}, 1195, 1195)
    slower = measured(1, {RESERVE: "0.3"}, 1100, 1101)
    verdict = judge(
        [BASELINE, slower, measured(2, {RESERVE: "0.02"}, 1200, 1201), nearer]
    )
    assert verdict is not None
    assert (verdict.best.number, verdict.ties) == (3, (2, 3))


def test_one_window_that_went_astray_does_not_move_the_score() -> None:
    assert score(measured(1, {RESERVE: "0.1"}, 690, 263, 685)) == 685


def test_no_verdict_where_nothing_was_compared() -> None:
    assert judge([BASELINE]) is None
    lost = failed(1, {RESERVE: "0.1"}, TrialState.SETTING_NOT_ARRIVED)
    assert judge([BASELINE, lost]) is None


def test_no_verdict_without_a_measured_baseline() -> None:
    assert judge([measured(1, {RESERVE: "0.02"}, 1200)]) is None
    assert judge([failed(0, {})]) is None
