"""The map behind the picture: padding where a bucket holds a shape, holes where none does."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from hpuwatch.app import bucket_heatmap
from hpuwatch.app.bucket_heatmap import describe, draw, padding_map
from hpuwatch.app.bucket_sources import Told
from hpuwatch.app.buckets import Answer, answer
from hpuwatch.errors import ExtraMissing
from hpuwatch.gaudi.buckets import DECODE, PROMPT
from hpuwatch.gaudi.coverage import holes, reach
from hpuwatch.gaudi.planning import Change

pytestmark = pytest.mark.unit

FILE = "(1, [128, 512], [0, 2])\n(2, 1, 4)\n(8, 1, 64)\n"


def found(*, contiguous_pa: bool = False) -> Answer:
    told = Told().changed(
        release="plugin-0.26",
        max_num_seqs=10,
        max_model_len=1024,
        num_blocks=64,
        bucket_file=FILE,
        contiguous_pa=contiguous_pa,
    )
    return answer(told)


def cells(
    phase: str, *, contiguous_pa: bool = False
) -> dict[tuple[int, int], float | None]:
    drawn = padding_map(found(contiguous_pa=contiguous_pa), phase)
    return {
        (x, y): share
        for y, row in zip(drawn.up, drawn.padding, strict=True)
        for x, share in zip(drawn.across, row, strict=True)
    }


def test_a_cell_of_a_decode_is_its_padding_a_hole_or_nothing() -> None:
    shown = cells(DECODE)
    assert shown[2, 4] == 0
    assert shown[2, 3] == 0.25
    assert shown[8, 16] == 0.75
    assert shown[9, 32] == math.inf
    assert shown[3, 2] is None  # fewer blocks than sequences
    assert shown[1, 9] is None  # more than one sequence can have
    assert cells(DECODE, contiguous_pa=True)[1, 9] is not None


def test_a_cell_of_a_prompt() -> None:
    shown = cells(PROMPT)
    queries = sorted({x for x, _ in shown})
    assert (queries[0], queries[-1], len(queries)) == (1, 1024, 96)
    inside = max(query for query in queries if query <= 128)
    assert shown[inside, 2] == pytest.approx(1 - inside / 128)
    assert shown[inside, 3] == math.inf
    assert shown[1024, 0] == math.inf
    assert shown[1024, 1] is None


@pytest.mark.parametrize("phase", [PROMPT, DECODE])
@pytest.mark.parametrize(
    ("release", "contiguous_pa"),
    [
        ("fork-1.18", False),
        ("fork-1.22", True),
        ("plugin-0.26", True),
        ("plugin-0.26", False),
    ],
)
def test_a_cell_is_open_where_coverage_has_a_hole(
    release: str, contiguous_pa: bool, phase: str
) -> None:
    told = Told().changed(
        [Change("--max-num-batched-tokens", "2048")],
        release,
        max_num_seqs=32,
        max_model_len=2048,
        num_blocks=1024,
        contiguous_pa=contiguous_pa,
    )
    made = answer(told)
    drawn = padding_map(made, phase)
    shown = {
        (x, y)
        for y, row in zip(drawn.up, drawn.padding, strict=True)
        for x, share in zip(drawn.across, row, strict=True)
        if share == math.inf
    }
    left_out = {
        (x, y)
        for hole in holes(made.prepared)
        for x in drawn.across
        for y in drawn.up
        if hole.phase == phase
        and hole.first <= x <= hole.last
        and hole.above < y <= reach(made.settings, phase, x)
    }
    assert shown == left_out
    has_hole = release == "fork-1.18" or not contiguous_pa
    assert bool(shown) == (has_hole and phase == PROMPT)


def test_the_picture_in_words() -> None:
    drawn = padding_map(found(), DECODE)
    said = describe(found(), [drawn])
    assert said.startswith("Buckets of plugin-0.26, strategy file, 64 KV blocks\n")
    assert "decode: 2 buckets (predicted) over batch (sequences) 1 to 10" in said
    assert drawn.open == sum(share == math.inf for share in drawn.shares) > 0
    assert f"of {len(drawn.shares)} decodes on a grid {drawn.open} have no" in said


def test_without_matplotlib_the_extra_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(bucket_heatmap, "find_spec", lambda _name: None)
    with pytest.raises(ExtraMissing, match=r"pip install 'hpuwatch\[tune\]'"):
        draw(found(), tmp_path / "b.svg")
