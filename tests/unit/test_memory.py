"""The split of a card's memory obeys the identities of real logs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpuwatch.errors import ConfigError
from hpuwatch.gaudi.cards import CARDS, card_called, card_of_memory
from hpuwatch.gaudi.memory import (
    blocks_in,
    concurrency,
    free_after_load,
    ratio_holding,
    ratio_leaving,
    split,
    tokens_of,
)
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


def test_whole_blocks_only() -> None:
    assert blocks_in(9 * 16 * MIB + 1, 16 * MIB) == 9
    assert blocks_in(9 * 16 * MIB - 1, 16 * MIB) == 8


@given(st.integers(0, 200 * GIB), st.floats(0.01, 1), st.floats(0, 1.5))
def test_margin_and_usable_make_up_what_is_free(
    free: int, utilisation: float, ratio: float
) -> None:
    parts = split(free, utilisation, ratio)
    assert parts.margin_bytes + parts.usable_bytes == free
    assert parts.margin_bytes >= 0


@given(
    st.integers(GIB, 200 * GIB),
    st.floats(0.05, 1),
    st.floats(0, 0.99),
    st.floats(0, 0.99),
    st.integers(0, 64 * MIB),
)
def test_a_larger_reserve_never_leaves_more_cache(
    free: int, utilisation: float, one: float, other: float, dummy: int
) -> None:
    small, large = sorted((one, other))
    with_small = split(free, utilisation, small, dummy)
    with_large = split(free, utilisation, large, dummy)
    assert with_large.kv_cache_bytes <= with_small.kv_cache_bytes
    assert with_large.reserve_bytes >= with_small.reserve_bytes


@given(
    st.integers(GIB, 200 * GIB),
    st.floats(0.05, 1),
    st.floats(0, 1),
    st.integers(0, 64 * MIB),
    st.integers(MIB, 64 * MIB),
)
def test_the_reserve_that_leaves_so_many_blocks_is_the_largest_that_does(
    free: int, utilisation: float, share: float, dummy: int, block: int
) -> None:
    most = blocks_in(split(free, utilisation, 0, dummy).kv_cache_bytes, block)
    wanted = int(most * share)
    if split(free, utilisation, 0, dummy).kv_cache_bytes < 0:
        return

    def blocks(ratio: float) -> int:
        return split(free, utilisation, ratio, dummy).kv_cache_bytes // block

    ratio = ratio_leaving(wanted * block, free, utilisation, dummy)
    assert ratio >= 0
    assert blocks(ratio) >= wanted
    assert blocks(round(ratio + 0.001, 3)) < wanted


def test_the_reserve_of_a_public_log_is_found_again() -> None:
    free = round(79.22 * GIB)
    assert ratio_leaving(4106 * 16 * MIB, free, 0.9) == 0.1
    assert ratio_leaving(4518 * 16 * MIB, free, 0.9) == 0.009


def test_more_cache_than_there_is_memory_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"80 GiB doesn't fit into 71.3 GiB usable"):
        ratio_leaving(80 * GIB, round(79.22 * GIB), 0.9)
    with pytest.raises(ConfigError, match="even without a graph reserve"):
        ratio_leaving(0, -GIB, 0.9)


@given(st.integers(0, 100 * GIB), st.integers(GIB, 100 * GIB))
def test_the_reserve_that_holds_so_much_is_the_smallest_that_does(
    wanted: int, usable: int
) -> None:
    ratio = ratio_holding(wanted, usable)
    assert ratio * usable >= wanted - 1
    assert (ratio - 0.001) * usable < wanted + 1


def test_what_is_free_is_what_weights_and_profile_run_leave() -> None:
    free = free_after_load(round(94.62 * GIB), round(32.95 * GIB), round(3.439 * GIB))
    assert format_bytes(free) == "58.23 GiB"
    assert free_after_load(30 * GIB, 33 * GIB) == -3 * GIB


def test_tokens_and_sequences_that_a_cache_holds() -> None:
    assert tokens_of(3662, 128) == 468736
    assert f"{concurrency(1189, 256):.2f}" == "4.64"


def test_a_card_is_told_by_its_memory() -> None:
    told = {
        gib: card_of_memory(round(gib * GIB)) for gib in (30.15, 93.55, 94.62, 126.5)
    }
    assert list(told.values()) == ["gaudi", "gaudi2", "gaudi2", "gaudi3"]
    assert card_of_memory(80 * GIB) is None


def test_every_card_is_told_by_label_and_by_print() -> None:
    for card in CARDS.values():
        assert card_called(card.name.upper()) is card
        assert card_of_memory(card.total_bytes) == card.name
        assert card_of_memory(card.nominal_bytes) == card.name
        assert card.total_bytes < card.nominal_bytes


def test_an_unknown_card_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"no card 'h100', choose from gaudi, gaudi2"):
        card_called("h100")
