"""What is told about knobs that don't go together.

A conflict holds for some releases and when all of its conditions do.  It is told of the
knob of its first condition, which has to be set by somebody; the others may hold by
default.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from hpuwatch.gaudi.severity import Severity

Test = Literal["set", "unset", "given", "on", "off", "several", "equals", "differs"]


@dataclass(frozen=True, slots=True)
class If:
    """One condition: what has to be the case with any of some knobs.

    Attributes:
        knobs: names, of which one is enough.
        test: ``set`` or ``unset``: whether anybody sets it; ``given``: set, and it reads
            as yes; ``on`` or ``off``: it comes to yes or no, by default too; ``several``:
            a number above 1; ``equals`` or ``differs``: set or default, it is one of
            ``values``, or none.
        values: what ``equals`` and ``differs`` compare with.
    """

    knobs: tuple[str, ...]
    test: Test
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Conflict:
    """Knobs that don't go together, or one that does something unexpected.

    Attributes:
        code: stable, for scripts; rows that say the same share one.
        severity: ``error`` where the server stops or breaks, ``warning`` or ``info``.
        releases: where it holds, as ``gaudi.spans`` writes it.
        when: the conditions.
        happens: what the server does, a sentence.
        cure: what to do, a sentence.
    """

    code: str
    severity: Severity
    releases: str
    when: tuple[If, ...]
    happens: str
    cure: str

    @property
    def knobs(self) -> tuple[str, ...]:
        """Every knob that it speaks of."""
        return tuple(name for condition in self.when for name in condition.knobs)
