"""What makes a rule unsound although its file is well formed.

A rule must be found (it has plain text), must be reachable (no other rule has the same
pattern), and must not take minutes over a line that was made to hurt: its own types, and a
pattern that uses them, can be tried in few ways only (:mod:`hpuwatch.parse.linear`), and only
few of a pattern's holes may reach over any text.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence

from hpuwatch.parse.linear import LENGTH, open_parts, ways
from hpuwatch.parse.template import Template, compile_template
from hpuwatch.parse.values import NUMBERS

_SHORTEST = 3  # characters of a text to find a rule by
_MOST_OPEN = 2
"""How many parts of a pattern may try all lengths; where it begins is one of them."""

_MOST_WAYS = 16 * LENGTH
"""In how many ways a type or pattern may be tried from one place of a long line on."""
_LONGEST_TYPE = 500  # characters of a regular expression
_MOST_HOLES, _MOST_OPTIONAL = 64, 12  # of a pattern
_STAND_INS = dict.fromkeys(NUMBERS, r"[-+.,\d]+") | dict.fromkeys(
    ("str", "maybe", "tuple", "nested"), r"[\s\S]"
)
"""For the types that are known to be sound: what counting the ways sees of them."""
_NAMED = re.compile(r"[?]P<\w+>")


def flaw_of_type(name: str, regex: str) -> str | None:
    """Return what is wrong with a rule's own type, or None."""
    if len(regex) > _LONGEST_TYPE:
        return f"the type {name!r} is longer than {_LONGEST_TYPE} characters"
    try:
        with warnings.catch_warnings(record=True) as odd:
            warnings.simplefilter("always")
            groups, tried = re.compile(regex).groups, ways(regex)
    except (re.error, RecursionError, OverflowError) as error:
        return f"the type {name!r} is no regular expression: {error}"
    if odd:
        return f"the type {name!r} may mean something else: {odd[0].message}"
    if groups:
        return f"the type {name!r} captures groups: write (?:…) instead of (…)"
    if tried > _MOST_WAYS:
        return (
            f"the type {name!r} may take very long on a hostile line: its parts can share "
            "a text in too many ways; put characters between them that they can't take, or "
            "give all of them but one a low limit ({0,9})"
        )
    return None


def flaws(
    template: Template, finders: Sequence[str] | None, types: Mapping[str, str]
) -> Iterator[str]:
    """Yield what is wrong with a pattern.

    Args:
        template: the pattern, its types being sound.
        finders: texts to find it by, where not its longest one; None if it is found by a
            source file, or searched in the text of a field.
        types: the rule's own types.
    """
    holes, optional = template.text.count("{"), template.text.count("<<")
    if holes > _MOST_HOLES or optional > _MOST_OPTIONAL:
        yield (
            f"{template.text[:80]!r}… has more than {_MOST_HOLES} holes or "
            f"{_MOST_OPTIONAL} parts that may be missing"
        )
        return
    if finders is not None and any(
        len(text) < _SHORTEST for text in finders or (template.literal,)
    ):
        yield (
            f"{template.text!r} needs {_SHORTEST} characters of plain text, literals "
            "or files to be found by"
        )
    reach = open_parts(template.source)
    anchored = template.whole or template.source.startswith(r"\A")
    if reach and reach + (not anchored) > _MOST_OPEN:
        yield (
            f"{template.text!r} may take very long on a hostile line: only one {{…:str}} "
            "or {…:maybe} may stand before its end (two, if the first begins it); use "
            "{…:word}, or a type of your own with a limit"
        )
    elif (types or "}{" in template.text) and _ways(template, types) > _MOST_WAYS:
        yield (
            f"{template.text!r} may take very long on a hostile line: its holes can share "
            "a text in too many ways; put plain text between them"
        )


def _ways(template: Template, types: Mapping[str, str]) -> int:
    # A blank written twice stands for itself: a run of blanks shares no text worth telling.
    text = template.text.replace(" ", "  ")
    return ways(compile_template(text, {**_STAND_INS, **types}).source)


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
