"""Checks of the warm-up and of shapes that it did not prepare."""

from __future__ import annotations

from collections.abc import Sequence

from hpuwatch.advise.bucketing import Axis, variable_of, wider
from hpuwatch.advise.checks.warmup_time import seconds_each
from hpuwatch.advise.finding import INFO, Case, Sighting
from hpuwatch.gaudi.estimate import Estimate
from hpuwatch.state.model import DECODE, PROMPT, Miss, Shape, Start
from hpuwatch.state.serving import NOT_PREPARED

_WORDS = {0: "batch", 1: "query length", 2: "blocks"}
_SHOWN = 3
_CHEAPEST, _DEAREST = 0.59, 1.44
"""What a third of a bar's buckets took, of the mean over all: see gaudi.warmuptime."""


def skipped(case: Case) -> Sighting | None:
    """Look for a warm-up that was switched off."""
    known = case.start.warmup.skipped
    if known is None:
        return None
    listed = sum(each.value.count for each in case.start.buckets.values())
    missed = sum(miss.count for miss in case.start.misses)
    return Sighting(
        numbers={"cold_buckets": listed, "missed_shapes": missed}, lines=(known.line,)
    )


def misses(case: Case) -> Sighting | None:
    """Look for shapes of traffic that warm-up had not prepared."""
    start = case.start
    seen = [miss for miss in start.misses if miss.count > 0]
    if not seen:
        return None
    ranges = [_against(start, phase, seen) for phase in _phases(seen)]
    expected = start.warmup.skipped is not None
    price = _price(start, seen)
    cure, words = wider(start, [axis for _, axes in ranges for axis in axes])
    return Sighting(
        why=_why(expected=expected, priced=price is not None),
        cure=() if expected else cure,
        numbers={
            f"{phase}_{reason}": sum(
                miss.count
                for miss in seen
                if (miss.phase, miss.reason) == (phase, reason)
            )
            for phase, reason in sorted({(miss.phase, miss.reason) for miss in seen})
        },
        figures={} if price is None else {"warmup_seconds_more": price},
        words={
            "shapes": _shapes(seen),
            "ranges": " ".join(said for said, _ in ranges),
            **words,
        },
        lines=tuple(miss.line for miss in seen[:_SHOWN]),
        severity=INFO if expected else None,
    )


def _why(*, expected: bool, priced: bool) -> tuple[str, ...]:
    said = ("why", "why_skipped", "ranges") if expected else ("why", "ranges")
    return (*said, "why_price") if priced else said


def _price(start: Start, seen: Sequence[Miss]) -> Estimate | None:
    """Return what warm-up would have taken for these shapes: their number times its pace."""
    rates = {phase: seconds_each(start, phase) for phase in _phases(seen)}
    costs = [rates[miss.phase] for miss in seen]
    known = [cost for cost in costs if cost is not None]
    if len(known) < len(costs):
        return None
    whole = sum(known)
    return Estimate(whole, whole * _CHEAPEST, whole * _DEAREST, "learned")


def _phases(seen: Sequence[Miss]) -> list[str]:
    return list(dict.fromkeys(miss.phase for miss in seen))


def _shapes(seen: Sequence[Miss]) -> str:
    parts = []
    for phase in _phases(seen):
        shapes = list(dict.fromkeys(m.shape for m in seen if m.phase == phase))
        shown = ", ".join(str(shape) for shape in shapes[:_SHOWN])
        more = f" and {len(shapes) - _SHOWN:,} more" if len(shapes) > _SHOWN else ""
        noun = "shape" if len(shapes) == 1 else "shapes"
        parts.append(f"{len(shapes):,} {phase} {noun} {shown}{more}")
    return "; ".join(parts)


def _against(
    start: Start, phase: str, seen: Sequence[Miss]
) -> tuple[str, tuple[Axis, ...]]:
    """Say which range the shapes miss, and which axes would have to be wider."""
    shapes = [miss.shape for miss in seen if miss.phase == phase]
    listed = start.buckets.get(phase)
    buckets = listed.value.shapes if listed else ()
    if not buckets:
        return f"The log doesn't list the {phase} buckets.", ()
    beyond: dict[int, tuple[int, int]] = {}
    for axis in _axes(phase, shapes, buckets):
        asked = max(shape[axis] for shape in shapes if len(shape) > axis)
        largest = max(bucket[axis] for bucket in buckets)
        if asked > largest:
            beyond[axis] = (asked, largest)
    if not beyond:
        return _between(phase, seen, set(buckets)), ()
    said = " and ".join(
        f"{_WORDS[axis]} {asked:,} ({asked / largest:.1f} times the largest, {largest:,})"
        if largest
        else f"{_WORDS[axis]} {asked:,} (the largest is {largest:,})"
        for axis, (asked, largest) in beyond.items()
    )
    axes = tuple((phase, axis) for axis in beyond if variable_of(phase, axis))
    return f"The {phase} buckets end below {said}.", axes


def _axes(phase: str, shapes: Sequence[Shape], buckets: Sequence[Shape]) -> list[int]:
    """Return the axes that both have; a decode's second number is no size of a bucket."""
    longest = max(len(shape) for shape in shapes)
    both = min(longest, len(buckets[0]))
    return [axis for axis in range(both) if not (phase == DECODE and axis == 1)]


def _between(phase: str, seen: Sequence[Miss], buckets: set[Shape]) -> str:
    """Explain shapes that lie inside of the ranges."""
    mine = [miss for miss in seen if miss.phase == phase]
    if all(_is_listed(phase, miss.shape, buckets) for miss in mine):
        return f"The {phase} buckets list these shapes, yet warm-up did not reach them."
    if any(miss.reason == NOT_PREPARED for miss in mine):
        return f"They lie inside of the {phase} ranges, but no bucket combines those sizes."
    return f"They lie inside of the {phase} ranges, between the buckets."


def _is_listed(phase: str, shape: Shape, buckets: set[Shape]) -> bool:
    """Tell whether a bucket has the shape; older logs leave the blocks out."""
    if phase == PROMPT:
        return any(bucket[: len(shape)] == shape for bucket in buckets)
    return shape in buckets
