"""The page on fidelity tells what the simulator does today, and leaves no figure out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, astuple
from pathlib import Path
from typing import Any

import pytest
import yaml

from hpuwatch.sim.truth import compiling
from hpuwatch.sim.truth.tempo import FITTED
from tests import time_points
from tests.fidelity import measured, throughput
from tests.throughput_points import points

pytestmark = pytest.mark.unit

_STARTS = frozenset(
    {
        "Qwen3-VL-32B-FP8 on gaudi3, a start log of 0.15",
        "Llama-3.1-8B bf16, documentation of vllm-gaudi on warm-up",
        "Llama-3.1-70B on four gaudi2, a start log of the fork, without warm-up",
    }
)
_TIMES = ("warmup_s", "load_s", "init_engine_s", "profile_s", "weights_load_s")
_SECTIONS = (
    *("per_bucket_time_s", "runtime_recompile_cost_s"),
    *("warmup_times_published", "throughput"),
)


def _numbers(value: object) -> Iterator[float]:
    """Yield the numbers of a record, in their order."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for each in value:
            yield from _numbers(each)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield float(value)


def _agree(now: Any, kept: Any) -> bool:
    # What is kept has four digits, and half a percent is no news.
    return list(_numbers(now)) == pytest.approx(list(_numbers(kept)), rel=0.005)


def test_throughputs_are_what_the_page_tells() -> None:
    kept = measured()["throughput"]
    assert _agree(throughput(points()), kept), "run python -m tests.fidelity, make docs"


def test_first_requests_are_what_the_page_tells() -> None:
    now = [asdict(row) for row in time_points.first_requests()]
    assert _agree(now, measured()["traffic"]), "run python -m tests.fidelity, make docs"


@pytest.mark.parametrize("source", sorted(_STARTS))
def test_starts_take_what_the_page_tells(source: str) -> None:
    now = [asdict(row) for row in time_points.starts(frozenset({source}))]
    kept = [row for row in measured()["starts"] if row["source"] == source]
    assert now
    assert _agree(now, kept), "run python -m tests.fidelity, make docs"


def test_every_published_time_has_a_row_or_a_reason(shared: Path) -> None:
    file = shared / "reference" / "numbers.yaml"
    numbers = yaml.safe_load(file.read_text(encoding="utf-8"))
    published = {row["src"] for section in _SECTIONS for row in numbers[section]}
    published |= {
        row["src"] for row in numbers["memory_points"] if any(t in row for t in _TIMES)
    }
    assert published == time_points.sources()


def test_every_published_throughput_is_told_as_it_stands(shared: Path) -> None:
    file = shared / "reference" / "numbers.yaml"
    numbers = yaml.safe_load(file.read_text(encoding="utf-8"))["throughput"]
    told = {(p.batch, p.output_tokens, p.tokens_per_second) for p in points()}
    for group in numbers:
        for *_, output, batch, rate in group.get("rows", []):
            assert (batch, output, rate) in told
        if "tpot_ms" in group:
            assert (group["conc"], group["out"], group["out_tok_s"]) in told


def test_the_page_tells_the_figures_of_the_laws(checkout: Path) -> None:
    page = (checkout / "docs/explanation/simulator.md").read_text(encoding="utf-8")
    matmul, memory, link, layer, together, sequence = astuple(FITTED)
    for text in (
        f"{100 * matmul:.4g} %",
        f"{100 * memory:.4g} %",
        f"{100 * link:.4g} %",
        f"layers * {1e6 * layer:.4g} µs + sequences * {1e6 * sequence:.4g} µs",
        f"{1e6 * together:.4g} µs * log2(cards)",
    ):
        assert text in page
    for rates in (compiling.LAZY, compiling.TORCH_COMPILE):
        for phase, rate in rates.items():
            trace, compiled = 1000 * rate.trace_seconds, 1000 * rate.compile_seconds
            size = 1e6 * rate.size_seconds
            row = f"| {phase} | {trace:.4g} ms | {compiled:.4g} ms | {size:.4g} µs |"
            assert row in page
