"""How the simulated server dies: the tracebacks that a real one leaves behind.

The frames are made up; the order, the prefixes and the last lines are real.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator

from hpuwatch.sim.world import EngineFailed, World

_RUNNER = "vllm_gaudi/v1/worker/hpu_model_runner.py"
_WORKER = "vllm_gaudi/v1/worker/hpu_worker.py"
_FILES = {
    "init_worker": _WORKER,
    "determine_available_memory": _WORKER,
    "get_kv_cache_configs": "vllm/v1/core/kv_cache_utils.py",
    "generate_buckets": "vllm_gaudi/extension/bucketing/common.py",
}
"""Where functions stand that aren't the model runner's."""
_SITE = "/usr/local/lib/python3.12/dist-packages"
_WAIT_FOR_ENGINE = (
    "vllm/v1/engine/utils.py",
    1104,
    "wait_for_engine_startup",
    "raise RuntimeError(",
)


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
        (_FILES.get(where, _RUNNER), 5140, where, "self._run(*args, **kwargs)"),
    )


def engine_failed(world: World, failure: EngineFailed) -> None:
    """Print the end of a server whose engine, or whose front end, failed to start."""
    if failure.process == "import":
        call = ("vllm/logger.py", 96, failure.where, "level=envs.VLLM_LOGGING_LEVEL")
        for text in (*_frames(call), failure.reason):
            world.voice.say("", "trace", text=text)
        return
    if failure.process == "front":
        call = ("vllm/engine/arg_utils.py", 1640, failure.where, "return cls(**fields)")
        _front_end(world, call, failure.reason)
        return
    say, speakers = world.voice.say, world.speakers
    frames = [*_engine_frames(failure.where), failure.reason]
    _workers_failed(world, failure)
    say(speakers.engine, "engine_failed")
    for text in frames:
        say(speakers.engine, "trace_engine", text=text)
    process = f"Process {world.voice.script.processes['engine']}:"
    for text in (process, *frames):
        say(speakers.engine, "trace", text=text)
    _front_end(world, _WAIT_FOR_ENGINE, world.voice.error("engine_init"))


def _workers_failed(world: World, failure: EngineFailed) -> None:
    """Print the end of every worker, if any: ranks are alike, so all of them fail."""
    say, speakers = world.voice.say, world.speakers
    if len(speakers.ranks) == 1:
        return
    frames = list(_engine_frames(failure.where))
    for rank in world.in_some_order():
        reason = failure.reason.replace(f"[Rank:{failure.rank}]", f"[Rank:{rank}]")
        say(speakers.ranks[rank], "worker_failed")
        for text in (*frames, reason):
            say(speakers.ranks[rank], "trace_worker", text=text)


def engine_died(world: World, reason: str) -> None:
    """Print the end of an engine that was serving."""
    say, speakers = world.voice.say, world.speakers
    _workers_failed(world, EngineFailed(reason, "execute_model"))
    say(speakers.engine, "engine_fatal")
    for text in (*_engine_frames("execute_model"), reason):
        say(speakers.engine, "trace_engine", text=text)
    _output_failed(world)


def engine_killed(world: World, failure: EngineFailed) -> None:
    """Print what the others say of an engine whose process is gone.

    ``failure.where`` is the process that died first, ``engine`` or ``worker``.
    """
    say, speakers = world.voice.say, world.speakers
    if failure.where == "worker":
        say(speakers.engine, "worker_proc_died")
    say(speakers.front, "engine_proc_died")
    if world.faults.now.phase in {"ready", "serve"}:
        _output_failed(world)
        return
    _front_end(world, _WAIT_FOR_ENGINE, world.voice.error("engine_init"))


def engine_stopped(world: World) -> None:
    """Print how the engine's process ends when it is told to: without a word."""


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


def _output_failed(world: World) -> None:
    say, front = world.voice.say, world.speakers.front
    say(front, "output_failed")
    call = ("vllm/v1/engine/async_llm.py", 660, "output_handler", "raise self._dead")
    for text in (*_frames(call), world.voice.error("engine_dead")):
        say(front, "trace_front", text=text)


def _front_end(world: World, call: tuple[str, int, str, str], reason: str) -> None:
    for text in (*_frames(call), reason):
        world.voice.say(world.speakers.front, "trace", text=text)
