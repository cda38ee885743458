"""What a prediction rests on: the card, the model, the laws, and the log of the server.

What was printed always beats what is computed, and blocks are carried over from the printed
number, so that print rounding doesn't count twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import floor

from hpuwatch.errors import ConfigError
from hpuwatch.gaudi.estimate import Estimate, exactly
from hpuwatch.gaudi.graphlaw import GraphLaw, prior
from hpuwatch.gaudi.kvcache import (
    KvLayout,
    blocks_of,
    dummy_block_bytes,
    kv_block_bytes,
    kv_dtype_bytes,
)
from hpuwatch.gaudi.memory import Split, blocks_won, split
from hpuwatch.gaudi.model import Bucket
from hpuwatch.gaudi.modelshape import ModelShape
from hpuwatch.gaudi.planning import Plan
from hpuwatch.gaudi.variables import is_true
from hpuwatch.gaudi.warmuptime import Recipes, WarmupLaw, learn
from hpuwatch.units import counted

Lists = Mapping[str, tuple[Bucket, ...]]
"""Buckets or graphs by phase."""


@dataclass(frozen=True, slots=True)
class Device:
    """What one card has for reserve and KV cache.

    Attributes:
        free: bytes after weights and profile run.
        allowance_bytes: what real requests may need beside the graphs, unmeasured.
        model: gives the block's bytes; None where ``block_bytes`` were printed.
        block_bytes: of one KV block under ``plan``; 0 with a model.
        has_dummy: one block of padding comes off the cache (V1 engine).
    """

    free: Estimate
    allowance_bytes: int = 0
    model: ModelShape | None = None
    block_bytes: float = 0.0
    has_dummy: bool = True

    def layout(self, plan: Plan) -> KvLayout | None:
        """Return how the cache of a model lies on a card, None without a model.

        Raises:
            ConfigError: the dtype of the cache is unknown.
        """
        if self.model is None:
            return None
        return KvLayout(
            self.model,
            plan.tensor_parallel,
            kv_dtype_bytes(plan.kv_cache_dtype, self.model),
            plan.flags.block_size,
            is_true(plan.env.get("VLLM_COMPACT_GDN", "")),
        )


@dataclass(frozen=True, slots=True)
class Printed:
    """What a log says of the server as it runs now.

    Attributes:
        plan: how it was started.
        blocks: KV blocks.
        lists: the buckets that it listed; empty where it printed none, or a part.
        counts: how many buckets it said to have, by phase.
        warmup_seconds: what its warm-up took.
        captured_blocks: the largest decode context whose graph a warm-up of this model and
            release captured, in blocks; 0 where none did.
    """

    plan: Plan
    blocks: int
    lists: Lists = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    warmup_seconds: float | None = None
    captured_blocks: int = 0


@dataclass(frozen=True, slots=True)
class Basis:
    """What a prediction rests on.

    Attributes:
        device: None where only a number of blocks was given.
        printed: the server as it runs now, None before any log.
        blocks: KV blocks as they were given, where neither of these tells.
        graphs: the law of graph memory.
        warmup: the law of warm-up time.
        recipes: what the recipe cache holds.
        load_seconds: of earlier starts.
    """

    device: Device | None = None
    printed: Printed | None = None
    blocks: int | None = None
    graphs: GraphLaw = field(default_factory=prior)
    warmup: WarmupLaw = field(default_factory=lambda: learn(()))
    recipes: Recipes | None = None
    load_seconds: tuple[float, ...] = ()


def blocks_under(plan: Plan, basis: Basis) -> Estimate:
    """Return the KV blocks of a plan.

    Raises:
        ConfigError: as :func:`predict`.
    """
    device, printed = basis.device, basis.printed
    if printed and printed.plan.divides_alike == plan.divides_alike:
        same = printed.plan == plan
        return exactly(printed.blocks, "measured" if same else "predicted")
    if plan.blocks_override is not None:
        return exactly(plan.blocks_override, "predicted")
    if device is None:
        return exactly(basis.blocks or 0, "predicted")
    if printed is None:
        ends = [_blocks(plan, device, free) for free in _ends(device.free)]
        return Estimate(ends[1], ends[0], ends[2], device.free.origin)
    return _carried(plan, device, printed)


def _ends(free: Estimate) -> tuple[int, int, int]:
    return round(free.low), round(free.value), round(free.high)


def _carried(plan: Plan, device: Device, printed: Printed) -> Estimate:
    """Return the printed blocks and what a change of the split adds or takes."""
    if plan.tensor_parallel != printed.plan.tensor_parallel:
        raise ConfigError(
            f"a log of {counted(printed.plan.tensor_parallel, 'card')} tells nothing about "
            f"{plan.tensor_parallel}: predict from --model and --card instead"
        )
    now = split_under(printed.plan, device)
    then = split_under(plan, device)
    if now is None or then is None:
        return exactly(printed.blocks)
    scale = _block_scale(plan, printed.plan)
    freed = then.kv_cache_bytes - now.kv_cache_bytes
    blocks = floor((printed.blocks + blocks_won(freed, device.block_bytes)) / scale)
    return Estimate(max(0, blocks), max(0, blocks - 1), max(0, blocks + 1), "predicted")


def _block_scale(plan: Plan, printed: Plan) -> float:
    """Return how much larger a block is than the printed one."""
    halves = {True: 0.5, False: 1.0}
    is_fp8, was_fp8 = (
        each.kv_cache_dtype.startswith("fp8") for each in (plan, printed)
    )
    dtype = halves[is_fp8] / halves[was_fp8]
    return plan.flags.block_size / printed.flags.block_size * dtype


def _blocks(plan: Plan, device: Device, free_bytes: int) -> int:
    layout = device.layout(plan)
    parts = split_under(plan, replace(device, free=exactly(free_bytes)))
    if parts is None:
        return 0
    if layout is None:
        return max(0, floor(parts.kv_cache_bytes / device.block_bytes))
    return blocks_of(parts.kv_cache_bytes, layout)


def block_bytes(plan: Plan, device: Device) -> float:
    """Return the bytes of one block as the basis has it."""
    layout = device.layout(plan)
    return float(kv_block_bytes(layout)) if layout else device.block_bytes


def split_under(plan: Plan, device: Device | None) -> Split | None:
    """Return how a plan divides the card's memory, by the best guess of what is free."""
    if device is None:
        return None
    layout = device.layout(plan)
    dummy = dummy_block_bytes(layout) if layout else round(device.block_bytes)
    return split(
        round(device.free.value),
        plan.utilisation,
        plan.reserve_ratio,
        dummy if device.has_dummy else 0,
    )
