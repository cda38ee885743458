"""The watcher: everything of ``hpuwatch run`` that isn't the keeper.

It reads the spool and the facts, passes the output on, answers HTTP, and says the last words
when the server has ended.  It may be killed at any time: the next one reads the spool again
from its start, with the times that were noted, and comes to the same state.  Until then it
says that it is catching up: probes are answered from the first moment on.

It holds on to the files it was started with.  If their folder is removed, or taken by
another run, it leaves what lies there now alone.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from hpuwatch.app.catalogue import shipped_findings
from hpuwatch.app.door import Door
from hpuwatch.app.reload import LiveRules
from hpuwatch.app.remember import LiveStarts, Memory, settings_of_process
from hpuwatch.clock import Clock
from hpuwatch.errors import ResourceError
from hpuwatch.life.machine import Fact
from hpuwatch.life.phases import Phase
from hpuwatch.loop.ending import Output, last_exit_of
from hpuwatch.loop.watch import Watch
from hpuwatch.runtime.announce import notify_systemd, say, write_termination_log
from hpuwatch.runtime.echo import Echo
from hpuwatch.runtime.elsewhere import OtherLogs, log_environment
from hpuwatch.runtime.facts import ExitRecord, Facts, read_facts
from hpuwatch.runtime.instance import Files
from hpuwatch.runtime.last_exit import LastExit, ended_before, write_last_exit
from hpuwatch.runtime.room import MOST_IN_MEMORY_BYTES, MOST_ON_DISK_BYTES, Room
from hpuwatch.runtime.spool import Marks, Spool
from hpuwatch.state.snapshot import Left
from hpuwatch.web.ready import is_ready

TICK_SECONDS = 0.1
ECHO_PATIENCE_SECONDS = 3.0
READING_SECONDS = 0.5
"""How long output is read at most before news is told."""
LAST_READING_SECONDS = 3.0
"""How long output is read after the end; the keeper waits 10 s for our last words."""
TAIL_BYTES = 1024**2
"""What is read in any case: the cause of an end stands at the end."""

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

    def __init__(self, task: Task, rules: LiveRules, clock: Clock) -> None:
        """Open the files of the run.

        Raises:
            OSError: the spool isn't there.
        """
        self._task = task
        self._clock = clock
        self._facts, self._facts_size = Facts(), -1
        self._read_facts()
        self._folder, spool = task.files.folder, task.files.spool
        self._check_folder()
        folder = self._folder
        self._ended = ended_before(folder) if folder else None
        marks = Marks(folder / "marks" if folder else None)
        self._spool = Spool(spool, marks, clock.now)
        self._caught_up_at = self._spool.end()
        on_disk = task.files.folder is not None
        most = MOST_ON_DISK_BYTES if on_disk else MOST_IN_MEMORY_BYTES
        self._room = Room(spool, say, most_bytes=most, ahead=on_disk)
        self._echo = _echo(task, folder, self._facts)
        before = self._facts.number - 1
        self._rules = rules
        self._watch = Watch(task.name, rules.rules, clock, starts_before=before)
        self._latest = self._watch.snapshot()
        self._door = Door(task.listen, lambda: self._latest, clock)
        self._quiet_ticks = self._ticks = 0
        self._starts = self._remembering()
        self._stop_told = self._keeper_missed = self._ordered = False
        self._status = ""
        self._server_env: dict[str, str] = {}
        self._server_given: Mapping[str, str] | None = None

    def run(self) -> int:
        """Watch until the server has ended; return the exit code for the keeper."""
        signal.signal(signal.SIGTERM, self._order)
        self._watch.process(Fact.SPAWNED)
        self._room.start()
        if self._echo is not None:
            self._echo.start()
        with self._rules:
            self._live()
        self._door.close()
        self._room.close()
        return 0

    def _remembering(self) -> LiveStarts | None:
        """Return who keeps this run's starts; nobody, where there is no folder."""
        folder = self._folder
        if folder is None:
            return None
        memory = Memory(
            folder.parent, self._clock, say, folder, lambda: self._server_given
        )
        return LiveStarts(str(folder / "spool"), memory)

    def _live(self) -> None:
        while not self._ordered:
            self._read_facts()
            end = self._facts.exit or self._exit_unseen()
            if end is not None:
                self._finish(end)
                break
            if self._tick():
                self._clock.wait(TICK_SECONDS)

    def _order(self, number: int, frame: object) -> None:
        del number, frame
        self._ordered = True

    @property
    def _catching_up(self) -> bool:
        return self._spool.position < self._caught_up_at

    def _tick(self) -> bool:
        """Read and tell what is new; return whether that was all of it."""
        self._ticks += 1
        rules = self._rules.take()
        if rules is not None:
            self._watch.use(rules)
        all_read = self._read_for(READING_SECONDS)
        asked = self._facts.stop_asked_at is not None
        if asked and not self._stop_told and not self._catching_up:
            self._stop_told = True
            self._watch.process(Fact.STOP_ASKED)
        self._publish()
        if self._starts is not None:
            self._starts.look(self._latest)
        self._door.open()
        if self._ticks % _TICKS_BETWEEN_STATUS == 0:
            self._check_folder()
            self._look_at_server()
            self._tell_systemd()
        return all_read

    def _read(self) -> bool:
        chunk = self._spool.read()
        if chunk is None:
            self._caught_up_at = 0
            self._quiet_ticks += 1
            if self._quiet_ticks == _TICKS_UNTIL_QUIET:
                self._watch.settle()
            return False
        self._quiet_ticks = 0
        self._watch.take(chunk.data, chunk.received_at)
        if self._echo is not None:
            self._echo.wake()
        return True

    def _read_for(self, seconds: float) -> bool:
        """Read until nothing is left, or the time is over; return whether all is read."""
        deadline = self._clock.boottime() + seconds
        while self._read():
            if self._clock.boottime() >= deadline:
                return False
        return True

    def _read_to_the_end(self) -> None:
        """Read what a server that has ended left, and leave out some if it is too much."""
        if self._read_for(LAST_READING_SECONDS):
            return
        tail = self._spool.end() - TAIL_BYTES
        if self._spool.position < tail:
            self._spool.skip_to(tail)
            self._watch.take(b"\n", self._clock.now())  # half a line ends here
        self._read_for(LAST_READING_SECONDS)

    def _read_facts(self) -> None:
        with suppress(OSError):
            size = Path(self._task.files.facts).stat().st_size
            if size != self._facts_size:
                self._facts = read_facts(self._task.files.facts)
                self._facts_size = size

    def _check_folder(self) -> None:
        """Leave the folder alone if what lies there now isn't ours."""
        folder, facts = self._folder, self._task.files.facts
        if folder is None or _same_file(folder / "facts", facts):
            return
        self._folder = self._starts = None
        say(
            f"{folder} was removed or belongs to another run by now; the server goes on "
            "and is watched, but last-exit will have nothing to show of it"
        )

    def _readable_spool(self) -> Path | None:
        """Return where people find the output, if it is still there."""
        if self._folder is None:
            return None
        named = self._folder / "spool"
        return named if _same_file(named, self._task.files.spool) else None

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
        others = None if end.asked or end.error else self._other_logs()
        self._read_to_the_end()
        self._watch.close()
        before = self._watch.snapshot()
        fact = Fact.EXITED_AS_ASKED if end.asked else Fact.EXITED_UNASKED
        self._watch.process(fact)
        self._publish()
        if self._echo is not None:
            self._echo.finish(ECHO_PATIENCE_SECONDS)
        self._check_folder()
        document = last_exit_of(
            before,
            end,
            run=self._facts.run,
            output=Output(self._watch.last_lines, self._readable_spool()),
            catalogue=shipped_findings(),
        )
        if others is not None:
            document = document.model_copy(update={"elsewhere": others.quotes()})
        self._say_last_words(document)
        if self._starts is not None:
            self._starts.close(before.state)

    def _other_logs(self) -> OtherLogs:
        since = self._facts.started_at or self._clock.now()
        return OtherLogs(self._server_env or os.environ, since, self._clock)

    def _look_at_server(self) -> None:
        """Note where the server logs, while it can still be seen."""
        server = self._facts.server
        if server is not None and server.alive():
            self._server_env = log_environment(server.pid) or self._server_env
            if self._server_given is None or self._latest.phase is not Phase.READY:
                found = settings_of_process(server.pid)
                self._server_given = found or self._server_given

    def _say_last_words(self, document: LastExit) -> None:
        if self._folder is not None:
            try:
                write_last_exit(self._folder / "last-exit.json", document)
            except ResourceError as error:
                say(str(error))
        for line in document.text().splitlines():
            say(line)
        notify_systemd(STATUS=document.sentence)
        write_termination_log(document.text())

    def _publish(self) -> None:
        dropped = 0 if self._echo is None else self._echo.dropped_bytes
        self._latest = replace(
            self._rules.told_in(self._watch.snapshot()),
            watcher_starts=max(1, self._facts.watcher_starts),
            log_dropped_bytes=self._spool.skipped_bytes,
            echo_dropped_bytes=dropped,
            ended=self._ended,
        )
        if self._catching_up:
            share = self._spool.position / self._caught_up_at
            self._latest = replace(
                self._latest,
                catching_up=True,
                left=Left(reason="the output is not read yet"),
                reason=f"hpuwatch is catching up with the output: {share:.0%} read",
            )

    def _tell_systemd(self) -> None:
        latest = self._latest
        if latest.reason == self._status:
            return
        self._status = latest.reason
        values = {"STATUS": latest.reason}
        if is_ready(latest):
            values["READY"] = "1"
        elif latest.phase in (Phase.DRAINING, Phase.STOPPING):
            values["STOPPING"] = "1"
        notify_systemd(**values)


def _same_file(one: Path, other: str) -> bool:
    try:
        return one.samefile(other)
    except OSError:
        return False


def _echo(task: Task, folder: Path | None, facts: Facts) -> Echo | None:
    if not task.echo:
        return None
    return Echo(
        task.files.spool,
        _STDOUT,
        say,
        record=folder / "echoed" if folder else None,
        resumes=facts.watcher_starts > 1,
    )
