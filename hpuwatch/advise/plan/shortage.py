"""A KV cache that came out too small: what it needed, and whether the reserve took it.

The runtime blames the model's length or asks for more memory.  Yet ``VLLM_GRAPH_RESERVED_MEM``
may hold most of what is usable, so a smaller reserve is looked at first: one that still is a
sane budget for graphs.  Warm-up has not run then, so nobody knows what graphs take: the
budget is the runtime's own default share, and what the allowance for activations asks for
beyond the memory outside of vLLM's budget.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from hpuwatch.advise.figures import (
    ACTIVATION_SHARE,
    activations_unmeasured,
    kv_block_bytes,
    tightest,
    tokens_per_block,
)
from hpuwatch.gaudi.memory import split
from hpuwatch.gaudi.planning import RESERVE, ratio_of
from hpuwatch.gaudi.releases import NEWEST
from hpuwatch.gaudi.spans import point_of
from hpuwatch.state.configured import release
from hpuwatch.state.model import Start, value_of
from hpuwatch.units import format_bytes

UNUSUAL_RATIO = 0.5
"""A reserve above this share of the usable memory is the first suspect."""

_ROUNDING = 1.001
"""The runtime prints what a request needs to two decimals of a GiB."""


@dataclass(frozen=True, slots=True)
class Shortage:
    """The split of a start whose KV cache was too small, in bytes of the tightest card.

    Attributes:
        usable_bytes: what the reserve is a share of.
        reserve_bytes: set aside for graphs.
        ratio: VLLM_GRAPH_RESERVED_MEM as printed.
        cache_bytes: what was left for the KV cache; may be negative.
        wanted_bytes: what one request of ``wanted_len`` needs, None if nothing tells.
        wanted_len: the longest request that the server accepts, in tokens.
        budget_ratio: a reserve that still is sane for graphs, as a share.
        default_ratio: VLLM_GRAPH_RESERVED_MEM of this release where nobody sets it.
        spent_bytes: what else comes off the usable memory (the dummy block).
    """

    usable_bytes: int
    reserve_bytes: int
    ratio: float
    cache_bytes: int
    wanted_bytes: int | None
    wanted_len: int | None
    budget_ratio: float
    default_ratio: float
    spent_bytes: int

    @property
    def cache_at_budget_bytes(self) -> int:
        """Return the KV cache with a reserve of the budget."""
        parts = split(self.usable_bytes, 1, self.budget_ratio, self.spent_bytes)
        return parts.kv_cache_bytes

    @property
    def reserve_is_unusual(self) -> bool:
        """Tell whether so much is set aside that it is named before anything else."""
        return self.ratio > UNUSUAL_RATIO and self.budget_ratio < self.ratio

    @property
    def budget_is_enough(self) -> bool:
        """Tell whether a sane reserve would leave what one request needs."""
        wanted = (self.wanted_bytes or 0) * _ROUNDING
        return self.budget_ratio < self.ratio and self.cache_at_budget_bytes > wanted

    @property
    def is_of_the_reserve(self) -> bool:
        """Tell whether the reserve is to be lowered before a request is shortened."""
        known = self.wanted_bytes is not None
        return self.reserve_is_unusual or (known and self.budget_is_enough)

    @property
    def len_at_budget(self) -> int | None:
        """Return the longest request that a sane reserve leaves room for, in tokens."""
        if not self.wanted_bytes or not self.wanted_len:
            return None
        share = self.cache_at_budget_bytes / (self.wanted_bytes * _ROUNDING)
        return max(0, int(min(1, share) * self.wanted_len))

    def reserve_in_words(self) -> str:
        """Say what the reserve takes, without a full stop."""
        return (
            f"the graph reserve takes {format_bytes(self.reserve_bytes)} of the "
            f"{format_bytes(self.usable_bytes)} usable "
            f"({RESERVE}={self.ratio:g})"
        )


def shortage_of(start: Start) -> Shortage | None:
    """Return the split of a start, or None where its log lacks a figure."""
    found = tightest(start)
    if found is None:
        return None
    memory = found[1]
    free, usable, reserve = memory.free, memory.usable, memory.reserve
    cache, ratio = memory.kv_cache, memory.reserve_ratio
    if free is None or usable is None or reserve is None or usable.value.bytes <= 0:
        return None
    if cache is None or ratio is None:
        return None
    outside = max(0, free.value.bytes - usable.value.bytes)
    allowance = free.value.bytes * ACTIVATION_SHARE * activations_unmeasured(start)
    known = release(start.server)
    default = ratio_of(None, point_of(known.name if known else NEWEST))
    budget = default + max(0, allowance - outside) / usable.value.bytes
    wanted_bytes, wanted_len = _wanted(start)
    return Shortage(
        usable_bytes=usable.value.bytes,
        reserve_bytes=reserve.value.bytes,
        ratio=ratio.value,
        cache_bytes=cache.value.bytes,
        wanted_bytes=wanted_bytes,
        wanted_len=wanted_len,
        budget_ratio=ceil(round(budget * 1000, 6)) / 1000,
        default_ratio=default,
        spent_bytes=memory.dummy_block.value.bytes if memory.dummy_block else 0,
    )


def _wanted(start: Start) -> tuple[int | None, int | None]:
    """Return bytes and tokens of the longest request, as printed or by the block's size."""
    kv = start.kv
    longest = value_of(kv.wanted_len or start.server.max_model_len)
    if kv.wanted is not None:
        return kv.wanted.value.bytes, longest
    block = kv_block_bytes(start)
    if block is None or block <= 0 or longest is None:
        return None, longest
    return ceil(ceil(longest / tokens_per_block(start)[0]) * block), longest


def in_words(start: Start) -> str | None:
    """Say by figures what was short, without a full stop; None where the log has none."""
    short = shortage_of(start)
    if short is None:
        return None
    said = "nothing is left for the KV cache"
    if short.cache_bytes > 0:
        if not short.wanted_bytes or not short.wanted_len:
            return None
        told = start.kv.available  # by the line that ended it, rather than by the split
        there = told.value.bytes if told is not None else short.cache_bytes
        said = (
            f"one request of {short.wanted_len:,} tokens (--max-model-len) needs "
            f"{format_bytes(short.wanted_bytes)} of KV cache, "
            f"{format_bytes(there)} are there"
        )
    return f"{said}: {short.reserve_in_words()}" if short.is_of_the_reserve else said
