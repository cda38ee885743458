"""What a designer sees of a search space: axes, points and what was told.

A designer knows nothing of servers.  A *point* has one coordinate for each axis: a float
on a :class:`Stretch`, a place in the row on a :class:`Ladder`, a word on a :class:`Choice`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Stretch:
    """A positive number between two bounds, searched on a log scale."""

    name: str
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Ladder:
    """One of several values in order; its coordinate is the place, from 0."""

    name: str
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """One of several words without an order."""

    name: str
    values: tuple[str, ...]


Axis: TypeAlias = Stretch | Ladder | Choice
Coordinate: TypeAlias = float | int | str
Point: TypeAlias = tuple[Coordinate, ...]


@dataclass(frozen=True, slots=True)
class Told:
    """A point and how good it was.

    Attributes:
        point: where.
        score: larger is better; None for a failure, which has no score.
        designed: False for the baseline and a first guess, which no designer chose.
    """

    point: Point
    score: float | None
    designed: bool = True
