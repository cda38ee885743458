"""How a V0 server dies: the tracebacks that a real one leaves behind.

The engine's process logs its exception and the frames as one record, and then dies of it
once more in plain words; the front end only knows that it is gone.  The frames are made up;
the order, the prefixes and the last lines are real.
"""

from __future__ import annotations

import errno

from hpuwatch.sim.world import EngineFailed, World

_SITE = "/usr/local/lib/python3.10/dist-packages/vllm"
_WAIT_FOR_ENGINE = ("entrypoints/openai/api_server.py", 211, "build_engine_client")


def engine_failed(world: World, failure: EngineFailed) -> None:
    """Print the end of a server whose engine, or whose front end, failed to start."""
    say, speakers, reason = world.voice.say, world.speakers, failure.reason
    if failure.process != "engine":
        call = ("engine/arg_utils.py", 1640, failure.where)
        _bare(world, speakers.front, [*_frames(call), reason])
        return
    frames = _frames(
        ("engine/multiprocessing/engine.py", 369, "from_engine_args"),
        ("worker/hpu_worker.py", 190, failure.where),
    )
    if len(speakers.ranks) > 1:
        _worker_failed(world, failure.where, [*frames, reason], failure.rank)
    if "engine_init" not in world.voice.script.errors:
        # The engine lives in the front end's own process, and takes it along.
        _bare(world, speakers.front, [*frames, reason])
        return
    message = reason.partition(": ")[2]
    say(speakers.engine, "engine_failed", text="\n".join([message, *frames, reason]))
    _bare(world, speakers.engine, ["Process SpawnProcess-1:", *frames, reason])
    lines = [*_frames(_WAIT_FOR_ENGINE), world.voice.error("engine_init")]
    _bare(world, speakers.front, lines)


def engine_died(world: World, reason: str) -> None:
    """Print the end of an engine that was serving."""
    speakers = world.speakers
    call = ("worker/hpu_worker.py", 190, "execute_model")
    frames = _frames(("engine/async_llm_engine.py", 55, "_log_task_completion"), call)
    if len(speakers.ranks) > 1:
        _worker_failed(world, "execute_model", [*frames, reason])
    text = "\n".join(["", *frames, reason])
    world.voice.say(speakers.engine, "engine_fatal", text=text)
    _bare(world, speakers.front, [*frames, world.voice.error("engine_dead")])


def engine_killed(world: World, _failure: EngineFailed) -> None:
    """Print what is left to say when a process of the engine is gone without a word."""
    name, call = "engine_gone", ("engine/async_llm_engine.py", 1100, "_run_output")
    if world.faults.now.phase not in {"ready", "serve"}:
        name, call = "engine_init", _WAIT_FOR_ENGINE
    if name in world.voice.script.errors:
        text = world.voice.error(name)
        _bare(world, world.speakers.front, [*_frames(call), text])


def engine_stopped(world: World) -> None:
    """Print how the engine's process ends when it is told to."""
    reason = world.voice.script.errors.get("engine_terminated")
    if reason is not None:
        call = ("engine/multiprocessing/engine.py", 381, "signal_handler")
        _bare(world, world.speakers.engine, [*_frames(call), reason])


def no_port(world: World, error: OSError) -> None:
    """Print the end of a server that can't have its port."""
    is_taken = error.errno == errno.EADDRINUSE
    reason = world.voice.error("port_taken") if is_taken else f"OSError: {error}"
    call = ("entrypoints/openai/api_server.py", 852, "create_server_socket")
    _bare(world, world.speakers.front, [*_frames(call), reason])


def _frames(*calls: tuple[str, int, str]) -> list[str]:
    frames = ["Traceback (most recent call last):"]
    for file, line, function in calls:
        frames.append(f'  File "{_SITE}/{file}", line {line}, in {function}')
    return frames


def _worker_failed(world: World, method: str, trace: list[str], rank: int = 0) -> None:
    """Let the rank that failed tell of it; the others wait for it for ever."""
    text = "\n".join(["", *trace])
    speaker = world.speakers.ranks[rank]
    world.voice.say(speaker, "worker_failed", method=method, text=text)


def _bare(world: World, speaker: str, texts: list[str]) -> None:
    for text in "\n".join(texts).split("\n"):
        world.voice.say(speaker, "trace", text=text)
