"""Warm-up: make the buckets, run each once, keep its graph; or run out of memory.

Buckets are walked from the largest to the smallest.  The bar counts the buckets of the
list, though some of them run a shape that another has run before, which costs almost
nothing.  The worker warms up when it has its cache, and the engine asks it to once more;
only a warm-up that has captured graphs stops the second.
"""

from __future__ import annotations

from hpuwatch.gaudi.buckets import DECODE, PROMPT, Bucket
from hpuwatch.sim.hooks import Moment
from hpuwatch.sim.plugin.buckets import make_buckets
from hpuwatch.sim.plugin.drawing import Drawing
from hpuwatch.sim.plugin.images import warm_images
from hpuwatch.sim.shapes import Shapes, WarmShapes
from hpuwatch.sim.truth.device import DeviceFull
from hpuwatch.sim.world import EngineFailed, World
from hpuwatch.units import format_bytes

_SAMPLER_CONFIGS = (
    (0.0, 1.0, 0),
    (1.0, 1.0, 0),
    (0.7, 0.9, 50),
    (0.3, 0.95, 20),
    (1.2, 0.8, 100),
    (0.8, 0.85, 0),
)
_DEFRAGMENTER_STEPS = [8, 16, 32, 64, 128, 256, 512]
_FEWEST_BLOCKS = 2  # that the defragmenter can move


async def warm_up(world: World, blocks: int) -> tuple[Shapes, WarmShapes]:
    """Make the buckets and warm them, unless that is switched off.

    Returns:
        the lists, and the shapes that are warm.

    Raises:
        EngineFailed: no buckets, a bad variable, or not enough device memory.
    """
    shapes, warm = await _warm_up_once(world, blocks)
    if not warm:
        shapes, warm = await _warm_up_once(world, blocks)
    return shapes, warm


async def _warm_up_once(world: World, blocks: int) -> tuple[Shapes, WarmShapes]:
    began = world.pace.passed
    shapes = make_buckets(world, blocks)
    warm: WarmShapes = set()
    if world.knobs.skip_warmup:
        world.each_rank("warmup_skipped")
    if world.knobs.skip_warmup or not world.knobs.bucketing:
        return shapes, warm
    await warm_images(world)
    if world.knobs.compile_only:
        world.each_rank("compile_only")
    await _sampler(world, shapes)
    await _defragmenter(world, blocks)
    if not world.options.enforce_eager:
        for phase in (PROMPT, DECODE):
            warm |= {(phase, shape) for shape in await _phase(world, shapes, phase)}
        world.memory.finish_warmup()
    seconds = world.pace.passed - began
    used = format_bytes(world.memory.warmup_bytes)
    world.each_rank("warmup_done", seconds=seconds, used=used)
    return shapes, warm


async def _sampler(world: World, shapes: Shapes) -> None:
    least = world.voice.script.facts["sampler_starts_at"]
    decodes = {bucket.batch for bucket in shapes.buckets[DECODE]}
    batches = sorted({least, 1, *decodes})
    world.each_rank("sampler", batches=batches)
    for changed in (True, False):
        for temp, top_p, top_k in _SAMPLER_CONFIGS:
            world.each_rank(
                "sampler_config", temp=temp, top_p=top_p, top_k=top_k, changed=changed
            )
    world.each_rank("sampler_start")
    await world.pace.spend(world.times.sampler_seconds(batches=len(batches)))
    world.each_rank("sampler_done")


async def _defragmenter(world: World, blocks: int) -> None:
    if not world.knobs.defrag:
        return
    if blocks < _FEWEST_BLOCKS:
        world.each_rank("defragmenter_skipped", blocks=blocks)
        return
    world.each_rank("defragmenter", thresholds=_DEFRAGMENTER_STEPS)
    await world.pace.spend(world.times.defragmenter_seconds())
    world.each_rank("defragmenter_done")


async def _phase(world: World, shapes: Shapes, phase: str) -> set[Bucket]:
    """Warm the buckets of one phase and return the shapes that ran."""
    budget = world.options.max_num_batched_tokens
    buckets = [b for b in reversed(shapes.buckets[phase]) if b.query <= budget]
    await world.faults.at(Moment(phase))
    drawing = Drawing(world, phase, len(buckets))
    warm: set[Bucket] = set()
    for index, bucket in enumerate(buckets):
        await world.faults.at(Moment(phase, index + 1))
        drawing.begin(index, bucket)
        shape = shapes.warm_shape(phase, bucket)
        if shape in warm:
            seconds = world.times.repeated_seconds()
        else:
            _capture(world, phase, shape, drawing)
            seconds = world.compile_seconds(phase, shape, first=not warm)
        await world.pace.spend(seconds)
        warm.add(shape)
        drawing.end(index, seconds)
    drawing.close()
    world.each_rank(
        "graphs",
        phase=phase.capitalize(),
        count=len(buckets),
        used=format_bytes(world.memory.graph_bytes.get(phase, 0)),
    )
    return warm


def _capture(world: World, phase: str, shape: Bucket, drawing: Drawing) -> None:
    least = min(shape)
    if least < 0:  # a bucket file may name such a one
        drawing.close()
        text = f"negative dimension {least}: {[shape.batch, shape.query]}"
        reason = f"RuntimeError: Trying to create tensor with {text}"
        raise EngineFailed(reason, "warmup_graphs")
    try:
        world.memory.warm(phase, shape)
    except DeviceFull as error:
        # The traceback follows behind the bar; tqdm ends its line when it is left.
        drawing.close()
        raise world.full(error, "warmup_graphs") from None
