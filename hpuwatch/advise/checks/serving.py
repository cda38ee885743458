"""Checks of a server at work: storms of compilation, stalls, and what no line shows."""

from __future__ import annotations

from collections.abc import Sequence

from hpuwatch.advise.ages import logged_at
from hpuwatch.advise.changed import READY
from hpuwatch.advise.figures import STATS_SECONDS
from hpuwatch.advise.finding import Case, Sighting
from hpuwatch.state.model import DECODE, Miss, Start, value_of
from hpuwatch.state.times import seconds_between

_MINUTE = 60.0


def storm(case: Case) -> Sighting | None:
    """Look for so many new shapes that the server does little but compile."""
    start = case.start
    if start.warmup.skipped is not None:
        return None
    seen = [miss for miss in start.misses if miss.count > 0]
    shapes = len(seen)
    minutes = _minutes(seen)
    rate = None if not minutes else shapes / minutes
    fast = rate is not None and rate >= case.limits["shapes_per_minute"]
    many = shapes >= case.limits["shapes"]
    if not many and not (fast and shapes >= case.limits["fewest_shapes"]):
        return None
    numbers: dict[str, float | str] = {
        "shapes": shapes,
        "misses": sum(miss.count for miss in seen),
    }
    if rate is not None and minutes is not None:
        numbers |= {
            "shapes_per_minute": round(rate, 1),
            "minutes": round(minutes, 1),
        }
    blocks = _blocks_asked(start, seen)
    if blocks is not None:
        numbers |= {"blocks_asked": blocks[0], "blocks_largest": blocks[1]}
    return Sighting(
        title="title" if rate is None else "title_rate",
        why=("why",) if blocks is None else ("why", "why_range"),
        numbers=numbers,
        words={} if blocks is None else {"times": blocks[0] / blocks[1]},
        lines=(seen[0].line, seen[-1].line),
    )


def _minutes(seen: Sequence[Miss]) -> float | None:
    """Return the minutes from the first to the last new shape, at least one."""
    if not seen:
        return None
    seconds = seconds_between(logged_at(seen[0].line), logged_at(seen[-1].line))
    return None if seconds is None else max(seconds, _MINUTE) / _MINUTE


def _blocks_asked(start: Start, seen: Sequence[Miss]) -> tuple[int, int] | None:
    """Return the most blocks that a decode asked for, and those of the largest bucket."""
    listed = start.buckets.get(DECODE)
    largest = (
        max((each[-1] for each in listed.value.shapes), default=0) if listed else 0
    )
    asked = max(
        (miss.shape[-1] for miss in seen if miss.phase == DECODE and miss.shape),
        default=0,
    )
    return (asked, largest) if 0 < largest < asked else None


def first_pass(case: Case) -> Sighting | None:
    """Look for a load that began on graphs that were compiled and never run."""
    start = case.start
    line = start.warmup.compile_only_line
    if not start.warmup.compile_only or line is None or READY not in start.reached:
        return None
    peak = start.traffic.running_peak
    rate = start.traffic.generation_tokens_per_second_peak
    if not start.traffic.busy_lines:
        return None  # nobody has measured anything yet
    told = [line, *(each.line for each in (peak, rate) if each is not None)]
    return Sighting(
        numbers={"busy_lines": start.traffic.busy_lines},
        lines=tuple(dict.fromkeys(told)),
    )


def stalled(case: Case) -> Sighting | None:
    """Look for requests that ran while not a token went in or out."""
    traffic = case.start.traffic
    longest = traffic.stalled_longest
    if longest is None or longest.value < case.limits["lines"]:
        return None
    engine = value_of(case.start.server.engine) or "V1"
    seconds = longest.value * STATS_SECONDS[engine]
    return Sighting(
        why=("why_misses",) if case.start.misses else ("why",),
        cure=("cure_misses",) if case.start.misses else ("cure",),
        numbers={"lines": longest.value, "seconds": seconds},
        lines=(longest.line, *(m.line for m in case.start.misses[-1:])),
    )
