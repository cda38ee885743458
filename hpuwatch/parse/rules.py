"""Rules as data: which sentence of the log means what.

A rule file (``rules/parse/SPEAKER.yaml``) holds one speaker's rules.  A rule names the event,
gives patterns (:mod:`hpuwatch.parse.template`), constants, and the examples that prove it::

    config_version: 1
    rules:
      - event: warmup_finished
        patterns:
          - "Warmup finished in {s:seconds} secs, allocated {mem:bytes} of device memory"
        examples:
          - line: "INFO 08-02 17:38:43 runner.py:1] Warmup finished in 49 secs, allocated …"
            fields: {s: 49, mem: 12.5 GiB}

A :class:`RuleSet` answers for a message: which patterns match.  A look at its words passes
over the lines that nobody knows; the patterns whose literal is there are tried, and the longest
match wins (of equal ones that with more plain text), so that the order of rules and files
means nothing.  Faults are matched beside the other
rules: a line may be both a sentence of the engine and the sign of a fault.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, TypeAlias

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from hpuwatch.errors import RuleError
from hpuwatch.events import Value
from hpuwatch.parse.template import Template, compile_template, single_blanks

FAULT = "fault"
NOISE = "noise"
"""Event of rules for sentences that are known and mean nothing: no event comes of them."""

_SHORTEST_LITERAL = 3
_LONGEST = 16_000  # characters of a message that are read, lists of buckets apart
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

Severity = Literal["info", "warning", "error", "fatal"]
Constant = str | int | float | bool


class Example(BaseModel):
    """A line that a rule must match, and some of the values that it must give."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    line: str
    fields: dict[str, Any] = Field(default_factory=dict)


class RuleText(BaseModel):
    """One rule as it stands in a file."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    event: str = Field(pattern=r"^[a-z][a-z0-9_]*$")
    patterns: tuple[str, ...] = Field(min_length=1)
    severity: Severity = "info"
    literals: tuple[str, ...] = ()
    types: dict[str, str] = Field(default_factory=dict)
    constants: dict[str, Constant] = Field(default_factory=dict, alias="set")
    whole: bool = False
    files: tuple[str, ...] = ()
    inside: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    releases: str = ""
    examples: tuple[Example, ...] = ()
    near_misses: tuple[str, ...] = ()


class RuleFile(BaseModel):
    """A rule file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    config_version: Literal[1]
    rules: tuple[RuleText, ...]


@dataclass(frozen=True, eq=False)
class Rule:
    """A rule ready for use; ``where`` is its file and line."""

    text: RuleText
    templates: tuple[Template, ...]
    inside: Mapping[str, tuple[Template, ...]]
    where: str

    @property
    def event(self) -> str:
        """Return the kind of event that the rule makes."""
        return self.text.event


Candidate: TypeAlias = "tuple[Rule, Template]"


@dataclass(frozen=True, slots=True)
class Match:
    """A rule and the pattern of it that matched, with constants and captured fields.

    ``weight`` is the length of what matched and how much of it is plain text.
    """

    rule: Rule
    template: Template
    fields: dict[str, Value]
    weight: tuple[int, int]


@dataclass(frozen=True, eq=False)
class RuleSet:
    """All rules in force."""

    rules: tuple[Rule, ...]

    def candidates(self, message: str, file: str | None = None) -> list[Candidate]:
        """Return the patterns whose literal stands in the message.

        Args:
            message: the message without its header.
            file: base name of the source file in the header, or None.
        """
        message = single_blanks(message)
        found = list(self._by_file.get(file, ())) if file else []
        for literal, entries in self._short:
            if literal in message:
                found += entries
        for word in self._words.intersection(message.split(" ")):
            for literal, entries in self._by_word[word]:
                if literal in message:
                    found += entries
        return found

    @staticmethod
    def match(message: str, candidates: Iterable[Candidate]) -> tuple[Match, ...]:
        """Return the best ordinary match and the best fault, where there are any."""
        best: dict[bool, Match] = {}
        for rule, template in candidates:
            found = template.match(message if template.lists else message[:_LONGEST])
            if found is None:
                continue
            is_fault = rule.event == FAULT
            weight = (found[0], template.plain)
            if is_fault not in best or weight > best[is_fault].weight:
                best[is_fault] = Match(rule, template, found[1], weight)
        return tuple(_completed(match) for match in best.values())

    @cached_property
    def _by_literal(self) -> dict[str, list[Candidate]]:
        table: dict[str, list[Candidate]] = {}
        for rule in self.rules:
            if rule.text.files:
                continue
            for template in rule.templates:
                for literal in rule.text.literals or (template.literal,):
                    table.setdefault(literal, []).append((rule, template))
        return table

    @cached_property
    def _by_file(self) -> dict[str, list[Candidate]]:
        table: dict[str, list[Candidate]] = {}
        for rule in self.rules:
            for file in rule.text.files:
                table.setdefault(file, []).extend((rule, t) for t in rule.templates)
        return table

    @cached_property
    def _by_word(self) -> dict[str, list[tuple[str, list[Candidate]]]]:
        """Literals by a word that stands between blanks in them.

        Such a word is one of the message's words whenever the literal stands in it, so
        one intersection of sets passes over nearly all rules.
        """
        table: dict[str, list[tuple[str, list[Candidate]]]] = {}
        for literal, entries in self._by_literal.items():
            if word := _inner_word(literal):
                table.setdefault(word, []).append((literal, entries))
        return table

    @cached_property
    def _words(self) -> frozenset[str]:
        return frozenset(self._by_word)

    @cached_property
    def _short(self) -> list[tuple[str, list[Candidate]]]:
        """Return the literals that hold no whole word."""
        found = self._by_literal.items()
        return [(text, entries) for text, entries in found if not _inner_word(text)]


def _inner_word(literal: str) -> str:
    """Return the longest word between two blanks, or the empty text."""
    return max(literal.split(" ")[1:-1], key=len, default="")


def _completed(match: Match) -> Match:
    """Add the rule's constants and the values that stand inside other fields.

    A field whose name begins with an underscore serves only that purpose.
    """
    fields: dict[str, Value] = dict(match.rule.text.constants)
    fields.update(match.fields)
    for outer, templates in match.rule.inside.items():
        text = fields.get(outer)
        if isinstance(text, str):
            for template in templates:
                found = template.match(text)
                if found is not None:
                    fields.update(found[1])
    visible = {name: value for name, value in fields.items() if name[0] != "_"}
    return replace(match, fields=visible)


def load_rules(documents: Mapping[str, str]) -> RuleSet:
    """Read rule files (name to YAML text).

    Raises:
        RuleError: at least one file is wrong; the message lists every mistake with its
            file and line.
    """
    mistakes: list[str] = []
    rules: list[Rule] = []
    for name, text in documents.items():
        for item in _read_file(name, text):
            if isinstance(item, Rule):
                rules.append(item)
            else:
                mistakes.append(item)
    if mistakes:
        raise RuleError("the log rules are wrong:\n  " + "\n  ".join(mistakes))
    return RuleSet(tuple(rules))


def _read_file(name: str, text: str) -> Iterator[Rule | str]:
    """Yield the rules of a file and the mistakes in it."""
    try:
        document = yaml.load(text, Loader=_LOADER)  # noqa: S506  a safe loader, in C
    except (
        yaml.YAMLError,
        ValueError,
    ) as error:  # a date like 2001-99-99 is the latter
        mark = getattr(error, "problem_mark", None)
        line = mark.line + 1 if mark else 1
        yield f"{name}:{line}: no YAML: {getattr(error, 'problem', None) or error}"
        return
    try:
        file = RuleFile.model_validate(document)
    except ValidationError as error:
        lines = _Lines(text)
        for mistake in error.errors():
            where = lines.of(mistake["loc"])
            path = ".".join(map(str, mistake["loc"]))
            yield f"{name}:{where}: {path}: {mistake['msg']}"
        return
    numbers = _rule_lines(text)
    for index, rule in enumerate(file.rules):
        number = numbers[index] if index < len(numbers) else 1
        yield from _compiled(rule, f"{name}:{number}")


def _compiled(text: RuleText, where: str) -> Iterable[Rule | str]:
    try:
        templates = tuple(
            compile_template(pattern, text.types, whole=text.whole)
            for pattern in text.patterns
        )
        inside = {
            outer: tuple(compile_template(pattern, text.types) for pattern in patterns)
            for outer, patterns in text.inside.items()
        }
    except (ValueError, re.error) as error:
        return [f"{where}: {text.event}: {error}"]
    short = [
        template.text
        for template in templates
        for literal in text.literals or (template.literal,)
        if len(literal) < _SHORTEST_LITERAL and not text.files
    ]
    if short:
        return [
            f"{where}: {text.event}: {pattern!r} needs {_SHORTEST_LITERAL} characters of "
            "plain text, literals or files to be found by"
            for pattern in short
        ]
    return [Rule(text, templates, inside, where)]


_RULE_START = re.compile(r"^ *- +event:", re.MULTILINE)


def _rule_lines(text: str) -> list[int]:
    """Return the line of each rule's ``- event:``, which every rule of ours opens with."""
    lines, position, number = [], 0, 1
    for found in _RULE_START.finditer(text):
        number += text.count("\n", position, found.start())
        position = found.start()
        lines.append(number)
    return lines


class _Lines:
    """Line numbers of the values in a YAML text (slow; only for error messages)."""

    def __init__(self, text: str) -> None:
        self._root = yaml.compose(text, Loader=_LOADER)

    def of(self, path: tuple[int | str, ...]) -> int:
        """Return the line of the value at ``path`` or of the nearest one around it."""
        node = self._root
        for step in path:
            inner = _child(node, step)
            if inner is None:
                break
            node = inner
        return node.start_mark.line + 1 if node is not None else 1


def _child(node: yaml.Node | None, step: int | str) -> yaml.Node | None:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if key.value == str(step):
                return value  # type: ignore[no-any-return]  # the stubs leave it open
    if (
        isinstance(node, yaml.SequenceNode)
        and isinstance(step, int)
        and step < len(node.value)
    ):
        return node.value[step]  # type: ignore[no-any-return]  # the stubs leave it open
    return None
