"""``hpuwatch replay``: a recorded log played again, so that a dashboard can be looked at.

Each line is read when its header says, counted from the log's first one: at the log's own
pace, faster, or all at once.  Stretches in which nothing was printed last as long as they
did.  A line without a time comes with the line before it.  What is served says that it is a
replay, and its figures are of the moment in the log, not of now.
"""

from __future__ import annotations

import math
import re
import signal
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from hpuwatch.clock import Clock
from hpuwatch.life.machine import Fact
from hpuwatch.loop.watch import Watch
from hpuwatch.metrics.collector import exposition
from hpuwatch.parse.header import read
from hpuwatch.parse.rules import RuleSet
from hpuwatch.records import Line
from hpuwatch.runtime.announce import say
from hpuwatch.source.files import read_lines
from hpuwatch.source.opening import opened
from hpuwatch.state.snapshot import Snapshot
from hpuwatch.state.times import Chronology
from hpuwatch.web.server import Web

AT_ONCE = math.inf
"""The speed that doesn't wait at all."""

TICK_SECONDS = 0.1
_QUIET_SECONDS = 1.0
"""After so long without a line, what was said is said."""
_MOST_UNTIMED = 10_000
"""Lines at the log's begin that are held back until one with a time comes."""
_TIME = re.compile(r"\d\d-\d\d \d\d:\d\d:\d\d")


@dataclass
class LogClock:
    """The time in the log; whoever plays it sets it."""

    seconds: float = 0.0

    def now(self) -> float:
        """Return seconds since the epoch, as if the log's zone were UTC."""
        return self.seconds

    def boottime(self) -> float:
        """Return the same."""
        return self.seconds

    def wait(self, seconds: float) -> None:
        """Pass over that time."""
        self.seconds += seconds


class Replay:
    """Plays one log."""

    def __init__(
        self,
        name: str,
        log: str,
        rules: RuleSet,
        clock: Clock,
        *,
        speed: float = 1.0,
    ) -> None:
        """Get ready; nothing is read yet.

        Args:
            name: the instance.
            log: a file, plain or gzip, or ``-`` for standard input.
            rules: what its lines mean.
            clock: our own time.
            speed: seconds of the log per second of ours, or ``AT_ONCE``.
        """
        self._log = log
        self._clock = clock
        self._speed = speed
        self._log_clock = LogClock()
        self._watch = Watch(name, rules, self._log_clock)
        self._watch.process(Fact.SPAWNED)
        self._rules = len(rules.rules)
        self._begin: tuple[float, float] | None = None  # our time and the log's
        self._due = 0.0
        self._ordered = False
        self._latest = self._snapshot()

    def run(self, listen: str, *, once: bool = False) -> bytes:
        """Play the log and answer HTTP meanwhile; return the metrics at its end.

        Args:
            listen: where to answer.
            once: end with the log; else go on answering until asked to stop.

        Raises:
            MissingFileError: the log can't be opened.
            InputError: it is empty, binary or broken.
            ResourceError: the port is in use.
        """
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._order)
        if self._log != "-":
            opened(self._log, lambda: Path(self._log).open("rb")).close()  # noqa: SIM115  it is closed
        web = Web(listen, lambda: self._latest)
        web.start()
        try:
            say(f"replaying {self._log}: http://{web.address}/")
            self.play()
            say(f"{self._log} is over: {self._latest.reason}")
            while not (once or self._ordered):
                self._clock.wait(TICK_SECONDS)
        finally:
            web.close()
        return exposition(self._latest)

    def play(self) -> None:
        """Read the log line by line, each when it is time."""
        for line in timed(read_lines(self._log), _written_at(self._log, self._clock)):
            self._pass_until(line.received_at or 0.0)
            if self._ordered:
                return
            self._watch.hear(line)
            if self._clock.boottime() >= self._due:
                self._publish()
        self._watch.close()
        self._publish()

    def _pass_until(self, at: float) -> None:
        """Let the log's time pass until a moment in it, at the speed that was asked for."""
        if self._begin is None:
            self._begin = self._clock.boottime(), at
            self._log_clock.seconds = at
        if at - self._log_clock.seconds >= _QUIET_SECONDS:
            self._watch.settle()
        our_begin, begin = self._begin
        while self._log_clock.seconds < at and not self._ordered:
            passed = self._clock.boottime() - our_begin
            left = (at - begin) / self._speed - passed
            if left <= 0:
                break
            self._log_clock.seconds = max(
                self._log_clock.seconds, begin + passed * self._speed
            )
            self._publish()
            self._clock.wait(min(left, TICK_SECONDS))
        self._log_clock.seconds = max(self._log_clock.seconds, at)

    def _publish(self) -> None:
        self._latest = self._snapshot()
        self._due = self._clock.boottime() + TICK_SECONDS

    def _snapshot(self) -> Snapshot:
        snapshot = self._watch.snapshot()
        return replace(snapshot, replayed=True, rules=self._rules)

    def _order(self, number: int, frame: object) -> None:
        del number, frame
        self._ordered = True


def timed(lines: Iterable[Line], reference: float) -> Iterator[Line]:
    """Yield the lines with the time that the log gives them, as ``received_at``.

    Args:
        lines: of one log, in order.
        reference: seconds since the epoch, not before the log's first line.
    """
    chronology = Chronology(reference)
    early: list[Line] = []
    for line in lines:
        at = chronology.at(_logged_at(line.text))
        if at is None and len(early) < _MOST_UNTIMED:
            early.append(line)
            continue
        at = reference if at is None else at
        for each in (*early, line):
            yield _received(each, at)
        early.clear()
    for each in early:
        yield _received(each, reference)


def _received(line: Line, at: float) -> Line:
    return Line(line.text, line.offset, line.number, at)


def _logged_at(text: str) -> str | None:
    if _TIME.search(text) is None:
        return None
    times = [record.logged_at for record in read(text) if record.logged_at]
    return times[-1] if times else None


def _written_at(log: str, clock: Clock) -> float:
    """Return when a log was last written; the year of its lines follows from that."""
    with suppress(OSError):
        if log != "-":
            return Path(log).stat().st_mtime
    return clock.now()
