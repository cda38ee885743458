"""Which trial wins, when nobody does, and what a gain costs."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from hpuwatch.testing.trials import failed, measured
from hpuwatch.tune.facts import RESERVE, STRATEGY
from hpuwatch.tune.objective import Doubt, judge, prices, score
from hpuwatch.tune.trial import Trial, TrialState

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


@pytest.mark.parametrize(("rate", "counts"), [(1050, False), (1060, True)])
def test_windows_that_agree_still_have_the_noise_of_a_start(
    rate: int, *, counts: bool
) -> None:
    verdict = judge(
        [
            measured(0, {}, 1000, 1000, origin="baseline"),
            measured(1, {RESERVE: "0.02"}, rate, rate),
        ]
    )
    assert verdict is not None
    assert verdict.within_noise is not counts
    assert verdict.best.is_baseline is not counts


def test_chance_alone_sells_a_setting_in_one_study_of_twenty_at_most() -> None:
    # What LEAST_NOISE says of itself: eight starts that differ by chance only.
    chance = random.Random(7)  # noqa: S311  no secret
    sold = 0
    for _ in range(2000):
        rates = [chance.gauss(10_000, 150) for _ in range(8)]
        trials = [
            measured(number, {RESERVE: f"0.{number}"} if number else {}, rate, rate)
            for number, rate in enumerate(rates)
        ]
        verdict = judge(trials)
        assert verdict is not None
        sold += not verdict.best.is_baseline
    assert 0 < sold <= 2000 / 20


def with_kv_use(trial: Trial, peak: float, preemptions: int = 0) -> Trial:
    assert trial.outcome is not None
    assert trial.measurement is not None
    found = replace(trial.measurement, kv_use_peak=peak, preemptions=preemptions)
    return replace(trial, outcome=replace(trial.outcome, measurement=found))


def with_strategy(trial: Trial, strategy: str) -> Trial:
    assert trial.outcome is not None
    facts = replace(trial.facts, strategy=strategy)
    return replace(trial, outcome=replace(trial.outcome, facts=facts))


@pytest.mark.parametrize(
    ("peak", "preemptions", "doubted"),
    [(0.52, 0, True), (0.52, 3, False), (0.97, 0, False)],
)
def test_more_cache_than_the_load_uses_is_no_cause_of_a_gain(
    peak: float, preemptions: int, *, doubted: bool
) -> None:
    faster = measured(1, {RESERVE: "0.02"}, 1300, 1300)
    verdict = judge([with_kv_use(BASELINE, peak, preemptions), faster])
    assert verdict is not None
    assert verdict.best.is_baseline is doubted
    assert (verdict.doubted is faster) is doubted
    assert (verdict.doubt is Doubt.KV_WAS_PLENTY) is doubted
    assert (verdict.gain == 0) is doubted


@pytest.mark.parametrize("strategy", ["exp", "lin"])
def test_other_buckets_may_help_where_the_cache_was_plenty(strategy: str) -> None:
    # The baseline's log shows exp: naming that again changes the reserve only.
    settings = {STRATEGY: strategy, RESERVE: "0.02"}
    faster = with_strategy(measured(1, settings, 1300, 1300), strategy)
    verdict = judge([with_kv_use(BASELINE, 0.52), faster])
    assert verdict is not None
    assert (verdict.best is faster) is (strategy == "lin")


def test_a_larger_reserve_may_help_where_the_cache_was_plenty() -> None:
    faster = measured(1, {RESERVE: "0.5"}, 1300, 1300)
    verdict = judge([with_kv_use(BASELINE, 0.52), faster])
    assert verdict is not None
    assert verdict.best is faster


def test_where_nothing_is_faster_there_is_nothing_to_doubt() -> None:
    slower = measured(1, {RESERVE: "0.02"}, 1010, 1010)
    verdict = judge([with_kv_use(BASELINE, 0.52), slower])
    assert verdict is not None
    assert (verdict.best.is_baseline, verdict.doubt) == (True, None)


@pytest.mark.parametrize(
    ("before", "after"), [((1000,), (1300,)), ((1000, 1000), (1300,))]
)
def test_one_window_proves_nothing(
    before: tuple[int, ...], after: tuple[int, ...]
) -> None:
    faster = measured(1, {RESERVE: "0.02"}, *after)
    verdict = judge([measured(0, {}, *before, origin="baseline"), faster])
    assert verdict is not None
    assert verdict.best.is_baseline
    assert (verdict.doubt, verdict.doubted) == (Doubt.ONE_WINDOW, faster)


def with_ttft(trial: Trial, *seconds: float) -> Trial:
    assert trial.outcome is not None
    assert trial.measurement is not None
    windows = tuple(
        replace(window, ttft_p99_seconds=each, itl_p99_seconds=0.05)
        for window, each in zip(trial.measurement.windows, seconds, strict=True)
    )
    found = replace(trial.measurement, windows=windows)
    return replace(trial, outcome=replace(trial.outcome, measurement=found))


@pytest.mark.parametrize(
    ("after", "told"),
    [
        ((2.26, 2.26), [("TTFT p99", pytest.approx(1.26))]),
        ((1.04, 1.04), []),  # less than the noise of a start
        ((0.5, 0.5), []),  # better
        ((0.8, 2.0), []),  # the windows differ by more than it got worse
    ],
)
def test_the_price_of_a_gain_is_what_got_worse_beyond_the_noise(
    after: tuple[float, float], told: list[tuple[str, float]]
) -> None:
    best = with_ttft(measured(1, {RESERVE: "0.02"}, 1300, 1300), *after)
    assert prices(with_ttft(BASELINE, 1.0, 1.0), best) == told


def test_latencies_that_nobody_measured_have_no_price() -> None:
    assert prices(BASELINE, measured(1, {RESERVE: "0.02"}, 1300, 1300)) == []
    assert prices(BASELINE, failed(1, {RESERVE: "0.02"})) == []


def test_what_ties_with_top_and_baseline_alike_is_not_chosen() -> None:
    top = measured(1, {RESERVE: "0.02"}, 1100, 1100)
    between = measured(2, {RESERVE: "0.3"}, 985, 1110)
    verdict = judge([BASELINE, top, between])
    assert verdict is not None
    assert verdict.best is top


def test_all_that_tie_with_the_fastest_are_named() -> None:
    nearer = measured(3, {RESERVE: "0.2"}, 1150, 1150)
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
