"""The bar of a checkpoint's files; each refresh is a line of its own."""

from __future__ import annotations

from hpuwatch.sim.talk.bars import Bar
from hpuwatch.sim.world import World


async def read_shards(world: World, seconds: float) -> None:
    """Let the first rank read the checkpoint's files in so many simulated seconds."""
    speaker, shards = world.speakers.ranks[0], world.options.model.shards
    bar = Bar(shards, unit="it")
    _draw(world, speaker, bar)
    for _ in range(shards):
        await world.pace.spend(seconds / shards)
        bar.wait(seconds / shards)
        bar.advance()
        _draw(world, speaker, bar)
    bar.settle()
    _draw(world, speaker, bar)
    world.voice.write(speaker, "stderr", "\n")


def _draw(world: World, speaker: str, bar: Bar) -> None:
    text = world.voice.text("shards", **bar.fields())
    world.voice.write(speaker, "stderr", f"\r{text}\n")
