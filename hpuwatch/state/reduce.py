"""``reduce(state, event) -> state``: what is known after one more sentence of the log.

A table leads from an event's kind to a small function over the newest start.  Two things
come around it.  A new life of the server opens a new start (:func:`_is_new_life`), and the
process machine moves the start's phase.  A state is never changed, only replaced, so any
point of a log can be kept and compared.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from hpuwatch.events import Event
from hpuwatch.life.machine import Fact, advance, fact_of
from hpuwatch.life.phases import Phase
from hpuwatch.state import identity, memory, serving, warming
from hpuwatch.state.memory import Handler
from hpuwatch.state.model import Start, State

HANDLERS: Mapping[str, Handler] = MappingProxyType(
    {
        **identity.HANDLERS,
        **memory.HANDLERS,
        **warming.HANDLERS,
        **serving.HANDLERS,
    }
)
"""Everything that changes a start, by event kind."""


def reduce(state: State, event: Event) -> State:
    """Return the state after the event."""
    fact = fact_of(event)
    state = _with_start(state, event, fact)
    place = start_of(state, event)
    start = _with_rank(state.starts[place], event)
    handler = HANDLERS.get(event.kind)
    if handler is not None:
        start = handler(start, event)
    if fact is not None:
        start = _moved(start, event, fact)
    return State((*state.starts[:place], start, *state.starts[place + 1 :]))


def start_of(state: State, event: Event) -> int:
    """Return the place of the start that the event belongs to.

    A traceback is known to be complete only when something else is said, so the fault of a
    life that ended may come when the next one has begun: its line tells.
    """
    last = len(state.starts) - 1
    while last > 0 and event.line.offset < state.starts[last].first_line.offset:
        last -= 1
    return last


def _with_start(state: State, event: Event, fact: Fact | None) -> State:
    current = state.current
    if current is None:
        return State((_begun(event),))
    if fact is Fact.SWITCHING:
        # The process goes on with another model: who it is stays, all figures are new.
        server = replace(current.server, model=None)
        switched = replace(_begun(event), phase=current.phase, server=server)
        return State((*state.starts, replace(switched, engine_seen=True)))
    if fact is Fact.SPAWNED and _is_new_life(current, event):
        return State((*state.starts, _begun(event)))
    return state


def _begun(event: Event) -> Start:
    at = event.line.received_at
    return Start(first_line=event.line, began_at=at, phase_since=at)


def _is_new_life(current: Start, event: Event) -> bool:
    """Tell whether a first word ("API server version", "Initializing …") is a new life's.

    The front end speaks first, then its engine: both are one life.  A front end that
    speaks again after an engine did is a new one.  An engine that speaks again before the
    weights are loaded is a data-parallel sibling; later it is a new life.
    """
    early = current.phase in (Phase.STARTING, Phase.LOADING)
    if event.kind == "engine_config":
        return not early
    return current.engine_seen or not early


def _with_rank(start: Start, event: Event) -> Start:
    """Give V0's workers the ranks 1, 2 … in the order in which they first speak."""
    speaker = event.speaker
    if speaker.rank is not None or speaker.pid is None:
        return start
    if speaker.pid in start.worker_ranks:
        return start
    ranks = {**start.worker_ranks, speaker.pid: len(start.worker_ranks) + 1}
    return replace(start, worker_ranks=ranks)


def _moved(start: Start, event: Event, fact: Fact) -> Start:
    phase = advance(start.phase, fact)
    if phase is start.phase:
        return start
    broke_in = start.phase if phase is Phase.FAILED else None
    at = event.line.received_at
    return replace(start, phase=phase, phase_since=at, broke_in=broke_in)
