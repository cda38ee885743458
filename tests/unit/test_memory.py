"""The split of a card's memory obeys the identities of real logs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpuwatch.gaudi.memory import blocks_in, kv_block_bytes, split
from hpuwatch.units import GIB, MIB, format_bytes

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("free", "utilisation", "ratio", "dummy", "usable", "reserve", "cache"),
    [
        (82.7, 0.75, 0.4, 32, "62.02 GiB", "24.81 GiB", "37.18 GiB"),
        (79.22, 0.9, 0.1, 0, "71.3 GiB", "7.13 GiB", "64.17 GiB"),
        (79.51, 0.8, 0.1, 16, "63.61 GiB", "6.361 GiB", "57.23 GiB"),
        (58.23, 0.9, 0.1, 0, "52.41 GiB", "5.241 GiB", "47.17 GiB"),
        (79.16, 0.5, 0.4, 0, "39.58 GiB", "15.83 GiB", "23.75 GiB"),
        (74.25, 0.9, 0.4, 0, "66.82 GiB", "26.73 GiB", "40.09 GiB"),
    ],
)
def test_printed_splits(
    free: float,
    utilisation: float,
    ratio: float,
    dummy: int,
    usable: str,
    reserve: str,
    cache: str,
) -> None:
    parts = split(round(free * GIB), utilisation, ratio, dummy * MIB)
    assert format_bytes(parts.usable_bytes) == usable
    assert format_bytes(parts.reserve_bytes) == reserve
    assert format_bytes(parts.kv_cache_bytes) == cache


@given(
    st.integers(0, 200 * GIB),
    st.floats(0.01, 1),
    st.floats(0, 0.99),
    st.integers(0, 64 * MIB),
)
def test_the_parts_make_up_what_is_usable(
    free: int, utilisation: float, ratio: float, dummy: int
) -> None:
    parts = split(free, utilisation, ratio, dummy)
    assert 0 <= parts.reserve_bytes <= parts.usable_bytes <= free
    together = parts.reserve_bytes + parts.kv_cache_bytes + dummy
    assert abs(together - parts.usable_bytes) <= 2


def test_a_reserve_above_one_leaves_less_than_nothing() -> None:
    parts = split(80 * GIB, 0.9, 1.2, 0)
    assert parts.kv_cache_bytes < 0
    assert blocks_in(parts.kv_cache_bytes, 16 * MIB) == 0


def test_blocks_of_a_model_with_8_billion_weights() -> None:
    block = kv_block_bytes(
        layers=32, kv_heads=8, head_dim=128, block_size=128, dtype_bytes=2
    )
    assert block == 16 * MIB
    assert blocks_in(round(64.17 * GIB), block) == 4106
    assert blocks_in(block * 9 + block - 1, block) == 9
