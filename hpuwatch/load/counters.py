"""What the server itself counted while a run went on, by its ``/metrics`` before and after.

The client's stopwatch and the server's histograms should agree; where they don't, the network
or the client lies between.  A simulated server says so here, and how much of its own time has
passed: its seconds are another thing than the clock's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from hpuwatch.load.endpoint import Endpoint, scrape

SIMULATED = "hpuwatch_simulated"
SIMULATED_SECONDS = "hpuwatch_simulated_seconds_total"
BUSY_SECONDS = "hpuwatch_simulated_busy_seconds_total"

# Names differ between releases of vLLM; the first that is there counts.
_COUNTS: Mapping[str, tuple[str, ...]] = {
    "prompt_tokens": ("vllm:prompt_tokens_total",),
    "generation_tokens": ("vllm:generation_tokens_total",),
    "preemptions": ("vllm:num_preemptions_total",),
    "prefix_cache_queried_tokens": (
        "vllm:prefix_cache_queries_total",
        "vllm:gpu_prefix_cache_queries_total",
    ),
    "prefix_cache_hit_tokens": (
        "vllm:prefix_cache_hits_total",
        "vllm:gpu_prefix_cache_hits_total",
    ),
}
_MEANS: Mapping[str, tuple[str, ...]] = {
    "mean_ttft_ms": ("vllm:time_to_first_token_seconds",),
    "mean_itl_ms": (
        "vllm:inter_token_latency_seconds",
        "vllm:time_per_output_token_seconds",
    ),
    "mean_e2el_ms": ("vllm:e2e_request_latency_seconds",),
    "mean_queue_ms": ("vllm:request_queue_time_seconds",),
}


@dataclass(frozen=True, slots=True)
class Scrape:
    """The page as it was read at one moment.

    Attributes:
        at: when, in the clock's seconds.
        sums: name → sum over its labels, None where the server has no such page.
    """

    at: float
    sums: Mapping[str, float] | None


@dataclass(frozen=True, slots=True)
class Counted:
    """What changed between two scrapes.

    Attributes:
        is_simulated: the server says that it is.
        speed: its simulated seconds in one of the clock's, None for a real server.
        simulated_seconds: how much of its time passed, None for a real server.
        busy_seconds: how much of that its steps took, likewise.
        figures: counts, and means in milliseconds of its own time; what it doesn't say
            is left out.
    """

    is_simulated: bool
    speed: float | None
    simulated_seconds: float | None
    busy_seconds: float | None
    figures: Mapping[str, float]


def read(endpoint: Endpoint, stamp: Callable[[], float]) -> Scrape:
    """Read the page now."""
    sums = scrape(endpoint)
    return Scrape(stamp(), sums)


def between(before: Scrape, after: Scrape) -> Counted:
    """Return what changed; a restart in between, which resets all counts, shows nothing."""
    first, last = before.sums or {}, after.sums or {}
    grown = {
        name: last[name] - first[name]
        for name in last.keys() & first.keys()
        if last[name] >= first[name]
    }
    passed = grown.get(SIMULATED_SECONDS)
    clock = after.at - before.at
    return Counted(
        is_simulated=last.get(SIMULATED, 0.0) > 0 or first.get(SIMULATED, 0.0) > 0,
        speed=passed / clock if passed and clock > 0 else None,
        simulated_seconds=passed,
        busy_seconds=grown.get(BUSY_SECONDS),
        figures=_figures(grown),
    )


def _figures(grown: Mapping[str, float]) -> dict[str, float]:
    told = {}
    for key, names in _COUNTS.items():
        found = next((grown[name] for name in names if name in grown), None)
        if found is not None:
            told[key] = found
    for key, names in _MEANS.items():
        for name in names:
            count = grown.get(f"{name}_count", 0.0)
            if count > 0 and f"{name}_sum" in grown:
                told[key] = grown[f"{name}_sum"] / count * 1000
                break
    return told
