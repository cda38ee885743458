"""How long a start had lived at a line, by the times that the headers of its log print.

The first line may have no time, as a banner; then the first line with one that we kept
stands in, and every age is a little short.  A log without its head tells no age.
"""

from __future__ import annotations

from collections.abc import Iterator

from hpuwatch.life.phases import Phase
from hpuwatch.parse.header import read
from hpuwatch.records import Line
from hpuwatch.state.model import Start, value_of
from hpuwatch.state.times import seconds_between

_MINUTE, _HOUR, _DAY = 60, 3600, 86400


def lasting(seconds: float) -> str:
    """Print how long something takes, for a sentence: ``540 s``, ``17 min``, ``5.1 h``."""
    if seconds < 10 * _MINUTE:
        return f"{seconds:,.0f} s"
    if seconds < 3 * _HOUR:
        return f"{seconds // _MINUTE:.0f} min"
    if seconds < 2 * _DAY:
        return f"{seconds / _HOUR:.1f} h"
    return f"{seconds / _DAY:.1f} days"


def logged_at(line: Line) -> str | None:
    """Return the time that the line's header prints, None where it has none."""
    times = (record.logged_at for record in read(line.text))
    return next((time for time in times if time is not None), None)


def age_seconds(start: Start, line: Line | None) -> float | None:
    """Return the seconds from the start's first line to another one."""
    return None if line is None else seconds_between(_began(start), logged_at(line))


def last_age_seconds(start: Start) -> float | None:
    """Return the age of a start at the last sign of it that has a time.

    A bar has no header: what it says has gone by counts on from the last header before it.
    """
    began = _began(start)
    ages = [seconds_between(began, time) for time in _times(start)]
    last = max((age for age in ages if age is not None), default=None)
    return last if last is None or _has_ended(start) else last + _drawn_seconds(start)


def ready_age_seconds(start: Start) -> float | None:
    """Return the age at which a start was ready, None where it wasn't or no line tells.

    The front end's own word has no time in most releases; the lines before it have.
    """
    if Phase.READY.value not in start.reached and start.warmup.init_seconds is None:
        return None
    known = (start.server.address, start.warmup.init_seconds, start.warmup.seconds)
    lines = [start.reached.get(Phase.READY.value)]
    lines += [each.line for each in known if each is not None]
    ages = [age_seconds(start, line) for line in lines]
    told = value_of(start.warmup.init_seconds)
    return next((age for age in ages if age is not None), told)


def _has_ended(start: Start) -> bool:
    """Tell whether a line with a time came after the last bar."""
    ends = (Phase.READY, Phase.DRAINING, Phase.STOPPING, Phase.STOPPED, Phase.FAILED)
    return any(phase.value in start.reached for phase in ends)


def _drawn_seconds(start: Start) -> float:
    """Return what the bar of the phase under way says has gone by."""
    under_way = (
        each.elapsed_seconds
        for each in start.warmup.progress.values()
        if each.done < each.total and each.elapsed_seconds is not None
    )
    return next(under_way, 0.0)


def _began(start: Start) -> str | None:
    whole = start.server.version is not None or Phase.SWITCHING.value in start.reached
    if not whole:
        return None
    own = logged_at(start.first_line)
    return own or next(iter(_times(start)), None)


def _times(start: Start) -> Iterator[str]:
    """Yield the times of the lines that a start keeps, about in their order."""
    for line in start.reached.values():
        if (time := logged_at(line)) is not None:
            yield time
    yield from start.marks.values()
    if start.warmup.under_way is not None:
        yield start.warmup.under_way[1]
    for fault in start.faults:
        if (time := logged_at(fault.line)) is not None:
            yield time
