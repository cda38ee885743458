"""One simulated server from its command line to its exit code.

The port is bound first, as vLLM does, but connections are refused until warm-up is done.
What signals do depends on how far it has come (``signals``), and so does its end
(``ending``).
"""

from __future__ import annotations

import asyncio
import errno
import io
import os
import socket
import sys
from collections.abc import Mapping, Sequence
from typing import Any, TextIO

from hpuwatch.clock import Clock, SystemClock
from hpuwatch.sim.config.knobs import read_knobs
from hpuwatch.sim.config.options import Options, parse_options
from hpuwatch.sim.ending import Ending
from hpuwatch.sim.families import family_of
from hpuwatch.sim.faults.processes import Processes, die_of
from hpuwatch.sim.hooks import Faults, Moment
from hpuwatch.sim.http.front import FrontDoor
from hpuwatch.sim.pace import Pace
from hpuwatch.sim.serve.api import ROUTES, Api
from hpuwatch.sim.serve.cacheconfig import tally_of
from hpuwatch.sim.serve.engine import Engine
from hpuwatch.sim.serve.stats import Stats
from hpuwatch.sim.signals import Signals
from hpuwatch.sim.talk.script import load_script
from hpuwatch.sim.talk.voice import Voice
from hpuwatch.sim.truth.device import DeviceFull, Memory
from hpuwatch.sim.truth.memory import MemoryTruth
from hpuwatch.sim.truth.recipes import Recipes
from hpuwatch.sim.truth.times import TimeTruth
from hpuwatch.sim.world import EngineFailed, Speakers, World

_NO_OUTPUT = {errno.EPIPE, errno.ENOSPC}  # nobody reads, or the disk is full


def run(
    arguments: Sequence[str], env: Mapping[str, str], clock: Clock | None = None
) -> int:
    """Run a server with vLLM's command line and environment; return its exit code.

    Raises:
        SystemExit: 2 for a command line that vLLM would refuse, 0 after ``--help``.
        ConfigError: the scenario of faults makes no sense.
    """
    options = parse_options(arguments, env)
    streams = {"stdout": sys.stdout, "stderr": sys.stderr}
    for stream in streams.values():
        if isinstance(stream, io.TextIOWrapper):  # what it can't encode ends nobody
            stream.reconfigure(errors="backslashreplace")
    # Before there is an event loop, which a child must not inherit.
    processes = Processes.fork(options.tensor_parallel) if options.processes else None

    async def whole_life() -> int:
        asyncio.get_running_loop().set_exception_handler(_report)
        server = Server(options, clock or SystemClock(), streams, processes)
        server.signals.listen()
        return await server.run()

    try:
        return asyncio.run(whole_life())
    except OSError as error:
        if error.errno not in _NO_OUTPUT:
            raise
        return 1


def _report(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Report what no caller hears of: in a line what the system refused, else in full."""
    error = context.get("exception")
    if isinstance(error, OSError):
        sys.stderr.write(f"{context['message']}: {error}\n")
    else:
        loop.default_exception_handler(context)


class Server:
    """A simulated server; ``run()`` is its whole life."""

    def __init__(
        self,
        options: Options,
        clock: Clock,
        streams: Mapping[str, TextIO],
        processes: Processes | None = None,
    ) -> None:
        """Prepare everything; nothing is printed yet."""
        pace = Pace(clock, options.speed)
        script = load_script(options.release)
        knobs = read_knobs(options)
        # Sizes that the front end refuses are never reckoned with.
        seen = options if knobs.reaches_card else options.unsized
        truth = MemoryTruth(seen, knobs)
        self.faults = _faults(options, clock, processes)
        self.world = World(
            options=options,
            voice=Voice(
                script,
                self.faults.stamps(pace.stamp),
                self.faults.outlets(streams),
                knobs.manner,
            ),
            pace=pace,
            truth=truth,
            times=TimeTruth(seen, truth, lazy=knobs.lazy),
            memory=Memory(truth),
            speakers=Speakers.of(
                seen.tensor_parallel, script, processes.pids if processes else None
            ),
            knobs=knobs,
            recipes=Recipes(""),
            faults=self.faults,
        )
        self.signals = Signals(self.faults, die_of)
        self._family = family_of(options.point)
        self._processes = processes

    async def run(self) -> int:
        """Start, serve, stop; return the exit code."""
        world, options = self.world, self.world.options
        try:
            listener = _bound(options.host, options.port)
        except OSError as error:
            await self._family.front_end(world)
            self._family.no_port(world, error)
            return 1
        try:
            with listener:
                async with self.faults.alive(world, listener):
                    return await self._live(listener)
        finally:
            await self._end_processes()

    async def start(self) -> Engine:
        """Go through the whole start and return the engine, ready to serve.

        Raises:
            EngineFailed: it died on the way.
        """
        world = self.world
        warmed = await self._family.start(world)
        return Engine(world, warmed, tally_of(world, warmed.blocks))

    async def _live(self, listener: socket.socket) -> int:
        try:
            engine = await self.start()
        except EngineFailed as failure:
            if failure.reason:
                self._family.engine_failed(self.world, failure)
            else:
                self._family.engine_killed(self.world, failure)
            return 1
        return await self._serve(listener, engine)

    async def _serve(self, listener: socket.socket, engine: Engine) -> int:
        world = self.world
        world.pace.change_speed(world.options.serving_speed)
        door = FrontDoor(Api(world, engine).answer, world.pace.stamp)
        try:
            await door.open(listener)
        except OSError as error:
            self._family.no_port(world, error)
            return 1
        self.signals.server_is_ready()
        self._say_open(listener)
        self.faults.now = Moment("serve")
        running = asyncio.ensure_future(engine.run())
        stats = asyncio.ensure_future(Stats(world, engine).run())
        asked = asyncio.ensure_future(self.signals.asked.wait())
        died = asyncio.ensure_future(self.faults.died.wait())
        tasks = {running, stats, asked, died}
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            ending = Ending(world, engine, door, self.signals)
            failure = self._failure(running, stats)
            if failure is not None:
                running.cancel()
                await ending.of_engine(failure)
            else:
                await ending.as_asked(lambda: self._stop_engine(running))
                self._failure(running, stats)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return 0

    def _failure(self, *tasks: asyncio.Future[None]) -> EngineFailed | None:
        """Return what the engine died of, None while it lives.

        Raises:
            Exception: a task, or a fault, ended with what is no death of an engine.
        """
        ended = [task for task in tasks if task.done() and not task.cancelled()]
        for error in (*(task.exception() for task in ended), self.faults.failure):
            if isinstance(error, DeviceFull):
                return self.world.full(error, "execute_model")
            if isinstance(error, EngineFailed):
                return error
            if error is not None:
                raise error
        return None

    async def _stop_engine(self, running: asyncio.Future[None]) -> None:
        running.cancel()
        await self._end_processes()

    async def _end_processes(self) -> None:
        if self._processes is not None:
            await self._processes.end()

    def _say_open(self, listener: socket.socket) -> None:
        world = self.world
        say, front = world.voice.say, world.speakers.front
        host, port = listener.getsockname()[:2]
        address = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
        say(front, "prometheus_dir", path="/tmp/tmp8v0sxk1d")  # noqa: S108  only told
        say(front, "tasks")
        say(front, "address", address=address)
        say(front, "routes")
        for path, method in ROUTES.items():
            say(front, "route", path=path, methods=method)
        say(front, "process_started", pid=os.getpid())
        say(front, "waiting_startup")
        say(front, "startup_done")
        say(front, "uvicorn_running", address=address)


def _faults(options: Options, clock: Clock, processes: Processes | None) -> Faults:
    """Return the faults of a server, which need nothing where none can strike."""
    if not (options.faults_file or options.control or processes):
        return Faults()
    # A server without faults doesn't pay for what reads them.
    from hpuwatch.sim.faults.live import LiveFaults  # noqa: PLC0415
    from hpuwatch.sim.faults.scenario import read_scenario  # noqa: PLC0415

    scenario = read_scenario(options.faults_file) if options.faults_file else ()
    return LiveFaults(scenario, clock, processes, options.control)


def _bound(host: str, port: int) -> socket.socket:
    """Take the port without listening, so that connections are refused until it is ready."""
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
    except OSError:
        listener.close()
        raise
    return listener
