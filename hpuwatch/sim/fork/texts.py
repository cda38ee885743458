"""The long texts of a V0 start: command line, configuration, capabilities, settings."""

from __future__ import annotations

import uuid
from argparse import Namespace
from collections.abc import Mapping
from typing import Any

from hpuwatch.sim.config.knobs import Knobs
from hpuwatch.sim.config.options import Options
from hpuwatch.sim.talk.script import Script
from hpuwatch.sim.truth.dice import dice

_ARGUMENTS: Mapping[str, object] = {
    "host": None,
    "port": 8000,
    "uvicorn_log_level": "info",
    "allow_credentials": False,
    "allowed_origins": ["*"],
    "api_key": None,
    "chat_template": None,
    "response_role": "assistant",
    "disable_frontend_multiprocessing": False,
    "model": None,
    "task": "auto",
    "tokenizer": None,
    "revision": None,
    "tokenizer_mode": "auto",
    "trust_remote_code": False,
    "download_dir": None,
    "load_format": "auto",
    "weights_load_device": None,
    "dtype": "auto",
    "kv_cache_dtype": "auto",
    "max_model_len": None,
    "distributed_executor_backend": None,
    "pipeline_parallel_size": 1,
    "tensor_parallel_size": 1,
    "block_size": None,
    "enable_prefix_caching": None,
    "use_v2_block_manager": True,
    "use_padding_aware_scheduling": False,
    "num_lookahead_slots": 0,
    "seed": 0,
    "swap_space": 4,
    "cpu_offload_gb": 0,
    "gpu_memory_utilization": 0.9,
    "num_gpu_blocks_override": None,
    "max_num_batched_tokens": None,
    "max_num_seqs": 256,
    "max_num_prefill_seqs": None,
    "disable_log_stats": False,
    "quantization": None,
    "enforce_eager": False,
    "max_seq_len_to_capture": 8192,
    "device": "auto",
    "num_scheduler_steps": 1,
    "enable_chunked_prefill": None,
    "served_model_name": None,
    "disable_log_requests": False,
    "max_log_len": None,
    "enable_prompt_tokens_details": False,
}
"""The arguments that the front end lists, with vLLM's own defaults, in its order."""


def namespace(options: Options) -> str:
    """Return the whole command line as the front end prints it, defaults included."""
    shown = {name: options.shown.get(name, at) for name, at in _ARGUMENTS.items()}
    shown |= {"model": options.given_model, "block_size": options.block_size}
    return repr(Namespace(**shown))


def ipc_path(options: Options) -> str:
    """Return where the front end meets its engine; an invented address of the right shape."""
    chance = dice(options.seed, "ipc")
    return f"ipc:///tmp/{uuid.UUID(int=chance.getrandbits(128), version=4)}"


def engine_config(options: Options, knobs: Knobs) -> str:
    """Return the configuration in the words of V0."""
    model = repr(options.given_model)
    fields: dict[str, object] = {
        "model": model,
        "speculative_config": None,
        "tokenizer": model,
        "skip_tokenizer_init": False,
        "tokenizer_mode": "auto",
        "revision": None,
        "override_neuron_config": None,
        "tokenizer_revision": None,
        "trust_remote_code": bool(options.shown.get("trust_remote_code", False)),
        "dtype": "torch.bfloat16",
        "max_seq_len": options.max_model_len,
        "download_dir": None,
        "load_format": "LoadFormat.AUTO",
        "tensor_parallel_size": options.tensor_parallel,
        "pipeline_parallel_size": options.pipeline_parallel,
        "disable_custom_all_reduce": False,
        "quantization": options.quantization,
        "weights_load_device": "cpu" if options.quantization == "inc" else "hpu",
        "enforce_eager": options.enforce_eager,
        "kv_cache_dtype": options.kv_cache_dtype,
        "device_config": "hpu",
        "seed": options.seed,
        "served_model_name": options.served_names[0],
        "num_scheduler_steps": options.num_scheduler_steps,
        "multi_step_stream_outputs": True,
        "enable_prefix_caching": knobs.prefix_caching,
        "chunked_prefill_enabled": options.chunked_prefill,
        "use_async_output_proc": True,
        "mm_processor_kwargs": None,
        "pooler_config": None,
    }
    return ", ".join(f"{name}={value}" for name, value in fields.items())


def detected(options: Options, facts: Mapping[str, Any]) -> str:
    """Return the capabilities of the card, each with a sign for present or absent."""
    present = {options.card.name, *facts["flags_present"]}
    names = {"cpu", "gaudi", "gaudi2", "gaudi3", *facts["flags"]} | present
    return " ".join(f"{'+' if n in present else '-'}{n}" for n in sorted(names))


def dumped(options: Options, knobs: Knobs, script: Script) -> dict[str, object]:
    """Return the values of the settings that 1.22 lists."""
    return {
        "card": options.card.name,
        "build": script.build,
        "bridge": "lazy" if knobs.lazy else "eager",
        "model_type": options.model.kind,
        "prefix_caching": knobs.prefix_caching,
        "fp32_softmax": options.model.kind == "qwen2",
        "fused": options.card.name == "gaudi3" and options.model.kind != "qwen2",
        "skip_warmup": knobs.skip_warmup,
        "merged_prefill": knobs.merged_prefill,
        "contiguous_pa": knobs.contiguous_pa,
        "exponential": knobs.strategy == "exp",
        "strategy": {"exp": "exponential_bucketing"}.get(
            knobs.strategy, "linear_bucketing"
        ),
    }
