"""A finding: what was seen, with numbers and the lines that it rests on.

A check looks at a :class:`Case` and returns a :class:`Sighting`: figures, lines, and which
sentences of its kind hold.  The sentences themselves stand in the catalogue
(``rules/advise``), so that code decides and data speaks; ``catalogue.told`` puts the two
together to a :class:`Finding`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hpuwatch.gaudi.estimate import Estimate, Origin, weakest
from hpuwatch.records import Line
from hpuwatch.state.model import Start

INFO, WARNING, ERROR = "info", "warning", "error"
SEVERITIES = (INFO, WARNING, ERROR)
"""From harmless to grave."""


@dataclass(frozen=True, slots=True)
class Case:
    """What a check may look at.

    Attributes:
        start: the life of the server that is judged.
        earlier: the starts before it in its log, oldest first.
        limits: the thresholds of the check's kind, by name.
        before: starts of other logs, older than those.
    """

    start: Start
    earlier: tuple[Start, ...] = ()
    limits: Mapping[str, float] = field(default_factory=dict)
    before: tuple[Start, ...] = ()

    @property
    def history(self) -> tuple[Start, ...]:
        """Return all starts that it can be compared with, oldest first."""
        return (*self.before, *self.earlier)


@dataclass(frozen=True, slots=True)
class Sighting:
    """What a check saw.

    Attributes:
        title: name of the sentence with the figures that matter.
        why: names of the sentences that say what it means, in order.
        cure: names of the sentences that say what to do; none for nothing.
        numbers: every figure, its unit in the name.
        figures: figures that no line prints, with their intervals; units in the names.
        words: what else the sentences need.
        lines: what it rests on, in the log's order.
        severity: where it differs from the kind's usual one.
        aspect: which of the kind's cases it is, for the knobs that help only in one.
    """

    title: str = "title"
    why: tuple[str, ...] = ("why",)
    cure: tuple[str, ...] = ("cure",)
    numbers: Mapping[str, float | str] = field(default_factory=dict)
    figures: Mapping[str, Estimate] = field(default_factory=dict)
    words: Mapping[str, object] = field(default_factory=dict)
    lines: tuple[Line, ...] = ()
    severity: str | None = None
    aspect: str = ""


@dataclass(frozen=True, slots=True)
class Lever:
    """A knob, and what moving it does against a finding.

    Attributes:
        knob: a variable or a flag, as ``gaudi.knobs`` names it.
        change: what to do with it: ``raise``, ``lower``, ``set …``; of a knob that can't
            help: what people try.
        why: why it helps, or why it can't.
    """

    knob: str
    change: str
    why: str


@dataclass(frozen=True, slots=True)
class Finding:
    """A sighting under the code of its kind, told in sentences.

    Attributes:
        code: stable, as ``HPW101``.
        name: the same in words, as ``reserve-idle``.
        title: one sentence with the figures that matter.
        why: what it means.
        cure: what to do; empty for nothing.
        numbers: every figure, its unit in the name.
        lines: what it rests on, in the log's order.
        figures: figures that no line prints, with their intervals.
        helps: the knobs that can help, those that do most first.
        cannot_help: knobs that people reach for, and that change nothing or harm.
    """

    code: str
    name: str
    severity: str
    title: str
    why: str
    cure: str = ""
    numbers: Mapping[str, float | str] = field(default_factory=dict)
    lines: tuple[Line, ...] = ()
    figures: Mapping[str, Estimate] = field(default_factory=dict)
    helps: tuple[Lever, ...] = ()
    cannot_help: tuple[Lever, ...] = ()

    @property
    def origin(self) -> Origin:
        """Return how surely its figures are known: as the weakest of them."""
        return weakest(each.origin for each in self.figures.values())


_NO_CAUSE = frozenset({"not-ready", "warmup-long"})
"""Findings that say what is, and not why: with another one as grave, that leads."""


def gravest(findings: Sequence[Finding]) -> Finding | None:
    """Return the finding to act upon: of the gravest, one that tells a cause.

    Args:
        findings: the gravest first.
    """
    first = next(iter(findings), None)
    if first is None or first.name not in _NO_CAUSE:
        return first
    same = (each for each in findings if each.severity == first.severity)
    return next((each for each in same if each.name not in _NO_CAUSE), first)
