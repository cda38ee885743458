"""Running the vision part of a model in warm-up, once for each size of an image."""

from __future__ import annotations

from collections.abc import Callable

from hpuwatch.sim.hooks import Moment
from hpuwatch.sim.truth.device import DeviceFull
from hpuwatch.sim.world import World


async def run_images(world: World, tell: Callable[[int], None]) -> None:
    """Run every image, and let ``tell`` speak of each by its index, from 0.

    Raises:
        EngineFailed: an image needs more memory than there is.
    """
    for index in range(len(world.truth.image_sizes)):
        await world.faults.at(Moment("multimodal", index + 1))
        try:
            world.memory.warm_image(index)
        except DeviceFull as error:
            raise world.full(error, "warmup_multimodal_graphs") from None
        await world.pace.spend(world.times.image_seconds(index))
        tell(index)
    world.memory.finish_images()
