"""Everything that one simulated server shares, and how its engine can fail.

A start goes through a :class:`World`: it says lines with the voice, spends simulated time,
takes device memory, and calls ``faults.at`` at each moment where a fault may strike.
"""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from hpuwatch.gaudi.buckets import Bucket
from hpuwatch.sim.config.knobs import KnobError, Knobs
from hpuwatch.sim.config.options import Options
from hpuwatch.sim.hooks import Faults
from hpuwatch.sim.pace import Pace
from hpuwatch.sim.talk.script import Script
from hpuwatch.sim.talk.voice import Voice
from hpuwatch.sim.truth.compiling import During
from hpuwatch.sim.truth.device import DeviceFull, Memory
from hpuwatch.sim.truth.dice import dice
from hpuwatch.sim.truth.memory import MemoryTruth
from hpuwatch.sim.truth.recipes import LAYER_BYTES, Recipes
from hpuwatch.sim.truth.times import TimeTruth
from hpuwatch.units import GIB, MIB

_PROCESSES = {"import": "import", "front": "front"}
"""The process that a stage of the start belongs to, where it isn't the engine."""
_OVERTAKING_SHARE = 0.4  # of the moments at which several ranks say the same


@dataclass(frozen=True, slots=True)
class Speakers:
    """The prefixes of the simulated processes; empty where a process has none.

    Attributes:
        front: the API server.
        engine: the engine's process.
        unranked: the workers before they know their rank.
        ranks: the workers once they know it; one card needs no worker, the engine does
            its work itself.
        engine_pid: the process id of the engine, which V0's front end tells.
    """

    front: str
    engine: str
    unranked: tuple[str, ...]
    ranks: tuple[str, ...]
    engine_pid: int

    @classmethod
    def of(
        cls, ranks: int, script: Script, pids: Sequence[int] | None = None
    ) -> Speakers:
        """Name the processes of a server with that many cards.

        Args:
            ranks: cards.
            script: names the processes: ``front``, ``engine``, ``worker``, ``rank`` and,
                where the first rank has another name than the rest, ``first_rank``.
            pids: of the front, the engine and each worker; without, they are invented, but
                stable.
        """
        names = script.processes
        if pids is None:
            pids = range(os.getpid(), os.getpid() + 2 + ranks)
        front, engine = (
            _prefix(names["front"], pids[0]),
            _prefix(names["engine"], pids[1]),
        )
        if ranks == 1:
            return cls(front, engine, (engine,), (engine,), pids[1])
        workers = pids[2 : 2 + ranks]
        return cls(
            front,
            engine,
            _prefixes(
                names["worker"], names.get("first_rank", names["worker"]), workers
            ),
            _prefixes(names["rank"], names.get("first_rank", names["rank"]), workers),
            pids[1],
        )


def _prefixes(
    name: str | None, first: str | None, pids: Sequence[int]
) -> tuple[str, ...]:
    names = [first, *[name] * (len(pids) - 1)]
    return tuple(
        _prefix(each, pid, rank)
        for rank, (each, pid) in enumerate(zip(names, pids, strict=True))
    )


def _prefix(name: str | None, pid: int, rank: int = 0) -> str:
    return "" if name is None else f"({name.format(rank=rank)} pid={pid}) "


class EngineFailed(Exception):  # noqa: N818  told like a fact
    """The engine, or the front end before it, died on the way to being ready.

    Attributes:
        reason: the exception's last line.
        where: the function that the traceback ends in.
        process: ``engine``, with its workers; ``front``; or ``import``, for the front end
            before it says anything.
        rank: the rank that failed first.
    """

    def __init__(
        self, reason: str, where: str, process: str = "engine", rank: int = 0
    ) -> None:
        """Take the last line and the function."""
        super().__init__(reason)
        self.reason = reason
        self.where = where
        self.process = process
        self.rank = rank


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
    turns: random.Random = field(default_factory=lambda: dice("turns"))

    def check(self, stage: str, where: str) -> None:
        """Die of a setting that the release dies of at this stage of the start.

        Raises:
            EngineFailed: in that function of the process that the stage belongs to.
        """
        try:
            self.knobs.check(stage)
        except KnobError as error:
            process = _PROCESSES.get(stage, "engine")
            raise EngineFailed(str(error), where, process) from None

    def each_rank(self, name: str, /, **values: object) -> None:
        """Let every rank say the same line, in no certain order."""
        for rank in [0] if self.voice.once(name) else self.in_some_order():
            self.voice.say(self.speakers.ranks[rank], name, **values)

    def in_some_order(self) -> list[int]:
        """Return the ranks as they happen to come this time, mostly in their order."""
        ranks = list(range(len(self.speakers.ranks)))
        if len(ranks) > 1 and self.turns.random() < _OVERTAKING_SHARE:
            self.turns.shuffle(ranks)
        return ranks

    def open_recipes(self) -> None:
        """Open the recipe cache that the settings name, and tell what of it won't do."""
        options = self.options
        self.recipes = Recipes(
            self.knobs.recipe_cache,
            options.point,
            options.card.name,
            options.model.name,
            options.tensor_parallel,
            options.dtype,
            options.kv_cache_dtype,
            options.quantization,
            recipe_bytes=LAYER_BYTES * options.model.layers,
            complain=lambda trouble: self.voice.say(
                self.speakers.engine, "recipes_trouble", trouble=trouble
            ),
        )

    def compile_seconds(
        self,
        phase: str,
        bucket: Bucket,
        *,
        first: bool,
        during: During = "warmup",
    ) -> float:
        """Return what compiling a shape takes, which depends on the recipe cache."""
        return self.times.compile_seconds(
            phase,
            bucket,
            first=first,
            cached=not self.recipes.compiles(phase, bucket),
            during=during,
        )

    def full(self, error: DeviceFull, where: str) -> EngineFailed:
        """Tell an allocation that didn't fit as the end of the engine."""
        # The allocator asks for pieces, never for a whole model at once.
        size = min(error.wanted_bytes, GIB)
        reason = self.voice.error(
            "device_oom", rank=error.rank, size=size, megabytes=size // MIB
        )
        return EngineFailed(reason, where, rank=error.rank)
