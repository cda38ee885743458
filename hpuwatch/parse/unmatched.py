"""Lines that no rule knew, counted by what they have in common.

Numbers, addresses, paths and quoted words differ from line to line; what is left is the
line's template, which is what a rule author needs to see.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_LIMIT = 2_000  # templates kept; later new ones are counted only in `dropped`
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


class Counter:
    """Counts unmatched messages by template."""

    def __init__(self) -> None:
        """Begin with nothing counted."""
        self._seen: dict[tuple[str, str], tuple[int, str]] = {}
        self.dropped = 0

    def add(self, level: str | None, message: str, text: str) -> None:
        """Count a message; ``text`` is its whole line, masked."""
        key = (level or "", template_of(message))
        count, example = self._seen.get(key, (0, text))
        if not count and len(self._seen) >= _LIMIT:
            self.dropped += 1
            return
        self._seen[key] = (count + 1, example)

    def templates(self) -> list[Unmatched]:
        """Return the templates, the most frequent first."""
        found = [
            Unmatched(template, level, count, example)
            for (level, template), (count, example) in self._seen.items()
        ]
        return sorted(found, key=lambda item: (-item.count, item.template))


def template_of(message: str) -> str:
    """Return the message with its variable parts replaced."""
    text = message.strip()[:_LONGEST]
    for pattern, stand_in in _VARIABLES:
        text = pattern.sub(stand_in, text)
    return text
