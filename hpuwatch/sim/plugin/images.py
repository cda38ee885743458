"""The multimodal warm-up: a run for each size of an image that is expected."""

from __future__ import annotations

from hpuwatch.sim.hooks import Moment
from hpuwatch.sim.start.images import run_images
from hpuwatch.sim.world import World
from hpuwatch.units import format_bytes


async def warm_images(world: World) -> None:
    """Run the vision part of the model once for each size of an image.

    Raises:
        EngineFailed: a size is nonsense, or an image needs more memory than there is.
    """
    images = world.truth.image_sizes
    if not images:
        return
    await world.faults.at(Moment("multimodal"))
    world.check("pictures", "warmup_multimodal_graphs")
    _announce_images(world)

    def tell(index: int) -> None:
        width, height = images[index]
        world.each_rank(
            "image_warmup",
            index=index + 1,
            total=len(images),
            width=width,
            height=height,
            patches=width * height,
            free=format_bytes(world.memory.free_bytes),
        )

    await run_images(world, tell)


def _announce_images(world: World) -> None:
    knobs = world.knobs
    buckets = list(world.truth.images.buckets) or None
    if not knobs.multimodal_resolutions:
        world.each_rank("multimodal_buckets", buckets=buckets)
        return
    world.each_rank("multimodal_buckets", buckets=None)
    pictures = [_picture(text) for text in knobs.multimodal_resolutions]
    world.each_rank("resolutions", resolutions=pictures)


def _picture(text: str) -> tuple[int, int, int | tuple[int, ...] | None]:
    """Read ``864x480``, ``864x480x4`` or ``864x480x1-20``: the last is how many at once."""
    width, height, *counts = text.lower().split("x")
    numbers = tuple(int(number) for count in counts for number in count.split("-"))
    count = numbers[0] if len(numbers) == 1 else numbers or None
    return int(width), int(height), count
