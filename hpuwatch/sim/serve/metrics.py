"""The ``/metrics`` page: vLLM's names and labels, counted in simulated time.

A :class:`Tally` is what the engine counts; :func:`exposition` turns it into the text page.
The page says that it is simulated with ``hpuwatch_simulated 1``.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

_FIRST: tuple[float, ...] = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5),
    *(5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0),
)
_EACH: tuple[float, ...] = (
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5),
    *(5.0, 7.5, 10.0, 20.0, 40.0, 80.0),
)
_WHOLE: tuple[float, ...] = (
    *(0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0),
    *(60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0),
)

FINISHED = ("stop", "length", "abort", "error", "repetition")


class Histogram:
    """Observations by upper bound."""

    def __init__(self, bounds: Sequence[float]) -> None:
        """Start empty; bounds ascend and lack the infinite one."""
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.total = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        """Count a value, several times over if need be."""
        self.counts[bisect_left(self.bounds, value)] += times
        self.total += value * times

    def cumulative(self) -> list[tuple[str, float]]:
        """Return (upper bound, count at or below it)."""
        rows, seen = [], 0
        for bound, count in zip((*self.bounds, None), self.counts, strict=True):
            seen += count
            rows.append(("+Inf" if bound is None else str(float(bound)), float(seen)))
        return rows


def token_bounds(longest: int) -> list[float]:
    """Return 1, 2, 5, 10 … up to ``longest``."""
    bounds: list[float] = []
    decade = 1
    while True:
        for step in (1, 2, 5):
            if step * decade > longest:
                return bounds
            bounds.append(float(step * decade))
        decade *= 10


@dataclass(slots=True)
class Tally:
    """All that is counted while serving.

    Attributes:
        gauges: what is true now, by name, set before each exposition.
        finished: completed requests by reason.
    """

    model_name: str
    max_model_len: int
    cache_config: Mapping[str, str]
    gauges: dict[str, float] = field(default_factory=dict)
    prompt_tokens: int = 0
    generation_tokens: int = 0
    preemptions: int = 0
    finished: Counter[str] = field(default_factory=Counter)
    histograms: dict[str, Histogram] = field(init=False)

    def __post_init__(self) -> None:
        """Make the histograms, some of which depend on the longest request."""
        tokens = token_bounds(self.max_model_len)
        self.histograms = {
            name: Histogram(bounds or tokens) for name, _, bounds in _HISTOGRAMS
        }

    def observe(self, name: str, value: float, times: int = 1) -> None:
        """Count into the histogram ``vllm:<name>``."""
        self.histograms[name].observe(value, times)


_GAUGES = (
    ("num_requests_running", "Number of requests in model execution batches."),
    ("num_requests_waiting", "Number of requests waiting to be processed."),
    ("kv_cache_usage_perc", "KV-cache usage. 1 means 100 percent usage."),
)

# An empty row of bounds stands for token counts.
_HISTOGRAMS: tuple[tuple[str, str, tuple[float, ...]], ...] = (
    ("request_prompt_tokens", "Number of prefill tokens processed.", ()),
    ("request_generation_tokens", "Number of generation tokens processed.", ()),
    (
        "iteration_tokens_total",
        "Histogram of number of tokens per engine_step.",
        (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384),
    ),
    (
        "time_to_first_token_seconds",
        "Histogram of time to first token in seconds.",
        _FIRST,
    ),
    (
        "inter_token_latency_seconds",
        "Histogram of inter-token latency in seconds.",
        _EACH,
    ),
    (
        "request_time_per_output_token_seconds",
        "Histogram of time_per_output_token_seconds per request.",
        _EACH,
    ),
    (
        "e2e_request_latency_seconds",
        "Histogram of e2e request latency in seconds.",
        _WHOLE,
    ),
    (
        "request_queue_time_seconds",
        "Histogram of time spent in WAITING phase for request.",
        _WHOLE,
    ),
    (
        "request_prefill_time_seconds",
        "Histogram of time spent in PREFILL phase for request.",
        _WHOLE,
    ),
    (
        "request_decode_time_seconds",
        "Histogram of time spent in DECODE phase for request.",
        _WHOLE,
    ),
)


class _Page(Collector):
    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self._labels = {"model_name": tally.model_name, "engine": "0"}

    def collect(self) -> Iterator[Metric]:
        tally = self._tally
        for name, text in _GAUGES:
            yield self._gauge(f"vllm:{name}", text, tally.gauges.get(name, 0.0))
        yield self._counter(
            "vllm:num_preemptions",
            "Cumulative number of preemption from the engine.",
            tally.preemptions,
        )
        yield self._counter(
            "vllm:prompt_tokens",
            "Number of prefill tokens processed.",
            tally.prompt_tokens,
        )
        yield self._counter(
            "vllm:generation_tokens",
            "Number of generation tokens processed.",
            tally.generation_tokens,
        )
        yield from self._prefix_cache()
        yield self._finished()
        for name, text, _ in _HISTOGRAMS:
            yield self._histogram(f"vllm:{name}", text, tally.histograms[name])
        info = GaugeMetricFamily(
            "vllm:cache_config_info",
            "Information of the LLMEngine CacheConfig",
            labels=[*tally.cache_config, "engine"],
        )
        info.add_metric([*tally.cache_config.values(), "0"], 1.0)
        yield info
        yield GaugeMetricFamily(
            "hpuwatch_simulated",
            "1: no figure on this page was measured on a Gaudi.",
            value=1.0,
        )
        yield CounterMetricFamily(
            "hpuwatch_simulated_seconds",
            "Simulated seconds since the server was started.",
            value=tally.gauges.get("simulated_seconds", 0.0),
        )
        yield CounterMetricFamily(
            "hpuwatch_simulated_busy_seconds",
            "Simulated seconds that steps took; waiting for clients is left out.",
            value=tally.gauges.get("busy_seconds", 0.0),
        )

    def _gauge(self, name: str, text: str, value: float) -> Metric:
        family = GaugeMetricFamily(name, text, labels=list(self._labels))
        family.add_metric(list(self._labels.values()), value)
        return family

    def _counter(self, name: str, text: str, value: float) -> Metric:
        family = CounterMetricFamily(name, text, labels=list(self._labels))
        family.add_metric(list(self._labels.values()), value)
        return family

    def _prefix_cache(self) -> Iterator[Metric]:
        yield self._counter(
            "vllm:prefix_cache_queries",
            "Prefix cache queries, in terms of number of queried tokens.",
            self._tally.prompt_tokens,
        )
        yield self._counter(
            "vllm:prefix_cache_hits",
            "Prefix cache hits, in terms of number of cached tokens.",
            0,
        )

    def _finished(self) -> Metric:
        family = CounterMetricFamily(
            "vllm:request_success",
            "Count of successfully processed requests.",
            labels=[*self._labels, "finished_reason"],
        )
        for reason in FINISHED:
            values = [*self._labels.values(), reason]
            family.add_metric(values, self._tally.finished[reason])
        return family

    def _histogram(self, name: str, text: str, histogram: Histogram) -> Metric:
        family = HistogramMetricFamily(name, text, labels=list(self._labels))
        family.add_metric(
            list(self._labels.values()),
            buckets=histogram.cumulative(),
            sum_value=histogram.total,
        )
        return family


def exposition(tally: Tally) -> bytes:
    """Return the page in Prometheus' text format."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Page(tally))
    return generate_latest(registry)
