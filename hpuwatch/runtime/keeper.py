"""The keeper owns one server's process, from its start until nothing of it is left.

``hpuwatch run`` becomes this program: standard library only, about 10 MB, never a look at
the output.  The server gets a session of its own and writes straight into the spool.  The
watcher beside it may die, and the next one starts.  As a subreaper the keeper inherits what
the server orphans.  What happens goes to the facts, one JSON object a line.

    keeper.py --spool FILE --facts FILE --stop-wait SECONDS [--watcher JSON] -- COMMAND ...
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import sys
from contextlib import suppress
from time import monotonic, time

ORPHANS_WAIT, WATCHER_WAIT, LONGEST_PAUSE, NEVER = 5, 10, 30, float("inf")  # seconds
ASK = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT}


def _say(sentence: str) -> None:
    with suppress(OSError):  # never wait for a reader, nor mind one that left
        if select.select([], [2], [], 0)[1]:
            os.write(2, f"hpuwatch: {sentence}\n".encode(errors="replace"))


def _stat(pid: int | str) -> list[bytes]:
    with suppress(OSError), open(f"/proc/{pid}/stat", "rb") as file:
        return file.read().rpartition(b")")[2].split()  # state, parent, group ...
    return []  # it is gone


class _Keeper:
    def __init__(self, options: dict[str, str], command: list[str]) -> None:
        self.command, self.stop_wait = command, float(options["--stop-wait"])
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        self.spool = os.open(options["--spool"], flags, 0o600)
        self.facts = os.open(options["--facts"], flags, 0o600)
        self.alive, self.asked, self.deadline, self.pids = False, False, NEVER, [0]
        self.server = self.watcher = self.watcher_code = self.watchers = 0
        self.watcher_command, self.due = json.loads(options.get("--watcher", "[]")), 0.0
        # What nohup, or a shell for its background jobs, made us ignore stays ignored.
        self.ask = {s for s in ASK if signal.getsignal(s) is not signal.SIG_IGN}
        self.heard = self.ask | {signal.SIGCHLD, signal.SIGUSR1, signal.SIGUSR2}

    def run(self) -> int:
        ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_BLOCK, self.heard)
        self._tell("keep")
        self.server = self._spawn(self.command, "start")
        self.alive, self.code = self.server > 0, os.EX_UNAVAILABLE  # unless it ends
        while self.alive or self._others():
            self._keep_watcher()
            self._hear(1.0 if self.deadline == NEVER else 0.1)
            if monotonic() >= self.deadline:
                self._send([-self.server] * self.alive + self._others(), signal.SIGKILL)
        os.ftruncate(self.spool, os.fstat(self.spool).st_size)  # frees the room ahead
        self._tell("exit", code=self.code, asked=self.asked)
        self.deadline, self.due = monotonic() + WATCHER_WAIT, 0.0
        self._keep_watcher()
        while self.watcher and monotonic() < self.deadline:
            self._hear(0.1)
        if self.watcher or self.watcher_code or not self.watchers:
            _say(f"the server ended {'as ' if self.asked else 'un'}asked ({self.code})")
            self._send([self.watcher] if self.watcher else [], signal.SIGKILL)
        return 128 - self.code if self.code < 0 else self.code or 70 * (not self.asked)

    def _spawn(self, command: list[str], fact: str) -> int:
        pid = -1
        try:
            if pid := os.fork():
                return pid
            os.setsid()
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignored it
            signal.pthread_sigmask(signal.SIG_UNBLOCK, self.heard)
            self._tell(fact, count=self.watchers)  # who it is, before it runs
            if fact == "start":
                os.dup2(os.dup2(self.spool, 1), 2)
            os.execvp(command[0], command)
        except OSError as error:  # fork's too: no process was to be had
            self._tell("failed", error=f"{command[0]}: {error.strerror}")
        finally:
            if not pid:
                os._exit(os.EX_UNAVAILABLE)
        return 0

    def _tell(self, fact: str, **said: object) -> None:
        who = {"pid": os.getpid(), "ticks": int((_stat("self") or [b"0"] * 20)[19])}
        line = json.dumps({"fact": fact, "at": time(), **who, **said}) + "\n"
        with suppress(OSError):
            os.write(self.facts, line.encode())

    def _others(self) -> list[int]:  # all that we started or inherited, but the watcher
        us = [str(os.getpid()).encode()]
        with suppress(OSError):
            self.pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
        return [p for p in self.pids if p != self.watcher and _stat(p)[1:2] == us]

    def _send(self, pids: list[int], number: int) -> None:
        for pid in pids:
            with suppress(OSError):  # gone, or not ours to signal
                os.kill(pid, number)

    def _keep_watcher(self) -> None:
        if self.watcher_command and not self.watcher and monotonic() >= self.due:
            self.watchers += 1
            self.watcher = self._spawn(self.watcher_command, "watch")
            if not self.watcher:
                self._bury(0, os.EX_UNAVAILABLE)

    def _hear(self, patience: float) -> None:
        number = getattr(signal.sigtimedwait(self.heard, patience), "si_signo", 0)
        if number in self.ask and self.alive and not self.asked:
            self.asked = True
            wait = 0 if number == signal.SIGQUIT else self.stop_wait
            self.deadline = monotonic() + wait
            self._tell("stop")
            self._send([self.server], signal.SIGTERM)  # to its group would undo a drain
        elif number in self.ask:
            self.deadline = monotonic()
        elif number not in {0, signal.SIGCHLD} and self.alive:
            self._send([self.server], number)
        with suppress(ChildProcessError):
            while (dead := os.waitpid(-1, os.WNOHANG))[0]:
                self._bury(dead[0], os.waitstatus_to_exitcode(dead[1]))

    def _bury(self, pid: int, code: int) -> None:
        if pid == self.server and self.alive:
            self.alive, self.code = False, code
            self.deadline = self.deadline if self.asked else monotonic() + ORPHANS_WAIT
            self._send(self._others(), signal.SIGTERM)
        elif pid == self.watcher:
            pause = min(2 ** (self.watchers - 1), LONGEST_PAUSE)
            self.watcher, self.watcher_code, self.due = 0, code, monotonic() + pause
            if self.alive:
                _say(f"the watcher ended ({code}), the next one starts in {pause} s")


if __name__ == "__main__":
    split = sys.argv.index("--")
    pairs = zip(sys.argv[1:split:2], sys.argv[2:split:2], strict=True)
    sys.exit(_Keeper(dict(pairs), sys.argv[split + 1 :]).run())
