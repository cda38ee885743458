r"""Bytes to pieces of output.

A piece ends at ``\n``, ``\r\n`` or ``\r``; progress bars are written with ``\r``, so a
physical line may hold many pieces, which share its number.  The pieces depend only on the
bytes, never on how these were cut into chunks.  Of blank lines on end only the first gives a
piece, so that a flood of them costs nothing; the numbers count all of them.

Nearly all lines of a busy server are access lines that end alike and mean nothing.  Told of
such endings, the assembler looks for the ends of all *other* lines, at the speed of a scan
for one byte, and steps over what lies between; it counts what it steps over.  Whoever takes
the pieces may forbid that while a line that means nothing would mean something after all.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from hpuwatch.records import Line

LONGEST = 1024 * 1024
"""Bytes after which a piece is cut; its rest becomes further pieces of the same line."""

_STEP = LONGEST // 16  # of a chunk that are taken at a time

# Every branch opens with a plain byte, which lets the search step over all others fast.
_ENDS = re.compile(rb"\r\n(?:\r\n)*|\n\n*|\r\r*(?!\n)")


@dataclass(frozen=True, slots=True)
class Stepping:
    r"""Which lines may be stepped over, and when.

    Attributes:
        endings: how such lines end, in ASCII and without the line end; none, no stepping.
        forbidden: asked before lines are stepped over, whether they must become pieces.
        odd: tells whether some bytes hold a line that has to be read whatever its end.
    """

    endings: Iterable[str]
    forbidden: Callable[[], bool]
    odd: Callable[[bytes], bool]

    def by_line_end(self) -> dict[bytes, re.Pattern[bytes]]:
        r"""Return what finds the ends of the other lines, by line end."""
        endings = [re.escape(ending.encode("ascii")) for ending in self.endings]
        return {
            end: re.compile(
                end
                + b"".join(rb"(?<!%b%b)" % (ending, end) for ending in endings)
                + rb"(?:%b)*" % end
            )
            for end in (b"\n", b"\r\n")
            if endings
        }


_NEVER = Stepping((), lambda: True, lambda _: True)


class Assembler:
    """Joins the chunks of one stream into pieces."""

    def __init__(
        self, offset: int = 0, number: int = 1, *, stepping: Stepping = _NEVER
    ) -> None:
        """Begin at a place in the stream.

        Args:
            offset: position of the first byte that will be fed.
            number: number of the physical line that it belongs to.
            stepping: which lines may be stepped over; none unless told.
        """
        self._rest = b""
        self._offset = offset  # of the first byte of the rest
        self._number = number
        self._line_has_piece = False
        self._blank = False  # the last complete line was blank
        self._after_return = False  # the last byte was \r: an \n now belongs to it
        self._received_at: float | None = None
        self.step_over(stepping)

    def step_over(self, stepping: Stepping) -> None:
        """Step over other lines from the next chunk on."""
        self._stepping = stepping
        self._other_ends = stepping.by_line_end()

    @property
    def offset(self) -> int:
        """Return the position behind the last complete piece."""
        return self._offset

    @property
    def number(self) -> int:
        """Return the number of the physical line that the next byte belongs to."""
        return self._number

    def feed(self, chunk: bytes, received_at: float | None = None) -> Iterator[Line]:
        """Yield the pieces that the chunk completes, in order.

        All of them must be taken before the next call.
        """
        self._received_at = received_at
        for at in range(0, len(chunk), _STEP):
            yield from self._take(chunk[at : at + _STEP])

    def close(self) -> list[Line]:
        """Return the last piece, which has no end, if there is one."""
        pieces: list[Line] = []
        self._emit(pieces, self._rest)
        self._rest = b""
        return pieces

    def _take(self, chunk: bytes) -> Iterator[Line]:
        pieces: list[Line] = []
        if self._after_return:
            self._after_return = False
            if chunk.startswith(b"\n"):
                chunk = chunk[1:]
                self._offset += 1
                self._end_lines(pieces, self._offset - 2, 1, 2)
                yield from pieces
        data, searched = self._rest + chunk, len(self._rest)
        end = self._may_step(data)
        if end is None:
            yield from self._all(data, searched)
        else:
            yield from self._others(data, searched, end)

    def _may_step(self, data: bytes) -> bytes | None:
        r"""Return the one line end of the bytes, or None where all must become pieces.

        A bare ``\r`` cuts a line into pieces, and so does great length: neither may be
        overlooked.
        """
        if not self._other_ends or self._line_has_piece or len(data) > LONGEST:
            return None
        if self._stepping.odd(data):
            return None
        if b"\r" not in data:
            return b"\n"
        returns = data.count(b"\r")
        if returns == data.count(b"\r\n") == data.count(b"\n"):
            return b"\r\n"
        return None

    def _all(self, data: bytes, searched: int) -> list[Line]:
        """Return the pieces of all lines that end in the data, and keep its rest."""
        pieces: list[Line] = []
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

    def _others(self, data: bytes, searched: int, line_end: bytes) -> Iterator[Line]:
        """Yield the pieces of lines that mustn't be stepped over, and keep the rest."""
        first, width, start = self._offset, len(line_end), 0
        for ends in self._other_ends[line_end].finditer(data, searched):
            end, behind = ends.span()
            begin = data.rfind(b"\n", start, end) + 1 or start
            if begin > start:
                if self._stepping.forbidden():
                    yield from self._one_by_one(data, start, begin, first)
                else:
                    self._number += data.count(b"\n", start, begin)
                    self._blank = False
            self._offset = first + begin
            if begin < end:
                text = data[begin:end].decode("utf-8", "replace")
                yield Line(text, first + begin, self._number, self._received_at)
                self._number += 1
                self._blank = False
                end += width
            if end < behind:
                blanks: list[Line] = []
                self._end_lines(blanks, first + end, (behind - end) // width, width)
                yield from blanks
            start = behind
        begin = data.rfind(b"\n", start) + 1 or start
        if begin > start:
            yield from self._one_by_one(data, start, begin, first)
        self._rest, self._offset = data[begin:], first + begin

    def _one_by_one(
        self, data: bytes, start: int, end: int, first: int
    ) -> Iterator[Line]:
        """Yield whole lines while it is forbidden to step over them, then do that."""
        self._blank = False
        while start < end and self._stepping.forbidden():
            stop = data.find(b"\n", start)
            text = data[start:stop].removesuffix(b"\r").decode("utf-8", "replace")
            yield Line(text, first + start, self._number, self._received_at)
            self._number += 1
            start = stop + 1
        self._number += data.count(b"\n", start, end)

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
