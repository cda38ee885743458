"""The catalogue of findings: text, severity, thresholds and sources of each kind, as data.

``rules/advise/*.yaml`` declares them; ``app.catalogue`` reads the files and passes them in.
A kind has sentences by name, of which its check chooses; they are ``str.format`` templates
over the sighting's numbers and words, with three formats of our own: ``{x_bytes:bytes}``,
``{x_bytes:about}`` (one decimal of a GiB) and ``{x_seconds:lasting}`` (minutes, hours).
"""

from __future__ import annotations

import string
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from hpuwatch.advise.ages import lasting
from hpuwatch.advise.figures import about
from hpuwatch.advise.finding import Finding, Lever, Sighting
from hpuwatch.gaudi.severity import Severity
from hpuwatch.units import format_bytes

_AMOUNTS = {"bytes": format_bytes, "about": about, "lasting": lasting}


Acts = Callable[[str], bool]
"""Tells whether a knob acts in the server that is spoken of."""


def _anything(_knob: str) -> bool:
    return True


class Row(BaseModel):
    """A row of the table of knobs: what one does against a kind of finding.

    Attributes:
        knob: a variable or a flag, as ``gaudi.knobs`` names it.
        change: what to do with it, or what people try.
        why: why it helps, or why it can't.
        only: the aspect of the kind for which that holds; empty for all.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    knob: str
    change: str
    why: str
    only: str = ""

    def lever(self) -> Lever:
        """Return it as a finding carries it."""
        return Lever(self.knob, self.change, self.why)


class Kind(BaseModel):
    """A kind of finding.

    Attributes:
        code: stable, for scripts: ``HPW101``.
        name: stable too, in words: ``reserve-idle``; its check has the same name.
        severity: the usual one; a check may say otherwise for one case.
        when: what makes it appear.
        then: what helps.
        evidence: what a log must show before it is said.
        formula: how its figures are worked out; empty where it only quotes.
        limits: thresholds, by name, with their units.
        sources: where the meaning, the formula or the thresholds come from.
        example: a sentence that it may say.
        says: the sentences, by name.
        helps: the knobs that can help, those that do most first.
        cannot_help: knobs that people reach for, and that change nothing or harm.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    code: str = Field(pattern=r"^HPW\d{3}$")
    name: str = Field(pattern=r"^[a-z]+(-[a-z]+)*$")
    severity: Severity
    when: str
    then: str
    evidence: str
    formula: str = ""
    limits: dict[str, float] = Field(default_factory=dict)
    sources: list[str] = Field(default_factory=list)
    example: str
    says: dict[str, str]
    helps: list[Row] = Field(default_factory=list)
    cannot_help: list[Row] = Field(default_factory=list)

    def told(self, seen: Sighting, acts: Acts = _anything) -> Finding:
        """Put a sighting into words.

        Args:
            seen: what its check saw.
            acts: tells whether a knob acts in the server; others are not spoken of.
        """
        values = {
            **{name: each.value for name, each in seen.figures.items()},
            **seen.numbers,
            **seen.words,
        }
        title, why, cure = (
            " ".join(
                filter(
                    None, (_SENTENCES.vformat(self.says[n], (), values) for n in names)
                )
            )
            for names in ((seen.title,), seen.why, seen.cure)
        )
        return Finding(
            code=self.code,
            name=self.name,
            severity=seen.severity or self.severity,
            title=title,
            why=why,
            cure=cure,
            numbers=seen.numbers,
            lines=seen.lines,
            figures=seen.figures,
            helps=_levers(self.helps, seen.aspect, acts),
            cannot_help=_levers(self.cannot_help, seen.aspect, acts),
        )


def _levers(rows: Iterable[Row], aspect: str, acts: Acts) -> tuple[Lever, ...]:
    """Return the rows that hold for an aspect, of knobs that act."""
    return tuple(
        row.lever() for row in rows if row.only in ("", aspect) and acts(row.knob)
    )


class Family(BaseModel):
    """One file of the catalogue: what its findings have in common, and they themselves."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    family: str
    about: str
    findings: list[Kind]


class Catalogue:
    """All kinds, in the order of their codes."""

    def __init__(self, families: Iterable[Family]) -> None:
        """Take the families, in the order in which documents show them.

        Raises:
            ValueError: two kinds share a code or a name.
        """
        self.families = tuple(families)
        kinds = [kind for family in self.families for kind in family.findings]
        self.kinds = tuple(sorted(kinds, key=lambda kind: kind.code))
        self._by_name: Mapping[str, Kind] = {
            name: kind for kind in self.kinds for name in (kind.code, kind.name)
        }
        if len(self._by_name) != 2 * len(self.kinds):
            raise ValueError("two findings share a code or a name")

    def kind(self, name: str) -> Kind | None:
        """Return the kind of that code or name."""
        return self._by_name.get(name) or self._by_name.get(name.upper())

    def documentation(self) -> str:
        """Return the tables as markdown, for the documentation.

        A family whose findings tell which knobs can help has a second table for that.
        """
        parts = []
        for family in self.families:
            rows = [f"## {family.family}", "", family.about, ""]
            rows += [
                "| code | name | severity | when | what helps |",
                "|---|---|---|---|---|",
            ]
            rows += [
                f"| `{kind.code}` | `{kind.name}` | {kind.severity} | {kind.when} "
                f"| {kind.then} |"
                for kind in sorted(family.findings, key=lambda kind: kind.code)
            ]
            rows += _documented(family.findings)
            parts.append("\n".join(rows))
        return "\n\n".join(parts) + "\n"


def _documented(kinds: Iterable[Kind]) -> list[str]:
    """Return the table of the knobs of some kinds, nothing where none has any."""
    rows = [
        f"| `{kind.code}`{f' ({row.only})' if row.only else ''} | {verdict} "
        f"| {row.change} `{row.knob}` | {row.why} |"
        for kind in kinds
        for verdict, listed in (("helps", kind.helps), ("can't help", kind.cannot_help))
        for row in listed
    ]
    if not rows:
        return []
    return ["", "| code | | knob | why |", "|---|---|---|---|", *rows]


class _Sentences(string.Formatter):
    def format_field(self, value: Any, format_spec: str) -> str:
        if format_spec in _AMOUNTS:
            return _AMOUNTS[format_spec](value)
        return str(super().format_field(value, format_spec))


_SENTENCES = _Sentences()
