"""Loading the weights as V0 does: onto the card, and what each step of it takes there."""

from __future__ import annotations

from hpuwatch.sim.fork.amounts import amounts, reading_leaves_bytes
from hpuwatch.sim.start.shards import read_shards
from hpuwatch.sim.truth.device import DeviceFull
from hpuwatch.sim.world import World
from hpuwatch.units import KIB


async def load_weights(world: World) -> None:
    """Load the model.

    Raises:
        EngineFailed: it doesn't fit on the cards.
    """
    converts = world.options.quantization == "inc"
    world.each_rank("loading", device="cpu" if converts else "hpu")
    world.each_rank("weight_format")
    seconds = world.times.load_seconds()
    await read_shards(world, seconds)
    before = world.memory.used_bytes
    try:
        world.memory.load()
        loaded = world.memory.used_bytes
        if converts:
            world.memory.convert()
    except DeviceFull as error:
        raise world.full(error, "load_model") from None
    host = reading_leaves_bytes(world)
    world.each_rank("loaded_in", seconds=seconds)
    place = "cpu" if converts else "hpu:0"
    taken = amounts(world, loaded - before, host, used_bytes=loaded)
    world.each_rank("weights", place=place, **taken)
    if converts:
        change = world.memory.used_bytes - loaded
        world.each_rank("inc_begins")
        world.each_rank("inc", **amounts(world, change, -host))
    if world.truth.has_images:
        world.each_rank("wrapped_images")
    world.each_rank("wrapped", **amounts(world, 0, -40 * KIB))
    world.each_rank("compiled", **amounts(world, 0, 12 * KIB))
    total = world.memory.used_bytes - before
    world.each_rank("weights_total", **amounts(world, total, host))
