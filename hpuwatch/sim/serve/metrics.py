"""The ``/metrics`` page: the release's names and labels, counted in simulated time.

The page says that it is simulated with ``hpuwatch_simulated 1``.  Its process metrics are
those of the simulator itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from prometheus_client import (
    CollectorRegistry,
    GCCollector,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
    SummaryMetricFamily,
)
from prometheus_client.registry import Collector

from hpuwatch.gaudi.spans import covers
from hpuwatch.sim.serve.metricfamilies import COUNTERS, GAUGES, SPREADS, Labels, Rows
from hpuwatch.sim.serve.tally import Histogram, Tally

_HTTP_LABELS = ("handler", "method", "status")


def exposition(tally: Tally) -> bytes:
    """Return the page in Prometheus' text format."""
    registry = CollectorRegistry(auto_describe=False)
    GCCollector(registry=registry)
    PlatformCollector(registry=registry)
    ProcessCollector(registry=registry)
    for part in (_Engine(tally), _Http(tally), _Simulated(tally)):
        registry.register(part)
    return generate_latest(registry)


class _Engine(Collector):
    """vLLM's own metrics."""

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self._point = tally.point
        # V0 has one engine and switches the creation times off.
        is_v0 = self._point.is_v0
        self._created = None if is_v0 else tally.began_at
        labels = {"model_name": tally.model_name}
        self._labels = labels if is_v0 else labels | {"engine": "0"}

    def collect(self) -> Iterator[Metric]:
        tally = self._tally
        for family in GAUGES:
            if covers(family.spans, self._point):
                yield self._gauge(family.name, family.help, family.rows(tally))
        for family in COUNTERS:
            if covers(family.spans, self._point):
                yield self._counter(family.name, family.help, family.rows(tally))
        for spread in SPREADS:
            if covers(spread.spans, self._point):
                histogram = tally.histograms[spread.source]
                yield _histogram(
                    f"vllm:{spread.name}",
                    spread.help,
                    {tuple(self._labels.items()): histogram},
                    self._created,
                )
        yield self._cache_config()

    def _gauge(self, name: str, text: str, rows: Rows) -> Metric:
        family = GaugeMetricFamily(f"vllm:{name}", text, labels=self._names(rows))
        for labels, value in rows:
            family.add_metric(self._values(labels), value)
        return family

    def _counter(self, name: str, text: str, rows: Rows) -> Metric:
        family = CounterMetricFamily(f"vllm:{name}", text, labels=self._names(rows))
        for labels, value in rows:
            family.add_metric(self._values(labels), value, created=self._created)
        return family

    def _names(self, rows: Rows) -> list[str]:
        return [*self._labels, *(name for name, _ in rows[0][0])]

    def _values(self, labels: Labels) -> list[str]:
        return [*self._labels.values(), *(value for _, value in labels)]

    def _cache_config(self) -> Metric:
        config = dict(self._tally.cache_config)
        if "engine" in self._labels:
            config["engine"] = "0"
        family = GaugeMetricFamily(
            "vllm:cache_config_info", "How the KV cache is set up.", labels=list(config)
        )
        family.add_metric(list(config.values()), 1.0)
        return family


class _Http(Collector):
    """What the HTTP side counts, as vLLM's instrumentation names it."""

    def __init__(self, tally: Tally) -> None:
        self._http = tally.http
        is_v0 = tally.point.is_v0
        self._created = None if is_v0 else tally.began_at

    def collect(self) -> Iterator[Metric]:
        http = self._http
        family = CounterMetricFamily(
            "http_requests",
            "Requests by handler, method and status.",
            labels=_HTTP_LABELS,
        )
        for key, count in http.requests.items():
            family.add_metric(key, count, created=self._created)
        yield family
        handlers = http.request_bytes
        yield self._sizes("http_request_size_bytes", "Bodies of requests.", handlers)
        handlers = http.response_bytes
        yield self._sizes("http_response_size_bytes", "Bodies of answers.", handlers)
        yield _histogram(
            "http_request_duration_highr_seconds",
            "Seconds of all requests, in fine steps.",
            {(): http.all_together},
            self._created,
        )
        yield _histogram(
            "http_request_duration_seconds",
            "Seconds of requests by handler, in rough steps.",
            {
                (("handler", handler), ("method", method)): histogram
                for (handler, method), histogram in http.by_handler.items()
            },
            self._created,
        )

    def _sizes(self, name: str, text: str, sums: Mapping[str, int]) -> Metric:
        family = SummaryMetricFamily(name, text, labels=["handler"])
        for handler, total in sums.items():
            count = sum(
                number
                for (its, _, _), number in self._http.requests.items()
                if its == handler
            )
            family.add_metric([handler], count_value=count, sum_value=total)
            if self._created is not None:
                labels = {"handler": handler}
                family.add_sample(f"{name}_created", labels, self._created)
        return family


class _Simulated(Collector):
    """What only a simulated server has."""

    def __init__(self, tally: Tally) -> None:
        self._gauges = tally.gauges

    def collect(self) -> Iterator[Metric]:
        yield GaugeMetricFamily(
            "hpuwatch_simulated",
            "1: no figure on this page was measured on a Gaudi.",
            value=1.0,
        )
        yield CounterMetricFamily(
            "hpuwatch_simulated_seconds",
            "Simulated seconds since the server was started.",
            value=self._gauges.get("simulated_seconds", 0.0),
        )
        yield CounterMetricFamily(
            "hpuwatch_simulated_busy_seconds",
            "Simulated seconds that steps took; waiting for clients is left out.",
            value=self._gauges.get("busy_seconds", 0.0),
        )


def _histogram(
    name: str,
    text: str,
    histograms: Mapping[Labels, Histogram],
    created: float | None,
) -> Metric:
    names: Sequence[str] = [label for label, _ in next(iter(histograms), ())]
    family = HistogramMetricFamily(name, text, labels=names)
    for labels, histogram in histograms.items():
        values = [value for _, value in labels]
        family.add_metric(values, histogram.cumulative(), sum_value=histogram.total)
        if created is not None:
            family.add_sample(f"{name}_created", dict(labels), created)
    return family
