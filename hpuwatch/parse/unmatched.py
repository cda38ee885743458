"""Lines that no rule knew, counted by what they have in common.

Numbers, addresses, paths and quoted words differ from line to line; what is left is the
line's template, which is what a rule author needs to see.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

_LIMIT = 2_000  # templates kept; later new ones are counted only in `rest`
_LONGEST = 300  # characters of a message that its template is made of
_VARIABLES = (
    (re.compile(r"'[^']*'|\"[^\"]*\""), "<text>"),
    (re.compile(r"\b0x[0-9a-fA-F]+\b|\b[0-9a-f]{12,}\b"), "<hex>"),
    (re.compile(r"(?<![\w<])(?:https?:/)?(?:/[\w.@+-]+){2,}/?"), "<path>"),
    (re.compile(r"(?<![A-Za-z_])-?\d[\d.,]*"), "<n>"),
)


@dataclass(frozen=True, slots=True)
class Unmatched:
    """A template, the level of its lines, how many there were and the first of them."""

    template: str
    level: str
    count: int
    example: str


@dataclass(slots=True)
class Row:
    """How often a template came, and the first line of it."""

    example: str
    count: int = 0


class Counter:
    """Counts unmatched messages by level and template.

    A template is made of the masked message, which takes its time.  It is made once for all
    lines that differ in digits only, and once for all that have the same template unmasked.
    Once the table is full, a line that is like none of these is only counted.

    Attributes:
        rest: the lines that found the table full.
    """

    def __init__(self, hide: Callable[[str], str] = str) -> None:
        """Begin with nothing counted; ``hide`` masks more of what is shown."""
        self._hide = hide
        self._seen: dict[tuple[str, str], Row] = {}
        self._by_letters: dict[tuple[str, str], Row] = {}  # those of late
        self._by_unmasked: dict[tuple[str, str], Row] = {}  # likewise
        self.rest = Row("")

    def row(
        self,
        level: str | None,
        message: str,
        letters: str,
        shown: Callable[[], tuple[str, str]],
    ) -> Row:
        """Return where a message is counted.

        Args:
            level: of its header.
            message: as printed.
            letters: its skeleton.
            shown: gives the message and its whole line, masked; asked for new ones only.
        """
        key = level or "", letters
        row = self._by_letters.get(key)
        if row is None:
            row = self._by_template(key[0], message, shown)
            if row is not self.rest and len(letters) <= _LONGEST:
                _remember(self._by_letters, key, row)
        return row

    def _by_template(
        self, level: str, message: str, shown: Callable[[], tuple[str, str]]
    ) -> Row:
        unmasked = level, template_of(message)
        row = self._by_unmasked.get(unmasked)
        if row is not None:
            return row
        if len(self._seen) >= _LIMIT:
            return self.rest
        # A template has lost what a host or a path is known by: they go before.
        masked, text = map(self._hide, shown())
        row = self._seen.setdefault((level, template_of(masked)), Row(text))
        _remember(self._by_unmasked, unmasked, row)
        return row

    def templates(self) -> list[Unmatched]:
        """Return the templates, the most frequent first; the rest belongs to none."""
        found = [
            Unmatched(template, level, row.count, row.example)
            for (level, template), row in self._seen.items()
        ]
        return sorted(found, key=lambda item: (-item.count, item.template))


Key = TypeVar("Key")


def _remember(table: dict[Key, Row], key: Key, row: Row) -> None:
    if len(table) >= _LIMIT:
        table.clear()
    table[key] = row


def template_of(message: str) -> str:
    """Return the message with its variable parts replaced."""
    text = message.strip()[:_LONGEST]
    for pattern, stand_in in _VARIABLES:
        text = pattern.sub(stand_in, text)
    return text
