"""Checks of the warm-up and of shapes that it did not prepare."""

from __future__ import annotations

from collections.abc import Sequence

from hpuwatch.advise.finding import INFO, Sighting
from hpuwatch.state.model import DECODE, PROMPT, Miss, Shape, Start
from hpuwatch.state.serving import NOT_PREPARED

_VARIABLES = {
    (PROMPT, 0): "VLLM_PROMPT_BS_BUCKET_MAX",
    (PROMPT, 1): "VLLM_PROMPT_QUERY_BUCKET_MAX (older releases: …_SEQ_…)",
    (PROMPT, 2): "VLLM_PROMPT_CTX_BUCKET_MAX",
    (DECODE, 0): "VLLM_DECODE_BS_BUCKET_MAX",
    (DECODE, 2): "VLLM_DECODE_BLOCK_BUCKET_MAX",
}
_WORDS = {0: "batch", 1: "query length", 2: "blocks"}
_SHOWN = 3


def skipped(start: Start) -> Sighting | None:
    """Look for a warm-up that was switched off."""
    known = start.warmup.skipped
    if known is None:
        return None
    return Sighting(
        title="Warm-up was skipped: every new shape compiles while a user waits",
        why=(
            "Graphs are captured as requests come, so the log can't tell whether the "
            "graph reserve is too large or too small."
        ),
        cure=(
            "Unset VLLM_SKIP_WARMUP for service (a recipe cache makes later starts "
            "short), then look at the log again."
        ),
        lines=(known.line,),
    )


def above_kv(start: Start) -> Sighting | None:
    """Look for decode buckets with more blocks than the KV cache has."""
    blocks, listed = start.kv.blocks, start.buckets.get(DECODE)
    if blocks is None or listed is None or not listed.value.shapes:
        return None
    if "blocks" not in listed.line.text:
        return None  # fork 1.17 lists tokens
    shapes = listed.value.shapes
    above = [shape for shape in shapes if shape[-1] > blocks.value]
    if not above:
        return None
    share = 100 * len(above) / len(shapes)
    return Sighting(
        title=(
            f"{len(above)} of {len(shapes)} decode buckets ({share:.0f} %) have more "
            f"blocks than the KV cache's {blocks.value}"
        ),
        why=(
            "Such shapes come only where requests share prefixes; they cost warm-up time "
            "and graph memory."
        ),
        cure="Lower VLLM_DECODE_BLOCK_BUCKET_MAX if requests share little.",
        numbers={
            "decode_buckets": len(shapes),
            "decode_buckets_above_kv": len(above),
            "kv_blocks": blocks.value,
            "largest_bucket_blocks": max(shape[-1] for shape in shapes),
        },
        lines=(blocks.line, listed.line),
    )


def misses(start: Start) -> Sighting | None:
    """Look for shapes of traffic that warm-up had not prepared."""
    seen = [miss for miss in start.misses if miss.count > 0]
    if not seen:
        return None
    ranges = [_against(start, phase, seen) for phase in _phases(seen)]
    expected = start.warmup.skipped is not None
    why = "Each one compiled a graph while a user waited."
    if expected:
        why += " Warm-up was skipped, so this had to come."
    return Sighting(
        title=_title(seen),
        why=f"{why} {' '.join(said for said, _ in ranges)}",
        cure=""
        if expected
        else _cure(start, [name for _, names in ranges for name in names]),
        numbers={
            f"{phase}_{reason}": sum(
                miss.count
                for miss in seen
                if (miss.phase, miss.reason) == (phase, reason)
            )
            for phase, reason in sorted({(miss.phase, miss.reason) for miss in seen})
        },
        lines=tuple(miss.line for miss in seen[:_SHOWN]),
        severity=INFO if expected else None,
    )


def _phases(seen: Sequence[Miss]) -> list[str]:
    return list(dict.fromkeys(miss.phase for miss in seen))


def _title(seen: Sequence[Miss]) -> str:
    parts = []
    for phase in _phases(seen):
        shapes = list(dict.fromkeys(m.shape for m in seen if m.phase == phase))
        shown = ", ".join(str(shape) for shape in shapes[:_SHOWN])
        more = f" and {len(shapes) - _SHOWN} more" if len(shapes) > _SHOWN else ""
        noun = "shape" if len(shapes) == 1 else "shapes"
        parts.append(f"{len(shapes)} {phase} {noun} {shown}{more}")
    return f"Traffic asked for shapes that warm-up had not prepared: {'; '.join(parts)}"


def _against(
    start: Start, phase: str, seen: Sequence[Miss]
) -> tuple[str, tuple[str, ...]]:
    """Say which range the shapes miss, and which variables widen it."""
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
        f"{_WORDS[axis]} {asked} ({asked / largest:.1f} times the largest, {largest})"
        if largest
        else f"{_WORDS[axis]} {asked} (the largest is {largest})"
        for axis, (asked, largest) in beyond.items()
    )
    names = tuple(
        _VARIABLES[phase, axis] for axis in beyond if (phase, axis) in _VARIABLES
    )
    return f"The {phase} buckets end below {said}.", names


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


def _cure(start: Start, names: Sequence[str]) -> str:
    if not names:
        return (
            "Add the shapes to the buckets (a bucket file, or a finer step), or limit the "
            "requests."
        )
    cure = f"Raise {' and '.join(dict.fromkeys(names))}, or limit the requests."
    strategy = start.server.features.get("bucketing_strategy", "")
    if strategy.startswith("exp"):
        cure += (
            " The exponential strategy makes its own ranges from --max-model-len, "
            "--max-num-seqs and --max-num-batched-tokens and ignores most of these "
            "variables; VLLM_BUCKETING_STRATEGY=lin reads them."
        )
    return cure
