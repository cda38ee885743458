"""The labels of ``vllm:cache_config_info`` by release, and the tally that begins with them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from hpuwatch.gaudi.spans import covers
from hpuwatch.sim.serve.tally import Tally
from hpuwatch.sim.world import World

Value = Callable[[World, int], object]


def _fixed(value: object) -> Value:
    return lambda _world, _blocks: value


def _tokens(world: World, blocks: int) -> int:
    return blocks * world.options.block_size


_NEWER, _NEWEST = "plugin-0.13..", "plugin-0.19.."

_LABELS: Mapping[str, tuple[str, Value]] = {
    "_block_size_resolved": (_NEWEST, _fixed(value=True)),
    "block_size": ("all", lambda world, _: world.options.block_size),
    "cache_dtype": ("all", lambda world, _: world.options.kv_cache_dtype),
    "calculate_kv_scales": ("fork-1.21.. plugin", _fixed(value=False)),
    "cpu_offload_gb": ("fork-1.19.. plugin-..0.16", _fixed(0)),
    "enable_prefix_caching": ("all", lambda world, _: world.knobs.prefix_caching),
    "gpu_memory_utilization": ("all", lambda world, _: world.options.utilisation),
    "is_attention_free": ("fork-1.19.. plugin", _fixed(value=False)),
    "kv_cache_dtype_skip_layers": (_NEWEST, _fixed([])),
    "kv_cache_max_concurrency": (
        _NEWEST,
        lambda world, blocks: _tokens(world, blocks) / world.options.max_model_len,
    ),
    "kv_cache_memory_bytes": (
        "plugin-0.11..",
        lambda world, _: world.options.kv_cache_memory_bytes,
    ),
    "kv_cache_size_tokens": (_NEWEST, _tokens),
    "kv_offloading_backend": (_NEWER, _fixed("native")),
    "kv_offloading_size": (_NEWER, _fixed(None)),
    "kv_sharing_fast_prefill": ("plugin", _fixed(value=False)),
    "mamba_block_size": ("plugin-0.11..", _fixed(None)),
    "mamba_cache_dtype": ("plugin", _fixed("auto")),
    "mamba_cache_mode": (_NEWER, _fixed("none")),
    "mamba_page_size_padded": ("plugin", _fixed(None)),
    "mamba_ssm_cache_dtype": ("plugin", _fixed("auto")),
    "num_cpu_blocks": (
        "all",
        lambda world, _: world.truth.swap_blocks if world.options.point.is_v0 else None,
    ),
    "num_gpu_blocks": ("all", lambda _, blocks: blocks),
    "num_gpu_blocks_override": (
        "all",
        lambda world, _: world.options.num_blocks_override,
    ),
    "prefix_caching_hash_algo": (
        "plugin",
        lambda world, _: (
            "builtin" if covers("plugin-0.10", world.options.point) else "sha256"
        ),
    ),
    "prefix_match_unit": (_NEWEST, _fixed(None)),
    "skip_page_size_padded": (_NEWEST, _fixed(None)),
    "sliding_window": ("all", _fixed(None)),
    "swap_space": (
        "fork plugin-..0.16",
        lambda world, _: world.options.swap_space_gib,
    ),
    "user_specified_block_size": (
        _NEWER,
        lambda world, _: "block_size" in world.options.given,
    ),
    "user_specified_mamba_block_size": (_NEWER, _fixed(value=False)),
}
"""Each label with the releases that have it (known for 0.26, plausible before) and its value."""


def tally_of(world: World, blocks: int) -> Tally:
    """Return the tally of a server that has so many KV blocks."""
    options = world.options
    labels = {
        name: str(value(world, blocks))
        for name, (spans, value) in _LABELS.items()
        if covers(spans, options.point)
    }
    return Tally(
        options.served_names[0],
        options.max_model_len,
        labels,
        options.point,
        world.pace.stamp(),
    )
