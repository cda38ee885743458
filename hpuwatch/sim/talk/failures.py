"""How the simulated server dies: the tracebacks that a real one leaves behind.

The frames are made up; the order, the prefixes and the last lines are real.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator

from hpuwatch.sim.world import EngineFailed, World

_SITE = "/usr/local/lib/python3.12/dist-packages"


def _frames(*calls: tuple[str, int, str, str]) -> Iterator[str]:
    yield "Traceback (most recent call last):"
    for file, line, function, code in calls:
        yield f'  File "{_SITE}/{file}", line {line}, in {function}'
        yield f"    {code}"


def _engine_frames(where: str) -> Iterator[str]:
    return _frames(
        (
            "vllm/v1/engine/core.py",
            1296,
            "run_engine_core",
            "engine_core = EngineCoreProc(*args, **kwargs)",
        ),
        (
            "vllm_gaudi/v1/worker/hpu_model_runner.py",
            5140,
            where,
            "self._run(*args, **kwargs)",
        ),
    )


def engine_failed(world: World, failure: EngineFailed) -> None:
    """Print the end of a server whose engine failed to start."""
    say, speakers = world.voice.say, world.speakers
    frames = [*_engine_frames(failure.where), failure.reason]
    if len(speakers.ranks) > 1:
        for speaker in speakers.ranks:
            say(speaker, "worker_failed")
            for text in frames:
                say(speaker, "trace_worker", text=text)
    say(speakers.engine, "engine_failed")
    for text in frames:
        say(speakers.engine, "trace_engine", text=text)
    for text in ("Process EngineCore:", *frames):
        say(speakers.engine, "trace", text=text)
    _front_end(
        world,
        (
            "vllm/v1/engine/utils.py",
            1104,
            "wait_for_engine_startup",
            "raise RuntimeError(",
        ),
        world.voice.error("engine_init"),
    )


def engine_died(world: World, reason: str) -> None:
    """Print the end of an engine that was serving."""
    say, speakers = world.voice.say, world.speakers
    say(speakers.engine, "engine_fatal")
    for text in (*_engine_frames("execute_model"), reason):
        say(speakers.engine, "trace_engine", text=text)
    say(speakers.front, "output_failed")
    call = ("vllm/v1/engine/async_llm.py", 660, "output_handler", "raise self._dead")
    for text in (*_frames(call), world.voice.error("engine_dead")):
        say(speakers.front, "trace_front", text=text)


def no_port(world: World, error: OSError) -> None:
    """Print the end of a server that can't have its port."""
    call = (
        "vllm/utils/network_utils.py",
        112,
        "create_server_socket",
        "sock.bind(addr)",
    )
    is_taken = error.errno == errno.EADDRINUSE
    reason = world.voice.error("port_taken") if is_taken else f"OSError: {error}"
    _front_end(world, call, reason)


def _front_end(world: World, call: tuple[str, int, str, str], reason: str) -> None:
    for text in (*_frames(call), reason):
        world.voice.say(world.speakers.front, "trace", text=text)
