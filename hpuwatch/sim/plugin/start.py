"""The start of a server of the plugin, from its first line to the last before it opens."""

from __future__ import annotations

from hpuwatch.sim.faults.hooks import Moment
from hpuwatch.sim.plugin import boot
from hpuwatch.sim.plugin.warmup import warm_up
from hpuwatch.sim.serve.shapes import Warmed
from hpuwatch.sim.world import World


async def start(world: World) -> Warmed:
    """Go through the whole start.

    Raises:
        EngineFailed: the engine died on the way.
        Stopped: the server was asked to stop.
    """
    await world.faults.at(Moment("import"))
    await boot.front_end(world)
    await world.faults.at(Moment("engine"))
    await boot.engine_start(world)
    began = world.pace.passed
    await world.faults.at(Moment("load"))
    await boot.load_weights(world)
    await world.faults.at(Moment("profile"))
    blocks = await boot.divide_memory(world)
    shapes, warm = await warm_up(world, blocks)
    world.voice.say(
        world.speakers.engine, "engine_ready", seconds=world.pace.passed - began
    )
    await world.faults.at(Moment("ready"))
    return Warmed(blocks, shapes, warm)
