"""Warm-up: make the buckets, run each once, keep its graph; or run out of memory.

Buckets are walked from the largest to the smallest.  The bar counts the buckets of the
list, though some of them run a shape that another has run before, which costs almost
nothing.
"""

from __future__ import annotations

from hpuwatch.gaudi.buckets import (
    DECODE,
    PROMPT,
    Bucket,
    BucketError,
    BucketSettings,
    generate,
)
from hpuwatch.sim.config.knobs import KnobError, check_bucket_numbers
from hpuwatch.sim.faults.hooks import Moment
from hpuwatch.sim.plugin import words as bucket_words
from hpuwatch.sim.plugin.boot import bucket_settings
from hpuwatch.sim.serve.shapes import Shapes, WarmShapes
from hpuwatch.sim.talk.bars import Bar
from hpuwatch.sim.truth.device import DeviceFull
from hpuwatch.sim.world import EngineFailed, World
from hpuwatch.units import format_bytes

_REPEATED_SECONDS = 0.05
_SAMPLER_SECONDS = 2.2
_SAMPLER_CONFIGS = (
    (0.0, 1.0, 0),
    (1.0, 1.0, 0),
    (0.7, 0.9, 50),
    (0.3, 0.95, 20),
    (1.2, 0.8, 100),
    (0.8, 0.85, 0),
)
_AXES = {PROMPT: ("bs", "query", "blocks"), DECODE: ("bs", "blocks")}


async def warm_up(world: World, blocks: int) -> tuple[Shapes, WarmShapes]:
    """Make the buckets and warm them, unless that is switched off.

    Returns:
        the lists, and the shapes that are warm.

    Raises:
        EngineFailed: no buckets, a bad variable, or not enough device memory.
        Stopped: the server was asked to stop.
    """
    began = world.pace.passed
    shapes = make_buckets(world, blocks)
    warm: WarmShapes = set()
    if world.knobs.skip_warmup:
        world.each_rank("warmup_skipped")
        # The plugin calls warm-up twice, and only a finished one stops the second call.
        make_buckets(world, blocks)
        world.each_rank("warmup_skipped")
    else:
        await _sampler(world, shapes)
        if not world.options.enforce_eager:
            for phase in (PROMPT, DECODE):
                shapes_run = await _phase(world, shapes, phase)
                warm |= {(phase, shape) for shape in shapes_run}
        used = sum(world.memory.graph_bytes.values())
        world.each_rank(
            "warmup_done",
            seconds=world.pace.passed - began,
            used=format_bytes(used),
        )
    return shapes, warm


def make_buckets(world: World, blocks: int) -> Shapes:
    """Generate the lists and print them.

    Raises:
        EngineFailed: the plugin dies of these settings.
    """
    settings = bucket_settings(world.options, world.knobs, blocks)
    try:
        check_bucket_numbers(settings.env)
    except KnobError as error:
        raise EngineFailed(str(error), "generate_buckets") from None
    lists = {}
    for phase in (PROMPT, DECODE):
        _announce(world, settings, phase)
        try:
            lists[phase] = generate(settings, phase)
        except BucketError as error:
            reason = _death_of(world, error, phase)
            raise EngineFailed(reason, "generate_buckets") from None
        world.each_rank(
            f"{phase}_buckets",
            count=len(lists[phase]),
            buckets=[tuple(bucket) for bucket in lists[phase]],
        )
    return Shapes(settings, lists)


def _announce(world: World, settings: BucketSettings, phase: str) -> None:
    if settings.strategy == "exp":
        ignored = bucket_words.ignored_by_exp(settings.env, phase)
        for name, value in ignored:
            world.each_rank("stars")
            world.each_rank("exp_ignores", name=name, value=value)
            world.each_rank("stars")
    if phase == PROMPT:
        for query, seq, value in bucket_words.seq_for_query(settings):
            world.each_rank("seq_for_query", query=query, seq=seq, value=value)
    asked = bucket_words.overruled_block_max(settings)
    if phase == DECODE and asked is not None:
        blocks = settings.num_blocks
        world.each_rank("block_max_overruled", value=asked, blocks=blocks)
    for name, number, default in bucket_words.echoes(settings, phase):
        world.each_rank("setting_echo", name=name, value=number, default=default)
    numbers = [values for _, values in bucket_words.axes(settings, phase)]
    axes = dict(zip(_AXES[phase], numbers, strict=True))
    world.each_rank(f"{settings.strategy}_{phase}_config", **axes)


def _death_of(world: World, error: BucketError, phase: str) -> str:
    if error.raised == "RuntimeError":
        return world.voice.error("no_buckets", phase=phase)
    if error.raised == "AssertionError":
        return world.voice.error(f"range_{world.knobs.strategy}")
    return f"ValueError: {error}"


async def _sampler(world: World, shapes: Shapes) -> None:
    batches = sorted({1, *(bucket.batch for bucket in shapes.buckets[DECODE])})
    world.each_rank("sampler", batches=batches)
    for changed in (True, False):
        for temp, top_p, top_k in _SAMPLER_CONFIGS:
            world.each_rank(
                "sampler_config", temp=temp, top_p=top_p, top_k=top_k, changed=changed
            )
    world.each_rank("sampler_start")
    await world.pace.spend(_SAMPLER_SECONDS)
    world.each_rank("sampler_done")


async def _phase(world: World, shapes: Shapes, phase: str) -> set[Bucket]:
    """Warm the buckets of one phase and return the shapes that ran."""
    buckets = [
        bucket
        for bucket in reversed(shapes.buckets[phase])
        if bucket.query <= world.options.max_num_batched_tokens
    ]
    drawing = _Drawing(world, phase, len(buckets))
    warm: set[Bucket] = set()
    for index, bucket in enumerate(buckets):
        await world.faults.at(Moment(phase, index + 1))
        drawing.begin(index, bucket)
        shape = shapes.warm_shape(phase, bucket)
        if shape in warm:
            seconds = _REPEATED_SECONDS
        else:
            _capture(world, phase, shape)
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


def _capture(world: World, phase: str, shape: Bucket) -> None:
    truth = world.truth
    graph = truth.graph_bytes(phase, shape)
    try:
        world.memory.capture(phase, graph, truth.activation_bytes(phase, shape))
    except DeviceFull as error:
        # The bar never ends its line: the traceback follows right behind it.
        world.voice.write("stderr", "\n")
        raise world.full(error, "warmup_graphs") from None


class _Drawing:
    """The bar of one phase, drawn by every rank onto the same line."""

    def __init__(self, world: World, phase: str, total: int) -> None:
        self._world = world
        self._phase = phase.capitalize()
        self._bar = Bar(total)
        self._drawn = ""
        for speaker in world.speakers.ranks:
            world.voice.write("stderr", speaker)
            self._draw("bar_start")

    def begin(self, index: int, bucket: Bucket) -> None:
        """Say which bucket comes, in developer mode."""
        world = self._world
        if not world.knobs.developer_mode:
            return
        free = format_bytes(world.memory.free_bytes)
        for speaker in world.speakers.ranks:
            text = world.voice.text(
                "warmup_bucket",
                phase=self._phase,
                index=index + 1,
                total=self._bar.total,
                batch=bucket.batch,
                query=bucket.query,
                context=bucket.context,
                free=free,
            )
            # A line written past a bar first wipes the bar.
            wipe = "\r" + " " * 66 + "\r"
            world.voice.write("stderr", wipe)
            world.voice.write("stdout", f"{speaker}{text}\n")
            world.voice.write("stderr", self._drawn)

    def end(self, index: int, seconds: float) -> None:
        """Draw a bucket as done."""
        self._bar.wait(seconds)
        for _ in self._world.speakers.ranks:
            self._draw("bar", index)
        self._bar.advance()
        for _ in self._world.speakers.ranks:
            self._draw("bar", index)

    def close(self) -> None:
        """End the line."""
        self._world.voice.write("stderr", "\n")

    def _draw(self, name: str, index: int = 0) -> None:
        values = self._bar.fields()
        text = self._world.voice.text(name, phase=self._phase, index=index, **values)
        self._drawn = "\r" + text
        self._world.voice.write("stderr", self._drawn)
