"""What a start printed of its graphs' memory, as observations for ``gaudi.graphlaw``.

The steps of ``free_mem`` say most, since each is of one bucket; else the captured total of
a phase counts, and where no phase printed one, what warm-up allocated in all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from hpuwatch.gaudi.graphlaw import WarmupUse, warmup_use
from hpuwatch.gaudi.graphseen import (
    EVERY,
    Observation,
    observe,
    steps,
)
from hpuwatch.gaudi.model import Bucket
from hpuwatch.state.configured import bucket_of, buckets_of, printed_lists
from hpuwatch.state.model import DECODE, PROMPT, Start
from hpuwatch.units import Amount

Lists = Mapping[str, Sequence[Bucket]]

_FEWEST_STEPS = 3
"""Steps from which on a fit can tell graphs and tokens apart."""


def observations_of(
    start: Start, lists: Lists | None = None
) -> tuple[Observation, ...]:
    """Return what a start printed of its graphs' memory, the most telling figures.

    Args:
        start: one start.
        lists: the bucket lists by phase where the log doesn't print them; the log's own
            come first.
    """
    known: dict[str, Sequence[Bucket]] = {**(lists or {}), **printed_lists(start)}
    seen = [
        observed
        for phase in (PROMPT, DECODE)
        for observed in _of_phase(start, phase, known.get(phase, ()))
    ]
    allocated = start.warmup.allocated
    if seen or allocated is None or not {PROMPT, DECODE} <= known.keys():
        return tuple(seen)
    together = [bucket for phase in (PROMPT, DECODE) for bucket in known[phase]]
    return (observe(EVERY, together, allocated.value),)


def _of_phase(
    start: Start, phase: str, listed: Sequence[Bucket]
) -> tuple[Observation, ...]:
    used = start.graphs_used.get(phase)
    cut = start.captured_shapes.get(phase)
    captured = listed if cut is None else buckets_of(phase, cut)
    total = None
    if used is not None and captured:
        total = observe(phase, captured, used.value)
    printed = _printed_steps(start, phase)
    if len(printed) < _FEWEST_STEPS:
        return (total,) if total else ()
    if used is not None and sorted(captured) == sorted(each for each, _ in printed):
        return steps(phase, printed, used.value)
    single = steps(phase, printed)
    return (*single, replace(total, repeats=True)) if total else single


def _printed_steps(start: Start, phase: str) -> list[tuple[Bucket, Amount]]:
    """Return what was free before each graph, none of a pass that captures no graphs."""
    progress = start.warmup.progress.get(phase)
    if progress is None or not (progress.capturing or start.server.plugin):
        return []
    return [
        (bucket, free)
        for shape, free in progress.steps
        if (bucket := bucket_of(phase, shape)) is not None
    ]


def free_before_bytes(start: Start) -> int | None:
    """Return what rank 0 had free once the KV cache was there, before warm-up."""
    memory = start.memory.get(0)
    if memory is None or memory.total is None or memory.used_after_kv is None:
        return None
    return memory.total.value.bytes - memory.used_after_kv.value.bytes


def warmup_use_of(start: Start) -> WarmupUse | None:
    """Return peak and steady use of a warm-up that printed its steps, else None.

    Both are of rank 0 and relative to what was free once the KV cache was there.
    """
    frees = [
        free.bytes for each in start.warmup.progress.values() for _, free in each.steps
    ]
    before = free_before_bytes(start)
    if not frees or before is None:
        return None
    allocated = start.warmup.allocated
    if allocated is not None:
        frees.append(before - allocated.value.bytes)
    return warmup_use(before, frees)
