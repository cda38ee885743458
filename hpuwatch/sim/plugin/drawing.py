"""The bars of a warm-up's phase: each rank draws one of its own onto the shared terminal."""

from __future__ import annotations

from hpuwatch.gaudi.buckets import Bucket
from hpuwatch.sim.talk.bars import Bar
from hpuwatch.sim.world import World
from hpuwatch.units import format_bytes


class Drawing:
    """The bars of one phase; they begin, and end only with :meth:`close`, on a line."""

    def __init__(self, world: World, phase: str, total: int) -> None:
        """Draw every rank's bar for the first time."""
        self._world = world
        self._phase = phase.capitalize()
        self._bar = Bar(total)
        self._drawn = ""
        self._index = 0
        self._each("bar_start")

    def begin(self, index: int, bucket: Bucket) -> None:
        """Say which bucket comes, in developer mode."""
        world = self._world
        if not world.knobs.developer_mode:
            return
        text = world.voice.text(
            "warmup_bucket",
            phase=self._phase,
            index=index + 1,
            total=self._bar.total,
            batch=bucket.batch,
            query=bucket.query,
            context=bucket.context,
            free=format_bytes(world.memory.free_bytes),
        )
        # A line that is written past a bar wipes the bar first, and draws it again behind.
        wipe = "\r" + " " * (len(self._drawn) - 1) + "\r"
        for rank in world.in_some_order():
            speaker = world.speakers.ranks[rank]
            world.voice.write(speaker, "stderr", wipe)
            world.voice.write(speaker, "stdout", f"{text}\n")
            world.voice.write(speaker, "stderr", self._drawn)

    def end(self, index: int, seconds: float) -> None:
        """Draw a bucket as done."""
        self._index = index
        self._bar.wait(seconds)
        self._each("bar")
        self._bar.advance()
        self._each("bar")

    def close(self) -> None:
        """Draw every bar for the last time and end its line."""
        self._bar.settle()
        self._each("bar" if self._index or self._bar.done else "bar_start", end="\n")

    def _each(self, name: str, end: str = "") -> None:
        voice = self._world.voice
        values = self._bar.fields()
        text = voice.text(name, phase=self._phase, index=self._index, **values)
        self._drawn = f"\r{text}"
        for rank in self._world.in_some_order():
            speaker = self._world.speakers.ranks[rank]
            voice.write(speaker, "stderr", self._drawn + end)
