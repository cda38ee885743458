"""How far the truth departs from the public laws, drawn from the seed and never printed.

With ``misfit`` 0 the laws are the truth.  With 1 slopes are off by up to 30 %, of memory and
of time alike, one kink bends each phase, a share of the graphs is three times as heavy or as
slow to make, prefills need activations that no line tells of, and fragments make a part of
the free memory useless; with 2 all of that is twice as far, and one rank needs more than the
others.  Everything follows from (seed, model, card), so that two starts with one seed have
one truth.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from hpuwatch.gaudi.buckets import DECODE, PROMPT, Bucket
from hpuwatch.sim.truth.dice import dice
from hpuwatch.sim.truth.tempo import Parts

_SLOPE_SPREAD = 0.3
_LEAST_FACTOR = 0.1
_OUTLIER_SHARE = 0.06
_OUTLIER_FACTOR = 3.0
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

    def factor(self, size: int) -> float:
        """Return what to multiply the law's value by; ``size`` is tokens or sequences."""
        above = max(0, size - self.kink_at) / max(1, size)
        return self.slope * (1 + (self.beyond - 1) * above)


@dataclass(frozen=True, slots=True)
class Tempo:
    """How the times of one phase depart: factors on making a graph, and on parts of a step."""

    trace: float
    compile: float
    launch: float
    arithmetic: Bend
    memory: float
    links: float

    def seconds(self, parts: Parts, size: int) -> float:
        """Return a step's seconds; ``size`` is tokens of a prompt, or sequences."""
        return (
            self.launch * parts.launch
            + self.arithmetic.factor(size) * parts.arithmetic
            + self.memory * parts.memory
            + self.links * parts.links
        )


class Hidden:
    """The departures of one server.

    Attributes:
        name: what they are drawn from: seed, model and card.
        misfit: how far they go.
        bends: of the slopes of graphs' memory, by phase.
        tempi: of times, by phase.
        workspace: factor on what a running step shows.
        fragments: useless memory as a share of what graphs keep.
        heavy_rank: the rank that runs out of memory first.
        heavy_rank_factor: on the activations of that rank.
    """

    def __init__(self, name: str, misfit: float, ranks: int) -> None:
        """Draw them for the server of a name."""
        self.name = name
        self.misfit = misfit
        phases = (PROMPT, DECODE)
        self.bends = {phase: self._bend(phase) for phase in phases}
        self.tempi = {phase: self._tempo(phase) for phase in phases}
        self.workspace = self._factor(dice(name, "workspace"))
        self.fragments = misfit * dice(name, "fragments").uniform(*_FRAGMENT_SHARE)
        uneven = misfit >= _MISFIT_OF_HEAVY_RANK and ranks > 1
        self.heavy_rank = dice(name, "rank").randrange(ranks) if uneven else 0
        self.heavy_rank_factor = 1 + _HEAVY_RANK_SHARE if uneven else 1.0

    def outlier(
        self, what: str, phase: str, bucket: Bucket, factor: float = _OUTLIER_FACTOR
    ) -> float:
        """Return the factor of a shape that is out of line in something, else 1."""
        drawn = dice(self.name, what, phase, *bucket).random()
        return factor if drawn < _OUTLIER_SHARE * self.misfit else 1.0

    def _bend(self, phase: str) -> Bend:
        drawn = dice(self.name, "bend", phase)
        slope, kink = self._factor(drawn), drawn.randint(*_KINK_AT[phase])
        return Bend(slope, kink, self._factor(drawn, 2))

    def _tempo(self, phase: str) -> Tempo:
        drawn = dice(self.name, "time", phase)
        trace, compiling, launch, slope, memory, links = (
            self._factor(drawn) for _ in range(6)
        )
        kink = drawn.randint(*_KINK_AT[phase])
        arithmetic = Bend(slope, kink, self._factor(drawn, 2))
        return Tempo(trace, compiling, launch, arithmetic, memory, links)

    def _factor(self, drawn: random.Random, most: float = 1) -> float:
        """Draw a factor that is up to a spread below 1, and up to ``most`` spreads above."""
        spread = _SLOPE_SPREAD * self.misfit
        return max(_LEAST_FACTOR, 1 + spread * drawn.uniform(-1, most))
