"""Decode buckets with more blocks than the KV cache has.

Two maintainers' texts disagree on whether such shapes ever come: without shared prefixes a
batch can't hold more blocks than there are, with them each request counts its own references.
So what traffic was seen to ask for counts, and nothing is cut off as long as it was.
"""

from __future__ import annotations

from hpuwatch.advise.bucketing import Ranges, flags_of, ranges_of, variable_of
from hpuwatch.advise.causes import code_of, root_fault
from hpuwatch.advise.finding import WARNING, Case, Sighting
from hpuwatch.gaudi.resolve import FILE_VARIABLE
from hpuwatch.state.model import DECODE, Miss, Start


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
    largest = max(shape[-1] for shape in shapes)
    asked = _most_asked(start)
    seen_above = asked is not None and asked.shape[-1] > blocks.value
    cure, words = _cure(ranges_of(start))
    died = _died_there(start)
    numbers: dict[str, float | str] = {
        "decode_buckets": len(shapes),
        "decode_buckets_above_kv": len(above),
        "decode_buckets_above_kv_percent": round(100 * len(above) / len(shapes)),
        "decode_range_above_kv_percent": round(100 * (1 - blocks.value / largest)),
        "kv_blocks": blocks.value,
        "largest_bucket_blocks": largest,
    }
    if asked is not None:
        numbers["asked_blocks_most"] = asked.shape[-1]
    return Sighting(
        why=(
            "why",
            *(("why_seen",) if seen_above else ()),
            *(("why_died",) if died else ()),
        ),
        cure=("cure_keep",) if seen_above else cure,
        numbers=numbers,
        words=words,
        lines=(blocks.line, listed.line, *((asked.line,) if asked else ())),
        severity=WARNING if died and not seen_above else None,
    )


def _most_asked(start: Start) -> Miss | None:
    """Return the decode with the most blocks that traffic asked for in vain."""
    asked = [
        miss
        for miss in start.misses
        if miss.phase == DECODE and miss.count and len(miss.shape) > 1
    ]
    return max(asked, key=lambda miss: miss.shape[-1], default=None)


def _died_there(start: Start) -> bool:
    """Tell whether warm-up ran out of memory among the decode buckets."""
    fault = root_fault(start)
    if fault is None or code_of(fault) != "warmup-oom":
        return False
    return DECODE in start.warmup.progress


def _cure(ranges: Ranges) -> tuple[tuple[str, ...], dict[str, object]]:
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
