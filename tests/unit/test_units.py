"""Amounts are read and printed as the runtime prints them."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hpuwatch.units import GIB, counted, format_bytes, gib_amount, parse_amount

pytestmark = pytest.mark.unit


def test_one_is_no_plural() -> None:
    told = [counted(count, "card") for count in (0, 1, 2048)]
    assert told == ["0 cards", "1 card", "2,048 cards"]


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1024, "1024 B"),
        (1025, "1.001 KiB"),
        (65536, "64 KiB"),
        (1073741824, "1024 MiB"),
        (1073741825, "1 GiB"),
        (-8192, "-8 KiB"),
        (16 * 1024**2, "16 MiB"),
        (round(79.22 * GIB), "79.22 GiB"),
        (1007 * GIB, "1007 GiB"),
        (2000 * GIB, "1.953 TiB"),
    ],
)
def test_bytes_are_printed_with_four_digits(count: int, text: str) -> None:
    assert format_bytes(count) == text


@given(st.integers(-(10**14), 10**14))
@example(1301)
def test_what_was_printed_reads_back_within_its_four_digits(count: int) -> None:
    amount = parse_amount(format_bytes(count))
    assert amount.bytes == pytest.approx(count, rel=5.1e-4, abs=1)


def test_a_gb_line_means_gib() -> None:
    amount = gib_amount("34.7600")
    assert amount.bytes == round(34.76 * GIB)
    assert amount.printed == "34.7600 GiB"


@pytest.mark.parametrize("text", ["", "12", "12 GB", "x GiB", "12GiB"])
def test_another_spelling_is_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  float() words it
        parse_amount(text)
