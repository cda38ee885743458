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
over the lines that nobody knows; the patterns whose literal is there are tried.  A *closed*
pattern (plain text, numbers and listed words only) that is the message from end to end wins
at once; else the longest match wins (of equal ones that with more plain text).  So the order
of rules and files means nothing.  Faults are matched beside the other rules: a line may be
both a sentence of the engine and the sign of a fault.

The patterns to try follow from the message without its digits, so they are looked up once for
all lines that differ in numbers only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

from hpuwatch.events import Value
from hpuwatch.parse.mask import mask
from hpuwatch.parse.template import Template, skeleton

FAULT = "fault"
NOISE = "noise"
"""Event of rules for sentences that are known and mean nothing: no event comes of them."""

_LONGEST = 16_000  # characters of a message that are read, lists of buckets apart
_LONGEST_KEY, _MOST_KEYS = 400, 4096  # of messages whose patterns are remembered

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
    endings: tuple[Annotated[str, Field(pattern=r"^[ -~]{8,200}$")], ...] = ()
    types: dict[str, str] = Field(default_factory=dict)
    constants: dict[str, Constant] = Field(default_factory=dict, alias="set")
    whole: bool = False
    files: tuple[str, ...] = ()
    inside: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    releases: str = ""
    examples: tuple[Example, ...] = ()
    near_misses: tuple[str, ...] = ()

    @field_validator("endings")
    @classmethod
    def _only_noise_has_endings(
        cls, endings: tuple[str, ...], info: ValidationInfo
    ) -> tuple[str, ...]:
        if endings and info.data.get("event", NOISE) != NOISE:
            raise ValueError("endings are for noise: a line that ends so is never read")
        return endings


class RuleFile(BaseModel):
    """A rule file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    config_version: Literal[1]
    rules: tuple[RuleText, ...]

    @field_validator("config_version", mode="before")
    @classmethod
    def _is_a_whole_number(cls, version: object) -> object:
        if type(version) is not int:
            raise ValueError("the version is the whole number 1")
        return version


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

    @cached_property
    def _plain(self) -> frozenset[Template]:
        """Return the patterns whose captures are all that an event of them holds."""
        if self.text.constants:
            return frozenset()
        return frozenset(
            template
            for template in self.templates
            if not any(name[0] == "_" or name in self.inside for name in template.types)
        )

    def completed(
        self, template: Template, captured: dict[str, Value]
    ) -> dict[str, Value]:
        """Add the rule's constants and the values that stand inside other fields.

        A field whose name begins with an underscore serves only that purpose.
        """
        if template in self._plain:
            return captured
        fields: dict[str, Value] = {**self.text.constants, **captured}
        for outer, templates in self.inside.items():
            text = fields.get(outer)
            if isinstance(text, str):
                for inner in templates:
                    found = inner.match(text)
                    if found is not None:
                        fields.update(found[1])
        return {name: value for name, value in fields.items() if name[0] != "_"}


Candidate: TypeAlias = "tuple[Rule, Template]"


@dataclass(frozen=True, slots=True)
class Match:
    """A rule and the pattern of it that matched, with constants and captured fields.

    ``message`` is what it was matched in, without secrets and request contents.  ``is_all``
    says that the pattern is closed and covers the message, and that there is no fault in it.
    """

    rule: Rule
    template: Template
    fields: dict[str, Value]
    message: str
    is_all: bool = False


@dataclass(frozen=True, slots=True)
class _Selection:
    """The patterns that may match a message; closed ones with most plain text first."""

    closed: tuple[Candidate, ...]
    ordinary: tuple[Candidate, ...]  # the closed ones too
    faults: tuple[Candidate, ...]


@dataclass(frozen=True, eq=False)
class RuleSet:
    """All rules in force."""

    rules: tuple[Rule, ...]

    @cached_property
    def endings(self) -> tuple[str, ...]:
        """Return the endings of lines that mean nothing, whatever stands before them."""
        return tuple(end for rule in self.rules for end in rule.text.endings)

    def find(self, message: str, file: str | None = None) -> tuple[Match, ...]:
        """Return the best ordinary match and the best fault, where there are any.

        Args:
            message: the message without its header, as printed.
            file: base name of the source file in the header, or None.
        """
        selection = self._selection(message, file)
        if selection is None:
            return ()
        covering = _covering(message, selection.closed)
        if covering is not None and not selection.faults:
            return (replace(covering, is_all=True),)
        masked = mask(message)
        best = covering or _longest(masked, selection.ordinary)
        fault = _longest(masked, selection.faults)
        return tuple(match for match in (best, fault) if match is not None)

    def _selection(self, message: str, file: str | None) -> _Selection | None:
        bare = skeleton(message)
        key = file if file in self._by_file else None, bare
        try:
            return self._selections[key]
        except KeyError:
            selection = _sorted(self._candidates(*key))
        if len(bare) <= _LONGEST_KEY:
            if len(self._selections) >= _MOST_KEYS:
                self._selections.clear()
            self._selections[key] = selection
        return selection

    def _candidates(self, file: str | None, bare: str) -> list[Candidate]:
        """Return the patterns whose literal may stand in a message."""
        found = list(self._by_file.get(file, ())) if file else []
        for literal, entries in self._short:
            if literal in bare:
                found += entries
        for word in self._words.intersection(bare.split(" ")):
            for literal, entries in self._by_word[word]:
                if literal in bare:
                    found += entries
        return found

    @cached_property
    def _selections(self) -> dict[tuple[str | None, str], _Selection | None]:
        """Return what was looked up lately, by file and skeleton."""
        return {}

    @cached_property
    def _by_literal(self) -> dict[str, list[Candidate]]:
        """Return the patterns by the skeleton of their literal."""
        table: dict[str, list[Candidate]] = {}
        for rule in self.rules:
            if rule.text.files:
                continue
            for template in rule.templates:
                for literal in rule.text.literals or (template.literal,):
                    table.setdefault(skeleton(literal), []).append((rule, template))
        return table

    @cached_property
    def _by_file(self) -> dict[str | None, list[Candidate]]:
        table: dict[str | None, list[Candidate]] = {}
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


def _sorted(candidates: Iterable[Candidate]) -> _Selection | None:
    faults: list[Candidate] = []
    ordinary: list[Candidate] = []
    for candidate in candidates:
        (faults if candidate[0].event == FAULT else ordinary).append(candidate)
    if not faults and not ordinary:
        return None
    closed = [candidate for candidate in ordinary if candidate[1].closed]
    closed.sort(key=lambda candidate: -candidate[1].plain)
    return _Selection(tuple(closed), tuple(ordinary), tuple(faults))


def _covering(message: str, closed: Iterable[Candidate]) -> Match | None:
    """Return the match of a closed pattern that is the message from end to end.

    Such a message holds nothing of a user's, so it isn't masked.
    """
    for rule, template in closed:
        fields = template.cover(message)
        if fields is not None:
            return Match(rule, template, rule.completed(template, fields), message)
    return None


def _longest(message: str, candidates: Iterable[Candidate]) -> Match | None:
    best: Match | None = None
    most = (-1, -1)
    for rule, template in candidates:
        found = template.match(message if template.lists else message[:_LONGEST])
        if found is not None and (found[0], template.plain) > most:
            most = (found[0], template.plain)
            best = Match(rule, template, found[1], message)
    if best is None:
        return None
    return replace(best, fields=best.rule.completed(best.template, best.fields))


def _inner_word(literal: str) -> str:
    """Return the longest word between two blanks, or the empty text."""
    return max(literal.split(" ")[1:-1], key=len, default="")
