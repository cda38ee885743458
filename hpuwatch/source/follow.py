"""Following output that somebody else writes: a file that grows, or a pipe.

Growth is polled, since a system call ten times a second costs nothing where a notification
for every write costs much.  A file may be rotated in both usual ways.  By *rename*: the old
file is read to its end, and left only once the new one has something in it.  By *copy and
truncate*: the file is shorter than where we stand, or the bytes before that place are no
longer those that we read.  watchdog announces renames, so that a generation that lives
shorter than a poll isn't missed; where it can't watch, polling does.
"""

from __future__ import annotations

import os
import select
import stat
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from hpuwatch.source.changes import Changes
from hpuwatch.source.opening import opened

CHUNK = 1024 * 1024
_REMEMBERED = 64


class Follower:
    """Follows a file by its name."""

    ended = False

    def __init__(self, path: str | Path) -> None:
        """Open the file; reading begins at its first byte.

        Raises:
            MissingFileError: there is no such file, or it can't be opened.
            InputError: it is a folder.
        """
        self._path = Path(path)
        self._file = opened(path, lambda: _File(self._path))
        self._next: deque[_File] = deque()
        self._lock = threading.Lock()  # look() also comes from watchdog's thread

    def read(self) -> bytes:
        """Return what is new, up to ``CHUNK`` bytes; nothing if nothing is."""
        while True:
            data = self._file.read()
            if data:
                return data
            self.look()
            with self._lock:
                if not self._next or (len(self._next) == 1 and self._next[0].empty()):
                    return b""
                # The old file may have got its last lines after we looked at it.
                data = self._file.read()
                if data:
                    return data
                self._file.close()
                self._file = self._next.popleft()

    def look(self) -> None:
        """See whether another file has taken the name."""
        with self._lock, suppress(OSError):
            newest = self._next[-1] if self._next else self._file
            if not newest.is_at(self._path):
                self._next.append(_File(self._path))

    def close(self) -> None:
        """Close what is open."""
        with self._lock:
            for file in (self._file, *self._next):
                file.close()
            self._next.clear()


class _File:
    """One generation of a followed file."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDONLY)
        found = os.fstat(self._descriptor)
        if stat.S_ISDIR(found.st_mode):
            os.close(self._descriptor)
            raise IsADirectoryError(str(path))
        self._identity = (found.st_dev, found.st_ino)
        self._position = 0
        self._before = b""  # the last bytes read

    def read(self) -> bytes:
        truncated = self._was_truncated()
        if truncated:
            self._position, self._before = self._first_data(), b""
        data = os.pread(self._descriptor, CHUNK, self._position)
        if data:
            self._position += len(data)
            self._before = (self._before + data)[-_REMEMBERED:]
        return data.lstrip(b"\0") if truncated else data

    def empty(self) -> bool:
        return os.fstat(self._descriptor).st_size == 0

    def is_at(self, path: Path) -> bool:
        found = path.stat()
        return (found.st_dev, found.st_ino) == self._identity

    def close(self) -> None:
        os.close(self._descriptor)

    def _first_data(self) -> int:
        """Skip the hole that a writer without O_APPEND leaves in a truncated file."""
        try:
            return os.lseek(self._descriptor, 0, os.SEEK_DATA)
        except OSError:  # nothing in it, or a file system that knows no holes
            return 0

    def _was_truncated(self) -> bool:
        size = os.fstat(self._descriptor).st_size
        if size <= self._position:
            return size < self._position
        # It has grown; but it may have been truncated first and grown past our place.
        known = len(self._before)
        return os.pread(self._descriptor, known, self._position - known) != self._before


class Pipe:
    """Reads a pipe (or a terminal) until its writer closes it."""

    def __init__(self, descriptor: int) -> None:
        """Read from an open descriptor."""
        self._descriptor = descriptor
        self.ended = False

    def read(self) -> bytes:
        """Return what is there, up to ``CHUNK`` bytes; nothing if nothing is."""
        if self.ended or not select.select([self._descriptor], [], [], 0)[0]:
            return b""
        data = os.read(self._descriptor, CHUNK)
        self.ended = not data
        return data


def open_stream(path: str) -> Follower | Pipe:
    """Return what to read a log from: ``-`` is standard input; a FIFO is a pipe too.

    Raises:
        MissingFileError: there is no such file, or it can't be opened.
        InputError: it is a folder.
    """
    if path == "-":
        return Pipe(0)
    with suppress(OSError):
        if not stat.S_ISREG(Path(path).stat().st_mode) and not Path(path).is_dir():
            return Pipe(os.open(path, os.O_RDONLY))
    return Follower(path)


class Renames(Changes):
    """Tells when a file is renamed, made or removed under a path or where its link leads."""

    def __init__(self, path: str | Path, tell: Callable[[], None]) -> None:
        """Watch the folder of a path from ``with`` on; ``tell`` comes from a thread."""
        names = {os.path.abspath(path), os.path.realpath(path)}  # noqa: PTH100  no links resolved

        def changed(paths: set[str]) -> None:
            if names & paths:
                tell()

        folders = {os.path.dirname(name) for name in names}  # noqa: PTH120  of strings
        super().__init__(folders, changed, writes=False)
