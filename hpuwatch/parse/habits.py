r"""What a server says over and over, and how it was read.

A server at work has a handful of sentences and prints each of them thousands of times with
other numbers.  How a line is read follows from its letters, with two exceptions: digits in
front of the message (a process id is not a time) and digits in the message (values).  So what was
found out about a line, by the slow and general way, holds for another one that

* has the same letters (the text without its digits),
* has the same head, but for the digits of its time, and
* has a message that the same closed pattern covers from end to end, or that no rule knows.

Such a line is read by one look into a table and one regular expression, and the outcome is
the same.  A habit is formed when its letters come for the second time.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from hpuwatch.events import Speaker, Value
from hpuwatch.parse.header import Record
from hpuwatch.parse.rules import Match
from hpuwatch.parse.template import without_digits
from hpuwatch.parse.unmatched import Row

_MOST = 2_048  # letters that are remembered; beyond it all are forgotten
_MOST_HEADS = 16  # of one sentence: ranks and engines
_LONGEST = 1_000  # characters of a line that may form a habit
_TIME = r"(\d\d-\d\d \d\d:\d\d:\d\d)"


@dataclass(frozen=True, slots=True)
class Habit:
    """How lines of one form are read.

    Attributes:
        regex: finds the time and the message's values.
        begin: where the message begins.
        speaker: who says it, or None where no prefix stands.
        level: of the header.
        match: of the first one, or None where no rule knows the message.
        row: where it is counted then, if anybody asked for it.
        matters: whether it then counts as unparsed.
    """

    regex: re.Pattern[str]
    begin: int
    speaker: Speaker | None
    level: str
    match: Match | None
    row: Row | None
    matters: bool

    def fields(self, found: re.Match[str]) -> dict[str, Value] | None:
        """Return the values of a message, or None where one can't be converted."""
        if self.match is None:
            return {}
        template = self.match.template
        fields = template.fields(found.groups(), before=1)
        return None if fields is None else self.match.rule.completed(template, fields)


class Habits:
    """Remembers how the lines that come again and again were read."""

    def __init__(self) -> None:
        """Begin with no habit."""
        self._known: dict[bytes, list[Habit]] = {}
        self._letters = b""  # of the line that was looked for last

    def recall(self, text: str) -> tuple[Habit, re.Match[str]] | None:
        """Return the habit that a line follows and what its expression found."""
        self._letters = letters = without_digits(text)
        for habit in self._known.get(letters, ()):
            found = habit.regex.match(text)
            if found is not None:
                return habit, found
        return None

    def wants(self, text: str, record: Record) -> bool:
        """Tell whether the line looked for last, read as one record, may form a habit.

        It may when its letters come again and its head is printed as vLLM prints it.
        """
        habits = self._known.get(self._letters)
        if habits is None:
            if len(self._known) >= _MOST:
                self._known.clear()
            if len(text) <= _LONGEST:
                self._known[self._letters] = []
            return False
        if record.level is None or record.logged_at is None or text.strip() != text:
            return False
        whole = f"{record.head}{record.message}" == text
        dated = record.head.count(record.logged_at) == 1
        return whole and dated and len(habits) < _MOST_HEADS

    def form(
        self,
        record: Record,
        match: Match | None,
        *,
        row: Row | None = None,
        matters: bool = False,
    ) -> None:
        """Remember how the line looked for last was read.

        Args:
            record: what it was read as.
            match: what its message is, which ``match.is_all``; None if no rule knows it.
            row: where it is counted then.
            matters: whether it then counts as unparsed.
        """
        before, _, behind = record.head.partition(record.logged_at or "")
        source = f"{match.template.source}\\Z" if match else ""
        habit = Habit(
            _regex(before, behind, source),
            len(record.head),
            record.speaker,
            record.level or "",
            match,
            row,
            matters,
        )
        self._known[self._letters].append(habit)


@lru_cache(maxsize=1024)
def _regex(before: str, behind: str, message: str) -> re.Pattern[str]:
    return re.compile(f"{re.escape(before)}{_TIME}{re.escape(behind)}{message}")
