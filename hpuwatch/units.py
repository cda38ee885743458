"""Amounts as the runtime prints them.

The runtime divides by 1024 until the absolute value is at most 1024 and prints four
significant digits (``%.4g``) with B, KiB, MiB, GiB or TiB.  An :class:`Amount` keeps the
printed text beside the number, since the number is only as good as its four digits.
Lines that say "GB" print bytes divided by 2**30: they are GiB under another name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import floor, log10

KIB = 1024
MIB = 1024**2
GIB = 1024**3
TIB = 1024**4

_FACTORS = {"B": 1, "KiB": KIB, "MiB": MIB, "GiB": GIB, "TiB": TIB}
_STEPS = ("B", "KiB", "MiB", "GiB", "TiB")


@dataclass(frozen=True, slots=True)
class Amount:
    """A number of bytes and the text it was printed as."""

    bytes: int
    printed: str


def parse_amount(text: str) -> Amount:
    """Read an amount like ``71.5 GiB`` or ``-8 KiB``.

    Raises:
        ValueError: the text is not a number, a space and an IEC unit.
    """
    number, _, unit = text.strip().partition(" ")
    if unit not in _FACTORS:
        raise ValueError(f"{text!r} is not an amount like '71.5 GiB'")
    return Amount(round(float(number) * _FACTORS[unit]), text.strip())


def rounding_bytes(amount: Amount) -> float:
    """Return how far an amount may be from what it was: half of its fourth digit."""
    number, _, unit = amount.printed.partition(" ")
    value = abs(float(number))
    if value == 0:
        return 0.0
    return _FACTORS[unit] * 10.0 ** (floor(log10(value)) - 3) / 2


def gib_amount(text: str) -> Amount:
    """Read the number of a "took X GB" line, which is GiB (bytes / 2**30)."""
    return Amount(round(float(text) * GIB), f"{text.strip()} GiB")


def counted(count: int, noun: str) -> str:
    """Print how many there are of something: ``1 card``, ``2,048 cards``."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def in_a_row(words: Sequence[str]) -> str:
    """Print words as a sentence lists them: ``a, b and c``."""
    *most, last = words
    return f"{', '.join(most)} and {last}" if most else last


def format_bytes(count: float) -> str:
    """Print bytes as the runtime does: ``%.4g`` and an IEC unit."""
    value = float(count)
    for unit in _STEPS[:-1]:
        if abs(value) <= KIB:
            return f"{value:.4g} {unit}"
        value /= KIB
    return f"{value:.4g} TiB"
