"""The one process machine: facts move a server through its phases.

A fact is something that happened, read from the log (:func:`fact_of`) or told by whoever
owns the process.  ``TRANSITIONS`` is the whole machine.  A fact that is impossible in a
phase leaves the phase as it is, since logs repeat themselves and come late.

The log and the process don't weigh the same.  A fatal fault in the log is ``BROKE``: while
a server is being stopped its log may complain of a dead engine, and that means nothing.
``EXITED_UNASKED`` is the process's own word, and holds whatever the log said last.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType

from hpuwatch.events import Event
from hpuwatch.life.phases import Phase


class Fact(str, Enum):
    """Something that happened to a server.

    ``STOP_ASKED`` lets requests finish, ``CLOSING`` is said when they are done or dropped.
    """

    SPAWNED = "spawned"
    WEIGHTS = "weights"
    SIZING = "sizing"
    WARMING = "warming"
    SERVING = "serving"
    SWITCHING = "switching"
    BROKE = "broke"
    STOP_ASKED = "stop_asked"
    CLOSING = "closing"
    EXITED_AS_ASKED = "exited_as_asked"
    EXITED_UNASKED = "exited_unasked"


_COMING_UP = (Phase.STARTING, Phase.LOADING, Phase.SIZING, Phase.WARMING)
_AT_WORK = (Phase.READY, Phase.SWITCHING, Phase.DEGRADED)
_LEAVING = (Phase.DRAINING, Phase.STOPPING)
_OVER = (Phase.STOPPED, Phase.FAILED, Phase.BACKING_OFF)


_ALIVE = (*_COMING_UP, *_AT_WORK, *_LEAVING)

_ROWS = (
    (_OVER, Fact.SPAWNED, Phase.STARTING),
    # Only forwards: a slow rank still loads while the first one is warming.
    (_COMING_UP[:1], Fact.WEIGHTS, Phase.LOADING),
    (_COMING_UP[:2], Fact.SIZING, Phase.SIZING),
    (_COMING_UP[:3], Fact.WARMING, Phase.WARMING),
    ((*_COMING_UP, Phase.SWITCHING, Phase.DEGRADED), Fact.SERVING, Phase.READY),
    ((Phase.READY,), Fact.SWITCHING, Phase.SWITCHING),
    ((*_COMING_UP, *_AT_WORK), Fact.BROKE, Phase.FAILED),
    (_COMING_UP, Fact.STOP_ASKED, Phase.STOPPING),
    (_AT_WORK, Fact.STOP_ASKED, Phase.DRAINING),
    ((*_COMING_UP, *_AT_WORK, Phase.DRAINING), Fact.CLOSING, Phase.STOPPING),
    (_ALIVE, Fact.EXITED_AS_ASKED, Phase.STOPPED),
    ((*_ALIVE, Phase.STOPPED), Fact.EXITED_UNASKED, Phase.FAILED),
)

TRANSITIONS: Mapping[tuple[Phase, Fact], Phase] = MappingProxyType(
    {(phase, fact): reached for phases, fact, reached in _ROWS for phase in phases}
)


def advance(phase: Phase, fact: Fact) -> Phase:
    """Return the phase after the fact; an impossible fact leaves the phase as it is."""
    return TRANSITIONS.get((phase, fact), phase)


_BY_KIND: Mapping[str, Fact] = MappingProxyType(
    {
        "model_load_start": Fact.WEIGHTS,
        "weights_preload": Fact.WEIGHTS,
        "weights_total": Fact.WEIGHTS,
        "inc_prepare": Fact.WEIGHTS,
        "hpu_graph_wrap": Fact.SIZING,
        "model_profiling_run": Fact.SIZING,
        "memory_split": Fact.SIZING,
        "kv_blocks_v0": Fact.SIZING,
        "kv_alloc_v1": Fact.SIZING,
        "cache_engine_init": Fact.SIZING,
        "warmup_bucket": Fact.WARMING,
        "warmup_misc": Fact.WARMING,
        "graph_budget": Fact.WARMING,
        "graph_summary": Fact.WARMING,
        "engine_stats": Fact.SERVING,
    }
)
"""Kinds that say one thing; the graph wrap follows the weights, before the profile run."""

_BY_STEP: Mapping[tuple[str, object], Fact] = MappingProxyType(
    {
        ("server_lifecycle", "version"): Fact.SPAWNED,
        ("server_lifecycle", "ready"): Fact.SERVING,
        ("server_lifecycle", "stopping"): Fact.CLOSING,
        ("server_lifecycle", "stopped"): Fact.EXITED_AS_ASKED,
        ("sleep_and_model_switch", "switch_begin"): Fact.SWITCHING,
        ("sleep_and_model_switch", "switch_end"): Fact.SERVING,
        ("sleep_and_model_switch", "switch_failed"): Fact.BROKE,
    }
)
"""Kinds whose ``step`` tells what they say."""

_ASKED = (
    "shutdown triggered",
    "received signal",
    "Shutdown initiated",
    "KeyboardInterrupt",
    "rain",  # draining, Draining, mode=drain
)
"""Words of a server that is stopping and still finishes its requests."""


def fact_of(event: Event) -> Fact | None:
    """Return what the event says about the server's life, or None.

    A fault counts when it is fatal: it ends an engine, whatever the front end does then.
    """
    if event.kind == "fault":
        return Fact.BROKE if event.fields.get("severity") == "fatal" else None
    if event.kind == "warmup_progress":
        loading = event.fields.get("phase") == "loading"
        return Fact.WEIGHTS if loading else Fact.WARMING
    if event.kind == "engine_config":
        return Fact.SPAWNED if "ver" in event.fields else None
    fact = _BY_STEP.get((event.kind, event.fields.get("step")))
    if fact is Fact.CLOSING and any(words in event.line.text for words in _ASKED):
        return Fact.STOP_ASKED
    return fact or _BY_KIND.get(event.kind)
