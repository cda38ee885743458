"""From a snapshot to Prometheus' formats.

The collector asks for a snapshot at each scrape and keeps nothing but the highest value
that each counter has shown: a spool that is read again must not take a counter back,
which Prometheus would mistake for a restart and count twice.  Each collector has a
registry of its own, so none of the client library's own metrics come along.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    InfoMetricFamily,
)
from prometheus_client.core import Metric as Family
from prometheus_client.exposition import generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as openmetrics
from prometheus_client.registry import Collector

from hpuwatch.metrics.catalogue import METRICS, PAGES, Kind, Metric
from hpuwatch.metrics.readings import Series, readings
from hpuwatch.state.snapshot import Snapshot

TEXT = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"


class SnapshotCollector(Collector):
    """The catalogue's metrics over whatever ``take`` returns at the time of a scrape."""

    def __init__(self, take: Callable[[], Snapshot]) -> None:
        """Draw from ``take``, which is called once a scrape, from any thread."""
        self._take = take
        self._lock = threading.Lock()
        self._highest: dict[tuple[str, tuple[str, ...]], float] = {}
        self._page_errors: Counter[str] = Counter(dict.fromkeys(PAGES, 0))

    def page_failed(self, page: str) -> None:
        """Count a page (one of ``PAGES``) that could not be built."""
        with self._lock:
            self._page_errors[page] += 1

    def collect(self) -> Iterator[Family]:
        """Yield the families that have data, in the catalogue's order."""
        drawn = readings(self._take())
        with self._lock:
            drawn["hpuwatch_page_errors_total"] = {
                (page,): float(count) for page, count in self._page_errors.items()
            }
            for metric in METRICS:
                if metric.kind is Kind.COUNTER:
                    self._hold(metric.name, drawn[metric.name])
        for metric in METRICS:
            if metric.name in drawn:
                yield _family(metric, drawn[metric.name])

    def _hold(self, name: str, series: Series) -> None:
        for labels, value in series.items():
            highest = max(value, self._highest.get((name, labels), 0.0))
            series[labels] = self._highest[name, labels] = highest


def _family(metric: Metric, series: Series) -> Family:
    if metric.kind is Kind.INFO:
        name = metric.name.removesuffix("_info")
        info = InfoMetricFamily(name, metric.help, labels=metric.labels)
        for labels in series:
            info.add_metric(labels, {})
        return info
    make = CounterMetricFamily if metric.kind is Kind.COUNTER else GaugeMetricFamily
    family = make(metric.name, metric.help, labels=metric.labels, unit=metric.unit)
    for labels, value in series.items():
        family.add_metric(labels, value)
    return family


def scrape(collector: Collector, accept: str = "") -> tuple[bytes, str]:
    """Return the exposition and its content type, OpenMetrics where ``accept`` asks."""
    registry = CollectorRegistry()
    registry.register(collector)
    if "application/openmetrics-text" in accept:
        return openmetrics(registry), OPENMETRICS  # type: ignore[no-untyped-call]  # its annotations are missing
    return generate_latest(registry), TEXT


def exposition(snapshot: Snapshot) -> bytes:
    """Return the text exposition of one snapshot."""
    body, _ = scrape(SnapshotCollector(lambda: snapshot))
    return body
