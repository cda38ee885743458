"""How much of a log the rules know, record by record and level by level.

A record belongs to exactly one column: it *matched* a rule, is *known noise*, is part of a
*block* (a traceback, the lines of a prompt) whose own rule speaks for it, or is *unmatched*.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

from hpuwatch.parse import levels
from hpuwatch.parse.header import Record
from hpuwatch.parse.rules import NOISE, Match

LEVELS = (*levels.LEVELS, "none")
"""``none`` is for records without a header."""


@dataclass
class Coverage:
    """The records of one level."""

    matched: int = 0
    noise: int = 0
    block: int = 0
    unmatched: int = 0

    @property
    def records(self) -> int:
        """Return how many there were."""
        return self.matched + self.noise + self.block + self.unmatched

    def counts(self) -> dict[str, int]:
        """Return all numbers by name."""
        return {"records": self.records, **asdict(self)}


@dataclass
class Tally:
    """Counts what a parser made of each record.

    Attributes:
        levels: by level, in the order of ``LEVELS``.
    """

    levels: dict[str, Coverage] = field(
        default_factory=lambda: {level: Coverage() for level in LEVELS}
    )

    def count(
        self,
        record: Record,
        matches: Sequence[Match] = (),
        *,
        noise: bool = False,
        belongs: bool = False,
    ) -> None:
        """Count a record.

        Args:
            record: what was read.
            matches: the rules that know it.
            noise: its ending says that it means nothing.
            belongs: it is part of a block.
        """
        coverage = self.levels.get(record.level or "none", self.levels["none"])
        if noise or (matches and all(each.rule.event == NOISE for each in matches)):
            coverage.noise += 1
        elif matches:
            coverage.matched += 1
        elif belongs:
            coverage.block += 1
        else:
            coverage.unmatched += 1

    def total(self) -> Coverage:
        """Return all levels together."""
        sums: Counter[str] = Counter()
        for each in self.levels.values():
            sums.update(asdict(each))
        return Coverage(**sums)
