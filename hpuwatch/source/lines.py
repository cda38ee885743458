"""From a stream's bytes to the pieces that a parser wants, at full speed.

Most lines of a busy server mean nothing, and the rules know them by their endings.  Here the
assembler learns from a parser what it may step over, and when; the parser learns what was
stepped over, so that it counts every line.  The pieces that come out lead to the same events
as all of them would.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from hpuwatch.parse.parser import ODD_SIGNS, Parser
from hpuwatch.records import Line
from hpuwatch.source.assemble import Assembler, Stepping
from hpuwatch.source.envelope import PART_SIGN, Unwrapper

# A plain text as a pattern is found much faster than by the operator `in`.
_ODD = tuple(re.compile(re.escape(sign.encode())) for sign in ODD_SIGNS)


class Lines:
    """Gives the pieces of one stream to one parser."""

    def __init__(self, parser: Parser | None = None, *, unwrap: bool = True) -> None:
        """Begin before the first byte.

        Args:
            parser: who takes the pieces; without one, all pieces come.
            unwrap: take collectors' envelopes off.
        """
        self._parser = parser
        self._unwrapper = Unwrapper() if unwrap else None
        self._assembler = Assembler()
        self._endings: tuple[str, ...] = ()

    def feed(self, chunk: bytes, received_at: float | None = None) -> Iterator[Line]:
        """Yield the pieces that the chunk completes.

        Each goes to the parser before the next is taken, and all are taken before the next
        call.
        """
        if self._parser is not None and self._parser.endings != self._endings:
            self._endings = self._parser.endings
            stepping = Stepping(self._endings, self._is_busy, self._is_odd)
            self._assembler.step_over(stepping)
        yield from self._unwrapped(self._assembler.feed(chunk, received_at))
        self._count()

    def close(self) -> Iterator[Line]:
        """Yield what the end of the stream completes."""
        yield from self._unwrapped(self._assembler.close())
        self._count()
        if self._unwrapper is not None:
            yield from self._unwrapper.close()

    def _unwrapped(self, lines: Iterator[Line] | list[Line]) -> Iterator[Line]:
        if self._unwrapper is None:
            yield from lines
            return
        unwrap = self._unwrapper.feed
        for line in lines:
            yield from unwrap(line)

    def _count(self) -> None:
        if self._parser is not None:
            self._parser.passed(self._assembler.number)

    def _is_busy(self) -> bool:
        waiting = self._unwrapper is not None and self._unwrapper.waiting
        return waiting or (self._parser is not None and self._parser.busy)

    def _is_odd(self, data: bytes) -> bool:
        if any(sign.search(data) for sign in _ODD):
            return True
        return self._unwrapper is not None and PART_SIGN.search(data) is not None
