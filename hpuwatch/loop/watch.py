"""One server, watched: bytes and facts go in, frozen snapshots come out.

Nothing here reads, waits or asks for the time but through the clock that is passed in, so a
recorded run can be watched again and gives the same.  The phase follows both the log and
the process, and the process has the last word: a dead server isn't ready, whatever its log
said last.  A line that breaks the parser or the reducer costs that line, never the watch.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable

from hpuwatch.clock import Clock
from hpuwatch.events import Event
from hpuwatch.life.machine import Fact, advance, fact_of
from hpuwatch.life.phases import Phase
from hpuwatch.loop.reason import reason_of
from hpuwatch.parse.clean import clean
from hpuwatch.parse.mask import mask
from hpuwatch.parse.parser import Parser
from hpuwatch.parse.rules import RuleSet
from hpuwatch.records import Line
from hpuwatch.source.lines import Lines
from hpuwatch.state.model import State
from hpuwatch.state.reduce import outlasted, start_of
from hpuwatch.state.snapshot import Left, Snapshot
from hpuwatch.state.warmup_left import estimate_left

_LAST_LINES = 3
_LONGEST_LAST_LINE = 300
_DULL = re.compile(r"\d+%\||HTTP/\d|^\s*$")  # progress bars, access lines, nothing


class Watch:
    """Follows one server's output and process."""

    def __init__(
        self,
        name: str,
        rules: RuleSet,
        clock: Clock,
        *,
        unwrap: bool = False,
        starts_before: int = 0,
    ) -> None:
        """Begin before the first byte.

        Args:
            name: the instance.
            rules: what the log's lines mean.
            clock: where time comes from.
            unwrap: take collectors' envelopes off the lines.
            starts_before: starts under this name before this output.
        """
        self._name = name
        self._clock = clock
        self._parser = Parser(rules)
        self._lines = Lines(self._parser, unwrap=unwrap)
        self._state = State()
        self._phase = Phase.STOPPED
        self._starts = starts_before
        self._recent: deque[str] = deque(maxlen=_LAST_LINES)  # that say something
        self._heard_at: float | None = None
        self._broken_lines = 0  # that broke the parser

    def take(self, chunk: bytes, received_at: float | None) -> None:
        """Take a piece of the output, as it came, and when it came."""
        self._heard_at = received_at
        for line in self._lines.feed(chunk, received_at):
            self._line(line)

    def hear(self, line: Line) -> None:
        """Take one piece of the output that is a line already."""
        self._heard_at = line.received_at
        self._line(line)

    def use(self, rules: RuleSet) -> None:
        """Read by other rules from the next chunk on."""
        self._parser.use(rules)

    def settle(self) -> None:
        """Note that output pauses: what was said is said."""
        self._guarded(self._parser.settle)

    def close(self) -> None:
        """Note that no output will come any more."""
        for line in self._lines.close():
            self._line(line)
        self._guarded(self._parser.close)

    def process(self, fact: Fact) -> None:
        """Take a fact of the process, told by whoever owns it."""
        if fact is Fact.SPAWNED:
            self._starts += 1
        self._phase = advance(self._phase, fact)

    @property
    def last_lines(self) -> tuple[str, ...]:
        """Return the last lines that say something, safe to print, masked and cut."""
        return tuple(mask(text.strip())[:_LONGEST_LAST_LINE] for text in self._recent)

    def snapshot(self) -> Snapshot:
        """Return what is known now."""
        now = self._clock.now()
        current = self._state.current
        silent = None if self._heard_at is None else now - self._heard_at
        return Snapshot(
            name=self._name,
            phase=self._phase,
            state=self._state,
            now=now,
            lines=self._parser.lines,
            unparsed_lines=self._parser.unparsed
            + self._broken_lines
            + self._state.broken,
            restarts=max(0, self._starts - 1),
            left=estimate_left(current, now, self._state.starts[:-1])
            if current
            else Left(),
            reason=reason_of(self._phase, current, silent),
        )

    def _line(self, line: Line) -> None:
        asked = self._parser.in_prompt
        self._guarded(lambda: self._parser.feed(line))
        if asked and self._parser.in_prompt:
            return  # a user's words: no last lines of a server
        text = clean(line.text)
        if not _DULL.search(text):
            self._recent.append(text)

    def _guarded(self, read: Callable[[], list[Event]]) -> None:
        try:
            events = read()
        except Exception:  # noqa: BLE001  one line must not cost the watch; it is counted
            self._broken_lines += 1
            return
        for event in events:
            self._event(event)

    def _event(self, event: Event) -> None:
        before = self._state.begun
        self._state = outlasted(self._state, (event,))
        if start_of(self._state, event) < len(self._state.starts) - 1:
            return  # the end of a traceback of the life before: no news of this one
        fact = fact_of(event)
        if before in (self._state.begun, 0):
            self._phase = self._phase if fact is None else advance(self._phase, fact)
            return
        # A new life within one output: whoever follows a log sees restarts only here.
        newest = self._state.starts[-1]
        self._phase = newest.phase
        self._starts += fact is Fact.SPAWNED
