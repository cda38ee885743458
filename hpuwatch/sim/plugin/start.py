"""The start of a server of the plugin, from its first line to the last before it opens."""

from __future__ import annotations

from hpuwatch.sim.hooks import Moment
from hpuwatch.sim.plugin import boot
from hpuwatch.sim.plugin.cache import divide_memory
from hpuwatch.sim.plugin.load import load_weights
from hpuwatch.sim.plugin.warmup import warm_up
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
    blocks = await divide_memory(world)
    world.recipes.kv_blocks = blocks
    shapes, warm = await warm_up(world, blocks)
    boot.engine_ready(world, blocks, world.pace.passed - began)
    await world.faults.at(Moment("ready"))
    return Warmed(blocks, shapes, warm)
