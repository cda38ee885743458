"""How V0 divides the memory of a card: profile run, split, blocks, cache."""

from __future__ import annotations

from dataclasses import dataclass

from hpuwatch.gaudi.memory import split
from hpuwatch.sim.fork import lists
from hpuwatch.sim.fork.amounts import amounts, swap_bytes
from hpuwatch.sim.shapes import Shapes
from hpuwatch.sim.truth.device import DeviceFull
from hpuwatch.sim.world import EngineFailed, World
from hpuwatch.units import MIB, format_bytes


@dataclass(frozen=True, slots=True)
class Divided:
    """How the memory of a card was divided.

    Attributes:
        blocks: KV blocks.
        shapes: the bucket lists, where they are made by now.
        margin_bytes: what the utilisation leaves free.
    """

    blocks: int
    shapes: Shapes | None
    margin_bytes: int


async def divide_memory(world: World) -> Divided:
    """Run the largest prompt and divide what it leaves.

    Raises:
        EngineFailed: the run doesn't fit, or a setting is wrong.
    """
    options, memory = world.options, world.memory
    batch, length = lists.profiled_shape(world)
    before = memory.used_bytes
    try:
        memory.profile(batch, length)
    except DeviceFull as error:
        raise world.full(error, "determine_num_available_blocks") from None
    # Last, as what is far too large for the card would take for ever.
    await world.pace.spend(world.times.profile_seconds(batch, length))
    taken = memory.used_bytes - before
    world.each_rank("profile_run", **amounts(world, taken, 4 * MIB))
    world.check("split", "determine_num_available_blocks")
    ratio: float = 0 if options.enforce_eager else world.knobs.reserve
    parts = split(memory.free_bytes, options.utilisation, ratio)
    world.each_rank(
        "split",
        free=format_bytes(memory.free_bytes),
        usable=format_bytes(parts.usable_bytes),
        utilisation=options.utilisation,
        reserve=format_bytes(parts.reserve_bytes),
        ratio=ratio,
        cache=format_bytes(parts.kv_cache_bytes),
    )
    blocks = world.truth.cache.blocks_in(parts.kv_cache_bytes)
    if options.num_blocks_override is not None:
        blocks = options.num_blocks_override
    shapes = lists.before_cache(world, blocks)
    return Divided(blocks, shapes, parts.margin_bytes)


async def make_cache(world: World, blocks: int) -> None:
    """Tell the blocks, check that they are enough, and make the cache.

    Raises:
        EngineFailed: no cache is left, or it can't hold one request.
    """
    options, voice = world.options, world.voice
    kind = "_tp" if len(world.speakers.ranks) > 1 else ""
    tokens = blocks * options.block_size
    voice.say(
        world.speakers.engine,
        f"kv_blocks{kind}",
        blocks=blocks,
        swap_blocks=world.truth.swap_blocks,
    )
    voice.say(
        world.speakers.engine,
        f"concurrency{kind}",
        max_model_len=options.max_model_len,
        times=tokens / options.max_model_len,
    )
    if blocks <= 0:
        raise EngineFailed(voice.error("no_cache"), "initialize_cache")
    if tokens < options.max_model_len:
        reason = voice.error(
            "cache_too_small", max_model_len=options.max_model_len, tokens=tokens
        )
        raise EngineFailed(reason, "initialize_cache")
    await world.pace.spend(world.times.kv_cache_seconds())
    before = world.memory.used_bytes
    try:
        world.memory.make_cache(blocks)
    except DeviceFull as error:
        raise world.full(error, "initialize_cache") from None
    world.recipes.kv_blocks = blocks
    taken = world.memory.used_bytes - before
    world.each_rank(
        "cache_engine", **amounts(world, taken, swap_bytes(world), swaps=True)
    )


def tell_cache_and_warmup(world: World, used_before_bytes: int) -> None:
    """Sum up what the cache and warm-up took, where a single card's executor does."""
    if len(world.speakers.ranks) == 1:
        taken = world.memory.used_bytes - used_before_bytes
        told = amounts(world, taken, swap_bytes(world), swaps=True)
        world.voice.say(world.speakers.engine, "cache_and_warmup", **told)
