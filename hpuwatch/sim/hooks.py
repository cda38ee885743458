"""Where faults strike: the start and the engine name each moment, a fault may be due then.

Without a scenario a server has plain :class:`Faults`, which only remember the moment.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Literal, TextIO

if TYPE_CHECKING:
    from hpuwatch.sim.world import World

Phase = Literal[
    "import",
    "engine",
    "load",
    "profile",
    "kv",
    "multimodal",
    "prompt",
    "decode",
    "ready",
    "serve",
]
"""The phases of a server's life in their order; prompt and decode are those of warm-up."""


@dataclass(frozen=True, slots=True)
class Moment:
    """A moment of a server's life.

    Attributes:
        phase: a ``Phase``.
        index: which bucket or step of the phase comes next, from 1; 0 before the first.
    """

    phase: str
    index: int = 0


@dataclass(frozen=True, slots=True)
class StopFaults:
    """How a stop goes wrong.

    Attributes:
        deaf: SIGTERM is not heard.
        race_lost: the engine is killed before its aborts get out, so that the server waits
            until its clients hang up.
        extra_seconds: that the engine takes to end, in simulated seconds.
    """

    deaf: bool = False
    race_lost: bool = False
    extra_seconds: float = 0.0


class Faults:
    """The faults of one server; without a scenario nothing ever happens.

    Attributes:
        now: the moment that came last.
        died: set when the engine died of something outside of its own work.
        failure: what it died of then; what is no ``EngineFailed`` ends the whole server.
    """

    def __init__(self) -> None:
        """Begin before the first line."""
        self.now = Moment("import")
        self.died = asyncio.Event()
        self.failure: Exception | None = None

    @property
    def stop(self) -> StopFaults:
        """How a stop goes wrong."""
        return StopFaults()

    def stamps(self, stamp: Callable[[], float]) -> Callable[[], float]:
        """Return the clock that lines are stamped by."""
        return stamp

    def outlets(self, streams: Mapping[str, TextIO]) -> Mapping[str, TextIO]:
        """Return the streams that lines go through."""
        return streams

    @asynccontextmanager
    async def alive(
        self,
        world: World,  # noqa: ARG002
        listener: socket.socket,  # noqa: ARG002
    ) -> AsyncIterator[None]:
        """Be there from the server's first line to its last."""
        yield

    async def at(self, moment: Moment) -> None:
        """Let what is due at this moment happen.

        Raises:
            EngineFailed: the engine dies of it.
        """
        self.now = moment

    async def asked(self, method: str, path: str) -> HTTPStatus | None:  # noqa: ARG002
        """Return the status that a fault answers a request with, None to go on."""
        return None
