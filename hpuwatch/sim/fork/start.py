"""The start of a server of Gaudi's fork (engine V0), from its first line to its last."""

from __future__ import annotations

from hpuwatch.sim.fork import boot, cache, lists
from hpuwatch.sim.fork.load import load_weights
from hpuwatch.sim.fork.warmup import warm_up
from hpuwatch.sim.hooks import Moment
from hpuwatch.sim.shapes import Warmed
from hpuwatch.sim.world import World


async def start(world: World) -> Warmed:
    """Go through the whole start.

    Raises:
        EngineFailed: the engine died on the way.
    """
    await world.faults.at(Moment("import"))
    await boot.front_end(world)
    await world.faults.at(Moment("engine"))
    await boot.engine_start(world)
    await world.faults.at(Moment("load"))
    await load_weights(world)
    began = world.pace.passed
    await world.faults.at(Moment("profile"))
    divided = await cache.divide_memory(world)
    await world.faults.at(Moment("kv"))
    before = world.memory.used_bytes
    await cache.make_cache(world, divided.blocks)
    shapes = divided.shapes or lists.in_warmup(world, divided.blocks)
    warm = await warm_up(world, shapes, divided.margin_bytes)
    cache.tell_cache_and_warmup(world, before)
    world.voice.say(
        world.speakers.engine, "engine_ready", seconds=world.pace.passed - began
    )
    await world.faults.at(Moment("ready"))
    return Warmed(divided.blocks, shapes, warm)
