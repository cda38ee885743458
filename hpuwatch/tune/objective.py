"""Which trial is best: output tokens per second under the fixed load, without errors.

A trial's score is the median of its windows.  Trials whose scores differ by less than the
noise (the spread of their windows, ``LEAST_NOISE`` at least) tie, and a tie goes to the
trial that deviates least from the operator's own configuration: the baseline first, then
the largest reserve.  So nothing is changed for a gain that nobody could measure again.

Nor is anything changed for a gain that is doubtful (:class:`Doubt`): one that the setting
can't have caused, or one that a single window shows.  Without two trials that were measured
there is no verdict: nothing was compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from hpuwatch.tune.facts import RESERVE, missing_arrival
from hpuwatch.tune.trial import Trial, TrialState

LEAST_NOISE = 0.05
"""The least difference that counts, as a share of the larger score.

Windows repeat the load within one start, so their spread doesn't hold what differs from
start to start.  The best of several trials is moreover the one that chance favoured.  Let
starts of the same configuration differ with a standard deviation of 1.5 %: that is assumed,
nobody has measured it on a Gaudi.  Then the best of seven trials without any effect still
lies more than 5 % above the baseline in one study of twenty.
"""

FEWEST_WINDOWS = 2
"""Windows that a gain must rest on, since one alone has no spread."""

_PRICES = (("TTFT p99", "ttft_p99_seconds"), ("ITL p99", "itl_p99_seconds"))


class Doubt(str, Enum):
    """Why a trial that measured better is not recommended."""

    KV_WAS_PLENTY = "kv_was_plenty"
    ONE_WINDOW = "one_window"


@dataclass(frozen=True, slots=True)
class Verdict:
    """How the best trial compares with the baseline.

    Attributes:
        baseline: trial 0.
        best: the chosen trial; the baseline itself where nothing is proven better.
        gain: the best score over the baseline's, as a ratio less one.
        within_noise: the difference is smaller than the noise.
        ties: the trials that the noise doesn't tell from the fastest, by number.
        doubt: why a trial that measured better was passed over, None if none was.
        doubted: that trial.
    """

    baseline: Trial
    best: Trial
    gain: float
    within_noise: bool
    ties: tuple[int, ...] = ()
    doubt: Doubt | None = None
    doubted: Trial | None = None


def score(trial: Trial) -> float | None:
    """Return output tokens per second of an ``ok`` trial; a failure has no score."""
    if trial.state is not TrialState.OK or trial.measurement is None:
        return None
    return trial.measurement.tokens_per_second


def noise(one: Trial, other: Trial) -> float:
    """Return the difference in tokens per second that two trials can't tell apart."""
    measured = [trial.measurement for trial in (one, other) if trial.measurement]
    return max(
        max((each.spread for each in measured), default=0.0),
        LEAST_NOISE * max((each.tokens_per_second for each in measured), default=0.0),
    )


def gain_of(trial: Trial, baseline: Trial) -> float:
    """Return the trial's score over the baseline's, as a ratio less one."""
    before = score(baseline)
    return (score(trial) or 0.0) / before - 1 if before else 0.0


def prices(baseline: Trial, best: Trial) -> list[tuple[str, float]]:
    """Return the latencies that got worse by more than the noise: name and ratio less one.

    The noise is what the windows of either trial differ by, ``LEAST_NOISE`` at least.
    """
    found: list[tuple[str, float]] = []
    before, after = baseline.measurement, best.measurement
    if before is None or after is None:
        return found
    for name, figure in _PRICES:
        was, now = before.mean(figure), after.mean(figure)
        apart = max(before.apart(figure), after.apart(figure))
        if was and now and now - was > max(apart, LEAST_NOISE * was):
            found.append((name, now / was - 1))
    return found


def judge(trials: Sequence[Trial]) -> Verdict | None:
    """Return the verdict, None where nothing was measured to compare the baseline with."""
    good = [trial for trial in trials if score(trial) is not None]
    baseline = next((trial for trial in good if trial.is_baseline), None)
    if baseline is None or all(trial.is_baseline for trial in good):
        return None
    plausible = [trial for trial in good if _can_help(trial, baseline)]
    verdict = _compared(plausible, baseline)
    if not verdict.best.is_baseline:
        return _proven(verdict)
    passed_over = _compared(good, baseline).best
    if passed_over.is_baseline:
        return verdict
    return _nothing(verdict.baseline, Doubt.KV_WAS_PLENTY, passed_over)


def _compared(good: Sequence[Trial], baseline: Trial) -> Verdict:
    top = max(good, key=_rate)
    ties = [trial for trial in good if _rate(top) - _rate(trial) <= noise(trial, top)]
    if baseline not in ties:
        # What ties with the top, but also with the baseline, proves nothing.
        ties = [trial for trial in ties if _beats(trial, baseline)] or [top]
    best = min(ties, key=_deviation)
    return Verdict(
        baseline,
        best,
        gain_of(best, baseline),
        within_noise=not _beats(best, baseline),
        ties=tuple(sorted(trial.number for trial in ties)),
    )


def _proven(verdict: Verdict) -> Verdict:
    """Return a gain as it is, or nothing where a single window shows it."""
    both = (verdict.baseline.measurement, verdict.best.measurement)
    if all(found and len(found.windows) >= FEWEST_WINDOWS for found in both):
        return verdict
    return _nothing(verdict.baseline, Doubt.ONE_WINDOW, verdict.best)


def _nothing(baseline: Trial, doubt: Doubt, doubted: Trial) -> Verdict:
    return Verdict(
        baseline, baseline, 0.0, within_noise=True, doubt=doubt, doubted=doubted
    )


def _can_help(trial: Trial, baseline: Trial) -> bool:
    """Tell whether a trial's settings can have made it faster than the baseline.

    A smaller reserve gives a larger KV cache and nothing else.  So it can't help where the
    baseline's cache was never short.
    """
    found = baseline.measurement
    if found is None or not found.kv_was_plenty or trial.is_baseline:
        return True
    others = {key: value for key, value in trial.settings.items() if key != RESERVE}
    # What the baseline's log shows too is no change.
    same = missing_arrival(others, baseline.facts) is None
    before, after = baseline.facts.reserve_ratio, trial.facts.reserve_ratio
    smaller = before is not None and after is not None and after < before
    return not (same and smaller)


def _rate(trial: Trial) -> float:
    return score(trial) or 0.0


def _beats(trial: Trial, baseline: Trial) -> bool:
    return _rate(trial) - _rate(baseline) > noise(trial, baseline)


def _deviation(trial: Trial) -> tuple[bool, int, float, int]:
    """Return how far a trial lies from the operator's own configuration."""
    return (
        not trial.is_baseline,
        len(trial.settings),
        -(trial.facts.reserve_ratio or 0.0),
        trial.number,
    )
