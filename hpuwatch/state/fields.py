"""Typed access to an event's fields; a field of another type counts as absent."""

from __future__ import annotations

from typing import TypeVar

from hpuwatch.events import Event, Value
from hpuwatch.state.model import Known, Shape
from hpuwatch.units import Amount

Size = TypeVar("Size", int, float, Amount)


def amount(event: Event, name: str) -> Known[Amount] | None:
    """Return an amount of memory and its line."""
    value = event.fields.get(name)
    return Known(value, event.line) if isinstance(value, Amount) else None


def whole(event: Event, name: str) -> Known[int] | None:
    """Return a whole number and its line."""
    value = event.fields.get(name)
    if isinstance(value, int) and not isinstance(value, bool):
        return Known(value, event.line)
    return None


def number(event: Event, name: str) -> Known[float] | None:
    """Return a number and its line."""
    value = event.fields.get(name)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return Known(float(value), event.line)
    return None


def text(event: Event, name: str) -> Known[str] | None:
    """Return a text that is not empty, and its line."""
    value = event.fields.get(name)
    return Known(value, event.line) if isinstance(value, str) and value else None


def phase(event: Event) -> str | None:
    """Return the warm-up or traffic phase that the event speaks of."""
    known = text(event, "phase")
    return known.value if known else None


def shape(event: Event, name: str) -> Shape | None:
    """Return a tuple of whole numbers."""
    return _shape(event.fields.get(name))


def shapes(event: Event, name: str) -> tuple[Shape, ...]:
    """Return a list of buckets; items that are no tuples of whole numbers are left out."""
    value = event.fields.get(name)
    if not isinstance(value, tuple):
        return ()
    return tuple(known for item in value if (known := _shape(item)) is not None)


def _shape(value: Value) -> Shape | None:
    if not isinstance(value, tuple):
        return None
    items = tuple(item for item in value if isinstance(item, int))
    return items if items and len(items) == len(value) else None


def larger(before: Known[Size] | None, now: Known[Size] | None) -> Known[Size] | None:
    """Return the larger of two figures, the first where they are equal."""
    if before is None or now is None:
        return now or before
    return now if _size(now.value) > _size(before.value) else before


def smaller(before: Known[Size] | None, now: Known[Size] | None) -> Known[Size] | None:
    """Return the smaller of two figures, the first where they are equal."""
    if before is None or now is None:
        return now or before
    return now if _size(now.value) < _size(before.value) else before


def _size(value: float | Amount) -> float:
    return value.bytes if isinstance(value, Amount) else value
