"""What of the card's memory the log doesn't account for, or accounts for twice.

A log names the weights, the profile run, the split and the KV cache, and how full the card
was in between.  What is full beyond that belongs to somebody else: the libraries that the
cards talk through, another process, pages of a cache that is laid out in another way.
Memory that was taken before the split is counted in it, since the runtime asks the device
what is free; what is taken later comes off the part outside of vLLM's budget, and then off
the graph reserve.  The utilisation is the knob that keeps room for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import floor

from hpuwatch.advise.causes import root_fault
from hpuwatch.advise.figures import (
    ACTIVATION_SHARE,
    Reserve,
    about,
    kv_is_short,
    tightest,
    tokens_per_block,
)
from hpuwatch.advise.finding import INFO, WARNING, Case, Sighting
from hpuwatch.gaudi.estimate import Estimate
from hpuwatch.state.model import (
    MULTIMODAL,
    PROMPT,
    BlocksFrom,
    Known,
    Memory,
    Start,
)
from hpuwatch.units import GIB, Amount, rounding_bytes

_KV_ENDS = ("kv_none", "kv_short")
_MISMATCH_RATIO = 0.1
"""A KV cache that differs by more from what was set aside is none to count by."""


@dataclass(frozen=True, slots=True)
class Unexplained:
    """Bytes of rank 0 that no line accounts for, by when they were taken.

    Attributes:
        before_split: full, yet neither weights nor profile run; the split counts it.
        with_cache: taken beside the KV cache as that was allocated.
        before_warmup: gone between the KV cache and the first bucket.
        rounding: how far their sum may be off, since figures have four digits.
        evidence: the figures that it rests on.
    """

    before_split: int
    with_cache: int
    before_warmup: int
    rounding: float
    evidence: tuple[Known[Amount], ...]

    @property
    def after_split(self) -> int:
        """Return what no budget of vLLM holds."""
        return self.with_cache + self.before_warmup

    @property
    def total(self) -> int:
        """Return all of it."""
        return self.before_split + self.after_split


def unexplained_of(start: Start) -> Unexplained | None:
    """Return what the log doesn't account for; None where it lacks a figure."""
    memory = start.memory.get(0, Memory())
    total, free, used = memory.total, memory.free, memory.used_after_kv
    if total is None or free is None or used is None or memory.weights is None:
        return None
    cache = _cache_bytes(memory)
    if cache is None:
        return None
    known = [total, memory.weights, free, used]
    profile = memory.profile_run.value.bytes if memory.profile_run else 0
    taken = memory.weights.value.bytes + max(0, profile)
    full_at_split = total.value.bytes - free.value.bytes
    first = _first_free(start)
    gone = 0
    if first is not None:
        known.append(first)
        gone = total.value.bytes - used.value.bytes - first.value.bytes
    return Unexplained(
        before_split=max(0, full_at_split - taken),
        with_cache=max(0, used.value.bytes - full_at_split - cache),
        before_warmup=max(0, gone),
        rounding=sum(rounding_bytes(each.value) for each in known),
        evidence=(used, free) if first is None else (used, free, first),
    )


def _cache_bytes(memory: Memory) -> int | None:
    """Return what the KV cache took: as the cache engine says, else as it was planned."""
    if memory.kv_taken is not None:
        return memory.kv_taken.value.bytes
    if memory.kv_cache is None:
        return None
    dummy = memory.dummy_block.value.bytes if memory.dummy_block else 0
    return memory.kv_cache.value.bytes + dummy


def _first_free(start: Start) -> Known[Amount] | None:
    """Return what was free before the first bucket; None where a first pass went before.

    Images come first where there are any, else prompts.
    """
    begun = start.warmup.progress
    first = begun.get(MULTIMODAL) or begun.get(PROMPT)
    if first is None or (first.capturing and not start.server.plugin):
        return None
    return first.first_free


def unexplained(case: Case) -> Sighting | None:
    """Look for memory that is full without a line that says of what."""
    start = case.start
    found = unexplained_of(start)
    memory = start.memory.get(0, Memory())
    if found is None or found.total < case.limits["least_gib"] * GIB:
        return None
    free, usable = memory.free, memory.usable
    outside = free.value.bytes - usable.value.bytes if free and usable else 0
    numbers: dict[str, float | str] = {
        "before_split_bytes": found.before_split,
        "after_split_bytes": found.after_split,
        "outside_reserve_bytes": outside,
    }
    is_short = found.after_split - found.rounding > outside
    holds = _utilisation(found, free.value.bytes if free else 0)
    if holds is not None:
        numbers["utilisation_that_holds_it"] = holds
    low = max(0.0, found.total - found.rounding)
    return Sighting(
        why=("why", "why_short" if is_short else "why_held"),
        cure=(("cure" if holds else "cure_other",) if is_short else ()),
        numbers=numbers,
        figures={
            "unexplained_bytes": Estimate(
                found.total, low, found.total + found.rounding, "measured"
            )
        },
        words={
            "now": memory.utilisation.value if memory.utilisation else "unknown",
            "taken": _when(found),
        },
        lines=tuple(dict.fromkeys(each.line for each in found.evidence)),
        severity=WARNING if is_short else INFO,
    )


def _when(found: Unexplained) -> str:
    """Say when it was taken, to be read after "It was taken"."""
    if found.after_split <= found.rounding:
        return "before the memory was divided"
    if found.before_split <= found.rounding:
        return "after the memory was divided"
    return (
        f"before the memory was divided ({about(found.before_split)}) and afterwards "
        f"({about(found.after_split)})"
    )


def _utilisation(found: Unexplained, free_bytes: int) -> float | None:
    """Return the largest utilisation, in steps of 0.01, that leaves room for it."""
    if free_bytes <= 0:
        return None
    ratio = floor(100 * (1 - found.after_split / free_bytes)) / 100
    return ratio if 0 < ratio < 1 else None


def mismatch(case: Case) -> Sighting | None:
    """Look for a KV cache that isn't what was set aside for it."""
    found = tightest(case.start)
    if found is None:
        return None
    memory, ratio = found[1], case.limits["difference_ratio"]
    return _taken_otherwise(case.start, memory, ratio) or _counted_otherwise(
        case.start, memory, ratio
    )


def is_mismatched(start: Start) -> bool:
    """Tell whether blocks aren't what they seem, so that no step may be counted in them."""
    return (
        mismatch(Case(start, limits={"difference_ratio": _MISMATCH_RATIO})) is not None
    )


def memory_was_free(start: Start, reserve: Reserve) -> bool:
    """Tell whether a failed allocation met far more memory than requests may have taken.

    Then something else holds it, or it lies in pieces: more of the same helps nothing.
    """
    fault = root_fault(start)
    wanted = fault.wanted.bytes if fault and fault.wanted else 0
    if not wanted or reserve.used_bytes is None:
        return False
    there = reserve.reserve_bytes + reserve.outside_bytes - reserve.used_bytes
    return there - wanted > 2 * ACTIVATION_SHARE * reserve.free_bytes


def _taken_otherwise(start: Start, memory: Memory, ratio: float) -> Sighting | None:
    """Compare what the cache engine took with what the split set aside.

    A hybrid model's share may have been corrected in between; either figure will do.
    """
    taken, planned = memory.kv_taken, memory.kv_cache
    if taken is None or planned is None or planned.value.bytes <= 0:
        return None
    meant = [planned.value.bytes, *_as_split(memory)]
    least, most = min(meant) * (1 - ratio), max(meant) * (1 + ratio)
    if least <= taken.value.bytes <= most:
        return None
    less = taken.value.bytes < least
    # To the figure that it comes nearest to, so that nothing is overstated.
    against = min(meant) if less else max(meant)
    return Sighting(
        title="title_less" if less else "title_more",
        why=("why_hybrid" if start.kv.hybrid else "why_less" if less else "why_more",),
        cure=("cure_hybrid",) if start.kv.hybrid else ("cure",),
        numbers={
            "kv_planned_bytes": against,
            "kv_taken_bytes": taken.value.bytes,
            "difference_bytes": abs(against - taken.value.bytes),
            "difference_percent": round(
                100 * abs(against - taken.value.bytes) / against
            ),
        },
        lines=(planned.line, taken.line),
    )


def _as_split(memory: Memory) -> list[int]:
    """Return the KV cache as the split had it, before a hybrid model's correction."""
    usable, reserve = memory.usable, memory.reserve
    if usable is None or reserve is None:
        return []
    dummy = memory.dummy_block.value.bytes if memory.dummy_block else 0
    left = usable.value.bytes - reserve.value.bytes - dummy
    return [left] if left > 0 else []


def _counted_otherwise(start: Start, memory: Memory, ratio: float) -> Sighting | None:
    """Compare the blocks, each as large as the dummy block, with the cache."""
    blocks, dummy, cache = start.kv.blocks, memory.dummy_block, memory.kv_cache
    if blocks is None or dummy is None or cache is None or start.kv.hybrid:
        return None
    if start.kv.blocks_from is not BlocksFrom.WORKER or cache.value.bytes <= 0:
        return None  # somebody else counted them, or they were set by hand
    held = blocks.value * dummy.value.bytes
    if held <= 0 or abs(held - cache.value.bytes) <= ratio * cache.value.bytes:
        return None
    return Sighting(
        title="title_blocks",
        why=("why_blocks",),
        cure=("cure",),
        numbers={
            "kv_blocks": blocks.value,
            "block_bytes": dummy.value.bytes,
            "kv_planned_bytes": cache.value.bytes,
            "kv_taken_bytes": held,
            "difference_bytes": abs(held - cache.value.bytes),
            "difference_percent": round(
                100 * abs(held - cache.value.bytes) / cache.value.bytes
            ),
        },
        lines=(cache.line, blocks.line),
    )


def one_request(case: Case) -> Sighting | None:
    """Look for a KV cache that holds hardly more than one request of the full length."""
    start = case.start
    found, longest = tightest(start), start.server.max_model_len
    held, fault = _concurrency(start), root_fault(start)
    if held is None or longest is None or found is None:
        return None
    if fault is not None and fault.name in _KV_ENDS:
        return None  # it has died of it already, which is another finding
    concurrency, known = held
    if not 0 < concurrency < case.limits["concurrency"]:
        return None
    cache = found[1].kv_cache
    spare = cache.value.bytes * (1 - 1 / concurrency) if cache else None
    is_close = concurrency < case.limits["close_concurrency"]
    numbers: dict[str, float | str] = {
        "concurrency": round(concurrency, 2),
        "max_model_len": longest.value,
    }
    if spare is not None:
        numbers["kv_spare_bytes"] = round(spare)
    why = ["why"]
    if concurrency < 1:
        why = ["why_less_than_one"]
    elif is_close and spare is not None:
        why.append("why_close")
    needless = kv_is_short(start) is False
    return Sighting(
        why=(*why, "why_plenty") if needless else tuple(why),
        cure=("cure",) if is_close or not needless else (),
        numbers=numbers,
        lines=(known.line,),
        severity=WARNING if is_close else INFO,
    )


def _concurrency(start: Start) -> tuple[float, Known[float] | Known[int]] | None:
    """Return how many requests of the full length fit, as printed or by the blocks."""
    printed, blocks = start.kv.max_concurrency, start.kv.blocks
    longest = start.server.max_model_len
    if printed is not None:
        return printed.value, printed
    if blocks is None or longest is None or longest.value <= 0 or start.kv.hybrid:
        return None
    each = -(-longest.value // tokens_per_block(start)[0])
    return blocks.value / each, blocks
