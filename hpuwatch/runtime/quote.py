"""A few lines of another log, ready to be shown."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from hpuwatch.parse.clean import clean
from hpuwatch.parse.mask import mask

MOST_LINES = 3
"""How many lines of one log are quoted: the last ones."""
TAIL_BYTES = 256 * 1024
DAY_SECONDS = 86_400
_LONGEST_LINE = 300


class Quote(BaseModel):
    """What another log says; ``unread`` tells why it could not be looked into."""

    model_config = ConfigDict(frozen=True)

    source: str
    lines: tuple[str, ...] = ()
    unread: str = ""

    def text(self) -> str:
        """Return it for people; nothing where the log had nothing to say."""
        if self.unread:
            return f"not looked into: {self.source} ({self.unread})"
        if not self.lines:
            return ""
        return "\n".join([f"{self.source}:", *(f"  | {line}" for line in self.lines)])


def quoted(source: str, texts: Iterable[str]) -> Quote:
    """Quote the last of some lines: clean, masked and cut."""
    last = [*texts][-MOST_LINES:]
    lines = tuple(mask(clean(text).strip())[:_LONGEST_LINE] for text in last)
    return Quote(source=source, lines=lines)


def tail(file: Path) -> tuple[bytes, float]:
    """Return the end of a file from a line's begin on, and when it was last written.

    Raises:
        OSError: it can't be read.
    """
    descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK)
    try:
        found = os.fstat(descriptor)
        begin = max(0, found.st_size - TAIL_BYTES)
        data = os.pread(descriptor, TAIL_BYTES, begin)
    finally:
        os.close(descriptor)
    return data.partition(b"\n")[2] if begin else data, found.st_mtime


def unread(source: str, error: OSError) -> Quote:
    """Say why a log could not be looked into."""
    reasons = {
        FileNotFoundError: "it is not there",
        NotADirectoryError: "it is not there",
        PermissionError: "no permission",
    }
    reason = reasons.get(type(error), error.strerror or str(error))
    return Quote(source=source, unread=reason)
