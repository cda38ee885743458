"""How far the truth departs from the public laws, drawn from the seed and never printed.

With ``misfit`` 0 the laws are the truth.  With 1 slopes are off by up to 30 %, one kink
bends each phase, a share of the graphs is three times as heavy, prefills need activations
that no line tells of, and fragments make a part of the free memory useless; with 2 all of
that is twice as far, and one rank needs more than the others.  Everything follows from
(seed, model, card), so that two starts with one seed have one truth.
"""

from __future__ import annotations

from dataclasses import dataclass

from hpuwatch.gaudi.buckets import DECODE, PROMPT, Bucket
from hpuwatch.sim.truth.dice import dice

_SLOPE_SPREAD = 0.3
_LEAST_FACTOR = 0.1
_HEAVY_SHARE = 0.06
_HEAVY_FACTOR = 3.0
_KINK_AT = {PROMPT: (512, 4096), DECODE: (16, 128)}  # tokens; sequences
_FRAGMENT_SHARE = (0.02, 0.08)  # of what graphs keep
_HEAVY_RANK_SHARE = 0.15
_MISFIT_OF_HEAVY_RANK = 2


@dataclass(frozen=True, slots=True)
class Bend:
    """How the truth departs from a straight law in one phase."""

    slope: float
    kink_at: int
    beyond: float  # slope factor past the kink

    def tokens(self, tokens: int) -> float:
        """Return the tokens that the public slope would have to count."""
        above = max(0, tokens - self.kink_at)
        return self.slope * (tokens - above + self.beyond * above)


class Hidden:
    """The departures of one server's memory.

    Attributes:
        misfit: how far they go.
        bends: of the slopes of graphs, by phase.
        workspace: factor on what a running step shows.
        fragments: useless memory as a share of what graphs keep.
        heavy_rank: the rank that runs out of memory first.
        heavy_rank_factor: on the activations of that rank.
    """

    def __init__(self, name: str, misfit: float, ranks: int) -> None:
        """Draw them for the server of a name (seed, model and card)."""
        self._name = name
        self.misfit = misfit
        self.bends = {phase: self._bend(phase) for phase in (PROMPT, DECODE)}
        self.workspace = self._factor(dice(name, "workspace").uniform(-1, 1))
        self.fragments = misfit * dice(name, "fragments").uniform(*_FRAGMENT_SHARE)
        uneven = misfit >= _MISFIT_OF_HEAVY_RANK and ranks > 1
        self.heavy_rank = dice(name, "rank").randrange(ranks) if uneven else 0
        self.heavy_rank_factor = 1 + _HEAVY_RANK_SHARE if uneven else 1.0

    def graph_factor(self, phase: str, bucket: Bucket) -> float:
        """Return by how much a graph is heavier than its law."""
        drawn = dice(self._name, "heavy", phase, *bucket).random()
        return _HEAVY_FACTOR if drawn < _HEAVY_SHARE * self.misfit else 1.0

    def _bend(self, phase: str) -> Bend:
        hidden = dice(self._name, "bend", phase)
        low, high = _KINK_AT[phase]
        return Bend(
            slope=self._factor(hidden.uniform(-1, 1)),
            kink_at=hidden.randint(low, high),
            beyond=self._factor(hidden.uniform(-1, 2)),
        )

    def _factor(self, drawn: float) -> float:
        return max(_LEAST_FACTOR, 1 + _SLOPE_SPREAD * self.misfit * drawn)
