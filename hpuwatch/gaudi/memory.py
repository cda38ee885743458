"""How a card's memory is divided before the KV cache is made, and back.

The identities hold on every public log to print rounding (and say why raising
``--gpu-memory-utilization`` never helps a warm-up that runs out of memory)::

    free    = total - weights - profile run
    usable  = utilisation * free
    margin  = free - usable        outside of vLLM's budget
    reserve = ratio * usable       ratio is VLLM_GRAPH_RESERVED_MEM
    cache   = usable - reserve - dummy

V0 prints the form without the dummy block, V1 the form with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, floor

from hpuwatch.errors import ConfigError
from hpuwatch.units import format_bytes

_STEPS = 1000
"""A ratio is told in steps of 0.001."""


@dataclass(frozen=True, slots=True)
class Split:
    """The parts of the free memory, in bytes."""

    usable_bytes: int
    reserve_bytes: int
    kv_cache_bytes: int
    margin_bytes: int


def free_after_load(
    total_bytes: int, weights_bytes: int, profile_run_bytes: int = 0
) -> int:
    """Return what is free when the split is made; negative where weights don't fit."""
    return total_bytes - weights_bytes - profile_run_bytes


def split(
    free_bytes: int,
    utilisation: float,
    reserve_ratio: float,
    dummy_block_bytes: int = 0,
) -> Split:
    """Divide the free memory of one card as the runtime does.

    Args:
        free_bytes: free after weights and profile run.
        utilisation: ``--gpu-memory-utilization``, a share of *free* memory.
        reserve_ratio: ``VLLM_GRAPH_RESERVED_MEM``, a share of usable memory; 0 when
            graphs are off (``--enforce-eager``).
        dummy_block_bytes: one KV block of padding (V1 engine), else 0.

    The cache may come out negative, which is how a reserve above 1 fails.
    """
    usable = free_bytes * utilisation
    reserve = usable * reserve_ratio
    return Split(
        usable_bytes=int(usable),
        reserve_bytes=int(reserve),
        kv_cache_bytes=int(usable - reserve - dummy_block_bytes),
        margin_bytes=free_bytes - int(usable),
    )


def blocks_in(kv_bytes: int, block_bytes: int) -> int:
    """Return how many whole blocks fit; none when the budget is negative."""
    return max(0, kv_bytes // block_bytes)


def ratio_holding(reserve_bytes: float, usable_bytes: int) -> float:
    """Return the smallest reserve ratio, in steps of 0.001, that holds so much."""
    return ceil(reserve_bytes / usable_bytes * _STEPS) / _STEPS


def ratio_leaving(
    cache_bytes: float, free_bytes: int, utilisation: float, dummy_block_bytes: int = 0
) -> float:
    """Return the largest reserve ratio, in steps of 0.001, that leaves such a cache.

    The way back of :func:`split`: which reserve gives ``blocks * block_bytes``?

    Raises:
        ConfigError: no reserve does, not even none at all.
    """
    usable = free_bytes * utilisation

    def leaves(steps: int) -> bool:
        parts = split(free_bytes, utilisation, steps / _STEPS, dummy_block_bytes)
        return parts.kv_cache_bytes >= cache_bytes

    if usable <= 0 or not leaves(0):
        raise ConfigError(
            f"a KV cache of {format_bytes(cache_bytes)} doesn't fit into "
            f"{format_bytes(usable)} usable, even without a graph reserve"
        )
    steps = floor((1 - (cache_bytes + dummy_block_bytes) / usable) * _STEPS)
    # Rounding to whole bytes can be on either side of the step.
    while leaves(steps + 1):
        steps += 1
    while not leaves(steps):
        steps -= 1
    return steps / _STEPS


def blocks_won(freed_bytes: float, block_bytes: float) -> int:
    """Return the whole blocks that the cache wins where the reserve gives bytes back.

    Negative where it takes bytes.  Print rounding and the rest that no block fills make it
    uncertain by one.
    """
    return floor(freed_bytes / block_bytes)


def tokens_of(blocks: int, block_size: int) -> int:
    """Return the tokens that so many blocks hold."""
    return blocks * block_size


def concurrency(blocks: int, blocks_per_sequence: int) -> float:
    """Return how many sequences fit at once, as the engine prints it ("4.64x").

    Args:
        blocks: of the KV cache.
        blocks_per_sequence: what a sequence of the length in question holds, see
            :func:`hpuwatch.gaudi.kvcache.blocks_per_sequence`.
    """
    return blocks / blocks_per_sequence
