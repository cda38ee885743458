"""The start of a V0 server up to warm-up: what it prints and how long it takes.

V0 runs its engine in a process of its own, which reads the configuration once more and is
rank 0 itself.  Only further ranks are worker processes, and only they have a prefix.
"""

from __future__ import annotations

from hpuwatch.sim.fork import lists, texts
from hpuwatch.sim.start.bridge import tell_bridge
from hpuwatch.sim.truth import host
from hpuwatch.sim.world import World

_START_METHOD = "VLLM_WORKER_MULTIPROC_METHOD"
_LONG_CONTEXT = 32768


async def front_end(world: World) -> None:
    """Print what the API server says before its engine's process comes up.

    Raises:
        EngineFailed: a setting that the front end dies of.
    """
    say, front = world.voice.say, world.speakers.front
    world.check("import", "configure_logging")
    await world.pace.spend(world.times.import_seconds())
    say(front, "simulated")
    say(front, "end_of_life")
    say(front, "api_version", version=world.voice.script.version)
    say(front, "arguments", arguments=texts.namespace(world.options))
    say(front, "non_default", arguments=dict(world.options.shown))
    say(front, "no_plugins")
    say(front, "ipc_path", path=texts.ipc_path(world.options))
    say(front, "engine_process", pid=world.speakers.engine_pid)
    world.check("front", "create_engine_config")
    if world.options.tensor_parallel > 1 and _START_METHOD not in world.options.env:
        say(front, "fork_start_method")
    _configure(world, front)


async def engine_start(world: World) -> None:
    """Print what the engine and its workers say before they load weights.

    Raises:
        EngineFailed: the environment holds a value that they die of.
    """
    options, voice, speakers = world.options, world.voice, world.speakers
    await world.pace.spend(world.times.engine_start_seconds())
    if voice.has("engine_process"):  # else it is the front end's own process
        voice.say(speakers.engine, "no_plugins")
        _configure(world, speakers.engine)
    voice.say(
        speakers.engine,
        "engine_config",
        version=voice.script.version,
        config=texts.engine_config(options, world.knobs),
        cached=options.num_scheduler_steps > 1,
    )
    if len(speakers.ranks) > 1:
        voice.say(speakers.engine, "fewer_threads", threads=host.THREADS)
    world.check("worker", "init_worker")
    _bring_up_workers(world)
    world.open_recipes()


def _bring_up_workers(world: World) -> None:
    """Let each rank come up on its card, the first one last."""
    voice, (first, *others) = world.voice, world.speakers.ranks
    for speaker in (first, *others):
        _tell_device(world, speaker)
    for speaker in others:
        lists.tell_ranges(world, speaker)
        voice.say(speaker, "worker_ready")
    if world.knobs.lazy or voice.script.facts["bridge_speaks_always"]:
        for rank in range(1 + len(others)):
            tell_bridge(world, rank)
    # What rank 0 prints stays in a buffer until the bridge has spoken.
    lists.tell_ranges(world, first)


def _configure(world: World, speaker: str) -> None:
    """Say what reading the configuration says; both processes read it."""
    options, say = world.options, world.voice.say
    for warned in world.knobs.warned("front"):
        say(speaker, warned.line, **warned.values)
    say(speaker, "v0_by_default")
    say(speaker, "supported_tasks")
    if options.tensor_parallel > 1:
        say(speaker, "by_mp")
    if options.max_model_len > _LONG_CONTEXT:
        say(speaker, "long_context", max_model_len=options.max_model_len)


def _tell_device(world: World, speaker: str) -> None:
    say, script = world.voice.say, world.voice.script
    say(speaker, "detected", flags=texts.detected(world.options, script.facts))
    if world.voice.has("dump_value"):
        values = texts.dumped(world.options, world.knobs, script)
        for section, entries in script.dump.items():
            say(speaker, "dump_section", section=section)
            for key, value in entries.items():
                say(speaker, "dump_value", key=key, value=value.format(**values))
        say(speaker, "dump_section", section="User flags")
        for key, flag in world.knobs.flags:
            say(speaker, "dump_value", key=key, value=flag)
    for warned in world.knobs.warned("worker"):
        say(speaker, warned.line, **warned.values)
    say(speaker, "no_pinning")
    say(speaker, "attention")
