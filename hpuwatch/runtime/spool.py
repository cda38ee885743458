"""The server's output on its way to the watcher: one growing file, positions absolute.

*Marks* note which bytes had been read by when, so that a watcher that takes over from a
killed one reads the same chunks with the same times and comes to the same state.  Start-up
is marked chunk by chunk; what comes after the first 16 MiB once a second, since nothing is
timed there.

Reading skips the hole that a spool gets which has grown too long (see ``room``).
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

CHUNK = 1024 * 1024
STARTUP_BYTES = 16 * 1024**2
"""What is always kept of the beginning: a new watcher needs the start and the warm-up."""

_MARK_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Chunk:
    """Bytes of the spool and when they were first read, seconds since the epoch."""

    data: bytes
    received_at: float


class Marks:
    """Which bytes had been read by when; without a path it forgets."""

    def __init__(self, path: Path | None) -> None:
        """Take up the marks of the watchers before."""
        self._file = -1
        self._ends: list[int] = []
        self._times: list[float] = []
        self._newest = 0.0
        if path is None:
            return
        with suppress(OSError):
            for line in path.read_text("ascii", "replace").splitlines():
                self._take(line)
        with suppress(OSError):
            self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def known(self, position: int) -> tuple[int, float] | None:
        """Return the end of the chunk that begins here and its time, or None if new."""
        place = bisect_right(self._ends, position)
        if place == len(self._ends):
            return None
        return self._ends[place], self._times[place]

    def add(self, end: int, at: float) -> None:
        """Note that everything before ``end`` has been read by now."""
        if end > STARTUP_BYTES and at - self._newest < _MARK_SECONDS:
            return
        self._newest = at
        if self._file >= 0:
            with suppress(OSError):
                os.write(self._file, f"{end} {at:.3f}\n".encode())

    def _take(self, line: str) -> None:
        end, _, at = line.partition(" ")
        with suppress(ValueError):
            mark = int(end), float(at)
            if not self._ends or mark[0] > self._ends[-1]:
                self._ends.append(mark[0])
                self._times.append(mark[1])


class Spool:
    """Reads a spool from its first byte on."""

    def __init__(self, path: str, marks: Marks, now: Callable[[], float]) -> None:
        """Open it.

        Args:
            path: the spool.
            marks: of this spool.
            now: returns seconds since the epoch.

        Raises:
            OSError: it isn't there.
        """
        self._descriptor = os.open(path, os.O_RDONLY)
        self._marks = marks
        self._now = now
        self.position = 0
        self.skipped_bytes = 0

    def read(self) -> Chunk | None:
        """Return the next bytes, or None if there are no new ones."""
        known = self._marks.known(self.position)
        most = CHUNK if known is None else min(CHUNK, known[0] - self.position)
        data = os.pread(self._descriptor, most, self.position)
        if not data:
            return None
        if data.startswith(b"\0") and self._skip_hole():
            return Chunk(b"\n", known[1] if known else self._now())  # ends half a line
        self.position += len(data)
        if known is not None:
            return Chunk(data, known[1])
        at = round(self._now(), 3)
        self._marks.add(self.position, at)
        return Chunk(data, at)

    def skip_to(self, position: int) -> None:
        """Give up what lies between here and there; what is read next may be half a line."""
        self.skipped_bytes += position - self.position
        self.position = position

    def end(self) -> int:
        """Return where the spool ends now."""
        return os.fstat(self._descriptor).st_size

    def close(self) -> None:
        """Close it."""
        os.close(self._descriptor)

    def _skip_hole(self) -> bool:
        try:
            data = os.lseek(self._descriptor, self.position, os.SEEK_DATA)
        except OSError:  # nothing behind it, or a file system that knows no holes
            return False
        skipped = data - self.position
        self.skipped_bytes += skipped
        self.position = data
        return skipped > 0
