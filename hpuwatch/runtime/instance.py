"""One name, one owner, one folder.

Whoever owns a name holds ``flock`` on the folder's lock.  The descriptor is inherited by the
keeper, the server and the watcher, so that a name stays taken while anything of it lives,
even if the keeper was killed.  A new run puts spool and facts of the one before aside
(``spool.1``, ``facts.1``); the count of starts goes on.

Where no folder can be written, :func:`in_memory` gives a run its files in memory, so that
the server starts all the same.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hpuwatch.clock import Clock
from hpuwatch.errors import BusyError, ResourceError
from hpuwatch.runtime.facts import Facts, read_facts
from hpuwatch.runtime.process import boot_id, process_of

LEAST_ROOM_BYTES = 32 * 1024**2


@dataclass(frozen=True, slots=True)
class Files:
    """Where a run writes.

    Attributes:
        spool: the server's output.
        facts: what happened to its process.
        folder: where the watcher keeps records of its own, or None in memory.
    """

    spool: str
    facts: str
    folder: Path | None = None

    def begin(self, command: Sequence[str], number: int, clock: Clock) -> str:
        """Write the first fact of a run and return its id.

        Raises:
            ResourceError: the facts can't be written.
        """
        ourselves = process_of(os.getpid())
        fact = {
            "fact": "run",
            "at": clock.now(),
            "pid": os.getpid(),
            "ticks": ourselves.ticks if ourselves else 0,
            "run": secrets.token_hex(8),
            "number": number,
            "boot": boot_id(),
            "program": Path(command[0]).name,
            "fingerprint": fingerprint(command),
        }
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        try:
            descriptor = os.open(self.facts, flags, 0o600)
            try:
                os.write(descriptor, f"{json.dumps(fact)}\n".encode())
            finally:
                os.close(descriptor)
        except OSError as error:
            raise ResourceError(_unwritable(self.facts, error)) from error
        return str(fact["run"])


class Instance:
    """The folder of one name."""

    def __init__(self, root: Path, name: str) -> None:
        """Name it; nothing is touched yet.

        Args:
            root: the state directory, which holds one folder per name.
            name: the instance.
        """
        self.name = name
        self.dir = root / name
        self.lock = self.dir / "lock"
        self.spool = self.dir / "spool"
        self.facts = self.dir / "facts"
        self.last_exit = self.dir / "last-exit.json"
        self.lock_fd = -1

    @property
    def files(self) -> Files:
        """Return where a run under this name writes."""
        return Files(str(self.spool), str(self.facts), self.dir)

    def read(self) -> Facts:
        """Return what is known of the newest run under this name."""
        return read_facts(self.facts)

    def acquire(self, command: Sequence[str] = ()) -> None:
        """Take the name, for as long as we and those who inherit from us live.

        Args:
            command: what is to run, for the message if the name is taken.

        Raises:
            BusyError: somebody else owns it.
            ResourceError: the folder can't be written.
        """
        try:
            self.dir.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.lock_fd = os.open(self.lock, os.O_RDWR | os.O_CREAT, 0o600)
            fcntl.flock(self.lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            free_bytes = shutil.disk_usage(self.dir).free
        except BlockingIOError:
            self.release()
            raise BusyError(self._owner(command)) from None
        except OSError as error:
            self.release()
            raise ResourceError(_unwritable(self.dir, error)) from error
        if free_bytes < LEAST_ROOM_BYTES:
            self.release()
            raise ResourceError(f"{self.dir}: the disk is full: free some room there")

    def release(self) -> None:
        """Give the name back, as far as we are concerned."""
        if self.lock_fd >= 0:
            os.close(self.lock_fd)
            self.lock_fd = -1

    def begin(self, command: Sequence[str], clock: Clock) -> str:
        """Put the files of the run before aside and begin one; return the new run's id.

        The name must have been acquired.

        Raises:
            ResourceError: the folder can't be written.
        """
        before = self.read()
        number = before.number + 1 if before.run else 1
        try:
            for kept in (self.spool, self.facts):
                if kept.exists():
                    kept.replace(before_of(kept))
            for left in ("marks", "echoed"):
                (self.dir / left).unlink(missing_ok=True)
        except OSError as error:
            raise ResourceError(_unwritable(self.dir, error)) from error
        return self.files.begin(command, number, clock)

    def _owner(self, command: Sequence[str]) -> str:
        facts = self.read()
        server = f"{facts.program} (command {facts.fingerprint[:12]}"
        if facts.server is not None:
            server += f", server pid {facts.server.pid}"
        server += ")"
        wanted = ""
        if command:
            program = Path(command[0]).name
            same = fingerprint(command) == facts.fingerprint
            wanted = f", so that {program} (command {fingerprint(command)[:12]}"
            wanted += ", the same) can't start" if same else ") can't start"
        if facts.keeper is not None and facts.keeper_alive():
            keeper = facts.keeper.pid
            return (
                f"the name {self.name!r} belongs to keeper {keeper}, which runs {server}"
                f"{wanted}: choose another --name, or stop that one with: kill {keeper}"
            )
        if facts.server is not None and facts.server_alive():
            return (
                f"the name {self.name!r} has lost its keeper, but {server} still runs"
                f"{wanted}: stop it with: kill {facts.server.pid}"
            )
        return f"the name {self.name!r} is in use{wanted}: choose another --name"


def before_of(path: Path) -> Path:
    """Return where a file of the run before lies: ``spool.1`` for ``spool``."""
    return path.with_name(f"{path.name}.1")


def held(files: Files) -> Files:
    """Return the same files named by descriptors that those inherit who come after us.

    Names can be taken away, or be another run's by then; what is open stays.

    Raises:
        ResourceError: the folder can't be written.
    """
    return Files(_held(files.spool), _held(files.facts), files.folder)


def _held(path: str) -> str:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CREAT, 0o600)
    except OSError as error:
        raise ResourceError(_unwritable(path, error)) from error
    os.set_inheritable(descriptor, True)  # noqa: FBT003  takes no keywords
    return f"/proc/self/fd/{descriptor}"


def in_memory() -> Files:
    """Return files that need no disk and vanish with this process and its children.

    They are named through our own process id, which a keeper that replaces us keeps.
    """
    spool, facts = os.memfd_create("hpuwatch-spool"), os.memfd_create("hpuwatch-facts")
    for descriptor in (spool, facts):
        os.set_inheritable(descriptor, True)  # noqa: FBT003  takes no keywords
    ours = f"/proc/{os.getpid()}/fd"
    return Files(f"{ours}/{spool}", f"{ours}/{facts}")


def fingerprint(command: Sequence[str]) -> str:
    """Return the sha256 of a command's words, hexadecimal."""
    words = "\0".join(command).encode(errors="surrogateescape")
    return hashlib.sha256(words).hexdigest()


def _unwritable(path: Path | str, error: OSError) -> str:
    reason = error.strerror or str(error)
    return f"{path} can't be written ({reason}): choose another --state-dir"
