"""Checks of how long a start takes: against what waits for it, and against the last one.

Two things end a healthy server that warms up for long: the front end, which waits for its
engine for VLLM_ENGINE_READY_TIMEOUT_S (600 s), and a startup probe of whoever runs it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from hpuwatch.advise.ages import last_age_seconds, ready_age_seconds
from hpuwatch.advise.causes import root_fault
from hpuwatch.advise.changed import READY, changed_settings, last_good, listed
from hpuwatch.advise.finding import INFO, Case, Sighting
from hpuwatch.errors import ConfigError
from hpuwatch.gaudi.estimate import Estimate, exactly
from hpuwatch.gaudi.knobs import KNOBS
from hpuwatch.gaudi.planning import READY_TIMEOUT, patient_seconds, ready_seconds
from hpuwatch.gaudi.spans import Point, point_of
from hpuwatch.gaudi.warmuptime import DECODE_PER_PROMPT
from hpuwatch.life.phases import Phase
from hpuwatch.records import Line
from hpuwatch.state.configured import acting_variables, release_text
from hpuwatch.state.model import DECODE, PROMPT, Progress, Start
from hpuwatch.state.warmup_left import FEWEST_TIMED, estimate_left

LONGEST_START_SECONDS = 7 * 24 * 3600
"""No server takes a week to start: such times come from a clock that was set."""

_TIMED_OUT = "engine_ready_timeout"
_AGAIN = (0.9, 1.1)
"""Two equal starts are taken to differ by a tenth, as in gaudi.warmuptime."""
_CHEAPER, _DEARER = 0.4, 1.2
"""What buckets to come take, of the mean of those before: see state.warmup_left."""


def release_point(start: Start) -> Point | None:
    """Return the release of a start, to compare with ranges of releases."""
    text = release_text(start.server)
    try:
        return None if text is None else point_of(text)
    except ConfigError:
        return None


def patient_probe(after: Estimate) -> int:
    """Return the seconds that a startup probe should wait: room above the upper bound."""
    return max(patient_seconds(after.value), patient_seconds(after.high / 2))


def ready_after(start: Start, earlier: Sequence[Start] = ()) -> Estimate | None:
    """Return the seconds from the first line until ready, None where nothing tells.

    Measured where the start got there; else its age at the last sign of it and what is
    left of warm-up, or what an earlier start of the same server took.
    """
    found = _ready_after(start, earlier)
    return None if found is None or found.high > LONGEST_START_SECONDS else found


def _ready_after(start: Start, earlier: Sequence[Start]) -> Estimate | None:
    seconds = ready_age_seconds(start)
    if seconds is not None:
        return exactly(seconds)
    age, left = last_age_seconds(start), left_of_warmup(start, earlier)
    if age is not None and left is not None:
        return exactly(age) + left
    before = last_good(start, earlier)
    took = None if before is None else ready_after(before)
    if took is None:
        return None
    least = age or 0.0  # it isn't ready yet
    value, low, high = (max(least, took.value * each) for each in (1.0, *_AGAIN))
    return Estimate(value, low, high, "learned")


def left_of_warmup(start: Start, earlier: Sequence[Start] = ()) -> Estimate | None:
    """Return what was left of warm-up at the last sign of it, None where nothing tells."""
    if Phase.WARMING.value not in start.reached or start.warmup.seconds is not None:
        return None
    seen = [each.last_at for each in start.warmup.progress.values() if each.last_at]
    now = max(seen, default=start.phase_since or 0.0)
    left = estimate_left(replace(start, phase=Phase.WARMING), now, earlier)
    if left.value is None or left.low is None or left.high is None:
        return _by_headers(start)
    return Estimate(left.value, left.low, left.high, "predicted")


def _by_headers(start: Start) -> Estimate | None:
    """Price the buckets to come by the header times of those before, without a bar."""
    phases = [each for each in (PROMPT, DECODE) if each in start.warmup.progress]
    if not phases:
        return None
    phase = phases[-1]
    progress = start.warmup.progress[phase]
    rate = seconds_each(start, phase)
    if rate is None:
        return None
    todo = (progress.total - progress.done) * rate
    left = Estimate(todo, todo * _CHEAPER, todo * _DEARER, "predicted")
    to_come = start.buckets.get(DECODE)
    if phase == DECODE or to_come is None:
        return left
    low, likely, high = (
        to_come.value.count * rate * ratio for ratio in DECODE_PER_PROMPT
    )
    return left + Estimate(likely, low, high, "predicted")


def seconds_each(start: Start, phase: str) -> float | None:
    """Return the mean seconds of a bucket of a phase, None where too few were timed."""
    progress = start.warmup.progress.get(phase)
    took = start.warmup.phase_seconds.get(phase)
    listed_count = start.buckets[phase].value.count if phase in start.buckets else 0
    done = progress.done if progress else 0
    if start.warmup.seconds is not None:
        done = max(done, listed_count)
    points = progress.points if progress else ()
    if took and done >= FEWEST_TIMED:
        return took / done
    if len(points) > FEWEST_TIMED and points[-1][0] > points[0][0]:
        return (points[-1][1] - points[0][1]) / (points[-1][0] - points[0][0])
    return None


def too_long(case: Case) -> Sighting | None:
    """Look for a start that takes longer than what waits for it may allow."""
    start = case.start
    if start.warmup.skipped is not None:
        return None
    fault = root_fault(start)
    timed_out = fault is not None and fault.name == _TIMED_OUT
    if fault is not None and not timed_out:
        return None
    after, at = ready_after(start, case.history), release_point(start)
    if after is None:
        return None
    env = {name: each.value for name, each in acting_variables(start.server).items()}
    limit = None if at is None else ready_seconds(env, at)
    if at is not None and limit is not None and _matters(start, after, limit, case):
        return _against_engine(start, after, limit, at)
    if after.value < case.limits["probe_seconds"]:
        return None
    return Sighting(
        title="title_probe",
        why=("why_probe",),
        cure=("cure_probe",),
        numbers={"probe_seconds": patient_probe(after)},
        figures={"ready_seconds": after},
        words={"usual_seconds": case.limits["probe_seconds"]},
        lines=_lines(start),
        severity=INFO,
    )


def _matters(start: Start, after: Estimate, limit: int, case: Case) -> bool:
    """Tell whether the front end's patience is near; a server that got ready had it."""
    if READY in start.reached:
        return case.limits["near_ratio"] * limit <= after.value <= limit
    return after.high > limit


def _against_engine(start: Start, after: Estimate, limit: int, at: Point) -> Sighting:
    acts = KNOBS[READY_TIMEOUT].acts(at)
    ready = READY in start.reached
    return Sighting(
        title="title_near" if ready else "title",
        why=("why",),
        cure=("cure" if acts else "cure_fixed",),
        numbers={
            "limit_seconds": limit,
            "advised_seconds": max(patient_seconds(after.value), limit),
        },
        figures={"ready_seconds": after},
        words={
            "variable": READY_TIMEOUT,
            "ends": "ends" if after.low > limit else "may end",
        },
        lines=_lines(start),
        severity=INFO if ready else None,
    )


def _lines(start: Start) -> tuple[Line, ...]:
    """Return the first line, and what tells how long warm-up took or how far it came."""
    known = [start.warmup.init_seconds, start.warmup.seconds]
    told = [each.line for each in known if each is not None]
    told += [start.reached[READY]] if READY in start.reached else []
    if not told:
        told = [*start.reached.values()][-1:]
    return tuple(dict.fromkeys((start.first_line, *told)))


def slow(case: Case) -> Sighting | None:
    """Look for buckets that take many times what they took in the last good start."""
    start = case.start
    before = last_good(start, case.history)
    if before is None or start.warmup.skipped is not None:
        return None
    found = _slowest(start, before, case.limits)
    if found is None:
        return None
    phase, each, then = found
    changes = changed_settings(before, start)
    after = ready_after(start, case.history)
    figures = {"ready_seconds": after} if after and READY not in start.reached else {}
    return Sighting(
        why=("why_left",) if figures else ("why",),
        cure=("cure_changes",) if changes else ("cure_unseen",),
        numbers={
            "seconds_per_bucket": round(each, 3),
            "seconds_per_bucket_before": round(then, 3),
            "times": round(each / then, 1),
        },
        figures=figures,
        words={"phase": phase, "changes": listed(changes)},
        lines=tuple(
            dict.fromkeys(
                (
                    *_timing_lines(before),
                    *_timing_lines(start),
                    *(line for each in changes[:2] for line in each.lines),
                )
            )
        ),
    )


def _slowest(
    start: Start, before: Start, limits: Mapping[str, float]
) -> tuple[str, float, float] | None:
    """Return the phase whose buckets got slowest, with the seconds of one, now and then."""
    found = []
    for phase in (PROMPT, DECODE):
        now, then = seconds_each(start, phase), seconds_each(before, phase)
        if not now or not then or now < then * limits["times"]:
            continue
        done = start.warmup.progress.get(phase, Progress(0, 0)).done
        if now * done >= limits["felt_seconds"]:
            found.append((now / then, phase, now, then))
    return max(found)[1:] if found else None


def _timing_lines(start: Start) -> tuple[Line, ...]:
    seconds = start.warmup.seconds
    if seconds is not None:
        return (seconds.line,)
    return (*start.reached.values(),)[-1:]
