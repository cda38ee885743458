"""The multimodal warm-up of the forks since 1.22: a run for each number of patches.

Where it stands among the other graphs no public log tells; it comes first here, as in the
plugin.
"""

from __future__ import annotations

from hpuwatch.gaudi.buckets import PROMPT
from hpuwatch.sim.hooks import Moment
from hpuwatch.sim.shapes import Shapes
from hpuwatch.sim.start.images import run_images
from hpuwatch.sim.world import World
from hpuwatch.units import format_bytes


def tell_patches(world: World) -> None:
    """Tell the numbers of patches of a model with images, whether it is warmed or not.

    Raises:
        EngineFailed: the variable that names them holds nonsense.
    """
    if _warms(world):
        world.check("pictures", "warmup_model")
        world.each_rank("multimodal_buckets", buckets=_patches(world) or None)


async def warm_images(world: World, shapes: Shapes) -> None:
    """Run the vision part of the model once for each number of patches.

    Raises:
        EngineFailed: an image needs more memory than there is.
    """
    patches = _patches(world)
    if not _warms(world) or not patches:
        return
    longest = max((bucket.query for bucket in shapes.buckets[PROMPT]), default=0)
    await world.faults.at(Moment("multimodal"))

    def tell(index: int) -> None:
        world.each_rank(
            "image_warmup",
            index=index + 1,
            total=len(patches),
            length=longest,
            patches=patches[index],
            free=format_bytes(world.memory.free_bytes),
        )

    await run_images(world, tell)
    world.each_rank(
        "graphs_multimodal", count=len(patches), percent=100.0, buckets=patches
    )


def _warms(world: World) -> bool:
    return world.truth.has_images and world.voice.has("image_warmup")


def _patches(world: World) -> list[int]:
    return list(world.truth.images.buckets)
