"""``hpuwatch explain NAME``: what a name means, from the tables that declare it.

One name may stand in several tables: ``warmup-oom`` is a finding, ``warming`` a phase,
``fault`` an event.  Nothing is told here that isn't in a table.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from hpuwatch.advise.catalogue import Row
from hpuwatch.advise.lint.kinds import LINT_KINDS
from hpuwatch.advise.page.glossary import WORDS, word_of
from hpuwatch.app.catalogue import shipped_findings
from hpuwatch.app.rules import shipped_rules
from hpuwatch.errors import UsageError
from hpuwatch.gaudi.knobs import KNOBS, named
from hpuwatch.gaudi.terms import CAUTIONS, FIGURES, REFUSALS
from hpuwatch.life.machine import TRANSITIONS
from hpuwatch.life.phases import Phase
from hpuwatch.loop.reason import PHASE_WORDS
from hpuwatch.metrics.catalogue import METRICS
from hpuwatch.parse.parser import UNKNOWN_EXCEPTION
from hpuwatch.parse.rules import FAULT, Rule

_NEAREST = 3
_LIKE = 0.5  # how alike a name must be to be offered
_QUOTES = "none: its figures are those of the lines"
_FORM = "the form of the log itself, as the releases' own sources print it"
_WORDS = {
    "refusal of predict": REFUSALS,
    "caution of predict": CAUTIONS,
    "word": FIGURES,
}
"""What each table of sentences by name holds."""


class Meaning(BaseModel):
    """What a name means in one table; ``facts`` are its columns."""

    model_config = ConfigDict(frozen=True)

    kind: str
    text: str
    facts: dict[str, Any] = Field(default_factory=dict)


class Explanation(BaseModel):
    """The document ``hpuwatch.explain/1``."""

    model_config = ConfigDict(frozen=True, populate_by_name=True)

    schema_: str = Field("hpuwatch.explain/1", alias="schema")
    name: str
    meanings: list[Meaning]


def explain(name: str, rules_path: Path | None = None) -> Explanation:
    """Return everything that a name means.

    Raises:
        UsageError: no table knows it; the nearest names are told.
        ConfigError: the rules can't be read.
    """
    if not name.strip():
        raise UsageError(
            "explain needs a name: an event, fault, finding, knob or metric"
        )
    rules = shipped_rules(rules_path).rules
    meanings = [*_found(name, rules)] or [*_found(name.replace("-", "_"), rules)]
    if meanings:
        return Explanation(name=name, meanings=meanings)
    by_letters = {each.lower(): each for each in _names(rules)}
    found = difflib.get_close_matches(name.lower(), by_letters, _NEAREST, _LIKE)
    near = [by_letters[letters] for letters in found]
    hint = f": did you mean {', '.join(near)}?" if near else ""
    raise UsageError(
        f"{name!r} is no event, fault, finding, knob, metric, word or phase{hint}"
    )


def _found(name: str, rules: tuple[Rule, ...]) -> Iterator[Meaning]:
    yield from _event(name, rules)
    yield from _fault(name, rules)
    yield from _finding(name)
    yield from _knob(name)
    yield from _metric(name)
    yield from _phase(name)
    for kind, words in _WORDS.items():
        if name in words:
            yield Meaning(kind=kind, text=words[name])
    word = word_of(name)
    if word is not None and name not in FIGURES:
        yield Meaning(kind="word", text=f"{word.meaning[0].upper()}{word.meaning[1:]}")


def _names(rules: tuple[Rule, ...]) -> list[str]:
    named_by_rules = {name for rule in rules for name in (rule.event, _class_of(rule))}
    return sorted(
        {
            *filter(None, named_by_rules),
            UNKNOWN_EXCEPTION,
            *(n for kind in shipped_findings().kinds for n in (kind.code, kind.name)),
            *(kind.code for kind in LINT_KINDS),
            *KNOBS,
            *(metric.name for metric in METRICS),
            *(phase.value for phase in Phase),
            *(name for words in _WORDS.values() for name in words),
            *(word.name for word in WORDS),
        }
    )


def _class_of(rule: Rule) -> str:
    if rule.event != FAULT:
        return ""
    return str(rule.text.constants.get("name", ""))


def _event(name: str, rules: tuple[Rule, ...]) -> Iterator[Meaning]:
    mine = [rule for rule in rules if rule.event == name]
    if mine:
        told = f"A sentence of the log, known by {_count(mine)}."
        yield Meaning(kind="event", text=told, facts={"rules": _rules(mine)})


def _fault(name: str, rules: tuple[Rule, ...]) -> Iterator[Meaning]:
    if name == UNKNOWN_EXCEPTION:
        told = "An exception that no fault rule knows; its own words tell more."
        yield Meaning(kind="fault", text=told)
    mine = [rule for rule in rules if _class_of(rule) == name]
    if mine:
        told = f"A fault that the log shows, known by {_count(mine)}."
        yield Meaning(kind="fault", text=told, facts={"rules": _rules(mine)})


def _count(rules: list[Rule]) -> str:
    patterns = sum(len(rule.templates) for rule in rules)
    many = [f"{len(rules)} rule{'s' * (len(rules) > 1)}"]
    many.append(f"{patterns} pattern{'s' * (patterns > 1)}")
    return " with ".join(many)


def _rules(rules: list[Rule]) -> list[dict[str, Any]]:
    return [
        {
            "where": Path(rule.where).name,
            "severity": rule.text.severity,
            "releases": rule.text.releases,
            "fields": _fields(rule),
            "set": dict(rule.text.constants),
            "patterns": list(rule.text.patterns),
            "example": next((each.line for each in rule.text.examples), None),
        }
        for rule in rules
    ]


def _fields(rule: Rule) -> list[str]:
    inner = [template for each in rule.inside.values() for template in each]
    names = [name for each in (*rule.templates, *inner) for name in each.types]
    return [name for name in dict.fromkeys(names) if name[0] != "_"]


def _finding(name: str) -> Iterator[Meaning]:
    kind = shipped_findings().kind(name)
    if kind is not None:
        facts = {
            "also called": kind.name if name.upper() == kind.code else kind.code,
            "severity": kind.severity,
            "what helps": kind.then,
            "evidence needed": kind.evidence,
            "formula": kind.formula or _QUOTES,
            "thresholds": {name: f"{at:g}" for name, at in kind.limits.items()},
            "sources": list(kind.sources) or [_FORM],
            "example": kind.example,
            "can help": _levers(kind.helps),
            "can't help": _levers(kind.cannot_help),
        }
        facts = {name: fact for name, fact in facts.items() if fact}
        yield Meaning(kind="finding", text=kind.when, facts=facts)
    for lint in LINT_KINDS:
        if lint.code == name:
            facts = {"severity": lint.severity}
            yield Meaning(kind="finding of lint", text=lint.when, facts=facts)


def _levers(rows: list[Row]) -> list[str]:
    return [
        f"{row.change} {row.knob}{f' ({row.only})' if row.only else ''}: {row.why}"
        for row in rows
    ]


def _knob(name: str) -> Iterator[Meaning]:
    as_flag = f"--{name.lower().replace('_', '-')}"
    knob = named(name) or named(name.upper()) or KNOBS.get(as_flag)
    if knob is not None:
        facts = {
            "belongs to": "" if knob.name == name else knob.name,
            "default": dict(knob.rows),
            "legal": knob.legal,
            "honoured by": knob.honoured,
            "refused by": "" if knob.refused == "none" else knob.refused,
            "beware": knob.beware,
            "now called": knob.successor,
        }
        known = {key: value for key, value in facts.items() if value}
        yield Meaning(kind="knob", text=knob.decides, facts=known)


def _metric(name: str) -> Iterator[Meaning]:
    for metric in METRICS:
        if metric.name == name:
            facts = {"type": metric.kind.value, "labels": list(metric.labels)}
            yield Meaning(kind="metric", text=metric.help, facts=facts)


def _phase(name: str) -> Iterator[Meaning]:
    for phase in Phase:
        if phase.value == name:
            moves = [(old, new) for (old, _), new in TRANSITIONS.items()]
            facts = {
                "reached from": [old.value for old in Phase if (old, phase) in moves],
                "leads to": [new.value for new in Phase if (phase, new) in moves],
            }
            words = PHASE_WORDS[phase]
            yield Meaning(
                kind="phase", text=f"{words[0].upper()}{words[1:]}.", facts=facts
            )
