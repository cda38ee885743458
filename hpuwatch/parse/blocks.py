"""Tracebacks: many lines that are one record.

A traceback comes bare (stderr) or with the header repeated on every line (the logger); a group
of exceptions has a margin drawn with ``|`` and ``+``.  Lines of other processes come in between.  Each process may have one of each under way.  It is over
when its process says something else; :meth:`Tracebacks.settle` ends those that are complete
when nothing more comes.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TypeAlias

from hpuwatch.events import Speaker
from hpuwatch.parse.header import Record
from hpuwatch.records import Line

CONTEXT_LINES = 12
_LONGEST = 5_000  # lines after which a block without an end is given up
_MOST = 64  # blocks under way; beyond it the oldest is given up

_BEGIN = "Traceback (most recent call last):"
_CHAIN = (
    "During handling of the above exception",
    "The above exception was the direct cause",
)
_EXCEPTION = re.compile(r"[A-Za-z_][\w.]*(?:\([\w.]+\))?(?:: .*|:)?$")
_MORE = re.compile(r"\s|\[Rank:")
_MARGIN = re.compile(r" {2,40}(?:\| ?|\+-\+-{2,40} \d+ -{2,40}|\+-{2,40}|\+ )")

_Owner: TypeAlias = "tuple[Speaker, str | None]"


class _Role(Enum):
    """What a line is to a traceback."""

    BEGIN = "its first line"
    CHAIN = "says that another exception follows"
    EXCEPTION = "the exception itself"
    MORE = "code, or more of the exception's message"


@dataclass
class Traceback:
    """A traceback, complete or under way.

    Attributes:
        speaker: who printed it.
        level: of its header, or None where it came bare.
        exceptions: the exception lines; a chain has several, the last was raised last.
        context: its last lines.
        length: lines so far.
        ended: its exception line has come; more may follow, of the message or the chain.
    """

    speaker: Speaker
    level: str | None
    exceptions: list[tuple[Record, Line]] = field(default_factory=list)
    context: deque[str] = field(default_factory=lambda: deque(maxlen=CONTEXT_LINES))
    length: int = 0
    ended: bool = False

    def role_of(self, record: Record) -> _Role | None:
        """Say what a line of the same process and style is here, None for a stranger."""
        message = _without_margin(record.message)
        grouped = len(message) < len(record.message)
        if _BEGIN in message:
            return None if self.ended and not grouped else _Role.BEGIN
        if message.startswith(_CHAIN):
            return _Role.CHAIN
        if not message.strip() or _MORE.match(message):
            return _Role.MORE
        if self.ended and not grouped:
            # Lines behind one header are one record: the message has several lines.
            return _Role.MORE if record.level is not None else None
        if _EXCEPTION.match(message):
            return _Role.EXCEPTION
        return _Role.MORE if grouped else None

    def add(self, record: Record, line: Line, role: _Role) -> None:
        """Take one more line."""
        self.length += 1
        if record.message.strip():
            self.context.append(record.message)
        if role is _Role.EXCEPTION:
            plain = replace(record, message=_without_margin(record.message))
            self.exceptions.append((plain, line))
            self.ended = True
        elif role is not _Role.MORE:
            self.ended = False


class Tracebacks:
    """The tracebacks under way, by process and style."""

    def __init__(self) -> None:
        """Begin with none."""
        self._open: dict[_Owner, Traceback] = {}

    @property
    def under_way(self) -> bool:
        """Return whether any has begun and is not over."""
        return bool(self._open)

    def take(
        self, record: Record, speaker: Speaker, line: Line
    ) -> tuple[bool, list[Traceback]]:
        """Offer a record.

        Returns:
            whether the record belongs to a traceback, and the tracebacks that it ended.
        """
        begins = _BEGIN in record.message
        if not self._open and not begins:
            return False, []
        owner = _owner(record, speaker)
        done = self._ended_by(record, owner)
        block = self._open.get(owner)
        if block is None:
            if not begins:
                return False, done
            block = self._opened(owner, Traceback(speaker, record.level))
        role = block.role_of(record)
        if role is None:
            return False, done
        block.add(record, line, role)
        if block.length > _LONGEST:
            del self._open[owner]
            done += [block] if block.ended else []
        return True, done

    def settle(self) -> list[Traceback]:
        """End the tracebacks whose exception line has come."""
        done = [block for block in self._open.values() if block.ended]
        self._open = {o: block for o, block in self._open.items() if not block.ended}
        return done

    def close(self) -> list[Traceback]:
        """End all; one without an exception line is dropped."""
        done = self.settle()
        self._open.clear()
        return done

    def _opened(self, owner: _Owner, block: Traceback) -> Traceback:
        self._open[owner] = block
        if len(self._open) > _MOST:
            del self._open[next(iter(self._open))]
        return block

    def _ended_by(self, record: Record, owner: _Owner) -> list[Traceback]:
        """Close what this record's process has finished and doesn't go on with."""
        ended = [
            other
            for other, block in self._open.items()
            if other[0] == owner[0]
            and block.ended
            and (other != owner or block.role_of(record) is None)
        ]
        return [self._open.pop(other) for other in ended]


def _owner(record: Record, speaker: Speaker) -> _Owner:
    # All lines of one logged record share their head; bare lines may lack the prefix.
    return speaker, record.head if record.level else None


def _without_margin(message: str) -> str:
    """Return a line of a group of exceptions without what is drawn around it."""
    if not message.startswith("  "):
        return message
    margin = _MARGIN.match(message)
    return message[margin.end() :] if margin else message
