"""What happened to one run, as its keeper wrote it down: one JSON object a line.

    run     who was started: run id, how many starts this name had, command fingerprint
    keep    the keeper is up
    start   the server is about to run (told by itself, before exec)
    failed  the command, or a watcher, could not be started
    watch   a watcher is about to run (told by itself, before exec)
    stop    somebody asked for the end
    exit    nothing of the server is left

Three or four of them fit into one block of any disk, so that even a full one takes the last.
The command itself is not kept, since it may hold a key; its fingerprint tells it apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from hpuwatch.runtime.process import Process, boot_id


class Fact(BaseModel):
    """One line of the facts."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    fact: str
    at: float
    pid: int
    ticks: int
    run: str = ""
    number: int = 1
    boot: str = ""
    program: str = ""
    fingerprint: str = ""
    error: str = ""
    code: int | None = None
    asked: bool = False
    count: int = 0


@dataclass(frozen=True, slots=True)
class ExitRecord:
    """How the server ended.

    Attributes:
        code: its exit code, or None where a signal ended it or nobody knows.
        signal: the signal that ended it, or None.
        asked: somebody asked for the end through the keeper.
        ended_at: when nothing of it was left, seconds since the epoch.
        error: why the command could not even be started, else empty.
    """

    code: int | None
    signal: int | None
    asked: bool
    ended_at: float
    error: str = ""


@dataclass(frozen=True, slots=True)
class Facts:
    """All that is known of one run.

    Attributes:
        run: its id, also in the server's environment as ``HPUWATCH_RUN_ID``.
        number: how many starts this name has had, this one included.
        program: the command's first word, without its folder.
        fingerprint: sha256 of the command's words, hexadecimal.
        boot: the boot that the process ids belong to.
        stop_asked_at: when somebody asked for the end, or None.
        watcher_starts: how many watchers this run has had.
    """

    run: str = ""
    number: int = 1
    program: str = ""
    fingerprint: str = ""
    boot: str = ""
    keeper: Process | None = None
    server: Process | None = None
    started_at: float | None = None
    stop_asked_at: float | None = None
    watcher_starts: int = 0
    exit: ExitRecord | None = None

    def keeper_alive(self) -> bool:
        """Return whether the keeper still runs."""
        return self._this_boot() and self.keeper is not None and self.keeper.alive()

    def server_alive(self) -> bool:
        """Return whether the server's main process still runs."""
        return self._this_boot() and self.server is not None and self.server.alive()

    def _this_boot(self) -> bool:
        return self.boot in {"", boot_id()}


def read_facts(path: Path | str) -> Facts:
    """Read the facts of a run; a file that is missing or broken tells less, or nothing."""
    try:
        text = Path(path).read_text("utf-8", "replace")
    except OSError:
        return Facts()
    whole, _, _ = text.rpartition("\n")  # the last line may still be being written
    known: dict[str, Fact] = {}
    for line in whole.splitlines():
        try:
            fact = Fact.model_validate_json(line)
        except ValidationError:
            continue
        known[fact.fact] = fact
    return _fold(known)


def _fold(known: dict[str, Fact]) -> Facts:
    run, keep, start = known.get("run"), known.get("keep"), known.get("start")
    stop, watch = known.get("stop"), known.get("watch")
    return Facts(
        run=run.run if run else "",
        number=run.number if run else 1,
        program=run.program if run else "",
        fingerprint=run.fingerprint if run else "",
        boot=run.boot if run else "",
        keeper=Process(keep.pid, keep.ticks) if keep else None,
        server=Process(start.pid, start.ticks) if start else None,
        started_at=start.at if start else None,
        stop_asked_at=stop.at if stop else None,
        watcher_starts=watch.count if watch else 0,
        exit=_exit(known),
    )


def _exit(known: dict[str, Fact]) -> ExitRecord | None:
    end, failed = known.get("exit"), known.get("failed")
    if end is None or end.code is None:
        return None
    # A watcher that can't be started says so too, under its own id or the keeper's.
    start = known.get("start")
    ours = failed is not None and (start is None or failed.pid == start.pid)
    return ExitRecord(
        code=end.code if end.code >= 0 else None,
        signal=-end.code if end.code < 0 else None,
        asked=end.asked,
        ended_at=end.at,
        error=failed.error if failed is not None and ours else "",
    )
