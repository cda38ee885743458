"""Which trial is best: output tokens per second under the fixed load, without errors.

A trial's score is the median of its windows.  Trials whose scores differ by less than the
noise (the spread of their windows, one per cent at least) tie, and a tie goes to the trial
that deviates least from the operator's own configuration: the baseline first, then the
largest reserve.  So nothing is changed for a gain that nobody could measure again.  Without
two trials that were measured there is no verdict: nothing was compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hpuwatch.tune.trial import Trial, TrialState

LEAST_NOISE = 0.01


@dataclass(frozen=True, slots=True)
class Verdict:
    """How the best trial compares with the baseline.

    Attributes:
        baseline: trial 0.
        best: the chosen trial; the baseline itself where nothing did better.
        gain: the best score over the baseline's, as a ratio less one.
        within_noise: the difference is smaller than the spread of the windows.
        ties: the trials that the noise doesn't tell from the fastest, by number.
    """

    baseline: Trial
    best: Trial
    gain: float
    within_noise: bool
    ties: tuple[int, ...] = ()


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


def judge(trials: Sequence[Trial]) -> Verdict | None:
    """Return the verdict, None where nothing was measured to compare the baseline with."""
    good = [(trial, found) for trial in trials if (found := score(trial)) is not None]
    baseline = next((pair for pair in good if pair[0].is_baseline), None)
    if baseline is None or all(trial.is_baseline for trial, _ in good):
        return None
    top, top_score = max(good, key=lambda pair: pair[1])
    ties = [trial for trial, found in good if top_score - found <= noise(trial, top)]
    if baseline[0] not in ties:
        # What ties with the top, but also with the baseline, proves nothing.
        ties = [trial for trial in ties if _beats(trial, baseline[0])] or [top]
    best = min(ties, key=_deviation)
    gain = (score(best) or 0.0) / baseline[1] - 1 if baseline[1] else 0.0
    return Verdict(
        baseline[0],
        best,
        gain,
        within_noise=not _beats(best, baseline[0]),
        ties=tuple(sorted(trial.number for trial in ties)),
    )


def _beats(trial: Trial, baseline: Trial) -> bool:
    ahead = (score(trial) or 0.0) - (score(baseline) or 0.0)
    return ahead > noise(trial, baseline)


def _deviation(trial: Trial) -> tuple[bool, int, float, int]:
    """Return how far a trial lies from the operator's own configuration."""
    return (
        not trial.is_baseline,
        len(trial.settings),
        -(trial.facts.reserve_ratio or 0.0),
        trial.number,
    )
