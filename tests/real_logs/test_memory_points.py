"""The memory arithmetic on figures that public logs printed, and on invented ones.

A printed figure has four digits, so a sum of printed figures may be off by half of the
fourth digit of each; blocks come out to one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from hpuwatch.gaudi import kvcache, memory
from hpuwatch.gaudi.kvcache import KvLayout
from hpuwatch.gaudi.modelshape import ModelShape, read_model
from hpuwatch.units import GIB, MIB, gib_amount, rounding_bytes

Point = Mapping[str, Any]

_SAME_SHAPE = {"Llama-3-8B": "Llama-3.1-8B", "8B bf16": "Llama-3.1-8B"}
"""Models that differ only in what memory doesn't see."""


@pytest.fixture
def shapes(checkout: Path) -> dict[str, ModelShape]:
    text = (checkout / "tests/data/models.yaml").read_text(encoding="utf-8")
    return {name: read_model(config) for name, config in yaml.safe_load(text).items()}


@pytest.fixture(params=["ours", "public"])
def points(request: pytest.FixtureRequest, checkout: Path) -> list[Point]:
    if request.param == "ours":
        return points_of(checkout / "tests/data/memory_points.yaml")
    return published(request.getfixturevalue("shared"))


def published(shared: Path) -> list[Point]:
    return points_of(shared / "reference/numbers.yaml")


def points_of(path: Path) -> list[Point]:
    loaded = yaml.safe_load(path.read_text(encoding="utf-8"))
    listed: list[Point] = (
        loaded if isinstance(loaded, list) else loaded["memory_points"]
    )
    return listed


def bytes_of(point: Point, name: str) -> int:
    return round(float(point[name]) * GIB)


def off(point: Point, *names: str) -> float:
    """Return how far figures that are rounded to four digits may be off together."""
    return sum(rounding_bytes(gib_amount(f"{point[name]:.4g}")) for name in names)


def profile_bytes(point: Point) -> int:
    gib, mib = float(point.get("profile", 0)), float(point.get("profile_mib", 0))
    return round(gib * GIB + mib * MIB)


def having(points: list[Point], *names: str) -> list[Point]:
    found = [point for point in points if all(name in point for name in names)]
    assert found
    return found


def layout_of(point: Point, shapes: Mapping[str, ModelShape]) -> KvLayout | None:
    name = str(point.get("model", ""))
    shape = shapes.get(_SAME_SHAPE.get(name, name))
    return KvLayout(shape, tp=int(point.get("tp", 1))) if shape else None


def test_what_is_free_is_the_total_less_weights_and_profile_run(
    points: list[Point],
) -> None:
    for point in having(points, "total", "weights", "free"):
        free = memory.free_after_load(
            bytes_of(point, "total"), bytes_of(point, "weights"), profile_bytes(point)
        )
        allowed = off(point, "total", "weights", "free") + 0.005 * GIB
        assert free == pytest.approx(bytes_of(point, "free"), abs=allowed), point


def split_of(point: Point, dummy_bytes: int = 0) -> memory.Split:
    return memory.split(
        bytes_of(point, "free"), point["util"], point["frac"], dummy_bytes
    )


def test_usable_and_reserve_come_out_as_printed(points: list[Point]) -> None:
    for point in having(points, "free", "util", "frac", "usable", "graph"):
        parts = split_of(point)
        assert parts.usable_bytes == pytest.approx(
            bytes_of(point, "usable"), abs=off(point, "free", "usable") + 1
        )
        assert parts.reserve_bytes == pytest.approx(
            bytes_of(point, "graph"), abs=off(point, "free", "graph") + 1
        )


def test_the_cache_comes_out_as_printed_in_one_of_the_two_forms(
    points: list[Point], shapes: Mapping[str, ModelShape]
) -> None:
    """Where nobody wrote down the dummy block, it may be there, of the model's own size."""
    for point in having(points, "free", "util", "frac", "kv"):
        layout = layout_of(point, shapes)
        own = kvcache.dummy_block_bytes(layout) if layout else 0
        forms = [0, own]
        if "dummy_block_mib" in point:
            forms = [round(point["dummy_block_mib"] * MIB)]
        near = pytest.approx(bytes_of(point, "kv"), abs=off(point, "free", "kv") + 1)
        assert any(split_of(point, dummy).kv_cache_bytes == near for dummy in forms)


def test_blocks_come_out_to_one(
    points: list[Point], shapes: Mapping[str, ModelShape]
) -> None:
    tried = 0
    for point in having(points, "kv", "blocks"):
        layout = layout_of(point, shapes)
        if layout is not None:
            blocks = kvcache.blocks_of(bytes_of(point, "kv"), layout)
            assert abs(blocks - point["blocks"]) <= 1, point
            tried += 1
    assert tried >= 6


def test_the_dummy_block_is_one_block(
    points: list[Point], shapes: Mapping[str, ModelShape]
) -> None:
    for point in having(points, "dummy_block_mib"):
        layout = layout_of(point, shapes)
        assert layout is not None
        assert kvcache.dummy_block_bytes(layout) == point["dummy_block_mib"] * MIB


def test_tokens_are_blocks_times_their_size(points: list[Point]) -> None:
    for point in having(points, "tokens"):
        size = point.get("block", kvcache.HPU_BLOCK_SIZE)
        assert memory.tokens_of(point["blocks"], size) == point["tokens"]


def test_the_cache_engine_takes_one_block_more_than_are_usable(
    shared: Path, shapes: Mapping[str, ModelShape]
) -> None:
    for point in having(published(shared), "cache_engine", "dummy_block_mib"):
        layout = layout_of(point, shapes)
        assert layout is not None
        taken = (point["blocks"] + 1) * kvcache.kv_block_bytes(layout)
        assert taken == pytest.approx(
            bytes_of(point, "cache_engine"), abs=off(point, "cache_engine")
        )


def test_the_cache_that_one_long_request_was_said_to_need(
    shared: Path, shapes: Mapping[str, ModelShape]
) -> None:
    for point in having(published(shared), "kv_needed"):
        shape = shapes["Llama-3.1-70B"]
        assert "Llama-70B" in point["model"]
        needed = kvcache.kv_bytes_per_token(shape, point["tp"]) * point["max_len"]
        assert needed == bytes_of(point, "kv_needed")


def test_the_concurrency_that_real_servers_printed(
    shared: Path, shapes: Mapping[str, ModelShape]
) -> None:
    text = (shared / "corpus/answers.yaml").read_text(encoding="utf-8")
    tried = 0
    for log in yaml.safe_load(text):
        answers = log["answers"]
        printed = re.match(r"([\d.]+)x @(\d+)", str(answers.get("max_concurrency", "")))
        if printed:
            layout = KvLayout(shapes["Llama-3.1-8B"], block_size=128)
            each = kvcache.blocks_per_sequence(int(printed[2]), layout)
            fits = memory.concurrency(answers["kv_blocks"], each)
            assert fits == pytest.approx(float(printed[1]), abs=0.005)
            tried += 1
    assert tried == 2


WEIGHTS_OFF = {
    "Llama-3.1-8B": 0.011,
    "Llama-3-8B": 0.001,
    "8B bf16": 0.007,
    "Llama-3.1-70B": 0.003,
    "Qwen2-7B": 0.002,
    "Qwen3-VL-32B-FP8": 0.05,
    "DeepSeek-R1-671B fp8": 0.002,
}
"""How far the estimate was from what these models' logs printed (docs/memory.md)."""


def test_weights_are_estimated_as_well_as_the_page_says(
    shared: Path, shapes: Mapping[str, ModelShape]
) -> None:
    shapes = {**shapes, "DeepSeek-R1-671B fp8": shapes["DeepSeek-R1"]}
    seen = set()
    for point in published(shared):
        layout = layout_of(point, shapes)
        printed = point.get("weights", point.get("weights_gb"))
        if layout is not None and printed is not None:
            ratio = layout.shape.weight_bytes(layout.tp) / (printed * GIB)
            assert 1 - WEIGHTS_OFF[point["model"]] < ratio < 1.001, (point, ratio)
            seen.add(point["model"])
    assert seen == set(WEIGHTS_OFF)
