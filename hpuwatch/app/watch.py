"""The watcher: everything of ``hpuwatch run`` that isn't the keeper.

It reads the spool and the facts, passes the output on, answers HTTP, and says the last words
when the server has ended.  It may be killed at any time: the next one reads the spool again
from its start, with the times that were noted, and has come to the same state before it
answers.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from hpuwatch.app.door import Door
from hpuwatch.clock import Clock
from hpuwatch.errors import ResourceError
from hpuwatch.life.machine import Fact
from hpuwatch.life.phases import Phase
from hpuwatch.loop.ending import last_exit_of
from hpuwatch.loop.watch import Watch
from hpuwatch.parse.rules import RuleSet
from hpuwatch.runtime.announce import notify_systemd, say, write_termination_log
from hpuwatch.runtime.echo import Echo
from hpuwatch.runtime.facts import ExitRecord, Facts, read_facts
from hpuwatch.runtime.instance import Files
from hpuwatch.runtime.last_exit import LastExit, ended_before, write_last_exit
from hpuwatch.runtime.room import MOST_IN_MEMORY_BYTES, MOST_ON_DISK_BYTES, Room
from hpuwatch.runtime.spool import Marks, Spool

TICK_SECONDS = 0.1
ECHO_PATIENCE_SECONDS = 3.0

_CHUNKS_PER_TICK = 16
_TICKS_UNTIL_QUIET = 10
_TICKS_BETWEEN_STATUS = 10
_STDOUT = 1


@dataclass(frozen=True, slots=True)
class Task:
    """What a watcher is started for.

    Attributes:
        name: the instance.
        listen: where to answer HTTP.
        files: of the run.
        echo: pass the output on.
    """

    name: str
    listen: str
    files: Files
    echo: bool = True


class Watcher:
    """One watcher's life."""

    def __init__(self, task: Task, rules: RuleSet, clock: Clock) -> None:
        """Open the files of the run.

        Raises:
            OSError: the spool isn't there.
        """
        self._task = task
        self._clock = clock
        self._facts, self._facts_size = Facts(), -1
        self._read_facts()
        folder, spool = task.files.folder, task.files.spool
        self._ended = ended_before(folder) if folder else None
        marks = Marks(folder / "marks" if folder else None)
        self._spool = Spool(spool, marks, clock.now)
        most = MOST_ON_DISK_BYTES if folder else MOST_IN_MEMORY_BYTES
        self._room = Room(spool, say, most_bytes=most, ahead=folder is not None)
        self._echo = _echo(task, self._facts)
        before = self._facts.number - 1
        self._watch = Watch(task.name, rules, clock, starts_before=before)
        self._latest = self._watch.snapshot()
        self._door = Door(task.listen, lambda: self._latest, clock)
        self._quiet_ticks = self._ticks = 0
        self._stop_told = self._keeper_missed = self._ordered = False
        self._status = ""

    def run(self) -> int:
        """Watch until the server has ended; return the exit code for the keeper."""
        signal.signal(signal.SIGTERM, self._order)
        self._watch.process(Fact.SPAWNED)
        self._room.start()
        if self._echo is not None:
            self._echo.start()
        self._read_until(self._spool.end())
        while not self._ordered:
            self._read_facts()
            end = self._facts.exit or self._exit_unseen()
            if end is not None:
                self._finish(end)
                break
            self._tick()
            self._clock.wait(TICK_SECONDS)
        self._door.close()
        self._room.close()
        return 0

    def _order(self, number: int, frame: object) -> None:
        del number, frame
        self._ordered = True

    def _tick(self) -> None:
        self._ticks += 1
        for _ in range(_CHUNKS_PER_TICK):
            if not self._read():
                break
        if self._facts.stop_asked_at is not None and not self._stop_told:
            self._stop_told = True
            self._watch.process(Fact.STOP_ASKED)
        self._publish()
        self._door.open()
        if self._ticks % _TICKS_BETWEEN_STATUS == 0:
            self._tell_systemd()

    def _read(self) -> bool:
        chunk = self._spool.read()
        if chunk is None:
            self._quiet_ticks += 1
            if self._quiet_ticks == _TICKS_UNTIL_QUIET:
                self._watch.settle()
            return False
        self._quiet_ticks = 0
        self._watch.take(chunk.data, chunk.received_at)
        if self._echo is not None:
            self._echo.wake()
        return True

    def _read_until(self, end: int) -> None:
        while self._spool.position < end and self._read():
            pass

    def _read_facts(self) -> None:
        with suppress(OSError):
            size = Path(self._task.files.facts).stat().st_size
            if size != self._facts_size:
                self._facts = read_facts(self._task.files.facts)
                self._facts_size = size

    def _exit_unseen(self) -> ExitRecord | None:
        """Return an end that nobody could record, since the keeper is gone too."""
        keeper = self._facts.keeper
        if keeper is None or os.getppid() == keeper.pid:
            return None
        if not self._keeper_missed:
            self._keeper_missed = True
            say(
                f"keeper {keeper.pid} is gone; the server goes on, and nobody will know "
                "its exit code"
            )
        if self._facts.server_alive():
            return None
        return ExitRecord(None, None, asked=False, ended_at=self._clock.now())

    def _finish(self, end: ExitRecord) -> None:
        self._read_until(self._spool.end())
        self._watch.close()
        before = self._watch.snapshot()
        fact = Fact.EXITED_AS_ASKED if end.asked else Fact.EXITED_UNASKED
        self._watch.process(fact)
        self._publish()
        if self._echo is not None:
            self._echo.finish(ECHO_PATIENCE_SECONDS)
        files = self._task.files
        self._say_last_words(
            last_exit_of(
                before,
                end,
                run=self._facts.run,
                last_lines=self._watch.last_lines,
                spool=Path(files.spool) if files.folder else None,
            )
        )

    def _say_last_words(self, document: LastExit) -> None:
        folder = self._task.files.folder
        if folder is not None:
            try:
                write_last_exit(folder / "last-exit.json", document)
            except ResourceError as error:
                say(str(error))
        for line in document.text().splitlines():
            say(line)
        notify_systemd(STATUS=document.sentence)
        write_termination_log(document.text())

    def _publish(self) -> None:
        dropped = 0 if self._echo is None else self._echo.dropped_bytes
        self._latest = replace(
            self._watch.snapshot(),
            watcher_starts=max(1, self._facts.watcher_starts),
            echo_dropped_bytes=dropped,
            ended=self._ended,
        )

    def _tell_systemd(self) -> None:
        latest = self._latest
        if latest.reason == self._status:
            return
        self._status = latest.reason
        values = {"STATUS": latest.reason}
        if latest.phase is Phase.READY:
            values["READY"] = "1"
        elif latest.phase in (Phase.DRAINING, Phase.STOPPING):
            values["STOPPING"] = "1"
        notify_systemd(**values)


def _echo(task: Task, facts: Facts) -> Echo | None:
    if not task.echo:
        return None
    folder = task.files.folder
    return Echo(
        task.files.spool,
        _STDOUT,
        say,
        record=folder / "echoed" if folder else None,
        resumes=facts.watcher_starts > 1,
    )
