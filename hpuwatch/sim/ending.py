"""How a server ends that was ready: because it was asked to, or because its engine died.

Asked, it ends what is in flight (or lets it finish, for ``--shutdown-timeout`` seconds) and
leaves with exit code 0.  A real server nearly always loses a race here: its engine is
killed before the aborts get out, the clients hear nothing, and the server waits for them,
perhaps for ever.  This one wins the race unless a scenario says otherwise.

When the engine dies the front end answers 503 for a moment and leaves, with 0 as well.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable

from hpuwatch.sim.families import family_of
from hpuwatch.sim.http.front import FrontDoor
from hpuwatch.sim.serve.engine import Engine
from hpuwatch.sim.signals import Signals
from hpuwatch.sim.world import EngineFailed, World

_ENGINE_ENDS_SECONDS = 0.7
_KILLED_AFTER_SECONDS = 0.05
_FRONT_NOTICES_SECONDS = 2.5  # that the engine's process is gone
_FRONT_HEARS_SECONDS = 0.5  # of the engine's exception, from itself
_GOODBYE_SECONDS = 1.0  # on the clock, for answers that are under way
_REFUSES = "cannot schedule new futures after shutdown"


class Ending:
    """The end of one ready server."""

    def __init__(
        self, world: World, engine: Engine, door: FrontDoor, signals: Signals
    ) -> None:
        """Take the server as it serves."""
        self._world = world
        self._engine = engine
        self._door = door
        self._signals = signals
        self._family = family_of(world.options.point)
        self._say = world.voice.say
        self._front = world.speakers.front

    async def of_engine(self, failure: EngineFailed) -> None:
        """Tell that the engine died, be unwell for a moment, and leave."""
        world, engine = self._world, self._engine
        world.pace.pass_idle()
        if failure.reason:
            self._family.engine_died(world, failure.reason)
        else:
            self._family.engine_killed(world, failure)
        engine.broken = engine.broken or failure.reason or "the engine was killed"
        engine.abort("error")
        await self._pass(
            _FRONT_HEARS_SECONDS if failure.reason else _FRONT_NOTICES_SECONDS
        )
        self._door.stop_listening()
        await self._close(_GOODBYE_SECONDS)

    async def as_asked(self, stop_engine: Callable[[], Awaitable[None]]) -> None:
        """End what is in flight and stop the engine, then leave."""
        world, engine, faults = self._world, self._engine, self._world.faults
        world.pace.pass_idle()
        self._door.stop_listening()
        engine.refuses = _REFUSES
        drains = world.options.shutdown_seconds > 0
        self._announce("drain" if drains else "abort", world.options.shutdown_seconds)
        if drains:
            await self._drain(world.options.shutdown_seconds)
        if engine.jobs or not drains:
            self._say(self._front, "stop_force_kill", count=1)
        race_lost = faults.stop.race_lost and bool(engine.jobs)
        if race_lost:
            await self._pass(_KILLED_AFTER_SECONDS)
        else:
            await self._end_engine(faults.stop.extra_seconds)
        await stop_engine()
        for name in ("stop_mp_ended", "stop_mp_cleanup", "stop_mp_complete"):
            self._say(self._front, name)
        self._say(self._front, "stop_client_done")
        self._say(self._front, "stop_http_signal")
        await self._close(None if race_lost else _GOODBYE_SECONDS)

    def _announce(self, mode: str, timeout: int) -> None:
        say, engine = self._say, self._world.speakers.engine
        say(self._front, "stop_triggered")
        say(self._front, "stop_client", mode=mode, timeout=timeout)
        say(self._front, "stop_mp", timeout=timeout)
        say(self._front, "stop_mp_manager")
        say(engine, "stop_signal", signal=self._signals.name)
        say(engine, "stop_engine", mode=mode, timeout=timeout)
        say(engine, "stop_initiated", timeout=timeout)

    async def _drain(self, timeout: int) -> None:
        """Let requests finish, for so many simulated seconds at most."""
        count, engine = len(self._engine.jobs), self._world.speakers.engine
        if count:
            self._say(engine, "stop_drains", count=count, timeout=timeout)
            self._say(engine, "stop_draining", count=count, timeout=timeout)
            await self._engine.drained(self._world.pace.real_seconds(timeout))

    async def _end_engine(self, extra_seconds: float) -> None:
        """Let the engine abort what is left and end."""
        world, say = self._world, self._say
        engine, ranks = world.speakers.engine, len(world.speakers.ranks)
        count = self._engine.abort()
        if count:
            say(engine, "stop_aborts", count=count)
        say(engine, "stop_teardown")
        say(engine, "stop_loop")
        if ranks > 1:
            say(engine, "stop_workers", count=ranks)
        await self._pass(_ENGINE_ENDS_SECONDS + extra_seconds)
        say(engine, "stop_complete")
        self._family.engine_stopped(world)

    async def _close(self, seconds: float | None) -> None:
        """Let the HTTP server end; with None it waits for its clients."""
        say, front = self._say, self._front
        say(front, "stop_http")
        say(front, "shutting_down")
        if seconds is None:
            say(front, "waiting_connections")
        hanging_up = asyncio.ensure_future(self._door.hang_up(seconds))
        hurried = asyncio.ensure_future(self._signals.hurried.wait())
        await asyncio.wait({hanging_up, hurried}, return_when=asyncio.FIRST_COMPLETED)
        for task in (hanging_up, hurried):
            task.cancel()
        await asyncio.gather(hanging_up, hurried, return_exceptions=True)
        await self._door.hang_up(0)
        say(front, "waiting_shutdown")
        say(front, "shutdown_done")
        say(front, "process_finished", pid=os.getpid())

    async def _pass(self, seconds: float) -> None:
        self._world.pace.pass_idle()
        await self._world.pace.spend(seconds)
