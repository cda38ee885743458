"""Starts that are let go, so that a log of any length takes bounded memory.

A server that restarts or switches its model again and again begins start after start.  The
newest are kept in full.  Of older ones only what counters add up stays (:class:`Past`),
since a counter must not go back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar

from hpuwatch.state.model import Past, Start, State

Key = TypeVar("Key")

KEPT_STARTS = 64
_MOST_NAMES = 64  # of models; the rest counts as the last of them


def opened(state: State, start: Start) -> State:
    """Return the state with one more start, the newest; the oldest may have to go."""
    starts = (*state.starts, start)
    past = state.past
    for gone in starts[:-KEPT_STARTS]:
        past = _remembered(past, gone)
    return replace(state, starts=starts[-KEPT_STARTS:], past=past)


def _remembered(past: Past, gone: Start) -> Past:
    name = gone.server.served_name or past.name
    if name not in past.misses and len(past.misses) >= _MOST_NAMES:
        name = list(past.misses)[-1]
    faults = Counter(fault.kind for fault in gone.faults)
    misses = _sum(past.misses.get(name, {}), gone.missed_by_kind())
    return Past(
        past.starts + 1,
        name,
        {**past.misses, name: misses},
        _sum(past.faults, faults),
    )


def _sum(before: Mapping[Key, int], more: Mapping[Key, int]) -> dict[Key, int]:
    return {**before, **{key: before.get(key, 0) + more[key] for key in more}}
