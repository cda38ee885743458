"""Checks of the warm-up and of shapes that it did not prepare."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hpuwatch.advise.bucketing import (
    Ranges,
    flags_of,
    ranges_of,
    variable_of,
)
from hpuwatch.advise.finding import INFO, Case, Sighting
from hpuwatch.gaudi.resolve import FILE_VARIABLE
from hpuwatch.state.model import DECODE, PROMPT, Miss, Shape, Start
from hpuwatch.state.serving import NOT_PREPARED

_WORDS = {0: "batch", 1: "query length", 2: "blocks"}
_SHOWN = 3

_Axis = tuple[str, int]
"""A phase and the place of a number in its buckets."""


def skipped(case: Case) -> Sighting | None:
    """Look for a warm-up that was switched off."""
    known = case.start.warmup.skipped
    return None if known is None else Sighting(lines=(known.line,))


def above_kv(case: Case) -> Sighting | None:
    """Look for decode buckets with more blocks than the KV cache has."""
    start = case.start
    blocks, listed = start.kv.blocks, start.buckets.get(DECODE)
    if blocks is None or listed is None or not listed.value.shapes:
        return None
    if blocks.value <= 0:
        return None  # that is another finding
    if "blocks" not in listed.line.text:
        return None  # fork 1.17 lists tokens
    shapes = listed.value.shapes
    above = [shape for shape in shapes if shape[-1] > blocks.value]
    if not above:
        return None
    cure, words = _cure_above(ranges_of(start))
    return Sighting(
        cure=cure,
        numbers={
            "decode_buckets": len(shapes),
            "decode_buckets_above_kv": len(above),
            "decode_buckets_above_kv_percent": round(100 * len(above) / len(shapes)),
            "kv_blocks": blocks.value,
            "largest_bucket_blocks": max(shape[-1] for shape in shapes),
        },
        words=words,
        lines=(blocks.line, listed.line),
    )


def _cure_above(ranges: Ranges) -> tuple[tuple[str, ...], dict[str, object]]:
    """Say how the largest decode buckets go, by what the server's strategy heeds."""
    words: dict[str, object] = {
        "variable": variable_of(DECODE, 2),
        "acting": ranges.variable(DECODE, 2),
        "flags": " or ".join(flags_of(DECODE, 2)),
        "strategy": ranges.word,
        "switch": ranges.switch,
        "file": FILE_VARIABLE,
    }
    if ranges.strategy == "file":
        return ("cure_file",), words
    if ranges.strategy is None:
        return ("cure_unknown",), words
    if words["acting"] is not None:
        return ("cure",), words
    if not ranges.switch:
        return ("cure_flags",), words
    switch = "cure_switch_or_file" if ranges.reads_file else "cure_switch"
    return ("cure_flags", switch), words


def misses(case: Case) -> Sighting | None:
    """Look for shapes of traffic that warm-up had not prepared."""
    start = case.start
    seen = [miss for miss in start.misses if miss.count > 0]
    if not seen:
        return None
    ranges = [_against(start, phase, seen) for phase in _phases(seen)]
    expected = start.warmup.skipped is not None
    cure, words = _cure(start, [axis for _, axes in ranges for axis in axes])
    return Sighting(
        why=("why", "why_skipped", "ranges") if expected else ("why", "ranges"),
        cure=() if expected else cure,
        numbers={
            f"{phase}_{reason}": sum(
                miss.count
                for miss in seen
                if (miss.phase, miss.reason) == (phase, reason)
            )
            for phase, reason in sorted({(miss.phase, miss.reason) for miss in seen})
        },
        words={
            "shapes": _shapes(seen),
            "ranges": " ".join(said for said, _ in ranges),
            **words,
        },
        lines=tuple(miss.line for miss in seen[:_SHOWN]),
        severity=INFO if expected else None,
    )


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
) -> tuple[str, tuple[_Axis, ...]]:
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


def _cure(
    start: Start, axes: Sequence[_Axis]
) -> tuple[tuple[str, ...], dict[str, object]]:
    """Say how the ranges get wider, by what the server's strategy heeds."""
    words: dict[str, object] = {"file": FILE_VARIABLE}
    if not axes:
        return ("cure_between",), words
    ranges = ranges_of(start)
    if ranges.strategy == "file":
        return ("cure_file",), words
    acting = _distinct(ranges.variable(*axis) for axis in axes)
    vain = [axis for axis in axes if not ranges.variable(*axis)]
    words |= {
        "acting": " and ".join(acting),
        "vain": " and ".join(_distinct(variable_of(*axis) for axis in vain)),
        "flags": " and ".join(
            _distinct(flag for axis in vain for flag in flags_of(*axis))
        ),
        "strategy": ranges.word,
        "ways": _ways(ranges, vain),
    }
    cure = ["cure"] if acting else []
    if ranges.strategy is None:
        cure.append("cure_unknown")
    elif vain:
        cure.append("cure_vain")
    return tuple(cure), words


def _ways(ranges: Ranges, vain: Sequence[_Axis]) -> str:
    """Say what helps where the variables of the axes are ignored."""
    names = " and ".join(_distinct(variable_of(*axis) for axis in vain))
    ways = []
    if ranges.switch:
        ways.append(f"set {ranges.switch} and raise {names}")
    if ranges.reads_file:
        ways.append(f"list the shapes in a bucket file ({FILE_VARIABLE})")
    ways.append("limit the requests")
    said = ", or ".join(ways)
    return f"{said[0].upper()}{said[1:]}"


def _distinct(names: Iterable[str | None]) -> list[str]:
    return list(dict.fromkeys(name for name in names if name is not None))
