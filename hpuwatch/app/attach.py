"""``hpuwatch attach``: follow somebody else's server by its log, read-only.

What the log already holds was written at times that we don't know, so nothing in it is
timed; what comes from now on is.  It answers HTTP once it has read what is there, so that an
old start isn't taken for the one that runs.
"""

from __future__ import annotations

import os
import signal
import threading
from contextlib import ExitStack

from hpuwatch.app.reload import LiveRules
from hpuwatch.app.remember import LiveStarts
from hpuwatch.clock import Clock
from hpuwatch.life.machine import Fact
from hpuwatch.life.phases import Phase
from hpuwatch.loop.watch import Watch
from hpuwatch.runtime.announce import notify_systemd, say
from hpuwatch.runtime.elsewhere import OtherLogs
from hpuwatch.source.follow import Follower, Renames, open_stream
from hpuwatch.source.opening import check_grows, check_text
from hpuwatch.state.snapshot import Snapshot
from hpuwatch.web.server import Web

TICK_SECONDS = 0.1
SERVING_TICK_SECONDS = 0.5
"""A server at work has no news that can't wait so long, and each look costs some."""
_READS_PER_TICK = 16
_QUIET_SECONDS = 1.0
_SAMPLE = 64 * 1024


class Attachment:
    """Follows one log."""

    def __init__(
        self,
        name: str,
        log: str,
        rules: LiveRules,
        clock: Clock,
        starts: LiveStarts | None = None,
    ) -> None:
        """Open the log.

        Args:
            name: the instance.
            log: a file, or ``-`` for standard input.
            rules: what its lines mean.
            clock: where time comes from.
            starts: remembers the server's starts; None remembers nothing.

        Raises:
            MissingFileError: there is no such file.
            InputError: it is a folder.
        """
        self._stream = open_stream(log)
        self._log = log
        self._clock = clock
        self._rules = rules
        self._starts = starts
        self._watch = Watch(name, rules.rules, clock, unwrap=True)
        self._watch.process(Fact.SPAWNED)
        self._latest = self._snapshot()
        self._wake = threading.Event()
        self._ordered = False
        self._quiet_seconds = 0.0
        self._begun = self._failed = False
        self._since = clock.now()

    def run(self, listen: str) -> None:
        """Follow and answer until the pipe ends, or somebody asks us to stop.

        Raises:
            ResourceError: the port is in use.
            InputError: the log is compressed, or binary.
        """
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._order)
        with self._rules, ExitStack() as stack:
            if isinstance(self._stream, Follower):
                stack.callback(self._stream.close)
                stack.enter_context(Renames(self._log, self._renamed))
                self._catch_up()
            web = Web(listen, lambda: self._latest)
            web.start()
            stack.callback(web.close)
            say(f"following {self._log}: http://{web.address}/ (read-only)")
            notify_systemd(READY="1")
            while not self._ordered and not self._stream.ended:
                self._tick()
            self._watch.close()
            self._latest = self._snapshot()
            if self._starts is not None:
                self._starts.close(self._latest.state)
        say(f"{self._log}: no longer followed; {self._latest.reason}")

    def _catch_up(self) -> None:
        while not self._ordered and (data := self._stream.read()):
            self._take(data, None)
        self._latest = self._snapshot()
        self._failed = self._latest.phase is Phase.FAILED  # at a time that nobody knows

    def _snapshot(self) -> Snapshot:
        return self._rules.told_in(self._watch.snapshot())

    def _tick(self) -> None:
        rules = self._rules.take()
        if rules is not None:
            self._watch.use(rules)
        for _ in range(_READS_PER_TICK):
            data = self._stream.read()
            if not data:
                break
            self._take(data, self._clock.now())
            self._quiet_seconds = 0.0
        else:
            self._latest = self._snapshot()
            return
        serving = self._latest.phase is Phase.READY
        seconds = SERVING_TICK_SECONDS if serving else TICK_SECONDS
        if self._quiet_seconds < _QUIET_SECONDS <= self._quiet_seconds + seconds:
            self._watch.settle()
        self._quiet_seconds += seconds
        self._latest = self._snapshot()
        if self._starts is not None:
            self._starts.look(self._latest)
        self._tell_failure()
        self._wake.wait(seconds)
        self._wake.clear()

    def _tell_failure(self) -> None:
        """Say what other logs tell of a failure, if it is of a server of this machine."""
        failed, self._failed = self._failed, self._latest.phase is Phase.FAILED
        if failed or not self._failed:
            return
        say(
            f"{self._latest.reason}; if it ran on this machine, its other logs may tell:"
        )
        for quote in OtherLogs(os.environ, self._since, self._clock).quotes():
            for line in quote.text().splitlines():
                say(line)

    def _take(self, data: bytes, received_at: float | None) -> None:
        if not self._begun:
            self._begun = True
            check_grows(data, self._log)
            if isinstance(self._stream, Follower):  # a pipe's first piece may be tiny
                check_text(data[:_SAMPLE], self._log)
        self._watch.take(data, received_at)

    def _renamed(self) -> None:
        if isinstance(self._stream, Follower):
            self._stream.look()
        self._wake.set()

    def _order(self, number: int, frame: object) -> None:
        del number, frame
        self._ordered = True  # not the event: its lock may be ours already
