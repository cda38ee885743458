"""Starts that something outside of vLLM ended before they were ready, and restarts in vain.

A startup probe, a start time limit or a person ends a server that was coming up in the
ordinary way.  The log then shows a stop that was asked for, or nothing more, and no fault.
Restarted, it gets no further: what ends it is a time, and the time is always the same.
"""

from __future__ import annotations

from collections.abc import Sequence

from hpuwatch.advise.ages import age_seconds, last_age_seconds
from hpuwatch.advise.causes import code_of, described, root_fault
from hpuwatch.advise.changed import READY, same_server
from hpuwatch.advise.checks.warmup_time import patient_probe, ready_after
from hpuwatch.advise.finding import Case, Sighting
from hpuwatch.life.phases import Phase
from hpuwatch.records import Line
from hpuwatch.state.model import Start

_STOPS = (Phase.DRAINING, Phase.STOPPING, Phase.STOPPED)
_COMING_UP = {
    Phase.STARTING.value: "while starting",
    Phase.LOADING.value: "while loading weights",
    Phase.SIZING.value: "while sizing memory",
    Phase.WARMING.value: "in warm-up",
}


def stop_line(start: Start) -> Line | None:
    """Return the line that began a stop, None where nobody asked for one."""
    lines = (start.reached.get(phase.value) for phase in _STOPS)
    return next((line for line in lines if line is not None), None)


def was_interrupted(start: Start) -> bool:
    """Tell whether the start was stopped before it was ready, with no fault of its own."""
    stopped = stop_line(start) is not None and root_fault(start) is None
    return stopped and was_in_vain(start)


def was_in_vain(start: Start) -> bool:
    """Tell whether a start ended, or its log did, before it was ready.

    A log without its head, as the last lines of a server that served for weeks, shows no
    start at all.
    """
    seen = start.server.version is not None or not _COMING_UP.keys().isdisjoint(
        start.reached
    )
    return seen and READY not in start.reached and start.warmup.init_seconds is None


def where_it_was(start: Start) -> str:
    """Say how far a start had come: ``in warm-up (decode 61 of 162)``."""
    names = [name for name in start.reached if name in _COMING_UP]
    place = _COMING_UP[names[-1] if names else Phase.STARTING.value]
    progress = [
        f"{phase} {each.done:,} of {each.total:,}"
        for phase, each in start.warmup.progress.items()
        if each.done < each.total
    ]
    return f"{place} ({', '.join(progress)})" if progress else place


def stopped_early(case: Case) -> Sighting | None:
    """Look for a server that was stopped while it came up."""
    start = case.start
    line = stop_line(start)
    if line is None or not was_interrupted(start):
        return None
    seconds = age_seconds(start, line)
    after = ready_after(start, case.history)
    numbers: dict[str, float | str] = {}
    for phase, each in start.warmup.progress.items():
        numbers |= {f"{phase}_done": each.done, f"{phase}_buckets": each.total}
    if seconds is not None:
        numbers["stopped_after_seconds"] = seconds
    if after is not None:
        numbers["probe_seconds"] = patient_probe(after)
    return Sighting(
        title="title" if seconds is None else "title_timed",
        why=("why",) if after is None else ("why", "why_left"),
        cure=("cure",) if after is None else ("cure_seconds",),
        numbers=numbers,
        figures={} if after is None else {"ready_seconds": after},
        words={"where": where_it_was(start)},
        lines=tuple(dict.fromkeys((*_last_reached(start), line))),
    )


def _last_reached(start: Start) -> tuple[Line, ...]:
    """Return the line that brought the last phase of coming up."""
    lines = [line for name, line in start.reached.items() if name in _COMING_UP]
    return (lines[-1],) if lines else (start.first_line,)


def restart_loop(case: Case) -> Sighting | None:
    """Look for starts in a row that never got ready."""
    start = case.start
    if not was_in_vain(start):
        return None
    # The newest may still be coming up, where its log ends without a word of an end.
    has_ended = root_fault(start) is not None or stop_line(start) is not None
    row = [start] if has_ended else []
    for each in reversed(case.earlier):
        if not was_in_vain(each) or not _may_be_same(start, each):
            break
        row.insert(0, each)
    if len(row) < case.limits["starts"]:
        return None
    ways = list(dict.fromkeys(map(_end_of, row)))
    ages = [age for each in row if (age := last_age_seconds(each)) is not None]
    numbers: dict[str, float | str] = {"starts": len(row)}
    if ages:
        numbers |= {"shortest_seconds": min(ages), "longest_seconds": max(ages)}
    return Sighting(
        why=(_why(row, ways, ages, case.limits["apart_ratio"]),),
        cure=("cure_fault",) if root_fault(start) else ("cure_limit",),
        numbers=numbers,
        words={"ends": "; ".join(ways[:3])},
        lines=tuple(dict.fromkeys(_end_line(each) for each in row))[-3:],
    )


def _may_be_same(start: Start, other: Start) -> bool:
    """Tell whether two starts can be of one server: some die before they name a model."""
    names = start.server.model, other.server.model
    return None in names or same_server(start, other)


def _end_of(start: Start) -> str:
    fault = root_fault(start)
    if fault is None:
        return f"nothing but an end {where_it_was(start).partition(' (')[0]}"
    return described(fault)


def _end_line(start: Start) -> Line:
    fault = root_fault(start)
    if fault is not None:
        return fault.line
    return stop_line(start) or _last_reached(start)[-1]


def _why(
    row: Sequence[Start], ways: Sequence[str], ages: Sequence[float], apart: float
) -> str:
    """Choose the sentence: one cause, one time, or several ways to end."""
    codes = {code_of(fault) if (fault := root_fault(each)) else None for each in row}
    if codes == {None}:
        same = len(ages) == len(row) and max(ages) - min(ages) <= apart * max(ages)
        return "why_time" if same else "why_no_fault"
    return "why_same" if len(ways) == 1 or len(codes) == 1 else "why_various"
