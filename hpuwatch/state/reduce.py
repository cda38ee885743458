"""``reduce(state, event) -> state``: what is known after one more sentence of the log.

A table leads from an event's kind to a small function over the newest start.  Two things
come around it.  A new life of the server opens a new start (:func:`_is_new_life`), and the
process machine moves the start's phase.  A state is never changed, only replaced, so any
point of a log can be kept and compared.  :func:`fold` takes many events and comes to the
same, faster where a server at work says the same few things over and over.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import inf
from types import MappingProxyType

from hpuwatch.events import Event
from hpuwatch.life.machine import Fact, advance, fact_of
from hpuwatch.life.phases import Phase
from hpuwatch.state import identity, memory, serving, warming
from hpuwatch.state.memory import Handler
from hpuwatch.state.model import Start, State
from hpuwatch.state.past import opened
from hpuwatch.state.serving import FOLDS, Fold

_FRONT = "APIServer"
_MOST_FRONTS = 8

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
    start = _with_front(start, event)
    handler = HANDLERS.get(event.kind)
    if handler is not None:
        start = handler(start, event)
    if fact is not None:
        start = _moved(start, event, fact)
    starts = (*state.starts[:place], start, *state.starts[place + 1 :])
    return replace(state, starts=starts)


def fold(state: State, events: Iterable[Event]) -> State:
    """Return the state after the events, in order: what ``reduce`` gives one by one."""
    run: list[Event] = []
    since = _serving_since(state)
    for event in events:
        if event.kind in FOLDS and event.line.offset >= since and _has_rank(event):
            run.append(event)
            continue
        state = reduce(_folded(state, run), event)
        run = []
        since = _serving_since(state)
    return _folded(state, run)


def outlasted(state: State, events: Sequence[Event]) -> State:
    """Return what ``fold`` gives; an event that breaks the reduction costs only itself.

    That would be a bug of ours, so tests call ``fold`` and ``reduce``, which raise it.  Who
    has a report to give or a server to watch goes on, and ``State.broken`` counts.
    """
    try:
        return fold(state, events)
    except Exception:  # noqa: BLE001  one line must not cost all others; it is counted
        if len(events) == 1:
            return replace(state, broken=state.broken + 1)
    for event in events:
        state = outlasted(state, (event,))
    return state


def _serving_since(state: State) -> float:
    """Return the place from which on events of work can't move the newest start's phase."""
    current = state.current
    if current is None or advance(current.phase, Fact.SERVING) is not current.phase:
        return inf
    return current.first_line.offset


def _has_rank(event: Event) -> bool:
    return event.speaker.rank is not None or event.speaker.pid is None


def _folded(state: State, run: Sequence[Event]) -> State:
    if not run:
        return state
    start = state.starts[-1]
    by_fold: dict[Fold, list[Event]] = {}
    for event in run:
        start = _with_front(start, event)
        by_fold.setdefault(FOLDS[event.kind], []).append(event)
    for take, events in by_fold.items():
        start = take(start, events)
    return replace(state, starts=(*state.starts[:-1], start))


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
        return opened(state, _begun(event))
    if fact is Fact.SWITCHING:
        # The process goes on with another model: who it is stays, all figures are new.
        server = replace(current.server, model=None)
        switched = replace(_begun(event), phase=current.phase, server=server)
        return opened(state, replace(switched, engines=current.engines))
    if fact is Fact.SPAWNED and _is_new_life(current, event):
        return opened(state, _begun(event))
    return state


def _begun(event: Event) -> Start:
    at = event.line.received_at
    return Start(first_line=event.line, began_at=at, phase_since=at)


def _is_new_life(current: Start, event: Event) -> bool:
    """Tell whether a first word ("API server version", "Initializing …") is a new life's.

    The front end speaks first, then its engines: all are one life.  A front end that
    speaks again after an engine did is a new one, and so is an engine that speaks again
    when it has loaded its weights; data-parallel siblings may come at any time.
    """
    early = current.phase in (Phase.STARTING, Phase.LOADING)
    if event.kind == "engine_config":
        known = not current.engines or event.speaker.engine in current.engines
        return known and not early
    return bool(current.engines) or not early


def _with_rank(start: Start, event: Event) -> Start:
    """Give workers that only a pid tells apart ranks, in the order of their first words.

    In V0 rank 0 runs in the engine's own process; under V1 all are workers (of Ray).
    """
    speaker = event.speaker
    if speaker.rank is not None or speaker.pid is None:
        return start
    if speaker.pid in start.worker_ranks:
        return start
    engine = start.server.engine
    first = 0 if engine is not None and engine.value == "V1" else 1
    ranks = {**start.worker_ranks, speaker.pid: len(start.worker_ranks) + first}
    return replace(start, worker_ranks=ranks)


def _with_front(start: Start, event: Event) -> Start:
    """Note a front end's process: a life has one, however many serve its requests."""
    speaker = event.speaker
    pid = speaker.pid
    if speaker.process != _FRONT or pid is None or pid in start.fronts:
        return start
    if len(start.fronts) >= _MOST_FRONTS:
        return start
    return replace(start, fronts={**start.fronts, pid: event.line})


def _moved(start: Start, event: Event, fact: Fact) -> Start:
    phase = advance(start.phase, fact)
    if phase is start.phase:
        return start
    broke_in = start.phase if phase is Phase.FAILED else None
    at = event.line.received_at
    reached = {**start.reached, phase.value: start.reached.get(phase.value, event.line)}
    return replace(
        start, phase=phase, phase_since=at, broke_in=broke_in, reached=reached
    )
