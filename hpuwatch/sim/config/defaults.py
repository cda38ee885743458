"""What holds where the command line is silent, by release.

vLLM's own defaults hang on the release and on each other: the V1 engine computes prompts in
pieces of 2,048 tokens, the V0 engine whole; and since vLLM 0.12 what isn't given yields to
what is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hpuwatch.gaudi.spans import Point, covers
from hpuwatch.sim.config.arguments import FITTING
from hpuwatch.sim.models.model import Model

MAX_NUM_SEQS = 256
_TOKENS = 2048
_YIELDING = "plugin-0.12.."
"""Releases whose defaults yield to the sizes that are given."""


def settle(given: Mapping[str, Any], model: Model, at: Point) -> dict[str, Any]:
    """Return all arguments, those that were not given as the release has them.

    Args:
        given: the parsed arguments, None where the command line is silent.
        model: what is served.
        at: the release.
    """
    found = dict(given)

    def default(name: str, value: object) -> None:
        if found.get(name) is None:
            found[name] = value

    default("tensor_parallel_size", model.tensor_parallel)
    default("gpu_memory_utilization", 0.92 if covers("plugin-0.26..", at) else 0.9)
    default("block_size", 128 if covers("fork-1.20.. vllm plugin", at) else 16)
    default("enable_prefix_caching", not at.is_v0)
    default("enable_chunked_prefill", not at.is_v0)
    default("use_padding_aware_scheduling", covers("fork-1.20..1.23", at))
    found["fits_length"] = given["max_model_len"] == -1 and covers(FITTING, at)
    if given["max_model_len"] is None or found["fits_length"]:
        found["max_model_len"] = model.max_model_len
    _sizes(found, at)
    found["speculative_tokens"] = _drafted(given)
    found["log_requests"] = (
        not given["disable_log_requests"]
        if at.is_v0
        else bool(given.get("enable_log_requests"))
    )
    return found


def _sizes(found: dict[str, Any], at: Point) -> None:
    """Settle the batch and the token budget, each by the other where only one is given."""
    length, seqs = found["max_model_len"], found["max_num_seqs"]
    batch = MAX_NUM_SEQS if seqs is None else seqs
    tokens = found["max_num_batched_tokens"]
    if tokens is None:
        tokens = _TOKENS if found["enable_chunked_prefill"] else max(length, _TOKENS)
        if covers(_YIELDING, at):
            tokens = min(batch * length, tokens)
    if seqs is None and covers(_YIELDING, at):
        batch = min(batch, tokens)
    found["max_num_seqs"], found["max_num_batched_tokens"] = batch, tokens


def _drafted(given: Mapping[str, Any]) -> int:
    """Return the tokens that a draft adds to each decode."""
    settings = given.get("speculative_config")
    count = (
        settings.get("num_speculative_tokens") if isinstance(settings, dict) else None
    )
    count = count or given.get("num_speculative_tokens") or 0
    return count if isinstance(count, int) else 0
