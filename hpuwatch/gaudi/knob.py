"""What is told about a knob: an environment variable or a flag of the server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from hpuwatch.gaudi import checks
from hpuwatch.gaudi.checks import Check

Kind = Literal["env", "flag"]

ALL = "all"
YES = "true, t, 1, yes, y or on; everything else is false"


@dataclass(frozen=True, slots=True)
class Knob:
    """One environment variable or flag.

    Attributes:
        name: as it is set: ``VLLM_…``, ``PT_HPU_…`` or ``--flag``.
        kind: environment variable or flag of the server.
        group: memory, buckets, warm-up or restart.
        decides: what it decides, one or two sentences.
        defaults: (releases, value) for each default that it has had, newest first.
        legal: what may be set, in words.
        honoured: the releases that act on it.
        check: returns a complaint about a value, or None.
        beware: what surprises people, or nothing.
    """

    name: str
    kind: Kind
    group: str
    decides: str
    defaults: tuple[tuple[str, str], ...]
    legal: str
    honoured: str
    check: Check = checks.anything
    beware: str = ""

    def complaint(self, value: str) -> str | None:
        """Return what is wrong with ``value``, in a sentence, or None."""
        found = self.check(value)
        return None if found is None else f"{self.name}: {found}."
