"""A figure that nobody printed: its value, between what, and how it is known."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Origin = Literal["measured", "learned", "predicted", "prior"]

ORIGINS: tuple[Origin, ...] = ("measured", "learned", "predicted", "prior")
"""The best first.

``measured``: a log printed it.  ``learned``: a law fitted to so many figures that its own
error is known.  ``predicted``: carried over from too few figures to tell the error, so that
the interval holds all that they allow.  ``prior``: nothing of this server is known, other
servers' public figures stand in.
"""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure with its interval; the unit is that of whoever asks.

    Attributes:
        value: the best guess.
        low: it is hardly below that.
        high: it is hardly above that.
        origin: how it is known.
    """

    value: float
    low: float
    high: float
    origin: Origin

    def __add__(self, other: Estimate) -> Estimate:
        """Return the sum: ends are added, as if errors never cancelled out."""
        return Estimate(
            self.value + other.value,
            self.low + other.low,
            self.high + other.high,
            weakest((self.origin, other.origin)),
        )


def exactly(value: float, origin: Origin = "measured") -> Estimate:
    """Return a figure without doubt."""
    return Estimate(value, value, value, origin)


def weakest(origins: Iterable[Origin]) -> Origin:
    """Return the weakest of some origins, ``measured`` where there are none."""
    return max(origins, key=ORIGINS.index, default="measured")
