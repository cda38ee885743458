"""All that is counted while serving, whatever the release calls it on its ``/metrics``."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hpuwatch.gaudi.spans import Point

_FIRST_TOKEN: tuple[float, ...] = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5),
    *(5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0),
)
_EACH_TOKEN: tuple[float, ...] = (
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5),
    *(5.0, 7.5, 10.0, 20.0, 40.0, 80.0),
)
_REQUEST: tuple[float, ...] = (
    *(0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0),
    *(60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0),
)
_STEP_TOKENS: tuple[float, ...] = (
    *(1.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0),
    *(8192.0, 16384.0),
)

BOUNDS: Mapping[str, tuple[float, ...] | None] = {
    "request_prompt_tokens": None,
    "request_generation_tokens": None,
    "request_max_num_generation_tokens": None,
    "request_params_max_tokens": None,
    "request_prefill_kv_computed_tokens": None,
    "request_params_n": (1.0, 2.0, 5.0, 10.0, 20.0),
    "iteration_tokens_total": _STEP_TOKENS,
    "time_to_first_token_seconds": _FIRST_TOKEN,
    "inter_token_latency_seconds": _EACH_TOKEN,
    "request_time_per_output_token_seconds": _EACH_TOKEN,
    "e2e_request_latency_seconds": _REQUEST,
    "request_queue_time_seconds": _REQUEST,
    "request_inference_time_seconds": _REQUEST,
    "request_prefill_time_seconds": _REQUEST,
    "request_decode_time_seconds": _REQUEST,
}
"""vLLM's own bounds of each histogram; None stands for token counts up to the longest."""

FINISHED: Mapping[str, str] = {
    "stop": "all",
    "length": "all",
    "abort": "all",
    "error": "plugin-0.13..",
    "repetition": "plugin-0.19..",
}
"""Why a request ended, with the releases that count it so."""


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


@dataclass(frozen=True, slots=True)
class Served:
    """One request as the HTTP side saw it; sizes are those of bodies."""

    handler: str
    method: str
    status: int
    request_bytes: int
    response_bytes: int
    seconds: float


@dataclass(slots=True)
class HttpTally:
    """What the HTTP side counts, by handler."""

    requests: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    request_bytes: Counter[str] = field(default_factory=Counter)
    response_bytes: Counter[str] = field(default_factory=Counter)
    by_handler: dict[tuple[str, str], Histogram] = field(default_factory=dict)
    all_together: Histogram = field(
        default_factory=lambda: Histogram(_HTTP_FINE_SECONDS)
    )

    def count(self, served: Served) -> None:
        """Count one request."""
        handler, method = served.handler, served.method
        self.requests[handler, method, f"{served.status // 100}xx"] += 1
        self.request_bytes[handler] += served.request_bytes
        self.response_bytes[handler] += served.response_bytes
        if (handler, method) not in self.by_handler:
            self.by_handler[handler, method] = Histogram(_HTTP_SECONDS)
        self.by_handler[handler, method].observe(served.seconds)
        self.all_together.observe(served.seconds)


_HTTP_SECONDS = (0.1, 0.5, 1.0)
_HTTP_FINE_SECONDS: tuple[float, ...] = (
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5),
    *(4.0, 4.5, 5.0, 7.5, 10.0, 30.0, 60.0),
)


@dataclass(slots=True)
class Tally:
    """All that is counted while serving.

    Attributes:
        point: the release, whose names the counts get.
        began_at: simulated time of the first count, in seconds since the epoch.
        gauges: what is true now, by name, set before each exposition.
        finished: completed requests by reason.
        cached_tokens: prompt tokens that came from the prefix cache.
        http: the same from the HTTP side.
    """

    model_name: str
    max_model_len: int
    cache_config: Mapping[str, str]
    point: Point
    began_at: float = 0.0
    gauges: dict[str, float] = field(default_factory=dict)
    prompt_tokens: int = 0
    cached_tokens: int = 0
    generation_tokens: int = 0
    preemptions: int = 0
    prefix_queries: int = 0
    prefix_hits: int = 0
    images: int = 0
    finished: Counter[str] = field(default_factory=Counter)
    http: HttpTally = field(default_factory=HttpTally)
    histograms: dict[str, Histogram] = field(init=False)

    def __post_init__(self) -> None:
        """Make the histograms, some of which depend on the longest request."""
        tokens = token_bounds(self.max_model_len)
        self.histograms = {
            name: Histogram(tokens if bounds is None else bounds)
            for name, bounds in BOUNDS.items()
        }

    def observe(self, name: str, value: float, times: int = 1) -> None:
        """Count into a histogram, named as the newest release names it."""
        self.histograms[name].observe(value, times)
