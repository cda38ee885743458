"""The memory ledger as pieces that don't overlap."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpuwatch.state.model import Known, Memory
from hpuwatch.testing.snapshots import amount, full_memory, known
from hpuwatch.units import GIB, Amount
from hpuwatch.web.ledger import pieces

pytestmark = pytest.mark.unit


def sizes(memory: Memory, graphs: int | None) -> dict[str, int]:
    return {piece.key: piece.bytes for piece in pieces(memory, graphs)}


def test_the_pieces_of_a_known_card_make_the_card() -> None:
    memory = full_memory()
    assert memory.total is not None

    found = sizes(memory, 2 * GIB)

    # The figures are printed with four digits each.
    assert sum(found.values()) == pytest.approx(memory.total.value.bytes, abs=GIB // 50)
    assert found["graphs"] == 2 * GIB
    assert found["idle"] == pytest.approx(5.13 * GIB)
    assert found["held"] == pytest.approx(7.92 * GIB)


def test_until_graphs_are_known_the_reserve_is_one_piece() -> None:
    titles = {piece.key: piece.title for piece in pieces(full_memory(), None)}

    assert titles["idle"] == "graph reserve"
    assert "graphs" not in titles


def test_graphs_beyond_the_reserve_eat_what_was_held_back() -> None:
    found = sizes(full_memory(), 9 * GIB)

    assert "idle" not in found
    assert found["held"] == pytest.approx((7.92 - 1.87) * GIB)


def test_while_loading_the_rest_is_other() -> None:
    memory = Memory(total=amount("94.62 GiB"), weights=amount("15.05 GiB"))

    found = sizes(memory, None)

    assert set(found) == {"weights", "other"}
    assert found["other"] == pytest.approx(79.57 * GIB)


def test_nothing_known_is_no_piece() -> None:
    assert pieces(Memory(), None) == ()


AMOUNTS = st.none() | st.integers(-(2**38), 2**38).map(
    lambda count: known(Amount(count, f"{count} B"))
)


@settings(deadline=None)
@given(AMOUNTS, AMOUNTS, AMOUNTS, AMOUNTS, st.none() | st.integers(0, 2**38))
def test_odd_figures_never_make_a_negative_piece(
    total: Known[Amount] | None,
    free: Known[Amount] | None,
    usable: Known[Amount] | None,
    reserve: Known[Amount] | None,
    graphs: int | None,
) -> None:
    memory = replace(
        full_memory(), total=total, free=free, usable=usable, reserve=reserve
    )

    assert all(piece.bytes > 0 for piece in pieces(memory, graphs))
