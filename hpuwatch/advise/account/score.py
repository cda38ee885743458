"""What earlier predictions were worth, and by how much later intervals grow for it.

An outcome lies at some *distance* from what was predicted, counted in half-widths of the
interval on its side: up to 1 it lies inside.  The rule is that of split conformal
prediction: of the newest ``NEWEST`` outcomes of a figure, the factor is the distance of
rank ``ceil(0.9 * (n + 1))``, the largest one while there are too few for that rank.  So had
they been as much wider, at least nine in ten of those intervals would have held.  A factor
is never below 1 (good luck narrows nothing) and never above ``MOST``: an interval ten times
as wide says that hpuwatch doesn't know.

Distances are counted in the interval as its law had it, before any widening; else a wide
interval that held would at once make the next one narrow again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, inf
from statistics import fmean

COVERAGE = 0.9
"""The share of outcomes that intervals are to hold."""
NEWEST = 20
"""Outcomes of a figure that count; older ones were predicted by laws of less data."""
MOST = 10.0
"""The largest factor."""
_ROUNDING_BYTES, _ROUNDING_SECONDS = 0.0005, 0.5
"""What a log rounds away: half of the fourth digit of an amount, half a second."""


@dataclass(frozen=True, slots=True)
class Scored:
    """A prediction beside what came.

    Attributes:
        figure: its name, with the unit.
        value: the best guess.
        low: of the interval as it was stated.
        high: likewise.
        observed: what came; None where the server died before it could.
        factor: by which the stated interval had been widened.
    """

    figure: str
    value: float
    low: float
    high: float
    observed: float | None
    factor: float = 1.0

    @property
    def distance(self) -> float:
        """Return how far off it was, in half-widths of the interval as stated."""
        if self.observed is None:
            return inf
        side = self.high - self.value if self.observed > self.value else 0.0
        if self.observed < self.value:
            side = self.value - self.low
        half = max(side, _rounding(self.figure, self.value))
        off = abs(self.observed - self.value)
        return off / half if half else (inf if off else 0.0)

    @property
    def inside(self) -> bool:
        """Tell whether the interval held."""
        return self.distance <= 1


def _rounding(figure: str, value: float) -> float:
    """Return how far what a log prints may be from what it was; counts are exact."""
    if figure.endswith("_bytes"):
        return _ROUNDING_BYTES * abs(value)
    return _ROUNDING_SECONDS if figure.endswith("_seconds") else 0.0


@dataclass(frozen=True, slots=True)
class Score:
    """What the predictions of one figure were worth.

    Attributes:
        count: outcomes.
        inside: of them, those within their interval.
        mean_error_percent: mean of observed - predicted, signed, in percent of what was
            predicted; None where nothing was observed.
        mean_off_percent: the same without the sign.
        factor: by which the next interval grows.
    """

    figure: str
    count: int
    inside: int
    mean_error_percent: float | None
    mean_off_percent: float | None
    factor: float

    @property
    def hit_rate(self) -> float:
        """Return the share of outcomes that were inside."""
        return self.inside / self.count


def widening(scored: Sequence[Scored]) -> float:
    """Return the factor by which the half-widths of one figure grow.

    Args:
        scored: its outcomes, oldest first; without any the factor is 1.
    """
    newest = scored[-NEWEST:]
    if not newest:
        return 1.0
    distances = sorted(each.distance * each.factor for each in newest)
    rank = min(len(distances), ceil(COVERAGE * (len(distances) + 1)))
    return max(1.0, min(MOST, distances[rank - 1]))


def widenings(scored: Iterable[Scored]) -> dict[str, float]:
    """Return the factor of each figure that has outcomes; ``scored`` is oldest first."""
    return {name: widening(each) for name, each in _by_figure(scored).items()}


def scores(scored: Iterable[Scored]) -> tuple[Score, ...]:
    """Return the score of each figure, by name; ``scored`` is oldest first."""
    return tuple(
        _score(name, each) for name, each in sorted(_by_figure(scored).items())
    )


def _score(figure: str, scored: Sequence[Scored]) -> Score:
    errors = [
        100 * (each.observed - each.value) / abs(each.value)
        for each in scored
        if each.observed is not None and each.value
    ]
    return Score(
        figure,
        len(scored),
        sum(each.inside for each in scored),
        fmean(errors) if errors else None,
        fmean(map(abs, errors)) if errors else None,
        widening(scored),
    )


def _by_figure(scored: Iterable[Scored]) -> Mapping[str, list[Scored]]:
    found: dict[str, list[Scored]] = {}
    for each in scored:
        found.setdefault(each.figure, []).append(each)
    return found
