"""Buckets that cost more warm-up than they can ever give back.

Two troubles: a list that takes hours, which nobody waits for, and batches so large that the
load which the log shows never comes near them.  The first is judged by what this warm-up
itself took for a bucket, the second only under load, and never where requests waited: then
a larger batch was wanted.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, replace

from hpuwatch.advise.baseline import identity_of
from hpuwatch.advise.causes import code_of, described, root_fault
from hpuwatch.advise.checks.buckets_made import speculates
from hpuwatch.advise.figures import about, has_traffic
from hpuwatch.advise.finding import Case, Sighting
from hpuwatch.errors import ConfigError
from hpuwatch.gaudi.buckets import generate
from hpuwatch.gaudi.estimate import Estimate
from hpuwatch.gaudi.model import Bucket
from hpuwatch.gaudi.resolve import resolve
from hpuwatch.gaudi.warmuptime import WarmupLaw, learn
from hpuwatch.life.phases import Phase
from hpuwatch.records import Line
from hpuwatch.state.configured import Configured, configured, printed_lists
from hpuwatch.state.model import DECODE, PROMPT, Progress, Start
from hpuwatch.state.warmup_timed import timed_start

_HOUR = 3600
_BEFORE_READY = (Phase.LOADING, Phase.SIZING, Phase.WARMING, Phase.FAILED)
_OF_MEAN = (0.59, 1.44)
"""How far a part of a warm-up may be from its mean (see ``gaudi.warmuptime``)."""


@dataclass(frozen=True, slots=True)
class _Slow:
    """A phase whose buckets take long.

    Attributes:
        each_seconds: of a bucket, as this warm-up shows, else as others do.
        timed: how many buckets of this warm-up show it.
        seconds: of all buckets of the phase.
    """

    phase: str
    progress: Progress
    each_seconds: float
    timed: int
    seconds: Estimate


def many(case: Case) -> Sighting | None:
    """Look for a list of buckets that takes hours to warm up."""
    start, most = case.start, case.limits["hours"] * _HOUR
    found = (_slow(case, phase) for phase in (PROMPT, DECODE))
    # What no bucket of this start has shown is told only where even its low end is long.
    slow = [
        each
        for each in found
        if each and (each.seconds.value if each.timed else each.seconds.low) >= most
    ]
    if not slow:
        return None
    worst = max(slow, key=lambda each: each.seconds.value)
    fewer, died, progress = (
        _fewer(start, worst, most),
        root_fault(start),
        worst.progress,
    )
    return Sighting(
        why=_why_many(start, worst),
        cure=("cure_seqs",) if fewer else ("cure",),
        numbers=_numbers(worst, fewer),
        figures={f"{worst.phase}_warmup_seconds": worst.seconds},
        words={
            "phase": worst.phase,
            "hours": _hours(worst.seconds),
            "what": described(died) if died else "",
            "free": about(progress.free.value.bytes) if progress.free else "unknown",
            "flags": "--max-num-seqs",
            "pace": "public logs"
            if worst.seconds.origin == "prior"
            else "earlier starts",
        },
        lines=_lines(start, worst),
        aspect=worst.phase,
    )


def _numbers(slow: _Slow, fewer: _Fewer | None) -> dict[str, float | str]:
    progress = slow.progress
    numbers: dict[str, float | str] = {
        f"{slow.phase}_buckets": progress.total,
        "buckets_done": progress.done,
        "seconds_per_bucket": round(slow.each_seconds, 1),
        "buckets_timed": slow.timed,
    }
    if progress.free is not None:
        numbers["free_bytes"] = progress.free.value.bytes
    if fewer is not None:
        numbers |= {"max_num_seqs": fewer.seqs, "buckets_then": fewer.count}
    return numbers


def _lines(start: Start, slow: _Slow) -> tuple[Line, ...]:
    listed, died = start.buckets.get(slow.phase), root_fault(start)
    known = [
        listed.line if listed else None,
        slow.progress.free.line if slow.progress.free else None,
        died.line if died else None,
    ]
    return tuple(line for line in known if line is not None) or (start.first_line,)


def _why_many(start: Start, slow: _Slow) -> tuple[str, ...]:
    died = root_fault(start)
    if not slow.timed:
        return ("why_foretold",)
    if died is None:
        return ("why",) if start.phase is not Phase.READY else ("why_done",)
    if code_of(died) == "warmup-oom" or slow.progress.free is None:
        return ("why", "why_died")
    return ("why", "why_died", "why_not_memory")


def _slow(case: Case, phase: str) -> _Slow | None:
    start = case.start
    progress = start.warmup.progress.get(phase)
    found = _each_seconds(start, phase, progress) if progress else None
    if progress is None or found is None:
        return _foretold(case, phase)
    each, timed = found
    mean = each * progress.total
    if timed >= progress.total:
        told = Estimate(mean, mean, mean, "measured")
    else:
        low, high = _OF_MEAN
        told = Estimate(mean, max(each * timed, mean * low), mean * high, "predicted")
    return _Slow(phase, progress, each, timed, told)


def _foretold(case: Case, phase: str) -> _Slow | None:
    """Price a list of which no bucket was timed, by earlier starts or by public logs."""
    start, listed = case.start, case.start.buckets.get(phase)
    warmup = start.warmup
    if listed is None or warmup.skipped is not None or warmup.seconds is not None:
        return None
    if start.phase not in _BEFORE_READY:
        return None  # it came through, in whatever time
    count = listed.value.count
    told = _law(case).of_counts({phase: count})
    if count < 1:
        return None
    return _Slow(phase, Progress(0, count), told.value / count, 0, told)


def _each_seconds(
    start: Start, phase: str, progress: Progress
) -> tuple[float, int] | None:
    """Return the seconds of a bucket and how many were timed: by a bar, else by headers."""
    if len(progress.points) > 1:
        first, last = progress.points[0], progress.points[-1]
        return (last[1] - first[1]) / (last[0] - first[0]), last[0] - first[0]
    if progress.elapsed_seconds and progress.done:
        return progress.elapsed_seconds / progress.done, progress.done
    taken = start.warmup.phase_seconds.get(phase)
    # The newest line's own bucket is not timed yet, unless the phase is over.
    timed = len(progress.steps) - (progress.done < progress.total)
    return (taken / timed, timed) if taken and timed > 0 else None


@dataclass(frozen=True, slots=True)
class _Fewer:
    """A batch limit and the buckets that it makes."""

    seqs: int
    count: int


def _fewer(start: Start, slow: _Slow, most_seconds: float) -> _Fewer | None:
    """Return the largest --max-num-seqs, by halves, whose list is warm in time.

    Told only where the rules make the very list that the log prints.
    """
    known, listed = configured(start), printed_lists(start).get(slow.phase)
    if known is None or "max_num_seqs" in known.assumed or not listed:
        return None
    made = _made(known, known.flags.max_num_seqs, slow.phase)
    if made is None or set(made) != set(listed):
        return None
    seqs = known.flags.max_num_seqs // 2
    while seqs >= 1:
        made = _made(known, seqs, slow.phase)
        if made is None:
            return None
        if len(made) * slow.each_seconds <= most_seconds:
            return _Fewer(seqs, len(made))
        seqs //= 2
    return None


def _made(known: Configured, seqs: int, phase: str) -> tuple[Bucket, ...] | None:
    """Return the buckets of a batch limit, None where the rules make none."""
    flags = replace(known.flags, max_num_seqs=seqs)
    try:
        return generate(resolve(known.release.dialect, flags, known.env), phase)
    except ConfigError:
        return None


def _hours(seconds: Estimate) -> str:
    value = f"{seconds.value / _HOUR:.1f} h"
    if seconds.low == seconds.high:
        return value
    return f"{value} ({seconds.low / _HOUR:.1f} to {seconds.high / _HOUR:.1f})"


def batch_unused(case: Case) -> Sighting | None:
    """Look for decode batches far above what the log's load ever ran at once."""
    start, traffic = case.start, case.start.traffic
    running, listed = traffic.running_peak, printed_lists(start).get(DECODE, ())
    if running is None or not listed or not has_traffic(start) or speculates(start):
        return None
    if traffic.busy_lines < case.limits["busy_lines"] or traffic.preemptions:
        return None
    if traffic.waiting_peak is not None and traffic.waiting_peak.value > 0:
        return None
    batches = sorted({each.batch for each in listed})
    place = bisect_left(batches, running.value)
    if place >= len(batches) - 1:
        return None
    needed = batches[place]
    unused = [each for each in listed if each.batch > needed]
    if len(unused) < case.limits["share"] * len(listed):
        return None
    saved = _saved(case, {DECODE: len(unused)})
    return Sighting(
        why=("why", "why_seconds") if saved else ("why",),
        numbers={
            "running_peak_requests": running.value,
            "largest_batch": batches[-1],
            "needed_batch": needed,
            "decode_buckets": len(listed),
            "decode_buckets_unused": len(unused),
            "decode_buckets_unused_percent": round(100 * len(unused) / len(listed)),
            "busy_lines": traffic.busy_lines,
        },
        figures={"warmup_seconds_saved": saved} if saved else {},
        words={
            "seconds": f"{saved.value:,.0f} s ({saved.low:,.0f} to {saved.high:,.0f})"
            if saved
            else ""
        },
        lines=(running.line, start.buckets[DECODE].line),
    )


def _saved(case: Case, counts: Mapping[str, int]) -> Estimate | None:
    """Return the seconds that so many buckets take, by this server's own warm-ups."""
    law = _law(case)
    return None if law.origin == "prior" else law.of_counts(counts)


def _law(case: Case) -> WarmupLaw:
    """Return what a bucket takes, by this server's starts; by public logs without any."""
    like = identity_of(case.start)
    same = [each for each in case.earlier if identity_of(each) == like]
    timed = [timed_start(each) for each in (*same, case.start)]
    return learn(each for each in timed if each is not None)
