"""Real child processes: engine and workers of a server, and orphans that it leaves behind.

They compute nothing.  The engine's process is a child of the server and the workers are
children of the engine, with the titles that real ones have.  As with real ones, a worker
ends with its engine, the engine with any of its workers, but neither with the server: who
kills that one leaves them behind.  Only until the engine starts do they end with it, since
a real server has none before.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

_LOOK_AGAIN_SECONDS = 0.005
_MOST_LOOKS = 200
_TITLE = b"VLLM::"
_WORKER_DIED = 1  # the exit code of an engine's process
_SET_NAME = 15  # prctl(2): PR_SET_NAME
_ARGUMENTS_BEGIN, _ARGUMENTS_END = 45, 46  # in /proc/self/stat, behind the name


@dataclass(slots=True)
class Processes:
    """The processes of one server's engine.

    Attributes:
        workers: empty where the engine does the work itself.
    """

    engine: int
    workers: tuple[int, ...]
    _born: int  # a pipe: a byte in it says that the engine starts
    _last: int  # a pipe: it ends when none of them is left
    _code: int | None = None  # how the engine's process ended

    @classmethod
    def fork(cls, ranks: int) -> Processes:
        """Start them; there must be no thread and no event loop yet."""
        born_out, born_in = os.pipe()
        last_out, last_in = os.pipe()
        engine = os.fork()
        if not engine:
            os.close(born_in)
            os.close(last_out)
            _be_engine(0 if ranks == 1 else ranks, born_out, last_in)
        os.close(born_out)
        os.close(last_in)
        told = b""
        while not told.endswith(b"\n"):
            told += os.read(last_out, 4096)
        os.set_blocking(last_out, False)
        return cls(engine, tuple(map(int, told.split())), born_in, last_out)

    @property
    def pids(self) -> tuple[int, ...]:
        """The server's process, the engine's and those of the workers."""
        return (os.getpid(), self.engine, *self.workers)

    def begin(self) -> None:
        """Let the engine start: from now on the processes outlive the server."""
        with suppress(OSError):
            os.write(self._born, b"!")

    def are_stopped(self) -> bool:
        """Tell whether one of them stands still (SIGSTOP)."""
        return any(_state(pid) == "T" for pid in self.pids[1:])

    def dead(self) -> str | None:
        """Return which one died first: ``engine``, ``worker``, or None if all live."""
        if self._code is None:
            pid, status = os.waitpid(self.engine, os.WNOHANG)
            if not pid:
                return None
            self._code = os.waitstatus_to_exitcode(status)
        return "worker" if self._code == _WORKER_DIED else "engine"

    async def end(self) -> None:
        """End them all, and return when none is left."""
        self._signal(signal.SIGCONT)
        if self.dead() is None:
            os.kill(self.engine, signal.SIGTERM)
        for looks in range(2 * _MOST_LOOKS):
            if self._are_gone():
                break
            if looks == _MOST_LOOKS:
                self._signal(signal.SIGKILL)
            await asyncio.sleep(_LOOK_AGAIN_SECONDS)
        self.dead()

    def _signal(self, number: signal.Signals) -> None:
        for pid in self.pids[1:]:
            # The number of one that is gone may be somebody else's by now.
            if _title(pid).startswith(_TITLE):
                with suppress(OSError):
                    os.kill(pid, number)

    def _are_gone(self) -> bool:
        try:
            return not os.read(self._last, 1)
        except BlockingIOError:
            return False


def die_of(number: signal.Signals) -> None:
    """End this process as the signal would have ended it by default."""
    with suppress(OSError):  # SIGKILL has no other way
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def leave_orphan(
    kept: Sequence[int], live_seconds: int, *, ignores_sigterm: bool
) -> int:
    """Start a child that holds some descriptors and does nothing; return its pid."""
    pid = os.fork()
    if pid:
        return pid
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(live_seconds)
        action = signal.SIG_IGN if ignores_sigterm else signal.SIG_DFL
        signal.signal(signal.SIGTERM, action)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        for file in list(Path("/proc/self/fd").iterdir()):
            descriptor = int(file.name)
            if descriptor > 2 and descriptor not in kept:
                with suppress(OSError):  # the folder's own is gone already
                    os.close(descriptor)
        _wait_for_ever()
    finally:
        os._exit(1)


def _be_engine(ranks: int, born: int, last: int) -> NoReturn:
    """Be the engine's process: start the workers, end with any of them, and end them."""
    code, workers = 0, list[int]()
    lifeline_out, lifeline_in = os.pipe()
    try:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        for rank in range(ranks):
            worker = os.fork()
            if not worker:
                os.close(lifeline_in)
                os.close(born)
                _be_worker(rank, lifeline_out)
            workers.append(worker)
        _retitle("VLLM::EngineCore")
        signal.signal(signal.SIGTERM, _leave)
        os.write(last, (" ".join(map(str, workers)) + "\n").encode())
        if os.read(born, 1):  # nothing: the server is gone already
            if not workers:
                _wait_for_ever()
            os.waitpid(-1, 0)
            code = _WORKER_DIED
    finally:
        os.close(lifeline_in)
        for worker in workers:
            with suppress(ChildProcessError):
                os.waitpid(worker, 0)
        os._exit(code)


def _be_worker(rank: int, lifeline: int) -> NoReturn:
    try:
        _retitle(f"VLLM::Worker_TP{rank}")
        os.read(lifeline, 1)  # ends with the engine's process
    finally:
        os._exit(0)


def _leave(number: int, frame: object) -> NoReturn:  # noqa: ARG001
    raise SystemExit


def _wait_for_ever() -> NoReturn:
    while True:
        signal.pause()


def _retitle(title: str) -> None:
    """Show another command line, as vLLM's processes do."""
    import ctypes  # noqa: PLC0415  needed in these children only

    libc = ctypes.CDLL(None)
    libc.prctl(_SET_NAME, title.encode(), 0, 0, 0)
    begin, end = (int(_stat("self")[at]) for at in (_ARGUMENTS_BEGIN, _ARGUMENTS_END))
    text = title.encode()[: end - begin - 1]
    ctypes.memset(begin, 0, end - begin)
    ctypes.memmove(begin, text, len(text))


def _stat(pid: int | str) -> list[str]:
    with suppress(OSError):
        text = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
        return text.rpartition(")")[2].split()
    return []


def _state(pid: int) -> str:
    return next(iter(_stat(pid)), "")


def _title(pid: int) -> bytes:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""
