"""One simulated server from its command line to its exit code.

The port is bound first, as vLLM does, but connections are refused until warm-up is done.
SIGTERM and SIGINT stop it with exit code 0 at any time.  A real server differs in two ways:
before it is ready it ignores SIGTERM, and with requests in flight it may hang for ever.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TextIO

from hpuwatch.clock import Clock, SystemClock
from hpuwatch.sim.config.knobs import Knobs
from hpuwatch.sim.config.options import Options, parse_options
from hpuwatch.sim.faults.hooks import Faults
from hpuwatch.sim.pace import Pace, Stopped
from hpuwatch.sim.plugin import boot
from hpuwatch.sim.plugin.start import start as start_plugin
from hpuwatch.sim.serve.api import ROUTES, Api
from hpuwatch.sim.serve.engine import Engine
from hpuwatch.sim.serve.front import FrontDoor
from hpuwatch.sim.serve.metrics import Tally
from hpuwatch.sim.serve.shapes import Warmed
from hpuwatch.sim.serve.stats import Stats
from hpuwatch.sim.talk import failures
from hpuwatch.sim.talk.script import load_script
from hpuwatch.sim.talk.voice import Voice
from hpuwatch.sim.truth.device import DeviceFull, Memory
from hpuwatch.sim.truth.memory import MemoryTruth
from hpuwatch.sim.truth.recipes import Recipes
from hpuwatch.sim.truth.times import TimeTruth
from hpuwatch.sim.world import EngineFailed, Speakers, World

_STARTS: Mapping[str, Callable[[World], Awaitable[Warmed]]] = {"plugin": start_plugin}
"""How a server of each family of releases starts."""


def run(
    arguments: Sequence[str], env: Mapping[str, str], clock: Clock | None = None
) -> int:
    """Run a server with vLLM's command line and environment; return its exit code.

    Raises:
        SystemExit: 2 for a command line that vLLM would refuse, 0 after ``--help``.
    """
    options = parse_options(arguments, env)
    streams = {"stdout": sys.stdout, "stderr": sys.stderr}
    with contextlib.suppress(BrokenPipeError):
        return asyncio.run(_run(options, clock or SystemClock(), streams))
    return 1


async def _run(options: Options, clock: Clock, streams: Mapping[str, TextIO]) -> int:
    server = Server(options, clock, streams)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, server.ask_stop, signal.Signals(number).name)
    return await server.run()


class Server:
    """A simulated server; ``run()`` is its whole life."""

    def __init__(
        self, options: Options, clock: Clock, streams: Mapping[str, TextIO]
    ) -> None:
        """Prepare everything; nothing is printed yet."""
        pace = Pace(clock, options.speed)
        truth = MemoryTruth(options)
        self.world = World(
            options=options,
            voice=Voice(load_script(options.release), pace.stamp, streams),
            pace=pace,
            truth=truth,
            times=TimeTruth(options, truth),
            memory=Memory(truth.total_bytes, options.card.base_bytes, {}),
            speakers=Speakers.of(options.tensor_parallel),
            knobs=Knobs(),
            recipes=Recipes(""),
            faults=Faults(),
        )
        self._asked: asyncio.Event = asyncio.Event()
        self._signal = "SIGTERM"
        self._serving = False

    def ask_stop(self, signal_name: str = "SIGTERM") -> None:
        """Stop as soon as possible."""
        self._signal = signal_name
        self._asked.set()
        if not self._serving:
            self.world.pace.stop.set()

    async def run(self) -> int:
        """Start, serve, stop; return the exit code."""
        world, options = self.world, self.world.options
        try:
            listener = _bound(options.host, options.port)
        except OSError as error:
            await boot.front_end(world)
            failures.no_port(world, error)
            return 1
        with listener:
            try:
                engine = await self.start()
                return await self._serve(listener, engine)
            except Stopped:
                self._say_end()
                return 0
            except EngineFailed as failure:
                failures.engine_failed(world, failure)
                return 1

    async def start(self) -> Engine:
        """Go through the whole start and return the engine, ready to serve.

        Raises:
            EngineFailed: it died on the way.
            Stopped: it was asked to stop.
        """
        world = self.world
        warmed = await _STARTS[world.options.release.partition("-")[0]](world)
        tally = Tally(
            world.options.served_names[0],
            world.options.max_model_len,
            _cache_config(world, warmed.blocks),
        )
        return Engine(world, warmed, tally)

    async def _serve(self, listener: socket.socket, engine: Engine) -> int:
        world = self.world
        self._serving = True
        world.pace.change_speed(world.options.serving_speed)
        door = FrontDoor(Api(world, engine))
        try:
            await door.open(listener)
        except OSError as error:
            failures.no_port(world, error)
            return 1
        self._say_open(listener)
        running = asyncio.ensure_future(engine.run())
        stats = asyncio.ensure_future(Stats(world, engine).run())
        asked = asyncio.ensure_future(self._asked.wait())
        await asyncio.wait({running, asked}, return_when=asyncio.FIRST_COMPLETED)
        door.stop_listening()
        if running.done():
            self._die(engine, running)
        else:
            await self._finish(engine)
        for task in (running, stats, asked):
            task.cancel()
        await asyncio.gather(running, stats, asked, return_exceptions=True)
        await door.hang_up()
        self._say_end()
        return 0

    def _die(self, engine: Engine, running: asyncio.Future[None]) -> None:
        """Tell why the engine died; vLLM's API server then leaves with exit code 0."""
        try:
            running.result()
        except DeviceFull as error:
            reason = self.world.full(error, "execute_model").reason
            failures.engine_died(self.world, reason)
            engine.abort("error")

    async def _finish(self, engine: Engine) -> None:
        """Abort what is in flight, or let it end when a shutdown time is set."""
        world, seconds = self.world, self.world.options.shutdown_seconds
        say, speakers = world.voice.say, world.speakers
        mode = "drain" if seconds else "abort"
        count = len(engine.jobs)
        say(speakers.front, "stop_triggered")
        say(speakers.front, "stop_client", mode=mode, timeout=seconds)
        say(speakers.engine, "stop_signal", signal=self._signal)
        say(speakers.engine, "stop_engine", mode=mode, timeout=seconds)
        if seconds and count:
            say(speakers.engine, "stop_drains", count=count, timeout=seconds)
            await engine.drained(seconds)
        count = engine.abort()
        if count:
            say(speakers.engine, "stop_aborts", count=count)
        say(speakers.engine, "stop_teardown")

    def _say_open(self, listener: socket.socket) -> None:
        world = self.world
        say, front = world.voice.say, world.speakers.front
        host, port = listener.getsockname()[:2]
        say(front, "tasks")
        say(front, "address", address=f"http://{host}:{port}")
        say(front, "routes")
        for path, method in ROUTES.items():
            say(front, "route", path=path, methods=method)
        say(front, "process_started", pid=os.getpid())
        say(front, "waiting_startup")
        say(front, "startup_done")

    def _say_end(self) -> None:
        say, speakers = self.world.voice.say, self.world.speakers
        if not self._serving:
            say(speakers.front, "stop_triggered")
        say(speakers.engine, "stop_loop")
        say(speakers.front, "stop_mp_complete")
        say(speakers.front, "stop_client_done")
        say(speakers.front, "stop_http_signal")
        say(speakers.front, "stop_http")
        for name in ("shutting_down", "waiting_shutdown", "shutdown_done"):
            say(speakers.front, name)


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


def _cache_config(world: World, blocks: int) -> dict[str, str]:
    options = world.options
    tokens = blocks * options.block_size
    return {
        "block_size": str(options.block_size),
        "cache_dtype": "auto",
        "enable_prefix_caching": str(options.prefix_caching),
        "gpu_memory_utilization": str(options.utilisation),
        "kv_cache_max_concurrency": str(tokens / options.max_model_len),
        "kv_cache_size_tokens": str(tokens),
        "num_cpu_blocks": "None",
        "num_gpu_blocks": str(blocks),
        "num_gpu_blocks_override": "None",
    }
