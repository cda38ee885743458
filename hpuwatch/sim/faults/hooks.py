"""Where faults strike: the start and the engine name each moment, a fault may be due then."""

from __future__ import annotations

from dataclasses import dataclass

PHASES = (
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
)
"""The phases of a server's life in their order; prompt and decode are those of warm-up."""


@dataclass(frozen=True, slots=True)
class Moment:
    """A moment of a server's life.

    Attributes:
        phase: one of ``PHASES``.
        index: which bucket or step of the phase comes next, from 1; 0 before the first.
    """

    phase: str
    index: int = 0


class Faults:
    """The faults of one server; without a scenario nothing ever happens."""

    async def at(self, moment: Moment) -> None:
        """Let what is due at this moment happen."""
