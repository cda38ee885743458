"""The faults of a server at work: which are due, which are on, and what they do.

They are looked at whenever the server names a moment or is asked something, and many times
a second by a task of their own, since an idle server names nothing.
"""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import socket
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import TextIO, TypeVar, cast

from hpuwatch.clock import Clock
from hpuwatch.sim.faults import engine, output, outside
from hpuwatch.sim.faults.cards import Cards
from hpuwatch.sim.faults.case import Case, Reading
from hpuwatch.sim.faults.control import Control
from hpuwatch.sim.faults.errors import where_of
from hpuwatch.sim.faults.fault import Fault
from hpuwatch.sim.faults.outlets import Outlet
from hpuwatch.sim.faults.processes import Processes, leave_orphan
from hpuwatch.sim.hooks import Faults, Moment, StopFaults
from hpuwatch.sim.truth.device import LEAK, DeviceFull
from hpuwatch.sim.world import EngineFailed, World

_TICK_SECONDS = 0.02
_COMPLETIONS = "/v1/"

F = TypeVar("F", bound=Fault)


class LiveFaults(Faults):
    """The faults of one server, at work.

    Attributes:
        cases: the faults that are known, by number.
        seconds_since_look: simulated seconds since the last look.
        real_seconds_since_look: the same on the clock.
    """

    def __init__(
        self,
        scenario: Iterable[Fault],
        clock: Clock,
        processes: Processes | None = None,
        control: str = "",
    ) -> None:
        """Take the scenario; ``control`` is where its endpoint listens, if anywhere."""
        super().__init__()
        self.cases: dict[int, Case] = {}
        self.seconds_since_look = 0.0
        self.real_seconds_since_look = 0.0
        self._clock = clock
        self._began = clock.boottime()
        self._processes = processes
        self._control = Control(control, self) if control else None
        self._requests = 0
        self._numbered = 0
        self._half_written = False
        self._looked: Reading | None = None
        self._ready: Reading | None = None
        self._outlets: dict[str, Outlet] = {}
        self._descriptors: tuple[int, int] | None = None
        for fault in scenario:
            self.add(fault)

    def join(self, world: World, listener: socket.socket | None = None) -> None:
        """Get to know the server that the faults belong to."""
        self.world = world
        self._listener = listener

    def add(self, fault: Fault) -> Case:
        """Take a fault in; it strikes when it is due."""
        self._numbered += 1
        case = self.cases[self._numbered] = Case(self._numbered, fault)
        return case

    def drop(self, number: int) -> bool:
        """Lift a fault and forget it; tell whether there was one."""
        case = self.cases.pop(number, None)
        if case is not None and case.is_on:
            case.is_on = False
            case.fault.lift(self)
        return case is not None

    def on(self, kind: type[F]) -> list[F]:
        """Return the faults of a kind that are on."""
        cases = self.cases.values()
        return [c.fault for c in cases if c.is_on and isinstance(c.fault, kind)]

    def reading(self) -> Reading:
        """Return how far the server has come."""
        real_seconds = self._clock.boottime() - self._began
        return Reading(self.now, self.world.pace.reached, real_seconds, self._requests)

    def look(self) -> None:
        """Let faults do what is due; one that can't is the server's end."""
        try:
            self._look()
        except Exception as error:  # noqa: BLE001  nobody waits for a look
            self.fail(error)

    def _look(self) -> None:
        """Lift what is over, let strike what is due, and go on with what lasts."""
        reading = self.reading()
        last = self._looked or reading
        self._looked = reading
        self.seconds_since_look = reading.seconds - last.seconds
        self.real_seconds_since_look = reading.real_seconds - last.real_seconds
        if reading.now.phase == "serve" and self._ready is None:
            self._ready = reading
        for case in list(self.cases.values()):
            if case.is_on and case.is_over(reading):
                case.is_on = False
                case.fault.lift(self)
            if case.is_on:
                case.fault.go_on(self)
            if case.is_due(reading, self._ready):
                case.begin(reading)
                case.fault.strike(self)
        self._look_at_processes()

    # What a server asks.

    def stamps(self, stamp: Callable[[], float]) -> Callable[[], float]:
        """Return a clock that may leap."""
        return lambda: stamp() + sum(f.seconds for f in self.on(output.ClockJump))

    def outlets(self, streams: Mapping[str, TextIO]) -> Mapping[str, TextIO]:
        """Return streams that may fall silent."""
        self._outlets = {
            name: Outlet(stream, self._let_through) for name, stream in streams.items()
        }
        return cast("Mapping[str, TextIO]", self._outlets)

    @property
    def stop(self) -> StopFaults:
        """How a stop goes wrong."""
        return StopFaults(
            deaf=bool(self.on(outside.IgnoreSigterm)),
            race_lost=bool(self.on(outside.AbortRaceLost)),
            extra_seconds=sum(f.seconds for f in self.on(outside.SlowStop)),
        )

    @asynccontextmanager
    async def alive(self, world: World, listener: socket.socket) -> AsyncIterator[None]:
        """Look again and again, and answer on the control endpoint."""
        self.join(world, listener)
        looking = asyncio.ensure_future(self._look_on())
        try:
            if self._control is not None:
                await self._control.open()
            yield
        finally:
            looking.cancel()
            await asyncio.gather(looking, return_exceptions=True)
            if self._control is not None:
                await self._control.close()
            for number in list(self.cases):
                self.drop(number)

    async def at(self, moment: Moment) -> None:
        """Let what is due at this moment happen.

        Raises:
            EngineFailed: the engine dies of it.
        """
        self.now = moment
        if moment.phase == "engine" and self._processes is not None:
            self._processes.begin()
        self.look()
        while self.failure is None and self._stands_still():
            await self._stand_still()
            self.look()
        if self.failure is not None:
            raise self.failure

    async def asked(self, method: str, path: str) -> HTTPStatus | None:
        """Return the status that a fault answers a request with, None to go on."""
        if method == "POST" and path.startswith(_COMPLETIONS):
            self._requests += 1
        self.look()
        for slow in self.on(outside.SlowAnswer):
            if slow.concerns(path):
                await asyncio.sleep(slow.real_seconds)
        while any(fault.concerns(path) for fault in self.on(outside.NoAnswer)):  # noqa: ASYNC110  time lifts it, too
            await asyncio.sleep(_TICK_SECONDS)
        for refusal in self.on(outside.RefuseAnswer):
            if refusal.concerns(path):
                return refusal.status
        return None

    # What faults do.

    def outlet(self, name: str) -> Outlet:
        """Return ``stdout`` or ``stderr``."""
        return self._outlets[name]

    def fail(self, failure: Exception) -> None:
        """Let the engine die of it; what is no ``EngineFailed`` ends the whole server."""
        if self.failure is None:
            self.failure = failure
            self.died.set()

    def leak(self, count: int) -> None:
        """Lose device memory; a full card is the engine's end."""
        try:
            self.world.memory.lose(count, LEAK)
        except DeviceFull as error:
            self.fail(self.world.full(error, where_of(self.now.phase)))

    def kill(self, process: str, number: signal.Signals) -> None:
        """Send a signal to the engine or the first worker, if only in thought."""
        if self._processes is None:
            self.fail(EngineFailed("", process))
            return
        engine_only = process == "engine" or not self._processes.workers
        pid = self._processes.engine if engine_only else self._processes.workers[0]
        os.kill(pid, number)

    def block(self, hang: engine.Hang) -> None:
        """Keep the whole process from doing anything."""
        seconds = hang.for_real_seconds
        if hang.for_seconds is not None:
            seconds = self.world.pace.real_seconds(hang.for_seconds)
        until = None if seconds is None else self._clock.boottime() + seconds
        while until is None or self._clock.boottime() < until:
            self._clock.wait(_TICK_SECONDS)

    def cards(self, folder: str) -> Cards:
        """Return the cards of this server, whose stamps lie in a folder."""
        pids = (os.getpid(),) if self._processes is None else self._processes.pids
        return Cards(self.world.options.env, folder, self._clock, pids)

    def leave_orphans(self, orphans: outside.Orphans) -> None:
        """Start children that hold the port."""
        kept = () if self._listener is None else (self._listener.fileno(),)
        for _ in range(orphans.count):
            leave_orphan(
                kept,
                orphans.live_real_seconds,
                ignores_sigterm=orphans.ignore_sigterm,
            )

    def limit_descriptors(self) -> None:
        """Allow no file to be opened any more; what is open stays open."""
        if self._descriptors is None:
            self._descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)
            resource.setrlimit(resource.RLIMIT_NOFILE, (0, self._descriptors[1]))

    def free_descriptors(self) -> None:
        """Allow as many open files as before, unless another fault is against it."""
        if self._descriptors is not None and not self.on(outside.OutOfDescriptors):
            resource.setrlimit(resource.RLIMIT_NOFILE, self._descriptors)
            self._descriptors = None

    async def _look_on(self) -> None:
        while True:
            await asyncio.sleep(_TICK_SECONDS)
            self.look()

    def _look_at_processes(self) -> None:
        if self._processes is None or self.failure is not None:
            return
        dead = self._processes.dead()
        if dead is not None:
            self.fail(EngineFailed("", dead))

    def _stands_still(self) -> bool:
        waits = any(hang.how == "waits" for hang in self.on(engine.Hang))
        return waits or (self._processes is not None and self._processes.are_stopped())

    async def _stand_still(self) -> None:
        """Let a moment pass in which nothing happens, no longer than a hang lasts."""
        pace = self.world.pace
        moment = _TICK_SECONDS / pace.real_seconds(1)
        lasting = [hang.for_seconds for hang in self.on(engine.Hang)]
        await pace.spend(min([moment, *(each for each in lasting if each is not None)]))

    def _let_through(self, text: str) -> str:
        """Return what may be printed of a text."""
        if self.on(output.HalfLine):
            half = "" if self._half_written else text.rstrip("\n")[: len(text) // 2]
            self._half_written = True
            return half
        self._half_written = False
        return "" if self.on(output.Silent) else text
