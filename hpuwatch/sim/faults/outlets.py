"""The streams of a server whose output may fail."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from contextlib import suppress
from typing import TextIO


class Outlet(io.TextIOBase):
    """A stream that lets text through as long as it may.

    ``limit`` is asked how much of a text may come: all of it, half, or nothing.
    """

    def __init__(self, target: TextIO, limit: Callable[[str], str]) -> None:
        """Take the real stream."""
        self._target = target
        self._limit = limit

    def write(self, text: str) -> int:
        """Write what may come of a text."""
        self._target.write(self._limit(text))
        return len(text)

    def write_bytes(self, data: bytes) -> None:
        """Write bytes that need not be text."""
        self._target.flush()
        binary = getattr(self._target, "buffer", None)
        if binary is None:  # a stream in memory
            self._target.write(data.decode("latin-1"))
            return
        binary.write(data)
        binary.flush()

    def close_below(self) -> None:
        """Close what lies below the stream, so that writing still works."""
        self._target.flush()
        with suppress(OSError):  # io.UnsupportedOperation: a stream in memory
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._target.fileno())
            os.close(nowhere)

    def flush(self) -> None:
        """Pass everything on; at the end the stream below may be closed before this one."""
        if not self._target.closed:
            self._target.flush()

    def isatty(self) -> bool:
        """Tell whether a terminal lies below."""
        return self._target.isatty()

    def fileno(self) -> int:
        """Return the descriptor below."""
        return self._target.fileno()
