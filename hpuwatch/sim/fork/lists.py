"""The bucket ranges and lists of a V0 start, and everything printed while they are made.

Up to 1.21 a worker tells its ranges when it comes up, and makes its lists when it warms up;
up to 1.20 not even then where warm-up is skipped.  Since 1.22 both happen once the blocks of
the cache are known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hpuwatch.gaudi.buckets import (
    DECODE,
    PROMPT,
    Bucket,
    BucketError,
    BucketSettings,
    generate,
)
from hpuwatch.sim.config.bucketing import bucket_settings, death_by
from hpuwatch.sim.fork import words
from hpuwatch.sim.shapes import Shapes
from hpuwatch.sim.world import EngineFailed, World

_NO_BUDGET = 1 << 62  # beyond every card, and still a size to reckon with
_DIVIDED_BY_ZERO = "ZeroDivisionError: integer division or modulo by zero"
"""What Python says of a token budget that is shared out among no prompts, or empty ones."""

_AXES = {PROMPT: ("bs", "seq"), DECODE: ("bs", "blocks")}


def tell_ranges(world: World, speaker: str) -> None:
    """Let a worker tell its ranges of both phases where it does before it knows the cache.

    Raises:
        EngineFailed: a variable is no number.
    """
    if _time_of_lists(world) == "before_cache":
        return
    settings = _settings(world, 1, "worker")
    ranges = {phase: words.axes(settings, phase) for phase in (PROMPT, DECODE)}
    # The batches come first, then the lengths, each prompt before decode.
    rows = [ranges[phase][side] for side in (0, 1) for phase in (PROMPT, DECODE)]
    if settings.strategy == "lin":
        for echo in words.echoes(rows):
            world.voice.say(speaker, "setting_echo", **echo._asdict())
    for phase in (PROMPT, DECODE):
        _tell_config(world, [speaker], settings, phase, ranges[phase])


def profiled_shape(world: World) -> tuple[int, int]:
    """Return batch and length of the profile run: the largest that keeps to the budget.

    Raises:
        EngineFailed: the prompt ranges end at nothing.
    """
    settings = _settings(world, 1, "worker")
    most, longest = (axis.numbers[2] for axis in words.axes(settings, PROMPT))
    if min(most, longest) < 1:
        raise EngineFailed(_DIVIDED_BY_ZERO, "profile_run")
    each = max(1, settings.max_num_batched_tokens // most)
    return min(most, _NO_BUDGET), min(longest, each)


def before_cache(world: World, blocks: int) -> Shapes | None:
    """Make the lists and let every rank tell them phase by phase, where it is time for it.

    Raises:
        EngineFailed: the runtime dies of these settings.
    """
    if _time_of_lists(world) != "before_cache":
        return None
    settings = _settings(world, blocks, "buckets")
    made: dict[str, tuple[Bucket, ...]] = {}
    for phase in (PROMPT, DECODE):
        if not world.knobs.bucketing:
            world.each_rank("bucketing_skipped", phase=phase)
            made[phase] = ()
            continue
        _tell_ranges_late(world, settings, phase)
        made[phase] = _made(world, settings, phase)
        if phase == PROMPT:
            _tell_over_budget(world, settings, made[phase])
        _tell_list(world, phase, [tuple(b) for b in made[phase]])
    return Shapes(settings, made)


def in_warmup(world: World, blocks: int) -> Shapes:
    """Make the lists as warm-up does, and let every rank tell the pairs.

    Raises:
        EngineFailed: the runtime dies of these settings.
    """
    settings = _settings(world, blocks, "buckets")
    if world.knobs.skip_warmup and _time_of_lists(world) == "in_warmup":
        return Shapes(settings, {PROMPT: (), DECODE: ()})
    made = {phase: _made(world, settings, phase) for phase in (PROMPT, DECODE)}
    _tell_over_budget(world, settings, made[PROMPT])
    unbounded = replace(settings, max_num_batched_tokens=_NO_BUDGET)
    everything = _generated(unbounded, PROMPT)
    _tell_list(world, PROMPT, [(b.batch, b.query) for b in made[PROMPT]])
    left_out = sorted((b.batch, b.query) for b in {*everything} - {*made[PROMPT]})
    budget = settings.max_num_batched_tokens
    world.each_rank("omitted", count=len(left_out), budget=budget)
    world.each_rank("omitted_list", buckets=left_out)
    _tell_list(world, DECODE, [(b.batch, b.context) for b in made[DECODE]])
    return Shapes(settings, made)


def _time_of_lists(world: World) -> object:
    return world.voice.script.facts["bucket_lists"]


def _settings(world: World, blocks: int, stage: str) -> BucketSettings:
    world.check(stage, "init_worker")
    return bucket_settings(world.options, world.knobs, blocks)


def _made(world: World, settings: BucketSettings, phase: str) -> tuple[Bucket, ...]:
    buckets = _generated(settings, phase)
    if phase == PROMPT and not buckets:
        bs, seq = (row.numbers for row in words.axes(settings, phase))
        reason = world.voice.error("no_buckets", bs=bs, seq=seq)
        raise EngineFailed(reason, "initialize_cache")
    return buckets


def _generated(settings: BucketSettings, phase: str) -> tuple[Bucket, ...]:
    try:
        return generate(settings, phase)
    except BucketError as error:
        raise EngineFailed(death_by(error), "initialize_cache") from None


def _tell_config(
    world: World,
    speakers: Sequence[str],
    settings: BucketSettings,
    phase: str,
    rows: tuple[words.Axis, words.Axis],
) -> None:
    batch, length = rows
    if phase == PROMPT and settings.merged_prefill:
        rows = words.merged(settings, rows)
        change = {
            "old_bs": batch.numbers,
            "new_bs": rows[0].numbers,
            "old_seq": length.numbers,
            "new_seq": rows[1].numbers,
        }
        for speaker in speakers:
            world.voice.say(speaker, "merged_prefill", **change)
    numbers = dict(zip(_AXES[phase], (row.numbers for row in rows), strict=True))
    for speaker in speakers:
        world.voice.say(speaker, f"{settings.strategy}_{phase}_config", **numbers)


def _tell_ranges_late(world: World, settings: BucketSettings, phase: str) -> None:
    """Let every rank tell the ranges of a phase right before it makes the list."""
    _tell_ignored(world, settings, phase)
    rows = words.axes(settings, phase)
    if settings.strategy == "lin":
        for echo in words.echoes(rows):
            world.each_rank("setting_echo", **echo._asdict())
    _tell_config(world, world.speakers.ranks, settings, phase, rows)


def _tell_ignored(world: World, settings: BucketSettings, phase: str) -> None:
    """Warn of the variables of a phase that the exponential strategy doesn't look at."""
    if settings.strategy == "exp":
        for name, value in words.ignored(settings.env, phase):
            world.each_rank("stars")
            world.each_rank("exp_ignores", name=name, value=value)
            world.each_rank("stars")


def _tell_over_budget(
    world: World, settings: BucketSettings, prompts: Sequence[Bucket]
) -> None:
    """Warn where not even the smallest bucket keeps to the token budget."""
    budget, block = settings.max_num_batched_tokens, settings.block_size
    smallest = min(b.batch * (b.query + b.context * block) for b in prompts)
    if smallest > budget:
        batch, length = words.axes(settings, PROMPT)
        world.each_rank(
            f"over_budget_{settings.strategy}",
            bs=batch.numbers,
            seq=length.numbers,
            budget=budget,
            smallest=smallest,
        )


def _tell_list(world: World, phase: str, rows: Sequence[tuple[int, ...]]) -> None:
    world.each_rank(f"{phase}_buckets", count=len(rows), buckets=sorted(rows))
