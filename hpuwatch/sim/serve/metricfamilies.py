"""Which metrics a release has, as one table: its names, its help and where it holds.

Releases are written as ``gaudi.spans`` writes them.  What was renamed stands twice.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hpuwatch.gaudi.spans import covers
from hpuwatch.sim.serve.tally import FINISHED, Tally

Labels = tuple[tuple[str, str], ...]
Rows = tuple[tuple[Labels, float], ...]


@dataclass(frozen=True, slots=True)
class MetricFamily:
    """One metric family of vLLM's own.

    Attributes:
        name: without ``vllm:`` and, for a counter, without ``_total``.
        help: in our words.
        spans: the releases that have it.
        rows: its values by the labels that come on top of model and engine.
    """

    name: str
    help: str
    spans: str
    rows: Callable[[Tally], Rows]


def _gauge(name: str) -> Callable[[Tally], Rows]:
    return lambda tally: (((), tally.gauges.get(name, 0.0)),)


def _zero(_tally: Tally) -> Rows:
    return (((), 0.0),)


def _waiting_by_reason(tally: Tally) -> Rows:
    capacity = tally.gauges.get("waiting", 0.0)
    return (
        ((("reason", "capacity"),), capacity),
        ((("reason", "deferred"),), 0.0),
    )


def _awake(_tally: Tally) -> Rows:
    states = (("awake", 1.0), ("weights_offloaded", 0.0), ("discard_all", 0.0))
    return tuple(((("sleep_state", state),), value) for state, value in states)


def _finished(tally: Tally) -> Rows:
    return tuple(
        ((("finished_reason", reason),), float(tally.finished[reason]))
        for reason, spans in FINISHED.items()
        if covers(spans, tally.point)
    )


def _by_source(tally: Tally) -> Rows:
    computed = tally.prompt_tokens - tally.cached_tokens
    sources = {
        "local_compute": computed,
        "local_cache_hit": tally.cached_tokens,
        "external_kv_transfer": 0,
    }
    return tuple(((("source", name),), float(count)) for name, count in sources.items())


GAUGES = (
    MetricFamily(
        "num_requests_running", "Requests in the batch.", "all", _gauge("running")
    ),
    MetricFamily(
        "num_requests_waiting", "Requests in the queue.", "all", _gauge("waiting")
    ),
    MetricFamily(
        "num_requests_waiting_by_reason",
        "Requests in the queue, by what they wait for.",
        "plugin-0.21..",
        _waiting_by_reason,
    ),
    MetricFamily(
        "num_requests_swapped",
        "Requests whose KV blocks lie on the host.",
        "fork-..1.21",
        _gauge("swapped"),
    ),
    MetricFamily(
        "engine_sleep_state",
        "1 for the state that the engine is in.",
        "plugin-0.11..",
        _awake,
    ),
    MetricFamily(
        "gpu_cache_usage_perc",
        "Share of the device's KV blocks in use, 0 to 1.",
        "fork plugin-0.10",
        _gauge("kv_use"),
    ),
    MetricFamily(
        "cpu_cache_usage_perc",
        "Share of the host's KV blocks in use, 0 to 1.",
        "fork-..1.21",
        _gauge("host_use"),
    ),
    MetricFamily(
        "kv_cache_usage_perc",
        "Share of the KV blocks in use, 0 to 1.",
        "plugin",
        _gauge("kv_use"),
    ),
    MetricFamily(
        "gpu_prefix_cache_hit_rate",
        "Share of recent prompt tokens that the prefix cache had, 0 to 1.",
        "fork-1.19..1.21",
        _gauge("prefix_rate"),
    ),
    MetricFamily(
        "cpu_prefix_cache_hit_rate",
        "The same of the host's prefix cache; -1 without one.",
        "fork-1.19..1.21",
        lambda _: (((), -1.0),),
    ),
)

COUNTERS = (
    *(
        MetricFamily(f"estimated_{what}_per_gpu", text, "plugin-0.15..", _zero)
        for what, text in (
            ("flops", "Floating-point operations of a card, where that is estimated."),
            ("read_bytes", "Bytes that a card read, where that is estimated."),
            ("write_bytes", "Bytes that a card wrote, where that is estimated."),
        )
    ),
    MetricFamily(
        "gpu_prefix_cache_queries",
        "Prompt tokens looked up in the prefix cache.",
        "plugin-0.10",
        lambda tally: (((), float(tally.prefix_queries)),),
    ),
    MetricFamily(
        "gpu_prefix_cache_hits",
        "Prompt tokens found in the prefix cache.",
        "plugin-0.10",
        lambda tally: (((), float(tally.prefix_hits)),),
    ),
    MetricFamily(
        "prefix_cache_queries",
        "Prompt tokens looked up in the prefix cache.",
        "plugin",
        lambda tally: (((), float(tally.prefix_queries)),),
    ),
    MetricFamily(
        "prefix_cache_hits",
        "Prompt tokens found in the prefix cache.",
        "plugin",
        lambda tally: (((), float(tally.prefix_hits)),),
    ),
    MetricFamily(
        "external_prefix_cache_queries",
        "Prompt tokens looked up in other servers' caches.",
        "plugin-0.11..",
        _zero,
    ),
    MetricFamily(
        "external_prefix_cache_hits",
        "Prompt tokens found in other servers' caches.",
        "plugin-0.11..",
        _zero,
    ),
    MetricFamily(
        "mm_cache_queries",
        "Images and the like looked up in their cache.",
        "plugin-0.11..",
        lambda tally: (((), float(tally.images)),),
    ),
    MetricFamily(
        "mm_cache_hits",
        "Images and the like found in their cache.",
        "plugin-0.11..",
        _zero,
    ),
    MetricFamily(
        "num_preemptions",
        "Requests that lost their KV blocks and started over.",
        "all",
        lambda tally: (((), float(tally.preemptions)),),
    ),
    MetricFamily(
        "prompt_tokens",
        "Prompt tokens processed.",
        "all",
        lambda tally: (((), float(tally.prompt_tokens)),),
    ),
    MetricFamily(
        "prompt_tokens_by_source",
        "Prompt tokens by where their keys and values came from.",
        "plugin-0.16..",
        _by_source,
    ),
    MetricFamily(
        "prompt_tokens_cached",
        "Prompt tokens that a cache had.",
        "plugin-0.16..",
        lambda tally: (((), float(tally.cached_tokens)),),
    ),
    MetricFamily(
        "generation_tokens",
        "Tokens generated.",
        "all",
        lambda tally: (((), float(tally.generation_tokens)),),
    ),
    MetricFamily("request_success", "Requests that ended, by why.", "all", _finished),
)


@dataclass(frozen=True, slots=True)
class Spread:
    """One histogram: ``source`` is what the tally calls it."""

    name: str
    help: str
    spans: str
    source: str


def _spread(name: str, text: str, spans: str = "all", source: str = "") -> Spread:
    return Spread(name, text, spans, source or name)


SPREADS = (
    _spread("request_prompt_tokens", "Prompt tokens of a request."),
    _spread("request_generation_tokens", "Generated tokens of a request."),
    _spread(
        "iteration_tokens_total", "Tokens of an engine step.", "fork-1.19.. plugin"
    ),
    _spread(
        "request_max_num_generation_tokens",
        "Most tokens that any sequence of a request could generate.",
        "fork-1.20.. plugin",
    ),
    _spread("request_params_n", "Sequences asked for.", "all"),
    _spread("request_params_max_tokens", "Tokens asked for.", "fork-1.20.. plugin"),
    _spread("time_to_first_token_seconds", "Seconds to the first token."),
    _spread(
        "time_per_output_token_seconds",
        "Seconds between tokens.",
        "fork plugin-0.10..0.11",
        "inter_token_latency_seconds",
    ),
    _spread("inter_token_latency_seconds", "Seconds between tokens.", "plugin-0.11.."),
    _spread(
        "request_time_per_output_token_seconds",
        "Mean seconds between the tokens of a request.",
        "plugin-0.11..",
    ),
    _spread("e2e_request_latency_seconds", "Seconds of a whole request."),
    _spread(
        "request_queue_time_seconds",
        "Seconds that a request waited.",
        "fork-1.20.. plugin",
    ),
    _spread(
        "time_in_queue_requests",
        "Seconds that a request waited.",
        "fork-1.20..1.21",
        "request_queue_time_seconds",
    ),
    _spread(
        "request_inference_time_seconds",
        "Seconds that a request ran.",
        "fork-1.20.. plugin",
    ),
    _spread(
        "request_prefill_time_seconds",
        "Seconds of a request's prefill.",
        "fork-1.20.. plugin",
    ),
    _spread(
        "request_decode_time_seconds",
        "Seconds of a request's decode.",
        "fork-1.20.. plugin",
    ),
    _spread(
        "request_prefill_kv_computed_tokens",
        "Prompt tokens that were computed, those from a cache left out.",
        "plugin-0.13..",
    ),
)
