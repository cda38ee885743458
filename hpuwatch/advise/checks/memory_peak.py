"""What warm-up needs at its worst moment, against what its graphs keep.

The two are different numbers.  The reserve has to hold the first, or the start dies; what
lies between them is idle once the server serves.  A warm-up that ran out of memory tells
how much more it would have needed: what was taken by then and what the failed allocation
asked for (a bound that was measured), or all of its graphs by the law that the steps before
teach (``gaudi.graphlaw``) with the largest step on top, where that is more.

Free memory is printed before each bucket alone, so a peak within a bucket stays unseen.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

from hpuwatch.advise.baseline import Baseline, baseline_of, identity_of
from hpuwatch.advise.causes import code_of, root_fault
from hpuwatch.advise.figures import Reserve, reserve_of, tightest, within
from hpuwatch.advise.finding import Case, Sighting
from hpuwatch.advise.graphmemory import free_before_bytes, warmup_use_of
from hpuwatch.errors import ConfigError
from hpuwatch.gaudi.estimate import Estimate
from hpuwatch.gaudi.memory import ratio_holding
from hpuwatch.records import Line
from hpuwatch.state.model import Memory, Progress, Start
from hpuwatch.units import GIB

_LARGEST_RATIO = 0.9
"""A reserve above this share leaves no KV cache that is worth a server."""
_IDLE = "idle_after_warmup_bytes"


@dataclass(frozen=True, slots=True)
class _End:
    """Where a warm-up ran out of memory, in bytes.

    Attributes:
        phase: of the bucket that it died in.
        progress: how far that phase was.
        room: free before warm-up on the rank whose memory is tightest.
        free: free before the bucket, as printed; None where no line tells.
        taken: by warm-up until then, as rank 0 tells; None where it doesn't.
        wanted: what the failed allocation asked for, 0 where no line tells.
        step: the most that one bucket took or asked for.
    """

    phase: str
    progress: Progress
    room: int
    free: int | None
    taken: int | None
    wanted: int
    step: int

    @property
    def least(self) -> int:
        """Return what warm-up needs at the very least: all that was there, and more."""
        return max(self.room, (self.taken or 0) + self.wanted)


def ran_out(case: Case) -> Sighting | None:
    """Look for a warm-up that died of memory, and for what it would have needed."""
    start, reserve = case.start, reserve_of(case.start)
    end = _end(start, reserve)
    if end is None or reserve is None:
        return None
    graphs = _graphs(case, end.phase)
    figures = _figures(end, reserve, graphs)
    ratios = figures["reserve_needed_ratio"]
    more = figures["reserve_needed_bytes"].value - reserve.reserve_bytes
    got_through = _got_through(case)
    return Sighting(
        title="title" if end.free is not None else "title_no_free",
        why=_why(end, got_through, is_known=graphs is not None),
        cure=_cure(start, ratios, is_known=graphs is not None),
        numbers={**_numbers(end, reserve), **_numbers_of(got_through)},
        # Without a law of this server they would be no more than what the title says.
        figures={} if graphs is None else figures,
        words={
            "phase": end.phase,
            "need": within(figures["warmup_need_bytes"]),
            "ratio": f"{ratios.value:g}",
            "ratios": f"{ratios.low:g} to {ratios.high:g}",
            "lost_blocks": f"{max(0, round(more / reserve.block_bytes)):,}",
            "idle": within(figures[_IDLE]) if _IDLE in figures else "",
        },
        lines=_lines(start, end),
        aspect="hybrid" if start.kv.hybrid else "",
    )


def _figures(
    end: _End, reserve: Reserve, graphs: Estimate | None
) -> dict[str, Estimate]:
    """Return the need, the reserve that holds it and what of it lies idle afterwards."""
    need, outside = _need(end, graphs), end.room - reserve.reserve_bytes
    wanted = _each(need, lambda count: count - outside)
    figures = {
        "warmup_need_bytes": need,
        "reserve_needed_bytes": wanted,
        "reserve_needed_ratio": _each(
            wanted, lambda count: ratio_holding(count, reserve.usable_bytes)
        ),
    }
    if graphs is not None:
        figures[_IDLE] = Estimate(
            need.value - graphs.value,
            max(0.0, need.low - graphs.high),
            need.high - graphs.low,
            need.origin,
        )
    return figures


def _each(known: Estimate, change: Callable[[float], float]) -> Estimate:
    """Return an estimate of something that grows with another."""
    low, value, high = map(change, (known.low, known.value, known.high))
    return Estimate(value, low, high, known.origin)


def _end(start: Start, reserve: Reserve | None) -> _End | None:
    fault = root_fault(start)
    if fault is None or code_of(fault) != "warmup-oom" or reserve is None:
        return None
    begun = [
        (phase, each) for phase, each in start.warmup.progress.items() if each.total
    ]
    if not begun:
        return None
    phase, progress = begun[-1]
    before = free_before_bytes(start)
    free = progress.free.value.bytes if progress.free else None
    taken = max(0, before - free) if before is not None and free is not None else None
    wanted = fault.wanted.bytes if fault.wanted else 0
    step = max(wanted, _largest_step(start))
    return _End(phase, progress, _room(start, reserve), free, taken, wanted, step)


def _room(start: Start, reserve: Reserve) -> int:
    """Return what the tightest rank had free before warm-up, as printed or as split."""
    found = tightest(start)
    memory = found[1] if found else Memory()
    if memory.total is None or memory.used_after_kv is None:
        return reserve.reserve_bytes + reserve.outside_bytes
    return memory.total.value.bytes - memory.used_after_kv.value.bytes


def _largest_step(start: Start) -> int:
    """Return the most by which free memory fell from one bucket to the next."""
    rows = [each.steps for each in start.warmup.progress.values()]
    falls = [
        before.bytes - after.bytes
        for steps in rows
        for (_, before), (_, after) in pairwise(steps)
    ]
    return max((0, *falls))


def _graphs(case: Case, phase: str) -> Estimate | None:
    """Return what the graphs of all buckets take, by this start and earlier ones.

    None where nothing is known of the phase that it died in; the other one may rest on
    public figures, which the origin tells.
    """
    base = _baseline(case)
    lists = base.basis.printed.lists if base and base.basis.printed else {}
    if base is None or not lists:
        return None
    laws = base.basis.graphs.phases
    if phase not in laws or laws[phase].origin == "prior":
        return None
    return base.basis.graphs.bytes_of(lists)


def _baseline(case: Case) -> Baseline | None:
    try:
        return baseline_of((*case.earlier, case.start))
    except ConfigError:
        return None  # a setting that can't be read is told elsewhere


def _need(end: _End, graphs: Estimate | None) -> Estimate:
    """Return what warm-up needs at its peak.

    Without a law of this server nothing bounds it from above but its own next step.
    """
    least = float(end.least)
    if graphs is None:
        return Estimate(least + end.step, least, least + 2 * end.step, "predicted")
    value = max(least, graphs.value + end.step)
    return Estimate(
        value,
        max(least, graphs.low),
        max(value, graphs.high + end.step),
        "predicted" if graphs.origin == "measured" else graphs.origin,
    )


def _got_through(case: Case) -> Reserve | None:
    """Return the reserve of the newest start before whose warm-up came to its end."""
    like = identity_of(case.start)
    known = [
        reserve_of(each)
        for each in reversed(case.earlier)
        if each.warmup.seconds is not None and identity_of(each) == like
    ]
    return next((each for each in known if each and each.idle_bytes is not None), None)


def _numbers_of(got_through: Reserve | None) -> dict[str, float | str]:
    if got_through is None:
        return {}
    return {
        "earlier_reserve_ratio": got_through.ratio,
        "earlier_reserve_bytes": got_through.reserve_bytes,
        "earlier_idle_bytes": got_through.idle_bytes or 0,
    }


def _numbers(end: _End, reserve: Reserve) -> dict[str, float | str]:
    numbers: dict[str, float | str] = {
        "bucket": end.progress.done + 1,
        "buckets": end.progress.total,
        "room_bytes": end.room,
        "peak_step_bytes": end.step,
        "reserve_bytes": reserve.reserve_bytes,
        "reserve_ratio": reserve.ratio,
    }
    if end.free is not None:
        numbers["free_bytes"] = end.free
    if end.taken is not None:
        numbers["taken_bytes"] = end.taken
    if end.wanted:
        numbers["wanted_bytes"] = end.wanted
    return numbers


def _why(end: _End, got_through: Reserve | None, *, is_known: bool) -> tuple[str, ...]:
    said = ["why"] if end.taken is not None else []
    said += ["why_wanted"] if end.wanted else []
    said.append("why_need" if is_known else "why_at_least")
    said += ["why_idle"] if is_known else []
    return (*said, "why_earlier") if got_through else tuple(said)


def _cure(start: Start, ratios: Estimate, *, is_known: bool) -> tuple[str, ...]:
    if ratios.low > _LARGEST_RATIO:
        cure = "cure_no_room"
    elif not is_known:
        cure = "cure_at_least"
    else:
        cure = "cure_hardly" if ratios.value > _LARGEST_RATIO else "cure"
    return (cure, "cure_hybrid") if start.kv.hybrid else (cure,)


def _lines(start: Start, end: _End) -> tuple[Line, ...]:
    fault, memory = root_fault(start), start.memory.get(0)
    known = [memory.reserve if memory else None, end.progress.free]
    lines = [each.line for each in known if each is not None]
    return (*lines, fault.line) if fault else tuple(lines)


def peak(case: Case) -> Sighting | None:
    """Look for a warm-up that took much more for a moment than its graphs keep."""
    start = case.start
    use, reserve, room = (
        warmup_use_of(start),
        reserve_of(start),
        free_before_bytes(start),
    )
    if use is None or reserve is None or room is None or start.warmup.seconds is None:
        return None
    if use.peak_bytes - use.steady_bytes < case.limits["difference_gib"] * GIB:
        return None
    floor = max(0, use.peak_bytes - (room - reserve.reserve_bytes))
    frees = [each.free for each in start.warmup.progress.values() if each.free]
    allocated = start.warmup.allocated
    known = [*frees, *([allocated] if allocated else [])]
    return Sighting(
        cure=("cure",) if floor else (),
        numbers={
            "peak_bytes": use.peak_bytes,
            "steady_bytes": use.steady_bytes,
            "room_bytes": room,
            "reserve_bytes": reserve.reserve_bytes,
            "reserve_floor_bytes": floor,
            "reserve_floor_ratio": ratio_holding(floor, reserve.usable_bytes),
            "idle_after_bytes": max(0, reserve.reserve_bytes - use.steady_bytes),
        },
        lines=tuple(each.line for each in known),
    )
