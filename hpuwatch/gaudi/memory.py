"""How a card's memory is divided before the KV cache is made.

The identities hold on every public log to print rounding (and say why raising
``--gpu-memory-utilization`` never helps a warm-up that runs out of memory)::

    usable  = utilisation * free        free is measured after weights and profile run
    reserve = ratio * usable            ratio is VLLM_GRAPH_RESERVED_MEM
    cache   = usable - reserve - dummy  the dummy block only in the V1 engine

What is left beside them, ``free - usable``, is the margin for everything else.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Split:
    """The parts of the free memory, in bytes."""

    usable_bytes: int
    reserve_bytes: int
    kv_cache_bytes: int


def split(
    free_bytes: int, utilisation: float, reserve_ratio: float, dummy_block_bytes: int
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
    return Split(int(usable), int(reserve), int(usable - reserve - dummy_block_bytes))


def kv_block_bytes(
    layers: int, kv_heads: int, head_dim: int, block_size: int, dtype_bytes: int
) -> int:
    """Return the bytes of one KV block on one card: keys and values of every layer.

    ``kv_heads`` are those that the card holds (divided by the tensor parallel size).
    """
    return 2 * layers * kv_heads * head_dim * block_size * dtype_bytes


def blocks_in(kv_bytes: int, block_bytes: int) -> int:
    """Return how many whole blocks fit; none when the budget is negative."""
    return max(0, kv_bytes // block_bytes)
