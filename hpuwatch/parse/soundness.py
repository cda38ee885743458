"""What makes a rule unsound although its file is well formed.

A rule must be found (it has plain text), must be reachable (no other rule has the same
pattern), and must not take minutes over a line that was made to hurt: its own types must take
linear time (:mod:`hpuwatch.parse.linear`), and only few of a pattern's holes may reach over
any text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from hpuwatch.parse.linear import open_parts, why_slow
from hpuwatch.parse.template import Template

_SHORTEST = 3  # characters of a text to find a rule by
_MOST_OPEN = 2
"""How many parts of a pattern may try all lengths; where it begins is one of them."""

_NAMED = re.compile(r"[?]P<\w+>")


def flaws(
    templates: Sequence[Template],
    inner: Iterable[Template],
    types: Mapping[str, str],
    finders: Sequence[str] | None,
) -> Iterator[str]:
    """Yield what is wrong with one rule.

    Args:
        templates: its patterns.
        inner: those that are searched in the text of a field.
        types: its own types, all of them regular expressions.
        finders: texts to find it by, where not the longest one of each pattern; None if
            it is found by a source file.
    """
    for name, regex in types.items():
        if re.compile(regex).groups:
            yield f"the type {name!r} captures groups: write (?:…) instead of (…)"
        elif reason := why_slow(regex):
            yield (
                f"the type {name!r} may take very long on a hostile line: {reason}; give "
                "the repeats a limit ({0,80}), or put plain text between them"
            )
    for template in templates:
        if finders is not None and any(
            len(text) < _SHORTEST for text in finders or (template.literal,)
        ):
            yield (
                f"{template.text!r} needs {_SHORTEST} characters of plain text, literals "
                "or files to be found by"
            )
    for template in (*templates, *inner):
        yield from _slow(template)


def _slow(template: Template) -> Iterator[str]:
    holes = open_parts(template.source)
    anchored = template.whole or template.source.startswith(r"\A")
    if holes and holes + (not anchored) > _MOST_OPEN:
        yield (
            f"{template.text!r} may take very long on a hostile line: only one {{…:str}} "
            "or {…:maybe} may stand before its end (two, if the first begins it); use "
            "{…:word}, or a type of your own with a limit"
        )


def repeated(
    patterns: Iterable[tuple[str, str, tuple[str, ...], Template]],
) -> Iterator[str]:
    """Yield the patterns that an earlier rule has too, so that they never win.

    Args:
        patterns: each with where its rule stands, its event and its files.
    """
    seen: dict[object, tuple[str, Template]] = {}
    for where, event, files, template in patterns:
        source = _NAMED.sub("?:", template.source)
        key = event == "fault", files, template.whole, source
        first, other = seen.setdefault(key, (where, template))
        if other is not template:
            yield (
                f"{where}: {event}: {template.text!r} can't be reached: {first} has the "
                "same pattern"
            )
