r"""Bytes to pieces of output.

A piece ends at ``\n``, ``\r\n`` or ``\r``; progress bars are written with ``\r``, so a
physical line may hold many pieces, which share its number.  The pieces depend only on the
bytes, never on how these were cut into chunks.  Of blank lines on end only the first gives a
piece, so that a flood of them costs nothing; the numbers count all of them.
"""

from __future__ import annotations

import re

from hpuwatch.records import Line

LONGEST = 1024 * 1024
"""Bytes after which a piece is cut; its rest becomes further pieces of the same line."""

# Every branch opens with a plain byte, which lets the search step over all others fast.
_ENDS = re.compile(rb"\r\n(?:\r\n)*|\n\n*|\r\r*(?!\n)")


class Assembler:
    """Joins the chunks of one stream into pieces."""

    def __init__(self, offset: int = 0, number: int = 1) -> None:
        """Begin at a place in the stream.

        Args:
            offset: position of the first byte that will be fed.
            number: number of the physical line that it belongs to.
        """
        self._rest = b""
        self._offset = offset  # of the first byte of the rest
        self._number = number
        self._line_has_piece = False
        self._blank = False  # the last complete line was blank
        self._after_return = False  # the last byte was \r: an \n now belongs to it
        self._received_at: float | None = None

    @property
    def offset(self) -> int:
        """Return the position behind the last complete piece."""
        return self._offset

    def feed(self, chunk: bytes, received_at: float | None = None) -> list[Line]:
        """Return the pieces that the chunk completes, in order."""
        if not chunk:
            return []
        self._received_at = received_at
        pieces: list[Line] = []
        if self._after_return:
            self._after_return = False
            if chunk.startswith(b"\n"):
                chunk = chunk[1:]
                self._offset += 1
                self._end_lines(pieces, self._offset - 2, 1, 2)
        data, searched = self._rest + chunk, len(self._rest)
        start = 0
        for ends in _ENDS.finditer(data, searched):
            at = self._offset + ends.start() - start
            self._emit(pieces, data[start : ends.start()])
            size = len(ends.group())
            self._offset, start = at + size, ends.end()
            if data[start - 1 : start] == b"\r":
                self._after_return = start == len(data)
            else:
                width = 2 if ends.group().startswith(b"\r") else 1
                self._end_lines(pieces, at, size // width, width)
        rest = data[start:]
        while len(rest) > LONGEST:
            self._emit(pieces, rest[:LONGEST])
            rest = rest[LONGEST:]
        self._rest = rest
        return pieces

    def close(self) -> list[Line]:
        """Return the last piece, which has no end, if there is one."""
        pieces: list[Line] = []
        self._emit(pieces, self._rest)
        self._rest = b""
        return pieces

    def _emit(self, pieces: list[Line], data: bytes) -> None:
        """Add the pieces of unended data and step over it."""
        for at in range(0, len(data), LONGEST):
            part = data[at : at + LONGEST]
            text = part.decode("utf-8", "replace")
            pieces.append(Line(text, self._offset, self._number, self._received_at))
            self._offset += len(part)
            self._line_has_piece = True

    def _end_lines(self, pieces: list[Line], at: int, count: int, width: int) -> None:
        """Step over line ends of ``width`` bytes, the first of which stands at ``at``."""
        if self._line_has_piece:
            self._line_has_piece = self._blank = False
            self._number += 1
            at, count = at + width, count - 1
        if count and not self._blank:
            self._blank = True
            pieces.append(Line("", at, self._number, self._received_at))
        self._number += count
