"""Events of the warm-up: buckets, progress, graphs and how long each step took."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from hpuwatch.events import Event
from hpuwatch.state import fields
from hpuwatch.state.memory import KV_ALLOCATED, Handler, mark, of_rank, rank_of
from hpuwatch.state.model import (
    DECODE,
    MULTIMODAL,
    PROMPT,
    BucketList,
    Known,
    Progress,
    Shape,
    Start,
    Warmup,
)
from hpuwatch.state.times import seconds_between
from hpuwatch.units import Amount

PHASES = (MULTIMODAL, PROMPT, DECODE)
"""In the order in which the runtime warms them."""

SAMPLER_BEGAN, SAMPLER_ENDED = "sampler_begin", "sampler_end"
DEFRAGMENTER_BEGAN, DEFRAGMENTER_ENDED = "defragmenter_begin", "defragmenter_end"
LAST_STEP = "last_step"

_KEPT_POINTS = 64
_KEPT_STEPS = 512
_SHAPE_FIELDS = (
    "bs",
    "query_len",
    "seq_len",
    "num_blocks",
    "img_args",
    "width",
    "height",
)


def _generated(start: Start, event: Event) -> Start:
    """Keep the last list: a runtime that slices attention prints a first one too."""
    phase = fields.phase(event)
    count = fields.whole(event, "n")
    patches = event.fields.get("mm_buckets")
    if isinstance(patches, tuple):
        phase, listed = MULTIMODAL, BucketList(len(patches))
    elif phase in (PROMPT, DECODE) and count is not None:
        listed = _listed(count.value, fields.shapes(event, "tuples"))
    else:
        return start
    known = {**start.buckets, phase: Known(listed, event.line)}
    return replace(start, buckets=known)


def _listed(count: int, shapes: Sequence[Shape]) -> BucketList:
    """Return a list with its shapes, without them where it is cut or damaged."""
    whole = len(shapes) == count and len({len(shape) for shape in shapes}) == 1
    return BucketList(count, tuple(shapes) if whole else ())


def _bucket(start: Start, event: Event) -> Start:
    """Note a bucket: its line comes before its work, so those before it are done."""
    phase = fields.phase(event)
    place, total = fields.whole(event, "i"), fields.whole(event, "n")
    if phase not in PHASES or place is None or total is None or place.value < 1:
        return start
    capturing = bool(event.fields.get("graph"))
    if capturing and phase != MULTIMODAL:
        start = _second_pass(start)
    seen = Progress(
        place.value - 1,
        total.value,
        last_at=event.line.received_at,
        capturing=capturing,
    )
    start = _progress(start, phase, seen)
    free = fields.amount(event, "free")
    if free is not None:
        now = replace(start.warmup.progress[phase], free=free)
        if place.value - 1 == now.done and rank_of(start, event) == 0:
            steps = _stepped(event, now.steps, free.value)
            first = free if place.value == 1 else now.first_free
            now = replace(now, steps=steps, first_free=first)
        start = _with_progress(start, phase, now)
    start = _clocked(start, event, phase)
    if phase == MULTIMODAL:
        return _last_step(start, event)
    return _as_warmed(start, event, phase)


def _clocked(start: Start, event: Event, phase: str | None) -> Start:
    """Count the time since the newest bucket's line for its phase, and begin another."""
    if event.logged_at is None or rank_of(start, event) != 0:
        return start
    taken = start.warmup.phase_seconds
    if start.warmup.under_way is not None:
        before, since = start.warmup.under_way
        seconds = seconds_between(since, event.logged_at) or 0.0
        taken = {**taken, before: taken.get(before, 0.0) + seconds}
    under_way = (phase, event.logged_at) if phase else None
    return _warmup(start, phase_seconds=taken, under_way=under_way)


def _as_warmed(start: Start, event: Event, phase: str) -> Start:
    """Take the buckets from their warm-up where no list of them is readable (fork 1.21)."""
    known = start.buckets.get(phase)
    if known is not None and known.value.shapes:
        return start
    progress = start.warmup.progress[phase]
    listed = _listed(progress.total, sorted({shape for shape, _ in progress.steps}))
    same = known is not None and known.value.count == listed.count
    if known is not None and not (same and listed.shapes):
        return start
    return replace(start, buckets={**start.buckets, phase: Known(listed, event.line)})


def _stepped(
    event: Event, steps: tuple[tuple[Shape, Amount], ...], free: Amount
) -> tuple[tuple[Shape, Amount], ...]:
    """Add what was free before a bucket's graph; a line that comes twice counts once."""
    sizes = (fields.whole(event, name) for name in _SHAPE_FIELDS)
    shape = tuple(size.value for size in sizes if size is not None)
    if len(steps) >= _KEPT_STEPS or (steps and steps[-1][0] == shape):
        return steps
    return (*steps, (shape, free))


def _second_pass(start: Start) -> Start:
    """Begin anew where V0 has compiled all buckets and now captures their graphs."""
    progress = {
        phase: each
        for phase, each in start.warmup.progress.items()
        if each.capturing or phase == MULTIMODAL
    }
    return _warmup(start, progress=progress)


def _bar(start: Start, event: Event) -> Start:
    phase = fields.phase(event)
    done, total = fields.whole(event, "i"), fields.whole(event, "n")
    if phase not in PHASES or done is None or total is None:
        return start
    elapsed = fields.number(event, "elapsed")
    seen = Progress(
        done.value,
        total.value,
        elapsed_seconds=elapsed.value if elapsed else None,
        last_at=event.line.received_at,
    )
    return _progress(start, phase, seen)


def _progress(start: Start, phase: str, seen: Progress) -> Start:
    """Move a phase on; several ranks and a second bar of the phase never move it back."""
    start = _earlier_phases_done(start, phase)
    before = start.warmup.progress.get(phase, Progress(0, 0, first_at=seen.last_at))
    if seen.done < before.done:
        return start
    elapsed = seen.elapsed_seconds
    at = elapsed if seen.last_at is None else seen.last_at
    now = replace(
        before,
        done=seen.done,
        total=seen.total,
        elapsed_seconds=before.elapsed_seconds if elapsed is None else elapsed,
        last_at=seen.last_at,
        capturing=seen.capturing or before.capturing,
        points=_timed(before.points, seen.done, at),
    )
    return _with_progress(start, phase, now)


def _timed(
    points: tuple[tuple[int, float], ...], done: int, seconds: float | None
) -> tuple[tuple[int, float], ...]:
    """Add a point, so that counts and times both grow.

    Buckets that we learn of at one moment have no times of their own, as when a watcher
    reads on from where the last one stopped: they are one point.
    """
    if seconds is None or (points and done <= points[-1][0]):
        return points
    if points and seconds <= points[-1][1]:
        return (*points[:-1], (done, points[-1][1]))
    return (*points[-_KEPT_POINTS + 1 :], (done, seconds))


def _with_progress(start: Start, phase: str, progress: Progress) -> Start:
    return _warmup(start, progress={**start.warmup.progress, phase: progress})


def _warmup(start: Start, **figures: object) -> Start:
    changed: Warmup = replace(start.warmup, **figures)  # type: ignore[arg-type]
    return replace(start, warmup=changed)


def _phase_done(start: Start, phase: str) -> Start:
    progress = start.warmup.progress.get(phase)
    if progress is None or progress.done >= progress.total:
        return start
    return _with_progress(start, phase, replace(progress, done=progress.total))


def _earlier_phases_done(start: Start, phase: str) -> Start:
    for earlier in PHASES[: PHASES.index(phase)]:
        start = _phase_done(start, earlier)
    return start


def _last_step(start: Start, event: Event) -> Start:
    if event.logged_at is None or rank_of(start, event) != 0:
        return start
    return replace(start, marks={**start.marks, LAST_STEP: event.logged_at})


def _summary(start: Start, event: Event) -> Start:
    """Close a phase; of the ranks, the most that graphs used and the least captured count."""
    phase = fields.phase(event)
    if phase not in PHASES:
        return start
    start = _phase_done(_clocked(start, event, None), phase)
    start = _phase_took(start, event, phase)
    used = fields.amount(event, "mem")
    most = fields.larger(start.graphs_used.get(phase), used)
    if most is not None:
        start = replace(start, graphs_used={**start.graphs_used, phase: most})
    percent = fields.number(event, "pct")
    # Only releases that name what they captured tell the truth: later ones count the list.
    if percent is not None and isinstance(event.fields.get("buckets"), tuple):
        ratio = Known(percent.value / 100, event.line)
        least = fields.smaller(start.captured.get(phase), ratio) or ratio
        start = replace(start, captured={**start.captured, phase: least})
        if ratio.value < 1 and least is ratio:
            shapes = {**start.captured_shapes, phase: fields.shapes(event, "buckets")}
            start = replace(start, captured_shapes=shapes)
    return start


def _budgeted(start: Start, event: Event) -> Start:
    """Keep how much of the reserve each phase may take; of the ranks, the poorest counts."""
    known = start.warmup.budgets
    news = {
        phase: least
        for phase, name in ((PROMPT, "p"), (DECODE, "d"))
        if (least := fields.smaller(known.get(phase), fields.amount(event, name)))
    }
    ratio = fields.number(event, "r") or start.warmup.prompt_ratio
    return _warmup(start, budgets={**known, **news}, prompt_ratio=ratio)


def _phase_took(start: Start, event: Event, phase: str) -> Start:
    """Note what a phase took; where no bar ran, both summaries come at the very end."""
    progress = start.warmup.progress.get(phase)
    if progress is None or progress.elapsed_seconds is None:
        return start
    if phase not in start.warmup.phase_seconds:
        since = start.marks.get(LAST_STEP) or start.marks.get(KV_ALLOCATED)
        seconds = seconds_between(since, event.logged_at)
        took = progress.elapsed_seconds if seconds is None else seconds
        start = _warmup(
            start, phase_seconds={**start.warmup.phase_seconds, phase: took}
        )
    return _last_step(start, event)


def _finished(start: Start, event: Event) -> Start:
    """Every rank prints its own; the slowest and the largest count."""
    start = _clocked(start, event, None)
    for phase in PHASES:
        start = _phase_done(start, phase)
    start = of_rank(start, event, total=fields.amount(event, "total"))
    return _warmup(
        start,
        seconds=fields.larger(start.warmup.seconds, fields.number(event, "s")),
        allocated=fields.larger(start.warmup.allocated, fields.amount(event, "mem")),
    )


def _skipped(start: Start, event: Event) -> Start:
    """Note the skip once: the plugin says it twice."""
    if start.warmup.skipped is not None:
        return start
    return _warmup(start, skipped=Known(value=True, line=event.line))


_COMPILE_ONLY = {"compile_only": True, "compile_only_unsupported": False}
_STEPS = (SAMPLER_BEGAN, SAMPLER_ENDED, DEFRAGMENTER_BEGAN, DEFRAGMENTER_ENDED)


def _step(start: Start, event: Event) -> Start:
    step = str(event.fields.get("step"))
    if step in _COMPILE_ONLY:
        only = _COMPILE_ONLY[step]
        return _warmup(start, compile_only=only, compile_only_line=event.line)
    if step not in _STEPS:
        return start
    start = _phase_done(_clocked(start, event, None), MULTIMODAL)
    return _step_times(mark(_last_step(start, event), event, step))


def _step_times(start: Start) -> Start:
    marks = start.marks
    return _warmup(
        start,
        sampler_seconds=seconds_between(
            marks.get(SAMPLER_BEGAN), marks.get(SAMPLER_ENDED)
        ),
        defragmenter_seconds=seconds_between(
            marks.get(DEFRAGMENTER_BEGAN), marks.get(DEFRAGMENTER_ENDED)
        ),
    )


def _init_time(start: Start, event: Event) -> Start:
    """Every engine prints its own; the slowest counts."""
    seconds = fields.larger(start.warmup.init_seconds, fields.number(event, "s"))
    return _warmup(start, init_seconds=seconds)


HANDLERS: Mapping[str, Handler] = MappingProxyType(
    {
        "buckets_generated": _generated,
        "warmup_bucket": _bucket,
        "warmup_progress": _bar,
        "graph_budget": _budgeted,
        "graph_summary": _summary,
        "warmup_finished": _finished,
        "warmup_skipped": _skipped,
        "warmup_misc": _step,
        "engine_init_time": _init_time,
    }
)
