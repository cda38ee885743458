"""``/metrics`` of the simulator beside real pages: names, types, labels and bounds."""

from __future__ import annotations

import re
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from hpuwatch.gaudi.spans import covers, point_of
from hpuwatch.sim.config.options import parse_options
from hpuwatch.sim.serve.cacheconfig import tally_of
from hpuwatch.sim.serve.metricfamilies import COUNTERS, GAUGES, SPREADS
from hpuwatch.sim.serve.metrics import exposition
from hpuwatch.sim.serve.tally import Histogram, Served, Tally, token_bounds
from hpuwatch.sim.server import Server
from hpuwatch.sim.talk.script import releases
from hpuwatch.testing.clock import FakeClock

pytestmark = pytest.mark.unit

_OURS = re.compile("hpuwatch_simulated")
_REAL_PAGE = "corpus/plugin-on-stand-in/plugin-0.26-tp2.metrics.txt"
_LATER_PAGE = "corpus/plugin-on-stand-in/vllm-0.32-cpu-inflight.metrics.txt"


@dataclass(frozen=True)
class Page:
    """What a page declares and holds, without the values.

    Attributes:
        types: by family name.
        labels: the label names of each sample name.
        bounds: the upper bounds of each histogram.
    """

    types: Mapping[str, str]
    labels: Mapping[str, AbstractSet[str]]
    bounds: Mapping[str, AbstractSet[str]]


def _read(text: str) -> Page:
    types = dict(re.findall(r"^# TYPE (\S+) (\w+)", text, re.MULTILINE))
    labels: dict[str, set[str]] = {}
    bounds: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels.setdefault(sample.name, set()).update(sample.labels)
            if "le" in sample.labels:
                bounds.setdefault(sample.name, set()).add(sample.labels["le"])
    return Page(types, labels, bounds)


def _tally(release: str, *arguments: str) -> Tally:
    options = parse_options(["--release", release, "--speed", "1e12", *arguments], {})
    server = Server(options, FakeClock(), {})
    return tally_of(server.world, 1000)


def _page(release: str, *arguments: str) -> str:
    tally = _tally(release, *arguments)
    tally.http.count(Served("/v1/completions", "POST", 200, 100, 200, 0.5))
    return exposition(tally).decode()


def test_the_page_of_0_26_is_that_of_the_real_one(shared: Path) -> None:
    real = _read((shared / _REAL_PAGE).read_text(encoding="utf-8"))
    # The real server's longest sequence decides the bounds of its token counts.
    ours = _read(_page("plugin-0.26", "--max-model-len", "512"))
    mine = {name for name in ours.types if not _OURS.match(name)}
    assert mine == set(real.types)
    assert all(ours.types[name] == real.types[name] for name in mine)
    assert {name for name in ours.labels if not _OURS.match(name)} == set(real.labels)
    for name, labels in real.labels.items():
        assert ours.labels[name] == labels, name
    assert ours.bounds == real.bounds


def test_a_later_vllm_has_all_that_0_26_has(shared: Path) -> None:
    later = _read((shared / _LATER_PAGE).read_text(encoding="utf-8"))
    ours = _read(_page("plugin-0.26", "--max-model-len", "1024"))
    mine = {name for name in ours.types if not _OURS.match(name)}
    assert mine <= set(later.types)
    same = set(ours.bounds) & set(later.bounds)
    assert all(ours.bounds[name] == later.bounds[name] for name in same)


@pytest.mark.parametrize(
    ("release", "has", "lacks"),
    [
        (
            "fork-1.18",
            {"gpu_cache_usage_perc", "num_requests_swapped", "cpu_cache_usage_perc"},
            {"kv_cache_usage_perc", "inter_token_latency_seconds"},
        ),
        (
            "fork-1.21",
            {"gpu_prefix_cache_hit_rate", "time_per_output_token_seconds"},
            {"prefix_cache_queries", "request_time_per_output_token_seconds"},
        ),
        ("fork-1.22", {"gpu_cache_usage_perc"}, {"num_requests_swapped"}),
        (
            "plugin-0.11",
            {
                "kv_cache_usage_perc",
                "time_per_output_token_seconds",
                "inter_token_latency_seconds",
            },
            {"gpu_cache_usage_perc", "num_requests_swapped"},
        ),
        (
            "plugin-0.16",
            {"prefix_cache_queries", "prompt_tokens_by_source"},
            {"time_per_output_token_seconds", "num_requests_waiting_by_reason"},
        ),
        ("plugin-head", {"num_requests_waiting_by_reason"}, set()),
    ],
)
def test_each_release_has_its_own_names(
    release: str, has: set[str], lacks: set[str]
) -> None:
    text = _page(release)
    types = {name.removesuffix("_total") for name in _read(text).types}
    assert {f"vllm:{name}" for name in has} <= types
    assert not {f"vllm:{name}" for name in lacks} & types
    assert "vllm:cache_config_info" in types
    assert "hpuwatch_simulated 1.0" in text


def test_v0_knows_no_engine_and_no_creation_times() -> None:
    older = _page("fork-1.21")
    assert 'engine="0"' not in older
    assert "_created" not in older
    assert 'engine="0"' in _page("plugin-0.11")


@pytest.mark.parametrize("release", releases())
def test_no_release_has_a_name_twice(release: str) -> None:
    point = point_of(release)
    named = [(family.name, family.spans) for family in (*GAUGES, *COUNTERS)]
    named += [(spread.name, spread.spans) for spread in SPREADS]
    names = [name for name, spans in named if covers(spans, point)]
    assert len(names) == len(set(names))


def test_help_is_in_our_own_words(shared: Path) -> None:
    real = (shared / _REAL_PAGE).read_text(encoding="utf-8")
    theirs = {
        line.split(" ", 3)[3]
        for line in real.splitlines()
        if line.startswith("# HELP vllm:")
    }
    ours = {family.help for family in (*GAUGES, *COUNTERS)}
    ours |= {spread.help for spread in SPREADS}
    assert not ours & theirs


def test_observations_are_counted_at_their_bounds() -> None:
    histogram = Histogram((1.0, 5.0))
    histogram.observe(1.0)
    histogram.observe(3.0, 2)
    histogram.observe(9.0)
    assert histogram.cumulative() == [("1.0", 1.0), ("5.0", 3.0), ("+Inf", 4.0)]
    assert histogram.total == 16.0
    assert token_bounds(60) == [1.0, 2.0, 5.0, 10.0, 20.0, 50.0]


def test_http_is_counted_by_handler() -> None:
    tally = _tally("plugin-0.26")
    for status in (200, 204, 404):
        tally.http.count(Served("/v1/completions", "POST", status, 10, 20, 0.2))
    page = exposition(tally).decode()
    labels = 'handler="/v1/completions",method="POST"'
    assert f'http_requests_total{{{labels},status="2xx"}} 2.0' in page
    assert f'http_requests_total{{{labels},status="4xx"}} 1.0' in page
    assert 'http_request_size_bytes_sum{handler="/v1/completions"} 30.0' in page
    name = "http_request_duration_seconds_bucket"
    labels = 'handler="/v1/completions",le="0.5",method="POST"'
    assert f"{name}{{{labels}}} 3.0" in page
    assert "http_request_duration_highr_seconds_count 3.0" in page
