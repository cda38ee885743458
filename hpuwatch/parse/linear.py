r"""Whether a regular expression takes time in proportion to the text, told by its shape.

Python's matcher tries every way in which repeats can share a text among them.  Two shapes
give it many ways: a repeat of something that itself varies, with nothing firm between the
rounds, as in ``(?:\w+ ?)*``, and two repeats in a row that can both take the same
characters, as in ``\d+\d+`` or ``.*a.*``.  A firm character between two repeats that one of
them can't take settles where the first ends, as in ``\w+: \w+``.

What is refused here may be harmless all the same; it can always be written with a limit
(``{0,80}``) or with a firm character.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, count
from typing import Any

_PARSER: Any = importlib.import_module(
    "re._parser" if sys.version_info >= (3, 11) else "sre_parse"
)
_MOST = 256  # a repeat with a higher limit counts as one without
_BEYOND = "\u00e9"  # stands for all characters that are no ASCII
_ALL = frozenset(map(chr, range(128))) | {_BEYOND}
_CLASSES = {
    name: frozenset(each for each in _ALL if re.match(sign, each, re.DOTALL))
    for name, sign in {
        "DIGIT": r"\d",
        "NOT_DIGIT": r"\D",
        "SPACE": r"\s",
        "NOT_SPACE": r"\S",
        "WORD": r"\w",
        "NOT_WORD": r"\W",
    }.items()
}


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of a sequence.

    Attributes:
        takes: the characters that it can take.
        firm: it takes one at least, where its alternatives are taken.
        varies: it can take more or fewer of them, or be missing.
        endless: it can take any number.
        free: it can take any text of any length, as ``.*``.
        within: the alternatives that it stands in, as (which choice, which of it).
    """

    takes: frozenset[str]
    firm: bool = True
    varies: bool = False
    endless: bool = False
    free: bool = False
    within: frozenset[tuple[int, int]] = frozenset()


def why_slow(regex: str) -> str:
    """Return why the regular expression may take more than linear time, else "".

    Raises:
        re.error: it is none.
    """
    for (name, argument), sequence in _sequences(("", None), _PARSER.parse(regex)):
        if name.endswith("_REPEAT") and argument[1] > 1:
            numbers = count()
            rounds = [part for _ in range(2) for part in _parts(sequence, numbers)]
            if _share(rounds, [part.varies for part in rounds]):
                return "it repeats what itself varies, with no firm character between"
        parts = _parts(sequence, count())
        if _share(parts, [part.endless for part in parts]):
            return "two of its repeats in a row can take the same characters"
    return ""


def open_parts(regex: str) -> int:
    """Return how many parts before the last one can take any text of any length.

    Each of them, and the place where a match begins, multiplies the ways to try.
    """
    parts = _parts(_PARSER.parse(regex), count())
    return sum(part.free for part in parts[:-1])


def _share(parts: Sequence[_Part], chosen: Sequence[bool]) -> bool:
    """Tell whether two of the chosen parts can pass characters to one another."""
    places = [place for place, is_chosen in enumerate(chosen) if is_chosen]
    for first, then in combinations(places, 2):
        one, other = parts[first], parts[then]
        within = one.within | other.within
        if len(dict(within)) < len(within):
            continue  # they stand in two alternatives of one choice
        shared = one.takes & other.takes
        between = [part for part in parts[first + 1 : then] if part.within <= within]
        if shared and not any(p.firm and not p.takes & shared for p in between):
            return True
    return False


def _sequences(around: tuple[str, Any], tree: Any) -> Iterator[tuple[Any, Any]]:
    """Yield every sequence at every depth, with the operation that it stands in."""
    yield around, tree
    for code, argument in tree:
        operation = str(code), argument
        for inner in _inside(*operation):
            yield from _sequences(operation, inner)


def _inside(name: str, argument: Any) -> list[Any]:
    """Return the sequences within an operation."""
    if name == "BRANCH":
        return list(argument[1])
    if name == "SUBPATTERN":
        return [argument[3]]
    if name.endswith("_REPEAT"):
        return [argument[2]]
    if name in {"ASSERT", "ASSERT_NOT"}:
        return [argument[1]]
    return [argument] if name == "ATOMIC_GROUP" else []


def _parts(tree: Any, numbers: Iterator[int]) -> list[_Part]:
    """Return a sequence's parts; ``numbers`` gives each choice within it a number."""
    parts: list[_Part] = []
    for code, argument in tree:
        name = str(code)
        if name in {"SUBPATTERN", "ATOMIC_GROUP"}:
            parts += _parts(_inside(name, argument)[0], numbers)
        elif name == "BRANCH":
            choices = [_parts(each, numbers) for each in argument[1]]
            parts += _choice(choices, next(numbers))
        elif name.endswith("_REPEAT"):
            inner = _parts(argument[2], numbers)
            if argument[:2] == (0, 1):
                parts += _choice([inner, []], next(numbers))
            else:
                parts.append(_repeated(argument[0], argument[1], inner))
        elif name not in {"AT", "ASSERT", "ASSERT_NOT"}:
            parts.append(_Part(_characters(name, argument)))
    return parts


def _choice(choices: list[list[_Part]], number: int) -> Iterator[_Part]:
    """Yield the parts of alternatives, and before them what is firm in each of them."""
    if all(any(part.firm for part in each) for each in choices):
        yield _Part(_taken(part for each in choices for part in each))
    for which, each in enumerate(choices):
        for part in each:
            within = part.within | {(number, which)}
            yield replace(part, varies=True, within=within)


def _repeated(least: int, most: int, inner: list[_Part]) -> _Part:
    return _Part(
        _taken(inner),
        firm=least > 0 and any(part.firm and not part.within for part in inner),
        varies=least != most or any(part.varies for part in inner),
        endless=most > _MOST or any(part.endless for part in inner),
        free=most > _MOST and [part.takes for part in inner] == [_ALL],
    )


def _taken(parts: Iterable[_Part]) -> frozenset[str]:
    return frozenset[str]().union(*(part.takes for part in parts))


def _characters(name: str, argument: Any) -> frozenset[str]:
    """Return what one character of a pattern may be; all, where that isn't plain."""
    if name == "LITERAL":
        return frozenset({chr(argument) if argument < 128 else _BEYOND})
    if name == "NOT_LITERAL":
        return (_ALL - {chr(argument)}) | {_BEYOND}
    if name == "RANGE":
        low, high = argument
        beyond = {_BEYOND} if high >= 128 else set()
        return frozenset(each for each in _ALL if low <= ord(each) <= high) | beyond
    if name == "CATEGORY":
        return _CLASSES.get(str(argument).removeprefix("CATEGORY_"), _ALL)
    if name != "IN":
        return _ALL  # ANY, or a group's text again
    listed = [(str(code), inner) for code, inner in argument]
    negated = listed[0][0] == "NEGATE"
    found = frozenset[str]().union(*(_characters(*each) for each in listed[negated:]))
    return (_ALL - found) | {_BEYOND} if negated else found
