"""Rule files read: YAML texts to rules, or every mistake in them with its file and line."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

import yaml
from pydantic import ValidationError

from hpuwatch.errors import RuleError
from hpuwatch.parse.rules import Rule, RuleFile, RuleSet, RuleText
from hpuwatch.parse.soundness import flaws, repeated
from hpuwatch.parse.template import compile_template

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


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
    mistakes += repeated(
        (rule.where, rule.event, rule.text.files, template)
        for rule in rules
        for template in rule.templates
    )
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
    finders = None if text.files else text.literals
    inner = [template for each in inside.values() for template in each]
    found = [*flaws(templates, inner, text.types, finders)]
    if found:
        return [f"{where}: {text.event}: {flaw}" for flaw in found]
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
