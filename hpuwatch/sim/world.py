"""Everything that one simulated server shares, and how its engine can fail.

A start goes through a :class:`World`: it says lines with the voice, spends simulated time,
takes device memory, and calls ``faults.at`` at each moment where a fault may strike.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from hpuwatch.gaudi.buckets import Bucket
from hpuwatch.sim.config.knobs import Knobs
from hpuwatch.sim.config.options import Options
from hpuwatch.sim.faults.hooks import Faults
from hpuwatch.sim.pace import Pace
from hpuwatch.sim.talk.voice import Voice
from hpuwatch.sim.truth.device import DeviceFull, Memory
from hpuwatch.sim.truth.memory import MemoryTruth
from hpuwatch.sim.truth.recipes import Recipes
from hpuwatch.sim.truth.times import TimeTruth
from hpuwatch.units import GIB, MIB


@dataclass(frozen=True, slots=True)
class Speakers:
    """The prefixes of the simulated processes; their pids are invented but stable."""

    front: str
    engine: str
    unranked: tuple[str, ...]  # workers before they know their rank
    ranks: tuple[str, ...]

    @classmethod
    def of(cls, ranks: int) -> Speakers:
        """Name the processes of a server with that many cards."""
        pid = os.getpid()
        front, engine = f"(APIServer pid={pid}) ", f"(EngineCore pid={pid + 1}) "
        if ranks == 1:
            # One card needs no worker process: the engine does the work itself.
            return cls(front, engine, (engine,), (engine,))
        pids = range(pid + 2, pid + 2 + ranks)
        return cls(
            front,
            engine,
            tuple(f"(Worker pid={p}) " for p in pids),
            tuple(f"(Worker_TP{k} pid={p}) " for k, p in enumerate(pids)),
        )


class EngineFailed(Exception):  # noqa: N818  told like a fact
    """The engine died before it was ready; ``reason`` is its exception's last line.

    Attributes:
        where: the plugin's function that the traceback ends in.
        rank: the rank that failed first.
    """

    def __init__(self, reason: str, where: str) -> None:
        """Take the last line and the function."""
        super().__init__(reason)
        self.reason = reason
        self.where = where


@dataclass(slots=True)
class World:
    """Everything that one simulated server shares."""

    options: Options
    voice: Voice
    pace: Pace
    truth: MemoryTruth
    times: TimeTruth
    memory: Memory
    speakers: Speakers
    knobs: Knobs
    recipes: Recipes
    faults: Faults

    def each_rank(self, name: str, /, **values: object) -> None:
        """Let every rank say the same line."""
        for speaker in self.speakers.ranks:
            self.voice.say(speaker, name, **values)

    def compile_seconds(self, phase: str, bucket: Bucket, *, first: bool) -> float:
        """Return what compiling a shape takes, which depends on the recipe cache."""
        cached = not self.recipes.compiles(phase, bucket)
        return self.times.compile_seconds(phase, bucket, first=first, cached=cached)

    def full(self, error: DeviceFull, where: str) -> EngineFailed:
        """Tell an allocation that didn't fit as the end of the engine."""
        # The allocator asks for pieces, never for a whole model at once.
        size = min(error.wanted_bytes, GIB)
        reason = self.voice.error(
            "device_oom", rank=0, size=size, megabytes=size // MIB
        )
        return EngineFailed(reason, where)
