"""Passing the server's output on, byte for byte, to whoever reads ours.

The echo reads the spool at a place of its own, on a thread of its own, with ordinary blocking
writes: a reader that stalls stops this thread and nothing else.  What it then misses is
dropped from the oldest on, to the next line end, and counted.  A reader that leaves ends the
echo.  The place is written down after each write, so the next watcher goes on there and
repeats at most one piece.
"""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

PIECE = 64 * 1024
MOST_BEHIND_BYTES = 8 * 1024**2
_POLL_SECONDS = 0.1


class Echo:
    """Copies a spool to a file descriptor."""

    def __init__(
        self,
        spool: str,
        output: int,
        say: Callable[[str], None],
        *,
        record: Path | None = None,
        resumes: bool = False,
    ) -> None:
        """Find the place to begin at.

        Args:
            spool: what to copy.
            output: the descriptor to write to.
            say: tells people what goes wrong.
            record: where the place is kept.
            resumes: another watcher echoed before us; without a record we can't know
                how far, and begin at the end.

        Raises:
            OSError: the spool isn't there.
        """
        self._spool = os.open(spool, os.O_RDONLY)
        self._output = output
        self._say = say
        self._record = -1
        self._place = self._end() if resumes else 0
        if record is not None:
            self._take_up(record)
        self._passed_on = 0  # in bytes, since our place at the beginning
        self._first = self._place
        self._gone = False
        self._last_call = threading.Event()
        self._done = threading.Event()
        self._news = threading.Event()
        self._thread = threading.Thread(target=self._run, name="echo", daemon=True)

    @property
    def dropped_bytes(self) -> int:
        """Return how much was, or is already certain to be, not passed on."""
        kept = 0 if self._gone else MOST_BEHIND_BYTES
        due = max(self._place, self._end() - kept) - self._first
        return max(0, due - self._passed_on)

    def start(self) -> None:
        """Copy from now on."""
        self._thread.start()

    def wake(self) -> None:
        """Say that there is something new."""
        self._news.set()

    def finish(self, seconds: float) -> None:
        """Copy what is there, but wait no longer than that for a slow reader."""
        self._last_call.set()
        self._news.set()
        self._done.wait(seconds)

    def _run(self) -> None:
        try:
            self._copy()
        except OSError as error:
            self._gone = True
            self._say(
                f"nobody reads our output any more ({error.strerror}); the server goes on"
            )
        self._done.set()

    def _copy(self) -> None:
        while True:
            last = self._last_call.is_set()
            self._news.clear()
            self._skip()
            data = os.pread(self._spool, PIECE, self._place)
            if data:
                self._write(data)
            elif last:
                return
            else:
                self._news.wait(_POLL_SECONDS)

    def _write(self, data: bytes) -> None:
        try:
            written = os.write(self._output, data)
        except BlockingIOError:  # somebody made the descriptor we share non-blocking
            select.select([], [self._output], [])
            return
        self._passed_on += written  # first, so that what was dropped is never too much
        self._place += written
        if self._record >= 0:
            with suppress(OSError):
                os.pwrite(self._record, b"%020d\n" % self._place, 0)

    def _skip(self) -> None:
        """Give up what lies too far behind, to the end of a line."""
        end = self._end()
        if end - self._place <= MOST_BEHIND_BYTES:
            return
        place = end - MOST_BEHIND_BYTES
        rest = os.pread(self._spool, PIECE, place)
        place += rest.find(b"\n") + 1
        self._say(
            f"{place - self._place} bytes of output were not passed on: their reader stalled"
        )
        self._place = place

    def _take_up(self, record: Path) -> None:
        with suppress(OSError):
            self._record = os.open(record, os.O_RDWR | os.O_CREAT, 0o600)
            known = os.pread(self._record, 20, 0)
            self._place = min(int(known), self._end()) if known.isdigit() else 0

    def _end(self) -> int:
        return os.fstat(self._spool).st_size
