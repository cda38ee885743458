"""The two families of releases, which start and die in other words: plugin and fork."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from hpuwatch.gaudi.spans import Point
from hpuwatch.sim.fork import boot as fork_boot
from hpuwatch.sim.fork import failures as fork_failures
from hpuwatch.sim.fork import start as fork_start
from hpuwatch.sim.plugin import boot as plugin_boot
from hpuwatch.sim.plugin import failures as plugin_failures
from hpuwatch.sim.plugin import start as plugin_start
from hpuwatch.sim.shapes import Warmed
from hpuwatch.sim.world import EngineFailed, World


@dataclass(frozen=True, slots=True)
class Family:
    """How a server of a family lives and dies.

    Attributes:
        front_end: says what the API server says before it starts the engine.
        no_port: tells that the port can't be had.
        start: goes through a whole start.
        engine_failed: tells that the engine failed to start.
        engine_died: tells the exception that a serving engine died of.
        engine_killed: tells that the engine's process is gone without a word.
        engine_stopped: tells how the engine's process ends when it is told to.
    """

    front_end: Callable[[World], Awaitable[None]]
    no_port: Callable[[World, OSError], None]
    start: Callable[[World], Awaitable[Warmed]]
    engine_failed: Callable[[World, EngineFailed], None]
    engine_died: Callable[[World, str], None]
    engine_killed: Callable[[World, EngineFailed], None]
    engine_stopped: Callable[[World], None]


_PLUGIN = Family(
    plugin_boot.front_end,
    plugin_failures.no_port,
    plugin_start.start,
    plugin_failures.engine_failed,
    plugin_failures.engine_died,
    plugin_failures.engine_killed,
    plugin_failures.engine_stopped,
)
_FORK = Family(
    fork_boot.front_end,
    fork_failures.no_port,
    fork_start.start,
    fork_failures.engine_failed,
    fork_failures.engine_died,
    fork_failures.engine_killed,
    fork_failures.engine_stopped,
)


def family_of(point: Point) -> Family:
    """Return the family of a release."""
    return _FORK if point.is_v0 else _PLUGIN
