"""Settings that vLLM takes and then dies of, and those that can't be simulated.

vLLM checks its command line twice: argparse refuses what is no flag or no number (exit code
2, ``arguments``), then its configuration refuses values that make no sense (exit code 1,
after the first lines of the log).  Some settings can't go together, which shows later still.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from hpuwatch.errors import ConfigError
from hpuwatch.gaudi.spans import covers
from hpuwatch.sim.config.options import Options
from hpuwatch.sim.config.variables import BUCKETS, FRONT, WORKER

_SEE = "    For further information visit https://errors.pydantic.dev/2.12/v/{kind}"


class Refusal(NamedTuple):
    """One reason to die: the stage, and the exception's last line or lines."""

    stage: str
    text: str


def refusals(options: Options, values: Mapping[str, Any]) -> dict[str, str]:
    """Return what the server dies of by stage, of each stage what comes first."""
    found: dict[str, str] = {}
    for check in _CHECKS:
        for refusal in check(options, values):
            found.setdefault(refusal.stage, refusal.text)
    return found


def refuse_unsimulated(options: Options, values: Mapping[str, Any]) -> None:
    """Refuse what a real server would do and this one can't.

    Raises:
        ConfigError: with what to unset.
    """
    blocks = options.num_blocks_override
    asked = {
        "--pipeline-parallel-size": options.pipeline_parallel > 1,
        "--data-parallel-size": options.data_parallel > 1,
        "--api-server-count": options.api_servers > 1,
        "--num-gpu-blocks-override": blocks is not None and blocks < 1,
        "VLLM_UNIFIED_ATTN": values["unified_attention"],
        "VLLM_USE_FAKE_HPU": values["fake_card"],
        "VLLM_USE_V1": values["use_v1"] and options.point.is_v0,
    }
    found = [name for name, is_asked in asked.items() if is_asked]
    if found:
        raise ConfigError(
            f"{found[0]} as it is can't be simulated on {options.release}: leave it out."
        )


def _ranges(options: Options, _values: Mapping[str, Any]) -> Iterator[Refusal]:
    """See numbers outside of what vLLM's configuration allows."""
    share = options.utilisation
    if share > 1 and not options.point.is_v0:
        bound = _Bound("less_than_equal", "less than or equal to 1")
        yield _outside("CacheConfig", "gpu_memory_utilization", share, bound)
    elif share > 1:
        message = f"GPU memory utilization must be less than 1.0. Got {share}."
        yield Refusal(FRONT, f"ValueError: {message}")
    for place, name, value in (
        ("ModelConfig", "max_model_len", options.max_model_len),
        ("CacheConfig", "gpu_memory_utilization", share),
        ("CacheConfig", "block_size", options.block_size),
        ("ParallelConfig", "tensor_parallel_size", options.tensor_parallel),
        ("ParallelConfig", "pipeline_parallel_size", options.pipeline_parallel),
        ("ParallelConfig", "data_parallel_size", options.data_parallel),
        ("SchedulerConfig", "max_num_seqs", options.max_num_seqs),
        ("SchedulerConfig", "max_num_batched_tokens", options.max_num_batched_tokens),
    ):
        if value <= 0 and not options.point.is_v0:
            yield _outside(place, name, value, _Bound("greater_than", "greater than 0"))
        elif value <= 0:
            # The V0 engine dies of it in a place of its own; these words are ours.
            message = f"{name} ({value}) must be greater than 0."
            yield Refusal(FRONT, f"ValueError: {message}")


class _Bound(NamedTuple):
    """A bound of a number, as pydantic names and words it."""

    kind: str
    words: str


def _outside(place: str, name: str, value: float, bound: _Bound) -> Refusal:
    given = f"input_value={value}, input_type={type(value).__name__}"
    line = f"  Input should be {bound.words} [type={bound.kind}, {given}]"
    return _validation(place, (name, line), bound.kind)


def _validation(place: str, lines: tuple[str, ...], kind: str) -> Refusal:
    first = (
        f"pydantic_core._pydantic_core.ValidationError: 1 validation error for {place}"
    )
    return Refusal(FRONT, "\n".join((first, *lines, _SEE.format(kind=kind))))


def _value_error(options: Options, place: str, message: str) -> Refusal:
    """Return a check of vLLM's own that failed; pydantic wraps it since vLLM 0.10."""
    if options.point.is_v0:
        return Refusal(FRONT, f"ValueError: {message}")
    given = "input_value=ArgsKwargs((), {'model': ..., }), input_type=ArgsKwargs"
    line = f"  Value error, {message} [type=value_error, {given}]"
    return _validation(place, (line,), "value_error")


def _length(options: Options, values: Mapping[str, Any]) -> Iterator[Refusal]:
    longest = options.model.max_model_len
    if options.max_model_len > longest and not values["long_models"]:
        yield _value_error(
            options,
            "ModelConfig",
            f"User-specified max_model_len ({options.max_model_len}) is greater than the"
            f" derived max_model_len (max_position_embeddings={longest} or"
            " model_max_length=None in model's config.json). To allow overriding this"
            " maximum, set the env var VLLM_ALLOW_LONG_MAX_MODEL_LEN=1",
        )


def _budget(options: Options, _values: Mapping[str, Any]) -> Iterator[Refusal]:
    tokens, longest = options.max_num_batched_tokens, options.max_model_len
    if tokens < longest and not options.chunked_prefill:
        yield _value_error(
            options,
            "SchedulerConfig",
            f"max_num_batched_tokens ({tokens}) is smaller than max_model_len"
            f" ({longest}). This effectively limits the maximum sequence length to"
            " max_num_batched_tokens and makes vLLM reject longer sequences. Please"
            " increase max_num_batched_tokens or decrease max_model_len.",
        )
    if tokens < options.max_num_seqs:
        yield _value_error(
            options,
            "SchedulerConfig",
            f"max_num_batched_tokens ({tokens}) must be greater than or equal to"
            f" max_num_seqs ({options.max_num_seqs}).",
        )


def _heads(options: Options, _values: Mapping[str, Any]) -> Iterator[Refusal]:
    heads, cards = options.model.heads, options.tensor_parallel
    if cards > 0 and heads % cards:
        yield _value_error(
            options,
            "VllmConfig",
            f"Total number of attention heads ({heads}) must be divisible by tensor"
            f" parallel size ({cards}).",
        )


def _engine(options: Options, _values: Mapping[str, Any]) -> Iterator[Refusal]:
    """See the engine that fork-1.23 no longer has."""
    asked = options.env.get("VLLM_USE_V1", "0") not in {"", "0"}
    if covers("fork-1.23", options.point) and asked:
        yield Refusal(
            FRONT,
            "ValueError: In-tree HPU support for v1 has been removed from vllm-fork."
            " Please use vLLM-Gaudi plugin (https://github.com/vllm-project/vllm-gaudi)"
            " for V1 support",
        )


def _scheduling(options: Options, values: Mapping[str, Any]) -> Iterator[Refusal]:
    """See features of the fork's V0 engine that exclude each other."""
    if not options.point.is_v0:
        return
    steps, prefills = options.num_scheduler_steps, options.max_num_prefill_seqs
    if steps < 1:
        message = f"num_scheduler_steps ({steps}) must be greater than or equal to 1."
        yield Refusal(FRONT, f"ValueError: {message}")
    if prefills is not None and prefills < 0:
        message = f"max_num_prefill_seqs ({prefills}) must be greater than 0."
        yield Refusal(FRONT, f"ValueError: {message}")
    packs = (
        options.padding_aware_scheduling
        and "use_padding_aware_scheduling" in options.given
    )
    if options.chunked_prefill and packs:
        yield Refusal(
            FRONT,
            "ValueError: Padding-aware scheduling currently does not work with chunked"
            " prefill ",
        )
    if (
        options.max_num_prefill_seqs is not None
        and not options.padding_aware_scheduling
    ):
        yield Refusal(
            FRONT,
            "ValueError: max_num_prefill_seqs can be only used with"
            " padding-aware-scheduling. ",
        )
    if values["merged_prefill"] and packs:
        yield Refusal(
            WORKER,
            "AssertionError: Merged prefill is not compatible with padding aware"
            " scheduling!",
        )


def _paged(options: Options, values: Mapping[str, Any]) -> Iterator[Refusal]:
    """See what contiguous attention doesn't go with."""
    if not values["contiguous_pa"]:
        return
    if covers("fork-1.21..1.23", options.point) and options.prefix_caching:
        yield Refusal(WORKER, "AssertionError: Contiguous PA doesn't support APC")
    if covers("fork-1.20..", options.point) and options.speculative_tokens:
        yield Refusal(
            WORKER,
            "ValueError: Speculative decoding is not supported with contiguous PA",
        )


def _delayed(options: Options, values: Mapping[str, Any]) -> Iterator[Refusal]:
    if not values["delayed_sampling"]:
        return
    for feature, is_asked in (
        ("MSS", options.num_scheduler_steps > 1),
        ("Pipeline Parallelism", options.pipeline_parallel > 1),
        ("speculative decoding", options.speculative_tokens > 0),
    ):
        if is_asked:
            yield Refusal(
                WORKER,
                f"AssertionError: Delayed sampling is not compatible with {feature}!",
            )


def _file(_options: Options, values: Mapping[str, Any]) -> Iterator[Refusal]:
    if "bucket_file_trouble" in values:
        yield Refusal(BUCKETS, values["bucket_file_trouble"])


def _slices(options: Options, values: Mapping[str, Any]) -> Iterator[Refusal]:
    """See slices of fused attention of no size; it has them under ``pad`` alone."""
    if not values["fsdpa_slices"]:
        return
    default = min(options.max_num_batched_tokens, 8192)
    threshold = values["fsdpa_from_tokens"]
    threshold = default if threshold is None else threshold
    if threshold < 1024 and values["fsdpa_from_tokens"] is not None:
        yield Refusal(
            BUCKETS,
            "AssertionError: The FusedSDPA slice sequence length threshold should be"
            " greater than or equal to 1024 to ensure the chunk sizes are valid for the"
            " attention kernel.",
        )
    chunk = values["fsdpa_chunk_tokens"]
    # It is rounded up to 1024 before it is looked at.
    if (
        chunk is not None
        and not options.block_size < -(-chunk // 1024) * 1024 <= threshold
    ):
        yield Refusal(
            BUCKETS,
            "AssertionError: Invalid FusedSDPA slice chunk size, the chunk size should be"
            " between the block size and the slice sequence length threshold.",
        )


def _profile(_options: Options, values: Mapping[str, Any]) -> Iterator[Refusal]:
    """See a profile that ends the server on purpose, once it is written."""
    if values["profile"]:
        yield Refusal(BUCKETS, "AssertionError: Finished profiling")


_CHECKS: tuple[Callable[[Options, Mapping[str, Any]], Iterator[Refusal]], ...] = (
    _engine,
    _ranges,
    _length,
    _heads,
    _scheduling,
    _budget,
    _paged,
    _delayed,
    _file,
    _slices,
    _profile,
)
