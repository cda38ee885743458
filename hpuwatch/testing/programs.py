"""Real programs for tests: started, waited for with a deadline, never left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar
from urllib.error import HTTPError
from urllib.request import urlopen

from hpuwatch.clock import SystemClock
from hpuwatch.runtime.facts import Facts, read_facts
from hpuwatch.runtime.kept import KEEPER

T = TypeVar("T")

OURS = (sys.executable, "-m", "hpuwatch")
PLAIN_PYTHON = (sys.executable, "-I", "-S", "-u", "-c")
"""Starts fast; the words after the code are its arguments."""

_DEADLINE_SECONDS = 45.0


def until(look: Callable[[], T | None]) -> T:
    """Look again and again until something true is seen, and return that.

    Raises:
        AssertionError: it was not seen in time.
    """
    clock = SystemClock()
    deadline = clock.boottime() + _DEADLINE_SECONDS
    while not (seen := look()):
        if clock.boottime() > deadline:
            raise AssertionError("it did not happen in time")
        clock.wait(0.05)
    return seen


@dataclass
class Program:
    """A program under test.

    Attributes:
        child: its process.
        folder: where its output goes.
        facts_path: the facts that its keeper writes.
    """

    child: subprocess.Popen[bytes]
    folder: Path
    facts_path: Path

    @property
    def facts(self) -> Facts:
        """Return what its keeper wrote so far."""
        return read_facts(self.facts_path)

    @property
    def spool(self) -> Path:
        """Return its server's output."""
        return self.facts_path.with_name("spool")

    @property
    def printed(self) -> str:
        """Return what its server printed so far."""
        return self.spool.read_text("utf-8", "replace") if self.spool.exists() else ""

    @property
    def out(self) -> bytes:
        """Return its standard output so far."""
        return (self.folder / "out").read_bytes()

    @property
    def err(self) -> str:
        """Return its standard error so far."""
        return (self.folder / "err").read_text("utf-8", "replace")

    def server(self) -> int:
        """Return the server's process id, or 0 before there is one."""
        server = self.facts.server
        return server.pid if server else 0

    def watcher(self) -> int:
        """Return the process id of the keeper's watcher, or 0."""
        return next((p for p in children(self.child.pid) if p != self.server()), 0)

    def base(self) -> str:
        """Return the address that its newest watcher answers on, or nothing yet."""
        told = [line for line in self.err.splitlines() if "http://127" in line]
        return (
            "http://" + told[-1].partition("http://")[2].partition("/")[0]
            if told
            else ""
        )

    def metric(self, name: str) -> float:
        """Return the first sample of a metric, or -1 if there is none."""
        for line in get(f"{self.base()}/metrics")[1].splitlines():
            if line.startswith((f"{name} ", f"{name}{{")):
                return float(line.split()[-1])
        return -1

    def ask(self, number: int = signal.SIGTERM) -> None:
        """Send it a signal."""
        self.child.send_signal(number)

    def wait(self) -> int:
        """Wait for its end and return its exit code."""
        return self.child.wait(_DEADLINE_SECONDS)


@dataclass
class Programs:
    """Starts programs of ours, and leaves none behind."""

    folder: Path
    started: list[Program] = field(default_factory=list)

    def keeper(
        self,
        server: Sequence[str],
        *,
        stop_wait: float = 30,
        watcher: str = "[]",
        first: Sequence[str] = (),
    ) -> Program:
        """Start the bare keeper, with words of another program before it."""
        facts = self.folder / "facts"
        argv = [*first, sys.executable, "-I", "-S", str(KEEPER)]
        argv += ["--spool", str(self.folder / "spool"), "--facts", str(facts)]
        argv += ["--stop-wait", str(stop_wait), "--watcher", watcher, "--", *server]
        return self.program(argv, facts=facts)

    def run(
        self,
        server: Sequence[str],
        *options: str,
        stdout: int | None = None,
        env: Mapping[str, str] | None = None,
    ) -> Program:
        """Start ``hpuwatch run`` with a state directory of its own, on a free port."""
        state = self.folder / "state"
        argv = [*OURS, "run", "--listen", "127.0.0.1:0", "--state-dir", str(state)]
        facts = state / "default" / "facts"
        return self.program(
            [*argv, *options, "--", *server], facts=facts, stdout=stdout, env=env
        )

    def program(
        self,
        argv: Sequence[str],
        *,
        facts: Path | None = None,
        stdin: int = subprocess.DEVNULL,
        stdout: int | None = None,
        env: Mapping[str, str] | None = None,
    ) -> Program:
        """Start any program; its output goes to files unless told otherwise."""
        folder = self.folder / f"program-{len(self.started)}"
        folder.mkdir()
        with (folder / "out").open("wb") as out, (folder / "err").open("wb") as err:
            child = subprocess.Popen(  # noqa: S603  a test's own program
                argv,
                stdin=stdin,
                stdout=out if stdout is None else stdout,
                stderr=err,
                env=dict(os.environ if env is None else env),
            )
        started = Program(child, folder, facts or folder / "none")
        self.started.append(started)
        return started

    def clear(self) -> None:
        """Kill what is left."""
        for each in self.started:
            server, watcher = each.facts.server, each.watcher()
            if each.child.poll() is None:
                each.ask(signal.SIGQUIT)  # a keeper kills what it keeps first
                with suppress(subprocess.TimeoutExpired):
                    each.child.wait(20)
            each.child.kill()
            each.child.wait()
            if server is not None:
                server.signal(signal.SIGKILL)
            if watcher and alive(watcher):
                os.kill(watcher, signal.SIGKILL)
            for pipe in (each.child.stdin, each.child.stdout):
                if pipe is not None:
                    pipe.close()


def alive(pid: int) -> bool:
    """Return whether a process runs; a zombie doesn't."""
    fields = _stat(str(pid))
    return bool(fields) and fields[0] not in {"Z", "X"}


def children(pid: int) -> list[int]:
    """Return the children of a process."""
    found = [entry.name for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    return [int(name) for name in found if _stat(name)[1:2] == [str(pid)]]


def get(url: str) -> tuple[int, str]:
    """Return status and body; status 0 where nobody answers."""
    try:
        with urlopen(url, timeout=5) as answer:  # noqa: S310  a server on this machine
            return answer.status, answer.read().decode()
    except HTTPError as error:
        with error:
            return error.code, error.read().decode()
    except (OSError, ValueError):
        return 0, ""


def _stat(pid: str) -> list[str]:
    with suppress(OSError):
        text = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
        return text.rpartition(")")[2].split()
    return []
