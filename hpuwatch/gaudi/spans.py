"""Where a knob acts: ranges of releases that a program can compare.

A range is written in a word, and several of them with blanks between: ``fork-1.19..`` is
the fork from 1.19 on, ``fork-..1.21`` up to 1.21 with all its patches, ``fork-1.21`` that
one alone, ``plugin`` every plugin, ``all`` everything and ``none`` nothing.  The families
are ``fork`` (named after the Gaudi software), ``vllm`` (vLLM's own code for Gaudi before
the plugin) and ``plugin``, whose newest is ``plugin-head``.

A release that is named without its patch means the newest patch of it.
"""

from __future__ import annotations

import math
import re
from functools import lru_cache
from typing import NamedTuple

from hpuwatch.gaudi.releases import NEWEST, release_of

FAMILIES = ("fork", "vllm", "plugin")
RELEASES = (
    *(f"fork-1.{minor}" for minor in range(17, 24)),
    *(f"vllm-0.{minor}" for minor in range(6, 10)),
    *(f"plugin-0.{minor}" for minor in range(10, 28)),
    "plugin-head",
)
"""Every release that a page tells of, by family, the oldest first."""

_NUMBER = r"\d+(?:\.\d+)*"
_WORD = re.compile(
    rf"(fork|vllm|plugin)(?:-(?=.)(head|{_NUMBER})?(\.\.)?({_NUMBER})?)?"
)
_UNBOUND = (math.inf,)


class Point(NamedTuple):
    """One release: its family and its numbers, as ``("plugin", (0, 17, 1))``."""

    family: str
    numbers: tuple[float, ...]

    @property
    def is_v0(self) -> bool:
        """Whether it runs vLLM's older engine, V0, as every release before the plugin does."""
        return self.family != "plugin"


class Span(NamedTuple):
    """Releases of a family from ``first`` to ``last``, both included."""

    family: str
    first: tuple[float, ...]
    last: tuple[float, ...]

    def covers(self, point: Point) -> bool:
        """Tell whether the release lies in it."""
        if point.family != self.family:
            return False
        # What isn't said of a patch is the newest one, at the point and at the end alike.
        at, last = (*point.numbers, math.inf), (*self.last, math.inf)
        return self.first <= at <= last


def point_of(text: str) -> Point:
    """Return where the release that ``text`` names stands, its patch included.

    Raises:
        ConfigError: it names no release that runs on Gaudi.
    """
    release = release_of(text)
    family, _, short = release.name.partition("-")
    if short == "head":
        return Point(family, _UNBOUND)
    if family not in FAMILIES:
        return point_of(release.assumed_like or NEWEST)
    patch = re.search(rf"(?<![\d.]){re.escape(short)}((?:\.\d+)*)", text)
    return Point(family, _numbers(short + (patch[1] if patch else "")))


def covers(spans: str, point: Point) -> bool:
    """Tell whether the release lies in one of the ranges."""
    return any(span.covers(point) for span in read_spans(spans))


@lru_cache(maxsize=512)
def read_spans(text: str) -> tuple[Span, ...]:
    """Return the ranges that the words stand for.

    Raises:
        ValueError: a word is none.
    """
    if text == "none":
        return ()
    words = FAMILIES if text == "all" else text.split()
    return tuple(_span(word) for word in words)


def prose(spans: str) -> str:
    """Return the ranges in words, as ``fork-1.19 and later, plugin``."""
    if spans in {"all", "none"}:
        return spans
    return ", ".join(_in_words(word) for word in spans.split())


def _span(word: str) -> Span:
    found = _WORD.fullmatch(word)
    if found is None:
        raise ValueError(f"{word!r} is no range of releases")
    family, first, dots, last = found.groups()
    if first == "head":
        return Span(family, _UNBOUND, _UNBOUND)
    begin = _numbers(first) if first else (0,)
    if not (first or dots or last) or (dots and not last):
        return Span(family, begin, _UNBOUND)
    return Span(family, begin, _numbers(last) if last else begin)


def _numbers(text: str) -> tuple[float, ...]:
    return tuple(int(part) for part in text.split("."))


def _in_words(word: str) -> str:
    family, _, rest = word.partition("-")
    first, dots, last = rest.partition("..")
    if not dots:
        return word
    if not last:
        return f"{family}-{first} and later"
    if not first:
        return f"up to {family}-{last}"
    return f"{family}-{first} to {family}-{last}"
