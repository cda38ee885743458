"""The start of the simulated server: what it prints and how long it takes, up to warm-up.

The order is that of real starts: front end, engine, environment dump, weights, profile run,
split of memory, KV cache.  With tensor parallelism every rank prints its own lines.
"""

from __future__ import annotations

from hpuwatch.gaudi.buckets import BucketSettings
from hpuwatch.gaudi.memory import blocks_in, split
from hpuwatch.sim.config.knobs import (
    DEFAULT_RESERVE,
    KnobError,
    Knobs,
    is_true,
    read_knobs,
    unknown_to_core,
)
from hpuwatch.sim.config.options import Options
from hpuwatch.sim.talk.bars import Bar
from hpuwatch.sim.truth.device import DeviceFull, Memory
from hpuwatch.sim.truth.recipes import Recipes
from hpuwatch.sim.world import EngineFailed, World
from hpuwatch.units import GIB, KIB, MIB, format_bytes

_IMPORT_SECONDS = 9.0
_ENGINE_START_SECONDS = 7.0
_HOST_TOTAL = 1007 * GIB
_HOST_USED = 61 * GIB


async def front_end(world: World) -> None:
    """Print what the API server says before it starts the engine."""
    options, say = world.options, world.voice.say
    front = world.speakers.front
    for name in ("plugins", "plugin", "plugin_loading", "plugin_active", "no_pinning"):
        say("", name)
    await world.pace.spend(_IMPORT_SECONDS)
    say(front, "simulated")
    say(front, "banner_version", version=world.voice.script.version)
    say(front, "banner_model", model=options.given_model)
    say(front, "non_default", arguments=dict(options.shown))
    for name in unknown_to_core(options.env):
        say(front, "unknown_variable", name=name)
    say(front, "architecture", architecture=options.model.architecture)
    say(front, "max_model_len", max_model_len=options.max_model_len)
    say(front, "workaround")
    say(
        front,
        "chunked_prefill",
        max_num_batched_tokens=options.max_num_batched_tokens,
    )
    say(front, "asynchronous")
    say(front, "no_compilation")
    if _contiguous(options):
        say(front, "contiguous_pa")


async def engine_start(world: World) -> None:
    """Print what engine and workers say before they load weights.

    Raises:
        EngineFailed: the environment holds a value that they die of.
    """
    voice, speakers = world.voice, world.speakers
    await world.pace.spend(_ENGINE_START_SECONDS)
    voice.say(
        speakers.engine,
        "engine_config",
        version=voice.script.version,
        config=_config(world.options),
    )
    count = len(speakers.unranked)
    for rank, speaker in enumerate(speakers.unranked):
        voice.say(speaker, "world", world=count, rank=rank, port=29500)
    for rank, speaker in enumerate(speakers.unranked):
        voice.say(speaker, "rank", world=count, rank=rank)
    try:
        world.knobs = read_knobs(world.options.env)
    except KnobError as error:
        raise EngineFailed(str(error), "initialize_worker") from None
    for speaker in speakers.unranked:
        if world.knobs.strategy_overruled is not None:
            _strategy_warnings(world, speaker)
        _dump(world, speaker)
        voice.say(speaker, "attention")
        voice.say(speaker, "bucketing_on")
    world.recipes = Recipes(
        world.knobs.recipe_cache,
        world.options.model.name,
        world.options.card.name,
        world.options.tensor_parallel,
    )
    world.each_rank("no_quantisation")


async def load_weights(world: World) -> None:
    """Load the model.

    Raises:
        EngineFailed: it doesn't fit on the cards.
    """
    options, voice, speakers = world.options, world.voice, world.speakers
    world.each_rank("loading", model=options.given_model)
    seconds = world.times.load_seconds()
    shards = options.model.shards
    bar = Bar(shards, unit="it")
    voice.say(speakers.ranks[0], "shards", **bar.fields())
    for _ in range(shards):
        await world.pace.spend(seconds / shards)
        bar.wait(seconds / shards)
        bar.advance()
        voice.say(speakers.ranks[0], "shards", **bar.fields())
    try:
        world.memory.take(world.truth.weights_bytes)
    except DeviceFull as error:
        raise world.full(error, "load_model") from None
    voice.say(speakers.ranks[0], "loaded_in", seconds=seconds)
    world.each_rank("weights", gib=world.truth.weights_bytes / GIB)
    world.each_rank("wrapped", gib=0.0)
    world.each_rank("compiled", gib=0.0)
    world.each_rank("block_size", block_size=options.block_size)


async def divide_memory(world: World) -> int:
    """Run the profile, divide the free memory, and return the KV blocks.

    Raises:
        EngineFailed: no cache is left, or it can't hold one request.
    """
    options, knobs, memory = world.options, world.knobs, world.memory
    await world.pace.spend(world.times.profile_seconds())
    world.each_rank("profile_run", **_amounts(memory, 0, 7 * MIB))
    if knobs.reserve_was_bad:
        world.each_rank("bad_reserve", default=DEFAULT_RESERVE)
    ratio: float = 0 if options.enforce_eager else knobs.reserve
    block = world.truth.block_bytes
    parts = split(memory.free_bytes, options.utilisation, ratio, block)
    world.each_rank(
        "split",
        free=format_bytes(memory.free_bytes),
        usable=format_bytes(parts.usable_bytes),
        utilisation=options.utilisation,
        reserve=format_bytes(parts.reserve_bytes),
        ratio=ratio,
        dummy=format_bytes(block),
        cache=format_bytes(parts.kv_cache_bytes),
    )
    blocks = _checked_blocks(world, parts.kv_cache_bytes)
    await _make_cache(world, blocks)
    return blocks


async def _make_cache(world: World, blocks: int) -> None:
    options, memory = world.options, world.memory
    say, engine = world.voice.say, world.speakers.engine
    tokens = blocks * options.block_size
    say(engine, "kv_tokens", tokens=tokens)
    say(
        engine,
        "concurrency",
        max_model_len=options.max_model_len,
        times=tokens / options.max_model_len,
    )
    cache = (blocks + 1) * world.truth.block_bytes
    await world.pace.spend(0.6)
    try:
        memory.take(cache)
    except DeviceFull as error:
        raise world.full(error, "initialize_kv_cache") from None
    slots = (blocks + 1) * options.block_size
    world.each_rank("kv_blocks", blocks=blocks, slots=slots, pad_slot=tokens)
    world.each_rank("cache_engine", **_amounts(memory, cache, 12 * KIB))


def bucket_settings(options: Options, knobs: Knobs, blocks: int) -> BucketSettings:
    """Return what decides the bucket lists."""
    return BucketSettings(
        max_num_seqs=options.max_num_seqs,
        max_num_batched_tokens=options.max_num_batched_tokens,
        max_model_len=options.max_model_len,
        num_blocks=blocks,
        block_size=options.block_size,
        contiguous_pa=knobs.contiguous_pa,
        max_num_prefill_seqs=knobs.max_prefill_seqs,
        strategy=knobs.strategy,
        env=knobs.bucket_env or {},
    )


def _checked_blocks(world: World, cache_bytes: int) -> int:
    options, block = world.options, world.truth.block_bytes
    if cache_bytes <= 0:
        raise EngineFailed(world.voice.error("no_cache"), "get_kv_cache_configs")
    blocks = blocks_in(cache_bytes, block)
    needed = -(-options.max_model_len // options.block_size)
    if blocks < needed:
        raise EngineFailed(
            world.voice.error(
                "cache_too_small",
                max_model_len=options.max_model_len,
                needed=needed * block / GIB,
                available=cache_bytes / GIB,
                estimate=blocks * options.block_size,
            ),
            "get_kv_cache_configs",
        )
    return blocks


def _amounts(memory: Memory, device: int, host: int) -> dict[str, str]:
    return {
        "device": format_bytes(device),
        "used": format_bytes(memory.used_bytes),
        "total": format_bytes(memory.total_bytes),
        "host": format_bytes(host),
        "host_used": format_bytes(_HOST_USED),
        "host_total": format_bytes(_HOST_TOTAL),
    }


def _strategy_warnings(world: World, speaker: str) -> None:
    knobs, voice = world.knobs, world.voice
    voice.say(speaker, "strategy_deprecated")
    if knobs.strategy_overruled != knobs.strategy:
        voice.say(
            speaker,
            "strategy_overruled",
            strategy=knobs.strategy_overruled,
            new_strategy=knobs.strategy,
            value=world.options.env["VLLM_EXPONENTIAL_BUCKETING"],
        )


def _dump(world: World, speaker: str) -> None:
    options, knobs, voice = world.options, world.knobs, world.voice
    values = {
        "card": options.card.name,
        "build": voice.script.build,
        "model_type": options.model.kind,
        "prefix_caching": options.prefix_caching and not knobs.contiguous_pa,
        "fused": options.card.name != "gaudi2",
        "skip_warmup": knobs.skip_warmup,
        "contiguous_pa": knobs.contiguous_pa,
        "strategy": knobs.strategy,
    }
    for section, entries in voice.script.dump.items():
        voice.say(speaker, "dump_section", section=section)
        for key, value in entries.items():
            voice.say(speaker, "dump_value", key=key, value=value.format(**values))
    voice.say(speaker, "dump_section", section="User flags")
    for key, flag in knobs.flags:
        voice.say(speaker, "dump_value", key=key, value=flag)


def _contiguous(options: Options) -> bool:
    return is_true(options.env.get("VLLM_CONTIGUOUS_PA"))


def _config(options: Options) -> str:
    model = options.given_model
    fields: dict[str, object] = {
        "model": repr(model),
        "speculative_config": None,
        "tokenizer": repr(model),
        "skip_tokenizer_init": False,
        "trust_remote_code": False,
        "dtype": "torch.bfloat16",
        "max_seq_len": options.max_model_len,
        "load_format": "auto",
        "tensor_parallel_size": options.tensor_parallel,
        "pipeline_parallel_size": 1,
        "data_parallel_size": 1,
        "quantization": None,
        "enforce_eager": options.enforce_eager,
        "kv_cache_dtype": "auto",
        "device_config": "hpu",
        "seed": options.seed,
        "served_model_name": options.served_names[0],
        "enable_prefix_caching": options.prefix_caching and not _contiguous(options),
        "enable_chunked_prefill": True,
    }
    return ", ".join(f"{key}={value}" for key, value in fields.items())
