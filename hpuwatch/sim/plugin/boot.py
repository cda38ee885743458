"""How a server of the plugin comes up: what the API server and the engine say before weights.

The order is that of real starts.  Every process tells of the plugin when it imports it, long
before it has a prefix; with tensor parallelism every rank prints its own lines.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields

from hpuwatch.sim.config.options import Options
from hpuwatch.sim.plugin.buckets import older_strategy
from hpuwatch.sim.start.bridge import tell_bridge
from hpuwatch.sim.truth import host
from hpuwatch.sim.world import World

_PORT = 29500
_FP8_BYTES = 1.5  # at most, per parameter: some matrices stay in bf16


async def front_end(world: World) -> None:
    """Print what the API server says before it starts the engine.

    Raises:
        EngineFailed: the environment holds a value that it dies of.
    """
    options, say, front = world.options, world.voice.say, world.speakers.front
    world.check("import", "_configure_vllm_root_logger")
    _import(world)
    await world.pace.spend(world.times.import_seconds())
    say(front, "simulated")
    version = world.voice.script.version
    say(front, "api_version", version=version)
    say(front, "banner", version=version, model=options.given_model)
    say(front, "non_default", arguments=dict(options.shown))
    for name in world.knobs.unknown_variables:
        say(front, "unknown_variable", name=name)
    world.check("front", "create_engine_config")
    say(front, "architecture", architecture=options.model.architecture)
    say(front, "max_model_len", max_model_len=options.max_model_len)
    say(front, "workaround")
    if "max_num_seqs" not in options.given:
        say(front, "default_seqs", max_num_seqs=options.max_num_seqs)
    budget = options.max_num_batched_tokens
    say(front, "chunked_prefill", max_num_batched_tokens=budget)
    say(front, "asynchronous")
    for warned in world.knobs.warned("front"):
        say(front, warned.line, **warned.values)
    say(front, "no_compilation")
    say(front, "custom_ops")
    if options.quantization == "inc":
        say(front, "inc_cpu")


async def engine_start(world: World) -> None:
    """Print what engine and workers say before they load weights.

    Raises:
        EngineFailed: the environment holds a value that they die of.
    """
    voice, speakers = world.voice, world.speakers
    _import(world, speakers.engine)
    await world.pace.spend(world.times.engine_start_seconds())
    version = voice.script.version
    config = ", ".join(f"{name}={value}" for name, value in _config(world))
    voice.say(speakers.engine, "engine_config", version=version, config=config)
    _workers_meet(world)
    world.check("worker", "init_worker")
    world.open_recipes()
    for rank in world.in_some_order():
        _runner(world, speakers.unranked[rank])
    world.each_rank("no_quantisation")
    count = len(speakers.ranks)
    threads = host.CORES // count
    world.each_rank("threads", threads=threads, cores=host.CORES, world=count)
    for warned in world.knobs.warned("worker"):
        world.each_rank(warned.line, **warned.values)


def _workers_meet(world: World) -> None:
    """Print how the workers come up and find each other; one card has no worker."""
    voice, workers = world.voice, world.speakers.unranked
    count = len(workers)
    if count > 1:
        voice.say(world.speakers.engine, "executor", count=count)
        for _ in workers:
            _import(world)
    for rank in world.in_some_order():
        values = {"world": count, "rank": rank, "port": _PORT}
        voice.say(workers[rank], "world", **values)
    for rank in range(count):
        tell_bridge(world, rank)
    for rank in [0] if voice.once("rank") else range(count):
        voice.say(workers[rank], "rank", world=count, rank=rank)


def engine_ready(world: World, blocks: int, seconds: float) -> None:
    """Print what the engine says when it is ready, which settles its settings once more."""
    say, speakers = world.voice.say, world.speakers
    say(speakers.engine, "engine_ready", seconds=seconds)
    say(speakers.engine, "asynchronous")
    if world.knobs.contiguous_pa:
        say(speakers.engine, "contiguous_pa")
    say(speakers.engine, "custom_ops")
    say(speakers.front, "cache_blocks", blocks=blocks)


def _import(world: World, speaker: str = "") -> None:
    """Tell of the plugin as a process does that imports it, before it has a prefix."""
    facts = world.voice.script.facts
    say, times = world.voice.say, facts["imports"]
    for _ in range(times):
        for name in ("plugins", "plugin", "plugin_loading"):
            say("", name)
    for _ in range(times):
        say("", "plugin_active")
    say("", "triton")
    say(speaker if facts["pins_late"] else "", "no_pinning")


def _runner(world: World, speaker: str) -> None:
    """Print what a worker says when it makes its model runner."""
    knobs, say = world.knobs, world.voice.say
    _settings(world, speaker)
    say(speaker, "attention", backend=backend_of(world))
    say(speaker, "bucketing_on" if knobs.bucketing else "bucketing_off")
    shape = world.options.model.shape
    if shape.recurrent is not None:
        say(
            speaker,
            "hybrid_layers",
            layers=shape.layers - shape.attention_layers,
            hybrid_cache=str(bool(knobs.hybrid_cache)).lower(),
            naive_sharing="true",
            compact=int(bool(knobs.compact_gdn)),
        )


def backend_of(world: World) -> str:
    """Return the attention backend that the model gets, as the plugin calls it."""
    is_latent = world.options.model.shape.latent is not None
    return "HPUAttentionMLA" if is_latent else "HPUAttentionV1"


def _settings(world: World, speaker: str) -> None:
    """Print the sections of the settings that the plugin has detected."""
    options, knobs, voice = world.options, world.knobs, world.voice
    values = {field.name: getattr(knobs, field.name) for field in fields(knobs)} | {
        "card": options.card.name,
        "build": voice.script.build,
        "bridge_mode": "lazy" if knobs.lazy else "eager",
        "model_type": options.model.kind,
        # The plugin derives it from contiguous attention, whatever the flag says.
        "prefix_caching": not knobs.contiguous_pa,
        "older_strategy": older_strategy(knobs.strategy),
        "dispatch": knobs.lazy,
    }
    for section, entries in voice.script.dump.items():
        voice.say(speaker, "dump_section", section=section)
        for key, value in entries.items():
            voice.say(speaker, "dump_value", key=key, value=value.format(**values))
    voice.say(speaker, "dump_section", section="User flags")
    for key, flag in knobs.flags:
        voice.say(speaker, "dump_value", key=key, value=flag)


def _config(world: World) -> Iterator[tuple[str, object]]:
    """Return the fields of vLLM's configuration that a start shows, in its order."""
    options, model = world.options, repr(world.options.given_model)
    dtype = f"torch.{options.dtype.replace('auto', 'bfloat16')}"
    yield from {
        "model": model,
        "speculative_config": None,
        "tokenizer": model,
        "skip_tokenizer_init": False,
        "tokenizer_mode": "auto",
        "revision": None,
        "tokenizer_revision": None,
        "trust_remote_code": False,
        "dtype": dtype,
        "max_seq_len": options.max_model_len,
        "download_dir": None,
        "load_format": options.load_format,
    }.items()
    yield from _parallel_config(options)
    yield from {
        "enforce_eager": options.enforce_eager,
        "kv_cache_dtype": options.kv_cache_dtype,
        "device_config": "hpu",
        "seed": options.seed,
        "served_model_name": options.served_names[0],
        "enable_prefix_caching": options.prefix_caching
        and not world.knobs.contiguous_pa,
        "enable_chunked_prefill": options.chunked_prefill,
        "pooler_config": None,
    }.items()


def _parallel_config(options: Options) -> Iterator[tuple[str, object]]:
    yield "tensor_parallel_size", options.tensor_parallel
    yield "pipeline_parallel_size", options.pipeline_parallel
    yield "data_parallel_size", options.data_parallel
    yield "disable_custom_all_reduce", True
    yield "quantization", options.quantization or _checkpoint_quantisation(options)


def _checkpoint_quantisation(options: Options) -> str | None:
    """Return how the checkpoint itself is quantised: fp8 takes a byte for each parameter."""
    model = options.model
    return "fp8" if model.checkpoint_bytes < _FP8_BYTES * model.parameters else None
