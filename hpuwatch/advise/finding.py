"""A finding: what was seen, with numbers and the lines that it rests on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from hpuwatch.records import Line

INFO, WARNING, ERROR = "info", "warning", "error"
SEVERITIES = (INFO, WARNING, ERROR)
"""From harmless to grave."""


@dataclass(frozen=True, slots=True)
class Sighting:
    """What a check saw.

    Attributes:
        title: one sentence with the figures that matter.
        why: what it means.
        cure: what to do; empty for nothing.
        numbers: every figure, its unit in the name.
        lines: what it rests on, in the log's order.
        severity: where it differs from the kind's usual one.
    """

    title: str
    why: str
    cure: str = ""
    numbers: Mapping[str, float | str] = field(default_factory=dict)
    lines: tuple[Line, ...] = ()
    severity: str | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """A sighting under the code of its kind."""

    code: str
    severity: str
    seen: Sighting
