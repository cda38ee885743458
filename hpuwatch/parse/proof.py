"""Rules prove themselves: their examples must match, their near misses must not."""

from __future__ import annotations

from collections.abc import Iterator

from hpuwatch.events import Value
from hpuwatch.parse.header import read
from hpuwatch.parse.mask import mask
from hpuwatch.parse.rules import Example, Match, Rule, RuleSet
from hpuwatch.parse.template import Template
from hpuwatch.units import Amount


def mistakes(rules: RuleSet) -> list[str]:
    """Return what is wrong: examples that fail, near misses that match, patterns unproven."""
    return [text for rule in rules.rules for text in _of_rule(rules, rule)]


def _of_rule(rules: RuleSet, rule: Rule) -> Iterator[str]:
    proven: set[Template] = set()
    for example in rule.text.examples:
        match = _match(rules, rule, example.line)
        if match is None:
            yield f"{rule.where}: {rule.event}: no match: {example.line!r}"
            continue
        proven.add(match.template)
        for text in _differences(match, example):
            yield f"{rule.where}: {rule.event}: {text}: {example.line!r}"
    for line in rule.text.near_misses:
        if _match(rules, rule, line) is not None:
            yield f"{rule.where}: {rule.event}: matches a near miss: {line!r}"
    for template in rule.templates:
        if template not in proven:
            yield f"{rule.where}: {rule.event}: no example for {template.text!r}"


def _match(rules: RuleSet, rule: Rule, line: str) -> Match | None:
    """Return the match of this very rule in a line, if all rules together choose it."""
    for record in read(line):
        candidates = rules.candidates(record.message, record.file)
        for match in rules.match(mask(record.message), candidates):
            if match.rule is rule:
                return match
    return None


def _differences(match: Match, example: Example) -> Iterator[str]:
    for name, wanted in example.fields.items():
        if name not in match.fields:
            yield f"{name} is missing"
            continue
        got = plain(match.fields[name])
        if got != wanted:
            yield f"{name} is {got!r}, not {wanted!r}"


def plain(value: Value) -> object:
    """Return a value as YAML and JSON know it: amounts as printed, tuples as lists."""
    if isinstance(value, Amount):
        return value.printed
    if isinstance(value, tuple):
        return [plain(item) for item in value]
    return value
