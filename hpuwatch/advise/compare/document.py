"""Two starts beside each other: what changed, what differs, and which explains which.

The document ``compare/1``.  A difference has *explained* shares where a formula says how
much of it an input makes (``advise.attribution``), what is then left *unexplained*, and
*suspects*: changes that can move such a figure, though no arithmetic says by how much.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from hpuwatch.advise.account.record import StartRecord
from hpuwatch.advise.compare.changes import ChangePart, changes_between
from hpuwatch.advise.compare.figures import Difference, differences
from hpuwatch.advise.compare.said import Pair, said
from hpuwatch.advise.document import FaultPart
from hpuwatch.gaudi.model import DECODE, PROMPT


class Side(BaseModel):
    """One of the two starts."""

    model_config = ConfigDict(frozen=True)

    label: str
    file: str
    start: int
    began: str | None = None
    origin: str
    release: str | None = None
    model: str | None = None
    card: str | None = None
    tp: int | None = None
    phase: str


class FaultRow(BaseModel):
    """A kind of fault, by its class and phase, and in which of the two it came."""

    model_config = ConfigDict(frozen=True, populate_by_name=True)

    fault_class: str = Field(alias="class")
    phase: str
    where: Literal["a", "b", "both"]
    text: str


class ListRow(BaseModel):
    """The bucket lists of a phase; ``same`` is null where a log doesn't print its list."""

    model_config = ConfigDict(frozen=True)

    phase: str
    a: int
    b: int
    same: bool | None
    largest_a: tuple[int, int, int] | None = None
    largest_b: tuple[int, int, int] | None = None


class Comparison(BaseModel):
    """The document ``hpuwatch.compare/1``; ``said`` are its sentences, the gravest first."""

    model_config = ConfigDict(frozen=True, populate_by_name=True)

    schema_name: Literal["hpuwatch.compare/1"] = Field(
        default="hpuwatch.compare/1", alias="schema"
    )
    a: Side
    b: Side
    said: tuple[str, ...]
    changes: tuple[ChangePart, ...]
    differences: tuple[Difference, ...]
    same: tuple[str, ...]
    lists: tuple[ListRow, ...]
    faults: tuple[FaultRow, ...]


def compared(labels: tuple[str, str], a: StartRecord, b: StartRecord) -> Comparison:
    """Return how two starts differ.

    Args:
        labels: what people call the two.
        a: the one to begin with, usually the earlier.
        b: the other.
    """
    changes = changes_between(a, b)
    found, same = differences(a, b, changes)
    faults = tuple(_faults(a, b))
    return Comparison(
        a=_side(labels[0], a),
        b=_side(labels[1], b),
        said=tuple(said(Pair(a, b), changes, found)),
        changes=changes,
        differences=found,
        same=same,
        lists=tuple(_lists(a, b)),
        faults=faults,
    )


def _side(label: str, record: StartRecord) -> Side:
    server = record.server
    return Side(
        label=label,
        file=record.source.file,
        start=record.source.start,
        began=record.began,
        origin=record.origin,
        release=server.release,
        model=server.model,
        card=server.card,
        tp=server.tp,
        phase=server.phase,
    )


def _faults(a: StartRecord, b: StartRecord) -> Iterator[FaultRow]:
    one, other = _by_kind(a), _by_kind(b)
    for key in (*one, *(key for key in other if key not in one)):
        fault = one.get(key) or other[key]
        where: Literal["a", "b", "both"] = "both"
        if key not in one:
            where = "b"
        elif key not in other:
            where = "a"
        yield FaultRow(
            fault_class=fault.fault_class,
            phase=fault.phase,
            where=where,
            text=fault.text,
        )


def _by_kind(record: StartRecord) -> dict[tuple[str, str], FaultPart]:
    found: dict[tuple[str, str], FaultPart] = {}
    for fault in record.faults:
        found.setdefault((fault.fault_class, fault.phase), fault)
    return found


def _lists(a: StartRecord, b: StartRecord) -> Iterator[ListRow]:
    for phase in (PROMPT, DECODE):
        one, other = a.lists.get(phase), b.lists.get(phase)
        if one is None or other is None:
            continue
        known = None not in (one.fingerprint, other.fingerprint)
        yield ListRow(
            phase=phase,
            a=one.count,
            b=other.count,
            same=one.fingerprint == other.fingerprint if known else None,
            largest_a=one.largest,
            largest_b=other.largest,
        )
