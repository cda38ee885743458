"""The Gaudi cards: what is on the label, and what the runtime prints of it.

The label counts more than the runtime finds: some of the memory is kept by the card.  The
printed totals are those of public logs; one gaudi2 printed 93.55 GiB instead.  A log that
doesn't name its card is told by its total.
"""

from __future__ import annotations

from dataclasses import dataclass

from hpuwatch.errors import ConfigError
from hpuwatch.units import GIB


@dataclass(frozen=True, slots=True)
class GaudiCard:
    """One kind of card.

    Attributes:
        name: as the runtime spells it.
        nominal_bytes: the memory on its label.
        total_bytes: the memory that the runtime prints.
        least_bytes: the smallest total that tells this card.
        most_bytes: the largest one.
    """

    name: str
    nominal_bytes: int
    total_bytes: int
    least_bytes: int
    most_bytes: int


CARDS = {
    card.name: card
    for card in (
        GaudiCard("gaudi", 32 * GIB, int(30.15 * GIB), 28 * GIB, 34 * GIB),
        GaudiCard("gaudi2", 96 * GIB, int(94.62 * GIB), 90 * GIB, 98 * GIB),
        GaudiCard("gaudi3", 128 * GIB, int(126.5 * GIB), 120 * GIB, 130 * GIB),
    )
}


def card_called(name: str) -> GaudiCard:
    """Return the card of a name.

    Raises:
        ConfigError: there is no such card.
    """
    card = CARDS.get(name.lower())
    if card is None:
        raise ConfigError(f"there is no card {name!r}, choose from {', '.join(CARDS)}")
    return card


def card_of_memory(total_bytes: int) -> str | None:
    """Return the name of the card with so much memory, None where no one card has it."""
    found = (
        card.name
        for card in CARDS.values()
        if card.least_bytes <= total_bytes <= card.most_bytes
    )
    return next(found, None)
