"""Every environment variable that a server on Gaudi reads, as one table (variables.yaml).

A row says which releases act on the variable, how they read it, what holds without it, and
when a bad value is noticed.  What else a variable does to the start, ``knobs`` resolves.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from hpuwatch.gaudi.spans import Point, covers
from hpuwatch.sim.config import reading

IMPORT, FRONT, WORKER, SPLIT, PICTURES, BUCKETS, GRAPHS = (
    "import",
    "front",
    "worker",
    "split",
    "pictures",
    "buckets",
    "graphs",
)
"""The stages of a start at which a setting is looked at.  Only models with pictures come to
``pictures`` (multimodal warm-up), and only older forks to ``graphs`` (their capture)."""

_TABLE = Path(__file__).with_name("variables.yaml")


@dataclass(frozen=True, slots=True)
class Variable:
    """One environment variable.

    Attributes:
        heeded: the releases that act on it, as ``gaudi.spans`` writes them.
        read: how its text is understood.
        field: the value that it sets, of ``Knobs`` or on the way there; or empty.
        default: what holds without it; (releases, value) pairs, of which the first counts,
            in a mapping.
        stage: when a bad value is noticed.
        also_read: further releases that read it and do nothing with it.
        shown: the releases whose log lists it among the user's flags when it is set.
        under: the strategy without which fork-1.21 doesn't look at it.
    """

    name: str
    heeded: str
    read: reading.Read
    field: str = ""
    default: Any = None
    stage: str = WORKER
    also_read: str = "none"
    shown: str = "none"
    under: str = ""

    def acts(self, at: Point) -> bool:
        """Tell whether the release acts on it."""
        return covers(self.heeded, at)

    def is_read(self, at: Point) -> bool:
        """Tell whether the release looks at it, if only to check it."""
        return self.acts(at) or covers(self.also_read, at)

    def is_shown(self, at: Point) -> bool:
        """Tell whether the release's log lists it among the user's flags."""
        return self.is_read(at) and covers(self.shown, at)

    def without(self, at: Point) -> object:
        """Return what holds in a release where it isn't set."""
        if isinstance(self.default, dict):
            return next(v for spans, v in self.default.items() if covers(spans, at))
        return tuple(self.default) if isinstance(self.default, list) else self.default


@cache
def variables() -> dict[str, Variable]:
    """Return the table by name, in the order in which logs list what the user set."""
    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    text = _TABLE.read_text(encoding="utf-8")
    rows = yaml.load(text, Loader=loader)  # noqa: S506  a safe loader either way
    return {
        name: Variable(name, **row | {"read": _reading(row)})
        for names, row in rows.items()
        for name in _each(names)
    }


def _reading(row: dict[str, Any]) -> reading.Read:
    read: reading.Read = getattr(reading, row.get("read", "as_it_stands"))
    return read


def _each(names: str) -> Iterator[str]:
    """Yield the names that one row stands for."""
    parts = [part.split(",") for part in re.split(r"[{}]", names)]
    return map("".join, itertools.product(*parts))
