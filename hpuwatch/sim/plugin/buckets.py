"""The bucket lists of a start, and everything that is printed while they are made."""

from __future__ import annotations

from hpuwatch.gaudi.buckets import (
    DECODE,
    PROMPT,
    Bucket,
    BucketError,
    BucketSettings,
    generate,
)
from hpuwatch.sim.config.bucketing import bucket_settings, death_by
from hpuwatch.sim.plugin import words
from hpuwatch.sim.shapes import Shapes
from hpuwatch.sim.world import EngineFailed, World

_FILES = {"exp": "exponential.py", "lin": "linear.py", "pad": "padding_aware.py"}
_OLDER_NAMES = {"exp": "exponential_bucketing", "lin": "linear_bucketing"}


def make_buckets(world: World, blocks: int) -> Shapes:
    """Generate the lists and print them.

    Raises:
        EngineFailed: the plugin dies of these settings.
    """
    settings = bucket_settings(world.options, world.knobs, blocks)
    lists: dict[str, tuple[Bucket, ...]] = {}
    for phase in (PROMPT, DECODE):
        if not world.knobs.bucketing:
            world.each_rank("bucketing_skipped", phase=phase)
            lists[phase] = ()
            continue
        _announce(world, settings, phase)
        try:
            lists[phase] = generate(settings, phase)
        except BucketError as error:
            reason = death_by(error)
            if error.raised == "RuntimeError":
                reason = world.voice.error("no_buckets", phase=phase)
            raise EngineFailed(reason, "generate_buckets") from None
        _list(world, phase, lists[phase])
        if phase == PROMPT and world.knobs.sliced_sdpa:
            _slices(world)
            _list(world, phase, lists[phase])
    return Shapes(settings, lists)


def older_strategy(strategy: str) -> str:
    """Return a strategy's name in the settings dump of older releases."""
    return _OLDER_NAMES.get(strategy, strategy)


def _list(world: World, phase: str, buckets: tuple[Bucket, ...]) -> None:
    rows = [tuple(bucket) for bucket in buckets]
    world.each_rank(f"{phase}_buckets", count=len(rows), buckets=rows)


def _slices(world: World) -> None:
    knobs = world.knobs
    world.each_rank(
        "sliced",
        sliding=True,
        size=knobs.slice_tokens,
        threshold=knobs.slice_from_tokens,
    )


def _announce(world: World, settings: BucketSettings, phase: str) -> None:
    """Say what each rank says before it makes the list of a phase."""
    world.check("buckets", "generate_buckets")
    for warned in world.knobs.warned("buckets"):
        # The strategy is settled anew for each phase; other settings are the prompt's.
        if warned.line.startswith("strategy_") or phase == PROMPT:
            world.each_rank(warned.line, **warned.values)
    if settings.strategy == "file":
        return
    for name, values in words.told(settings, phase):
        world.each_rank(name, **values, file=_FILES[settings.strategy])
    numbers = words.ranges(settings, phase)
    if phase == PROMPT and settings.merged_prefill:
        numbers = _merge(world, settings, numbers)
    world.each_rank(
        f"{settings.strategy}_{phase}_config",
        bs=numbers.batch,
        query=numbers.query,
        blocks=numbers.blocks,
    )


def _merge(world: World, settings: BucketSettings, old: words.Ranges) -> words.Ranges:
    """Tell how merged prefill changes the ranges, which are tuples from then on."""
    new = words.Ranges(*map(tuple, words.merged(settings)))
    world.each_rank(
        "merged_prefill",
        file=_FILES[settings.strategy],
        old_bs=old.batch,
        old_query=old.query,
        old_blocks=old.blocks,
        bs=new.batch,
        query=new.query,
        blocks=new.blocks,
    )
    return new
