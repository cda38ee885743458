"""Dividing what is free: the profile run, the split of memory, and the KV cache."""

from __future__ import annotations

from dataclasses import replace

from hpuwatch.gaudi.memory import split
from hpuwatch.sim.hooks import Moment
from hpuwatch.sim.start.amounts import amounts
from hpuwatch.sim.truth.device import DeviceFull
from hpuwatch.sim.world import EngineFailed, World
from hpuwatch.units import GIB, KIB, MIB, format_bytes


async def divide_memory(world: World) -> int:
    """Run the profile, divide the free memory, make the cache, and return its blocks.

    Raises:
        EngineFailed: no cache is left, it can't hold one request, or the reserve is no
            number in a release that dies of that.
    """
    await _profile(world)
    budget = _split(world)
    await world.faults.at(Moment("kv"))
    blocks = _checked_blocks(world, budget)
    await _make_cache(world, blocks)
    return blocks


async def _profile(world: World) -> None:
    memory, times = world.memory, world.times
    seconds = times.profile_seconds()
    if world.truth.image_sizes and world.truth.profiles_images:
        # The prompt is really run then, and no bucket is there yet.
        longest = (1, world.options.max_num_batched_tokens, 0)
        world.each_rank("not_prepared_prompt", wanted=longest, added=longest)
        seconds = times.profile_seconds(*longest[:2])
    await world.pace.spend(seconds)
    before = memory.used_bytes
    try:
        memory.profile()
    except DeviceFull as error:
        raise world.full(error, "profile_run") from None
    taken = memory.used_bytes - before
    world.each_rank("profile_run", **amounts(world, taken, 7 * MIB))


def _split(world: World) -> int:
    """Divide what is free and return what the cache may take, in bytes."""
    options, knobs, truth = world.options, world.knobs, world.truth
    world.check("split", "determine_available_memory")
    for warned in knobs.warned("split"):
        world.each_rank(warned.line, **warned.values)
    ratio: float = 0 if options.enforce_eager else knobs.reserve
    free = world.memory.free_bytes
    parts = split(free, options.utilisation, ratio, truth.dummy_bytes)
    world.each_rank(
        "split",
        free=format_bytes(free),
        usable=format_bytes(parts.usable_bytes),
        utilisation=options.utilisation,
        reserve=format_bytes(parts.reserve_bytes),
        ratio=ratio,
        dummy=format_bytes(truth.dummy_bytes),
        cache=format_bytes(parts.kv_cache_bytes),
    )
    hybrid = truth.cache.hybrid
    if hybrid is not None:
        world.each_rank(
            "hybrid_shrink",
            percent=hybrid.percent,
            factor=hybrid.factor,
            page=format_bytes(hybrid.page_bytes),
            attention=format_bytes(hybrid.attention_bytes),
            state=format_bytes(hybrid.state_bytes),
        )
    return parts.kv_cache_bytes


def _checked_blocks(world: World, budget_bytes: int) -> int:
    """Return the blocks that the cache has, unless they are too few for one request."""
    truth = world.truth
    available = truth.cache.lowered(budget_bytes)
    blocks = truth.cache.blocks_in(budget_bytes)
    if available <= 0:
        raise EngineFailed(world.voice.error("no_cache"), "get_kv_cache_configs")
    if world.options.fits_length and blocks:
        _fit_length(world, blocks, available)
    options = world.options
    needed = -(-options.max_model_len // options.block_size)
    if blocks < needed:
        raise EngineFailed(
            world.voice.error(
                "cache_too_small",
                max_model_len=options.max_model_len,
                needed=round(needed * truth.block_bytes / GIB, 2),
                available=round(available / GIB, 2),
                estimate=blocks * options.block_size,
            ),
            "get_kv_cache_configs",
        )
    override = options.num_blocks_override
    if override:
        engine = world.speakers.engine
        world.voice.say(engine, "blocks_override", blocks=blocks, override=override)
    return override or blocks


def _fit_length(world: World, blocks: int, available_bytes: int) -> None:
    """Cut the model's length to what so many blocks hold; it counts from here on."""
    options, say, engine = world.options, world.voice.say, world.speakers.engine
    whole, fitting = options.max_model_len, blocks * options.block_size
    if fitting >= whole:
        say(engine, "length_fits", max_model_len=whole)
        return
    gib = round(available_bytes / GIB, 2)
    say(engine, "length_cut", max_model_len=whole, fitting=fitting, available=gib)
    world.options = replace(options, max_model_len=fitting)


async def _make_cache(world: World, blocks: int) -> None:
    options, memory = world.options, world.memory
    say, engine = world.voice.say, world.speakers.engine
    tokens = blocks * options.block_size
    length = options.max_model_len
    say(engine, "kv_tokens", tokens=tokens)
    say(engine, "concurrency", max_model_len=length, times=tokens / length)
    await world.pace.spend(world.times.kv_cache_seconds())
    before = memory.used_bytes
    try:
        memory.make_cache(blocks)
    except DeviceFull as error:
        raise world.full(error, "initialize_kv_cache") from None
    slots = tokens + options.block_size
    world.each_rank("kv_blocks", blocks=blocks, slots=slots, **_pads(world, blocks))
    taken = memory.used_bytes - before
    world.each_rank("cache_engine", **amounts(world, taken, 12 * KIB))


def _pads(world: World, blocks: int) -> dict[str, int]:
    """Return the block that pads others and its first slot."""
    pads = world.voice.script.facts["pads"]
    if pads == "always" or (pads == "contiguous" and world.knobs.contiguous_pa):
        return {"pad_block": blocks, "pad_slot": blocks * world.options.block_size}
    return {"pad_block": 0, "pad_slot": -1}
