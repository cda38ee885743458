"""Room for the spool, so that neither a long life nor a full disk kills a server that prints.

Some room is allocated ahead of the spool's end.  A spool past its limit gets a hole between
its beginning, which a new watcher needs, and its newest half; a disk that is full makes the
hole come early.  All of it happens on a thread of its own, since it must not wait for lines
to be understood.  File systems without these calls go without.
"""

from __future__ import annotations

import ctypes
import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path

from hpuwatch.runtime.spool import STARTUP_BYTES

ROOM_BYTES = 16 * 1024**2
MOST_ON_DISK_BYTES = 512 * 1024**2
MOST_IN_MEMORY_BYTES = 48 * 1024**2

_POLL_SECONDS = 0.1
_KEEP_SIZE, _PUNCH_HOLE = 1, 2
_ALIGNED = 1024**2


class Room:
    """Keeps room ahead of a spool's end, and its size on disk within a limit."""

    def __init__(
        self,
        path: str,
        say: Callable[[str], None],
        *,
        most_bytes: int = MOST_ON_DISK_BYTES,
        startup_bytes: int = STARTUP_BYTES,
        ahead: bool = True,
    ) -> None:
        """Open the spool for allocation.

        Args:
            path: the spool.
            say: tells people of a full disk.
            most_bytes: a longer spool gets a hole.
            startup_bytes: what is always kept of its beginning.
            ahead: allocate room ahead of the end.

        Raises:
            OSError: it isn't there.
        """
        self._say = say
        self._descriptor = os.open(path, os.O_WRONLY)
        self._most = most_bytes
        self._startup = startup_bytes
        self._ahead = ahead
        self._allocated = 0
        self._hole_end = startup_bytes
        self._full = False
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="room", daemon=True)

    def start(self) -> None:
        """Tend to it from now on."""
        self._thread.start()

    def close(self) -> None:
        """Tend no longer; what was allocated ahead is the keeper's to give back."""
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()
        os.close(self._descriptor)

    def tend(self) -> None:
        """Allocate and punch where it is time to."""
        end = os.fstat(self._descriptor).st_size
        if self._ahead and end + ROOM_BYTES // 2 > self._allocated:
            failed = self._call(_KEEP_SIZE, end, ROOM_BYTES)
            if not failed:
                self._allocated = end + ROOM_BYTES
            elif failed == errno.ENOSPC:
                self._make_room(end)
            else:
                self._ahead = False
        if self._startup + end - self._hole_end > self._most:
            self._punch(end - (self._most - self._startup) // 2)

    def _run(self) -> None:
        while not self._over.wait(_POLL_SECONDS):
            self.tend()

    def _make_room(self, end: int) -> None:
        if not self._full:
            self._full = True
            # We may have been given a descriptor's name, which tells people nothing.
            name = Path(f"/proc/self/fd/{self._descriptor}").readlink()
            self._say(
                f"the disk of {name} is full: output after the start is given up, "
                "the oldest first, so that the server goes on; free some room there"
            )
        self._punch(end - ROOM_BYTES // 2)

    def _punch(self, until: int) -> None:
        until -= until % _ALIGNED
        size = until - self._startup
        if until > self._hole_end and not self._call(
            _PUNCH_HOLE | _KEEP_SIZE, self._startup, size
        ):
            self._hole_end = until

    def _call(self, mode: int, offset: int, size: int) -> int:
        """Call ``fallocate``; return 0 or the error's number."""
        at, length = ctypes.c_int64(offset), ctypes.c_int64(size)
        if self._libc.fallocate(self._descriptor, mode, at, length) == 0:
            return 0
        return ctypes.get_errno()
