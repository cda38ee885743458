"""Rule files read: YAML texts to rules, or every mistake in them with its file and line.

A file that can't be read, a value that may not be so, a pattern that is broken are each told
where they stand, and the rest is looked at all the same: what a mistake hides at most is
another one under the same key of its rule.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, TypeAlias

import yaml
from pydantic import ValidationError

from hpuwatch.errors import RuleError
from hpuwatch.parse.rules import Rule, RuleFile, RuleSet, RuleText
from hpuwatch.parse.soundness import flaw_of_type, flaws, repeated
from hpuwatch.parse.template import Template, compile_template

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_MOST_RULES = 2_000  # of a file
_COMPILED = ("event", "types", "patterns", "inside", "whole", "files", "literals")
"""Keys of a rule that its patterns are compiled by."""

Document: TypeAlias = "str | bytes | OSError"
"""A rule file: its text, its bytes, or why it can't be read."""
_Path: TypeAlias = "tuple[int | str, ...]"
_Placed: TypeAlias = "tuple[Rule, tuple[str, ...]]"
"""A rule, and where each of its patterns stands."""


def load_rules(documents: Mapping[str, Document]) -> RuleSet:
    """Read rule files by their names.

    Raises:
        RuleError: at least one file is wrong; the message lists every mistake with its
            file and line.
    """
    mistakes: list[str] = []
    rules: list[_Placed] = []
    for name, document in documents.items():
        for item in _read_file(name, document):
            if isinstance(item, str):
                mistakes.append(item)
            else:
                rules.append(item)
    mistakes += repeated(
        (place, rule.event, rule.text.files, template)
        for rule, places in rules
        for place, template in zip(places, rule.templates, strict=True)
    )
    if mistakes:
        raise RuleError("the log rules are wrong:\n  " + "\n  ".join(mistakes))
    return RuleSet(tuple(rule for rule, _ in rules))


def _read_file(name: str, document: Document) -> Iterator[_Placed | str]:
    """Yield the rules of a file and the mistakes in it."""
    if isinstance(document, OSError):
        yield f"{name}:1: it can't be read: {document.strerror or document}"
        return
    try:
        text = document if isinstance(document, str) else document.decode()
        root, values = _loaded(text)
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        yield f"{name}:{line}: no UTF-8: {error.reason}"
        return
    # A date like 2001-99-99 is a ValueError.
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        line = mark.line + 1 if mark else 1
        yield f"{name}:{line}: no YAML: {getattr(error, 'problem', None) or error}"
        return
    for node in _twice(root):
        yield f"{name}:{node.start_mark.line + 1}: {node.value} stands here twice"
    places = _Places(name, root)
    try:
        rules = RuleFile.model_validate(values).rules
    except ValidationError as error:
        yield from _misshapen(values, error, places)
        return
    if len(rules) > _MOST_RULES:
        yield f"{name}:1: it holds {len(rules)} rules, more than {_MOST_RULES}"
        return
    for index, rule in enumerate(rules):
        yield from _compiled(rule, ("rules", index), places)


def _loaded(text: str) -> tuple[yaml.Node | None, Any]:
    """Return a YAML text as nodes, which know their places, and as values."""
    loader = _LOADER(text)
    try:
        root = loader.get_single_node()
        return root, None if root is None else loader.construct_document(root)
    finally:
        loader.dispose()


def _twice(root: yaml.Node | None) -> Iterator[yaml.Node]:
    """Yield the keys that a mapping has already, of which YAML would take the last one."""
    seen, waiting = set[int](), [root]
    while waiting:
        node = waiting.pop()
        if id(node) in seen or not isinstance(node, yaml.CollectionNode):
            continue
        seen.add(id(node))
        if isinstance(node, yaml.MappingNode):
            keys = set[tuple[str, str]]()
            for key, value in node.value:
                waiting.append(value)
                if isinstance(key, yaml.ScalarNode):
                    if (key.tag, key.value) in keys:
                        yield key
                    keys.add((key.tag, key.value))
        else:
            waiting += node.value


def _misshapen(
    values: Any, error: ValidationError, places: _Places
) -> Iterator[_Placed | str]:
    """Yield what is wrong with the values of a file, and then with what is left of them."""
    wrong: dict[_Path, set[int | str]] = {}  # the keys of each rule
    for mistake in error.errors():
        path = mistake["loc"]
        yield f"{places.of(path)}: {'.'.join(map(str, path))}: {mistake['msg']}"
        wrong.setdefault(path[:2], set()).update(path[2:3])
    rules = values.get("rules") if isinstance(values, dict) else None
    for index, rule in enumerate(rules if isinstance(rules, list) else ()):
        path = "rules", index
        text = _left_of(rule, wrong.get(path, ()))
        for item in () if text is None else _compiled(text, path, places):
            if isinstance(item, str) or path not in wrong:
                yield item


def _left_of(rule: object, wrong: Collection[int | str]) -> RuleText | None:
    """Return what can be compiled of a rule with some wrong keys, None where nothing can."""
    if not isinstance(rule, dict):
        return None
    left = {key: rule[key] for key in _COMPILED if key in rule and key not in wrong}
    with suppress(ValidationError):
        return RuleText.model_validate({"event": "nameless"} | left)
    return None


def _compiled(text: RuleText, path: _Path, places: _Places) -> Iterator[_Placed | str]:
    """Yield a rule, or every mistake in it."""
    types, mistakes = dict(text.types), list[tuple[_Path, str]]()
    for name, regex in text.types.items():
        if flaw := flaw_of_type(name, regex):
            mistakes.append((("types", name), flaw))
            types[name] = "."  # what uses it may have mistakes of its own

    def templates(at: _Path, patterns: Iterable[str]) -> Iterator[Template]:
        for number, pattern in enumerate(patterns):
            template, found = _template(pattern, types, text, top=at == ("patterns",))
            mistakes.extend(((*at, number), flaw) for flaw in found)
            if template is not None:
                yield template

    own = tuple(templates(("patterns",), text.patterns))
    inside = {
        outer: tuple(templates(("inside", outer), patterns))
        for outer, patterns in text.inside.items()
    }
    for inner, flaw in mistakes:
        yield f"{places.of((*path, *inner))}: {text.event}: {flaw}"
    if not mistakes:
        lines = tuple(places.of((*path, "patterns", n)) for n in range(len(own)))
        yield Rule(text, own, inside, places.of(path)), lines


def _template(
    pattern: str, types: Mapping[str, str], rule: RuleText, *, top: bool
) -> tuple[Template | None, list[str]]:
    """Return a pattern compiled, if it can be, and what is wrong with it.

    Args:
        pattern: as written.
        types: the rule's own.
        rule: the rule.
        top: it is searched for in messages, not in the text of a field.
    """
    finders = rule.literals if top and not rule.files else None
    try:
        template = compile_template(pattern, types, whole=top and rule.whole)
        return template, list(flaws(template, finders, types))
    except (ValueError, re.error, RecursionError, OverflowError) as error:
        return None, [str(error)]


class _Places:
    """Where the values of a YAML text stand."""

    def __init__(self, file: str, root: yaml.Node | None) -> None:
        self._file = file
        self._root = root

    def of(self, path: _Path) -> str:
        """Return file and line of the value at ``path`` or of the nearest one around it."""
        node = self._root
        for step in path:
            inner = _child(node, step)
            if inner is None:
                break
            node = inner
        line = node.start_mark.line + 1 if node is not None else 1
        return f"{self._file}:{line}"


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
