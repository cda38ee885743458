"""Figures that follow from a start's ledger: what the reserve holds, what a block costs.

All of them are about the rank whose memory is tightest, since the engine gives every rank
the KV blocks of the poorest one.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Literal

from hpuwatch.gaudi.estimate import Estimate
from hpuwatch.gaudi.kvcache import HPU_BLOCK_SIZE
from hpuwatch.records import Line
from hpuwatch.state.model import DECODE, MULTIMODAL, PROMPT, Memory, Start
from hpuwatch.units import GIB, format_bytes

ACTIVATION_SHARE = 0.10
"""Allowance for activations, as a share of the free memory (see ``advise.plan.reserve``)."""

PLENTY = 0.85
"""KV use (ratio) below which the cache is not short."""

FEWEST_BUSY_LINES = 3
"""Periodic lines with requests running from which on we speak of load: half a minute."""

STATS_SECONDS = {"V0": 5, "V1": 10}
"""Seconds between two periodic lines, by engine, unless an operator changes them."""

LONG_WAIT_LINES = 6
"""Periodic lines in a row with waiting requests that count as waiting: about a minute."""


_ROUNDING = 1.002
"""Two sums of figures with four digits may be that far apart."""


@dataclass(frozen=True, slots=True)
class Reserve:
    """The graph reserve of the tightest rank, in bytes, and what lies around it.

    Attributes:
        usable_bytes: what VLLM_GRAPH_RESERVED_MEM is a share of.
        reserve_bytes: set aside for graphs.
        ratio: VLLM_GRAPH_RESERVED_MEM as printed.
        outside_bytes: free memory that vLLM leaves alone, ``free - usable``.
        free_bytes: free after weights and profile run.
        used_bytes: what graphs took at the end of warm-up, None before.
        block_bytes: one KV block.
        activations_unmeasured: the profile run printed about nothing, or warm-up compiled
            without executing: the first real requests still need memory of their own.
    """

    usable_bytes: int
    reserve_bytes: int
    ratio: float
    outside_bytes: int
    free_bytes: int
    used_bytes: int | None
    block_bytes: float
    activations_unmeasured: bool

    @property
    def idle_bytes(self) -> int | None:
        """Return what graphs left of the reserve; negative when they took more."""
        return None if self.used_bytes is None else self.reserve_bytes - self.used_bytes


def tightest(start: Start) -> tuple[int, Memory] | None:
    """Return the rank with the least KV cache and its ledger (rank 0 when all are equal)."""
    if not start.memory:
        return None

    def room(rank: int) -> tuple[float, int]:
        cache = start.memory[rank].kv_cache
        return (cache.value.bytes if cache else inf, rank)

    rank = min(start.memory, key=room)
    return rank, start.memory[rank]


def kv_block_bytes(start: Start) -> float | None:
    """Return the bytes of one KV block on one card, or None.

    The KV cache divided by its blocks where both are printed; else the dummy block of the
    V1 engine, which is one block.
    """
    found = tightest(start)
    if found is None:
        return None
    memory = found[1]
    blocks = start.kv.blocks
    if memory.kv_cache and blocks and blocks.value > 0:
        return memory.kv_cache.value.bytes / blocks.value
    return float(memory.dummy_block.value.bytes) if memory.dummy_block else None


BlockSizeFrom = Literal["printed", "derived", "assumed"]


def block_size_of(start: Start) -> tuple[int, BlockSizeFrom]:
    """Return tokens per KV block, and how that is known.

    ``printed``: as a flag, or by blocks and tokens of the KV cache; ``derived``: from a
    bucket range that starts with a block; ``assumed``: what is usual on HPU.
    """
    size = start.kv.block_size
    if size:
        return size, "printed"
    if start.server.block_size is not None:
        return start.server.block_size.value, "printed"
    if start.server.range_block_size is not None:
        return start.server.range_block_size.value, "derived"
    return HPU_BLOCK_SIZE, "assumed"


def tokens_per_block(start: Start) -> tuple[int, bool]:
    """Return the block size, and whether it is only assumed."""
    size, known = block_size_of(start)
    return size, known == "assumed"


def graphs_used_bytes(start: Start) -> int | None:
    """Return what warm-up allocated, None unless it finished.

    The larger of the total that the last line prints and the sum over the phases; the
    total where only print rounding sets them apart.
    """
    if start.warmup.seconds is None:
        return None
    phases = sum(used.value.bytes for used in start.graphs_used.values())
    allocated = start.warmup.allocated
    total = allocated.value.bytes if allocated else 0
    return max(0, total if phases <= total * _ROUNDING else phases)


def activations_unmeasured(start: Start) -> bool:
    """Tell whether memory of real requests is missing from the figures.

    True where the profile run printed less than 1 % of the free memory (vLLM-gaudi only
    initialises there) and where warm-up compiled without executing.
    """
    if start.warmup.compile_only:
        return True
    found = tightest(start)
    memory = found[1] if found else Memory()
    profile, free = memory.profile_run, memory.free
    if profile is None or free is None:
        return True
    return profile.value.bytes < free.value.bytes / 100


def reserve_of(start: Start) -> Reserve | None:
    """Return the reserve, or None where the log lacks a figure or no reserve was made."""
    found = tightest(start)
    block = kv_block_bytes(start)
    if found is None or block is None or block <= 0:
        return None
    memory = found[1]
    free, usable, reserve = memory.free, memory.usable, memory.reserve
    if free is None or usable is None or reserve is None or memory.kv_cache is None:
        return None
    if memory.reserve_ratio is None or reserve.value.bytes <= 0:
        return None
    if usable.value.bytes <= 0:
        return None  # no share of nothing
    return Reserve(
        usable_bytes=usable.value.bytes,
        reserve_bytes=reserve.value.bytes,
        ratio=memory.reserve_ratio.value,
        outside_bytes=max(0, free.value.bytes - usable.value.bytes),
        free_bytes=free.value.bytes,
        used_bytes=graphs_used_bytes(start),
        block_bytes=block,
        activations_unmeasured=activations_unmeasured(start),
    )


def has_traffic(start: Start) -> bool:
    """Tell whether the log shows the server at work, beyond a request or two."""
    return start.traffic.busy_lines >= FEWEST_BUSY_LINES


def kv_is_short(start: Start) -> bool | None:
    """Tell whether the load that the log shows needs more KV cache; None without load."""
    traffic = start.traffic
    if not has_traffic(start) and traffic.preemptions == 0:
        return None
    use = traffic.kv_use_peak
    return (
        traffic.preemptions > 0
        or (use is not None and use.value >= PLENTY)
        or traffic.waiting_lines_longest >= LONG_WAIT_LINES
    )


def evidence_of_split(start: Start) -> tuple[Line, ...]:
    """Return the lines that the reserve's figures rest on, each once."""
    found = tightest(start)
    memory = found[1] if found else Memory()
    known = [
        memory.reserve,
        start.kv.blocks,
        *(start.graphs_used.get(phase) for phase in (PROMPT, DECODE, MULTIMODAL)),
        start.warmup.allocated,
    ]
    return tuple(dict.fromkeys(each.line for each in known if each is not None))


def about(count: float) -> str:
    """Print bytes for a sentence: one decimal from 1 GiB on (``7.0 GiB``)."""
    return f"{count / GIB:.1f} GiB" if abs(count) >= GIB else format_bytes(count)


def within(count: Estimate) -> str:
    """Print bytes with their interval: ``24.1 GiB (20.2 GiB to 31.0 GiB)``."""
    low, high = about(count.low), about(count.high)
    if low == high:
        return about(count.value)
    return f"{about(count.value)} ({low} to {high})"
