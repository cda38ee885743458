"""Rules prove themselves: their examples must match, their near misses must not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from hpuwatch.events import Value
from hpuwatch.parse.header import read
from hpuwatch.parse.rules import Example, Match, Rule, RuleSet
from hpuwatch.parse.template import Template
from hpuwatch.units import Amount


def mistakes(rules: RuleSet, chosen: Iterable[Rule] | None = None) -> list[str]:
    """Return what is wrong: examples that fail, near misses that match, patterns unproven.

    Args:
        rules: all that are in force together.
        chosen: those to be proven; all of them unless told.
    """
    proven = rules.rules if chosen is None else chosen
    return [text for rule in proven for text in _of_rule(rules, rule)]


def _of_rule(rules: RuleSet, rule: Rule) -> Iterator[str]:
    proven: set[Template] = set()
    for example in rule.text.examples:
        match = _match(rules, rule, example.line)
        if match is None:
            winner = _winner(rules, example.line)
            yield f"{rule.where}: {rule.event}: no match{winner}: {example.line!r}"
            continue
        proven.add(match.template)
        for text in _differences(match, example):
            yield f"{rule.where}: {rule.event}: {text}: {example.line!r}"
    for line in rule.text.near_misses:
        if _match(rules, rule, line) is not None:
            yield f"{rule.where}: {rule.event}: matches a near miss: {line!r}"
    yield from _unproven(rule, proven)


def _unproven(rule: Rule, proven: set[Template]) -> Iterator[str]:
    texts = [template.text for template in rule.templates if template not in proven]
    lines = tuple(example.line for example in rule.text.examples)
    texts += [
        ending
        for ending in rule.text.endings
        if not any(line.endswith(ending) for line in lines)
    ]
    for text in texts:
        yield f"{rule.where}: {rule.event}: no example for {text!r}"


def _match(rules: RuleSet, rule: Rule, line: str) -> Match | None:
    """Return the match of this very rule in a line, if all rules together choose it."""
    for record in read(line):
        for match in rules.find(record.message, record.file):
            if match.rule is rule:
                return match
    return None


def _winner(rules: RuleSet, line: str) -> str:
    """Say which other rule a line is matched by."""
    for record in read(line):
        for match in rules.find(record.message, record.file):
            return f" ({match.rule.where}: {match.rule.event} matches it instead)"
    return ""


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
