r"""How many ways a regular expression can be tried, told by its shape.

Python's matcher tries every way in which a text can be shared out among the parts of an
expression, so what counts is how many ways lead from where it begins to any place in it.
A part that may take one length or another has a way for each; an alternative has those of
all its branches.  The ways of parts in a row multiply, as in ``\d+\d+``, ``a?a?a?`` or
``.{0,80}.{0,80}``, until a character comes that none of them can take: it settles where
they end, as in ``\w+: \w+``, and of their ways only those are left that end there.

The bound is never too low for an expression, but it may be too high for a harmless one.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from typing import Any

_PARSER: Any = importlib.import_module(
    "re._parser" if sys.version_info >= (3, 11) else "sre_parse"
)
LENGTH = 16_000
"""Characters of a text, at most: the ways of a repeat without a limit."""
_ENDLESS = LENGTH**6  # too many, whatever the limit
_MOST_ROUNDS = 40  # of a repeat that are looked at one by one
_DEEPEST = 5  # choices and repeats within one another
_BEYOND = frozenset("\u00e9\u0663\u2003\u2013")
"""Letter, digit, space and other sign: they stand for all characters that are no ASCII."""
_ALL = frozenset(map(chr, range(128))) | _BEYOND
_CLASSES = {
    name: frozenset(each for each in _ALL if re.match(sign, each))
    for name, sign in {
        "DIGIT": r"\d",
        "NOT_DIGIT": r"\D",
        "SPACE": r"\s",
        "NOT_SPACE": r"\S",
        "WORD": r"\w",
        "NOT_WORD": r"\W",
    }.items()
}
_LOOSENED = re.compile(r"\(\?[a-zA-Z-]*[aiL]")
"""Flags by which a character means others."""


@dataclass(frozen=True, slots=True)
class _Ways:
    """The ways from where a match begins to a place in the expression.

    Attributes:
        ends: how many there are.
        meets: how many of them end at one and the same place of a text.
        taken: what may have been taken since the last place that was settled, or would
            have told that it goes on otherwise.
        passed: what may have been taken besides.
        starts: how many there are to where the last part begins.
        last: what the last part may have taken.
        tried: the most that there were at any place so far.
    """

    ends: int = 1
    meets: int = 1
    taken: frozenset[str] = frozenset()
    passed: frozenset[str] = frozenset()
    starts: int = 1
    last: frozenset[str] = frozenset()
    tried: int = 1

    def settled(self, first: frozenset[str]) -> int:
        """Return how many go on with a character that is one of ``first``."""
        if not first & self.taken:
            return self.meets
        return self.ends if first & self.last else self.starts

    def within(self, other: _Ways) -> bool:
        """Tell whether they are no more than others, so that what follows isn't either."""
        return (
            self.ends <= other.ends
            and self.meets <= other.meets
            and self.taken <= other.taken
            and self.passed <= other.passed
        )


_TOO_MANY = _Ways(ends=_ENDLESS, tried=_ENDLESS)


@dataclass(frozen=True, slots=True)
class _Counting:
    """How ways are counted.

    Attributes:
        loose: flags let a character mean others.
        endless: the ways of a repeat without a limit.
    """

    loose: bool
    endless: int

    def after(self, before: _Ways, tree: Any, depth: int = 0) -> _Ways:
        """Return the ways behind a sequence."""
        now = before
        for code, argument in tree:
            if now.ends >= _ENDLESS:
                return _TOO_MANY
            now = self._after_part(now, str(code), argument, depth)
            now = replace(now, tried=max(now.tried, now.ends))
        return now

    def _after_part(self, before: _Ways, name: str, argument: Any, depth: int) -> _Ways:
        if name in {"ASSERT", "ASSERT_NOT"}:
            inner = self.after(_Ways(), argument[1], depth)
            return replace(before, tried=max(before.tried, before.ends * inner.tried))
        if name in {"SUBPATTERN", "ATOMIC_GROUP"}:
            return self.after(before, _inside(name, argument)[0], depth)
        if name == "BRANCH":
            return self._closed(before, self._after_choice, argument[1], depth)
        if name.endswith("_REPEAT"):
            return self._after_repeat(before, argument, depth)
        if name == "AT":
            return before
        takes = self._characters(name, argument)
        return _after_run(before, takes, int(name != "GROUPREF"), 1)

    def _after_repeat(self, before: _Ways, argument: Any, depth: int) -> _Ways:
        least, most, body = int(argument[0]), int(argument[1]), argument[2]
        if len(body) == 1 and not _inside(str(body[0][0]), body[0][1]):
            lengths = min(most - least + 1, LENGTH)
            lengths = self.endless if lengths == LENGTH else lengths
            return _after_run(before, self._taken(body), least, lengths)
        if (least, most) == (0, 1):
            return self._closed(before, self._after_choice, [[], body], depth)
        rounds = partial(self._after_rounds, limits=(least, most))
        return self._closed(before, rounds, [body], depth)

    def _closed(
        self, before: _Ways, after: Any, branches: Sequence[Any], depth: int
    ) -> _Ways:
        """Return the ways behind a choice or a repeat, seen as one last part."""
        if depth == _DEEPEST:
            return _TOO_MANY
        found: _Ways = after(before, branches, depth + 1)
        if found.ends >= _ENDLESS:
            return _TOO_MANY
        alone: _Ways = after(_Ways(), branches, depth + 1)
        last = frozenset[str]().union(*map(self._taken, branches))
        return replace(found, starts=before.ends * alone.meets, last=last)

    def _after_choice(self, before: _Ways, branches: Any, depth: int) -> _Ways:
        """Return the ways behind alternatives, one of which may be empty."""
        full = [each for each in branches if len(each)]
        found = [self.after(before, each, depth) for each in full]
        if any(each.ends >= _ENDLESS for each in found):
            return _TOO_MANY
        firsts = [self._first(each) for each in full]
        missing = [before] * (len(branches) - len(full))
        apart = len(missing) <= 1 and _apart(firsts, before)
        either = max if apart and full else sum
        return _Ways(
            ends=either(each.ends for each in found)
            + sum(each.ends for each in missing),
            meets=either(each.meets for each in [*found, *missing]),
            taken=_joined([*found, *missing], firsts if missing else []),
            passed=self._passed(before, full),
            tried=max(each.tried for each in [*found, before]),
        )

    def _after_rounds(
        self, before: _Ways, bodies: Any, depth: int, limits: tuple[int, int]
    ) -> _Ways:
        """Return the ways behind a repeat of a sequence."""
        least, most = limits
        (body,) = bodies
        first = self._first(body)
        exits = [before] * (least == 0)
        now, apart, rounds = before, True, 0
        while rounds < most:
            then = self.after(now, body, depth)
            apart = apart and _apart([first], now)
            rounds += 1
            exits.append(then)
            if rounds > _MOST_ROUNDS or then.ends >= _ENDLESS:
                return _TOO_MANY
            if then.within(now) and rounds > 1:
                break
            now = then
        last = exits[-1]
        if least == most:
            return last
        more = max(min(most, LENGTH) - rounds, 0)
        # Rounds that are settled share the text among them, and so do their repeats.
        each_round = replace(self, endless=1).after(_Ways(), body, depth).tried

        def in_all(ways: int) -> int:
            shared = max(ways, each_round * LENGTH)
            return min(more * ways, shared) if apart else more * ways

        tried = max(each.tried for each in [*exits, before])
        return _Ways(
            ends=sum(each.ends for each in exits) + in_all(last.ends),
            meets=max(each.meets for each in exits)
            if apart
            else sum(each.meets for each in exits) + more * last.meets,
            taken=_joined(exits, [first]),
            passed=self._passed(before, [body]),
            tried=tried + in_all(last.tried),
        )

    def _passed(self, before: _Ways, bodies: Sequence[Any]) -> frozenset[str]:
        return before.taken.union(before.passed, *map(self._taken, bodies))

    def _taken(self, tree: Any) -> frozenset[str]:
        """Return all characters that a sequence may take."""
        return frozenset[str]().union(
            *(self._taken_by(str(code), argument) for code, argument in tree)
        )

    def _taken_by(self, name: str, argument: Any) -> frozenset[str]:
        if name in _NO_WIDTH:
            return frozenset()
        inner = _inside(name, argument)
        if not inner:
            return self._characters(name, argument)
        return frozenset[str]().union(*map(self._taken, inner))

    def _first(self, tree: Any) -> frozenset[str] | None:
        """Return what a sequence may begin with, None if it may be empty."""
        found = frozenset[str]()
        for code, argument in tree:
            name = str(code)
            if name in _NO_WIDTH:
                continue
            inner = _inside(name, argument)
            if not inner and name != "GROUPREF":
                return found | self._characters(name, argument)
            firsts = [self._first(each) for each in inner]
            sets = [each for each in firsts if each is not None]
            if (
                inner
                and len(sets) == len(firsts)
                and not _may_be_missing(name, argument)
            ):
                return found.union(*sets)
            found = found | self._taken_by(name, argument)
        return None

    def _characters(self, name: str, argument: Any) -> frozenset[str]:
        found = _characters(name, argument)
        if not self.loose:
            return found
        return found | {each.swapcase() for each in found if each.isascii()} | _BEYOND


_NO_WIDTH = frozenset({"AT", "ASSERT", "ASSERT_NOT"})


def ways(regex: str) -> int:
    """Return in how many ways a regular expression can be tried from one place on.

    Returns:
        The most at any place in it or at its end, in a text of :data:`LENGTH` characters.

    Raises:
        re.error: it is none.
    """
    counting = _Counting(bool(_LOOSENED.search(regex)), LENGTH)
    return counting.after(_Ways(), _PARSER.parse(regex)).tried


def open_parts(regex: str) -> int:
    """Return how many parts before the last one can take any text of any length.

    Each of them, and the place where a match begins, multiplies the ways to try.
    """
    return sum(list(_free(_PARSER.parse(regex)))[:-1])


def _free(tree: Any) -> Iterator[bool]:
    """Tell of every part of a sequence whether it can take any text of any length."""
    for code, argument in tree:
        name = str(code)
        if name.endswith("_REPEAT") and argument[1] >= LENGTH:
            (_, _, body) = argument
            yield len(body) == 1 and _characters(str(body[0][0]), body[0][1]) == _ALL
        elif name not in _NO_WIDTH:
            inner = _inside(name, argument)
            for each in inner:
                yield from _free(each)
            if not inner:
                yield False


def _after_run(before: _Ways, takes: frozenset[str], least: int, lengths: int) -> _Ways:
    """Return the ways behind ``least`` or more of some characters, of so many lengths."""
    here = before.settled(takes)
    after = replace(before, starts=before.ends, last=takes)
    if least > 0:
        if not takes & before.taken:
            return replace(
                after,
                ends=here * lengths,
                taken=takes,
                passed=frozenset(),
                starts=here,
            )
        return replace(
            after,
            ends=here * lengths,
            meets=min(here, before.meets * lengths),
            taken=before.taken | before.passed | takes,
            starts=here,
        )
    meets, taken = before.meets, before.taken
    if takes & before.taken:
        meets = min(before.ends, meets * lengths)
        taken |= before.passed
    return replace(
        after,
        ends=before.ends + here * (lengths - 1),
        meets=meets,
        taken=taken | takes,
    )


def _apart(firsts: Sequence[frozenset[str] | None], before: _Ways) -> bool:
    """Tell whether a text's next character says where and with which one it goes on."""
    known = [first for first in firsts if first is not None]
    return len(known) == len(firsts) and not any(
        one & other for one, other in combinations([before.taken, *known], 2)
    )


def _joined(
    ways: Sequence[_Ways], firsts: Sequence[frozenset[str] | None]
) -> frozenset[str]:
    return frozenset[str]().union(
        *(each.taken for each in ways), *(first or () for first in firsts)
    )


def _may_be_missing(name: str, argument: Any) -> bool:
    return name.endswith("_REPEAT") and argument[0] == 0


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


def _characters(name: str, argument: Any) -> frozenset[str]:
    """Return what one character of a pattern may be; all, where that isn't plain."""
    if name == "LITERAL":
        return frozenset({chr(argument)}) if argument < 128 else _BEYOND
    if name == "NOT_LITERAL":
        return _ALL - {chr(argument)}
    if name == "RANGE":
        low, high = argument
        beyond = _BEYOND if high >= 128 else frozenset[str]()
        return (
            frozenset(each for each in _ALL - _BEYOND if low <= ord(each) <= high)
            | beyond
        )
    if name == "CATEGORY":
        return _CLASSES.get(str(argument).removeprefix("CATEGORY_"), _ALL)
    if name != "IN":
        return _ALL  # ANY, or a group's text again
    listed = [(str(code), inner) for code, inner in argument]
    negated = listed[0][0] == "NEGATE"
    found = frozenset[str]()
    for kind, inner in listed[negated:]:
        each = _characters(kind, inner)
        # A class holds all that a sign beyond ASCII stands for, anything else some of it.
        found |= each - _BEYOND if negated and kind != "CATEGORY" else each
    return _ALL - found if negated else found
