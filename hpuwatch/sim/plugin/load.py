"""Loading the weights: how far it is, how long it took, and what it takes on each card."""

from __future__ import annotations

from hpuwatch.sim.plugin.boot import backend_of
from hpuwatch.sim.start.shards import read_shards
from hpuwatch.sim.truth.device import DeviceFull
from hpuwatch.sim.world import World
from hpuwatch.units import GIB


async def load_weights(world: World) -> None:
    """Load the model.

    Raises:
        EngineFailed: it doesn't fit on the cards.
    """
    options, voice, speakers = world.options, world.voice, world.speakers
    world.each_rank("loading", model=options.given_model)
    world.each_rank("attention", backend=backend_of(world))
    world.each_rank("loading_on")
    seconds = world.times.load_seconds()
    await read_shards(world, seconds)
    try:
        world.memory.load()
        voice.say(speakers.ranks[0], "loaded_in", seconds=seconds)
        world.each_rank("weights", gib=world.truth.weights_bytes / GIB)
        if options.quantization == "inc":
            world.each_rank("inc_begins")
            world.memory.convert()
            world.each_rank("inc", gib=world.truth.inc_bytes / GIB)
    except DeviceFull as error:
        raise world.full(error, "load_model") from None
    world.each_rank("wrapped", gib=0.0)
    world.each_rank("compiled", gib=0.0)
    world.each_rank("block_size", block_size=options.block_size)
