"""The page on fidelity tells what the simulator does today, and leaves no figure out."""

from __future__ import annotations

from dataclasses import asdict, astuple
from pathlib import Path
from typing import Any

import pytest
import yaml

from hpuwatch.sim.truth import compiling
from hpuwatch.sim.truth.tempo import FITTED
from tests import misfit_points, time_points
from tests.fidelity import agree, measured, throughput
from tests.throughput_points import points

pytestmark = pytest.mark.unit

# One for each table of rates at least, and V0.
_STARTS = frozenset(
    {
        "Qwen3-VL-32B-FP8 on gaudi3, a start log of 0.15",
        "Llama-3.1-8B bf16, documentation of vllm-gaudi on warm-up",
        "Llama-3.1-8B fp8, the same documentation",
        "Llama-3.1-70B on four gaudi2, a start log of the fork, without warm-up",
    }
)


def test_throughputs_are_what_the_page_tells() -> None:
    kept = measured()["throughput"]
    assert agree(throughput(points()), kept), "run python -m tests.fidelity, make docs"


def test_first_requests_are_what_the_page_tells() -> None:
    now = [asdict(row) for row in time_points.first_requests()]
    assert agree(now, measured()["traffic"]), "run python -m tests.fidelity, make docs"


@pytest.mark.parametrize("source", sorted(_STARTS))
def test_starts_take_what_the_page_tells(source: str) -> None:
    now = [asdict(row) for row in time_points.starts(frozenset({source}))]
    kept = [row for row in measured()["starts"] if row["source"] == source]
    assert now
    assert agree(now, kept), "run python -m tests.fidelity, make docs"


def test_misfits_are_what_the_page_tells() -> None:
    now = [asdict(row) for row in misfit_points.rows()]
    assert agree(now, measured()["misfit"]), "run python -m tests.fidelity, make docs"
    for row in now:
        none, usual, large = row["errors"]
        assert none < 0.1
        assert 0.05 < usual < large


def test_every_published_time_has_a_row_or_a_reason(shared: Path) -> None:
    published = {(source, figure) for source, figure, _ in _published_times(shared)}
    assert published == {(told.source, told.figure) for told in time_points.told()}


def test_every_published_time_is_told_as_it_stands(shared: Path) -> None:
    rows = [row for row in time_points.told() if row.seconds is not None]
    for source, figure, value in _published_times(shared):
        told = [r for r in rows if (r.source, r.figure) == (source, figure)]
        for row in told:
            assert row.seconds is not None
            assert time_points.holds(figure, value, row.seconds), row
        # Of several figures with one name, each has its row.
        several = len(value) if isinstance(value, dict | list) else 0
        assert not told or len({row.seconds for row in told}) >= several, figure


def _published_times(shared: Path) -> list[tuple[str, str, Any]]:
    file = shared / "reference" / "numbers.yaml"
    numbers = yaml.safe_load(file.read_text(encoding="utf-8"))
    return list(time_points.published_times(numbers))


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
    compiled_fp8 = {1000 * each.compile_seconds for each in compiling.LAZY_FP8.values()}
    (fp8,) = compiled_fp8
    assert f"| lazy, fp8 | prompt, decode | as bf16 | {fp8:.4g} ms | 6 µs |" in page
    for rates in (compiling.LAZY, compiling.TORCH_COMPILE):
        for phase, rate in rates.items():
            trace, compiled = 1000 * rate.trace_seconds, 1000 * rate.compile_seconds
            size = 1e6 * rate.size_seconds
            row = f"| {phase} | {trace:.4g} ms | {compiled:.4g} ms | {size:.4g} µs |"
            assert row in page
