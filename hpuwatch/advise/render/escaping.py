"""Texts of logs and names of files, made harmless for a terminal, a shell and markdown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

_MARKS = re.compile(r"[\\`*\[\]|]")


def printable(text: str) -> str:
    """Return a text in which nothing moves a cursor, ends a line or changes its direction.

    File names may hold anything; the lines of a log were cleaned as they were read.
    """
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def safe(text: str) -> str:
    """Return a text of which markdown makes nothing but that text.

    Much of it comes from logs: a model's name may hold tags, links or the bars of a table.
    """
    escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _MARKS.sub(r"\\\g<0>", escaped)


def code(text: str) -> str:
    """Return a text as code, within fences that it doesn't hold itself."""
    fence = _fence(text, 1)
    return f"{fence} {text} {fence}" if "`" in text else f"`{text}`"


def fenced(kind: str, lines: Iterable[str]) -> Iterator[str]:
    """Yield lines as a block of code."""
    held = list(lines)
    fence = _fence("\n".join(held), 3)
    yield from ("", f"{fence}{kind}", *held, fence)


def _fence(text: str, least: int) -> str:
    runs = (len(run) for run in re.findall("`+", text))
    return "`" * max(least, 1 + max(runs, default=0))
