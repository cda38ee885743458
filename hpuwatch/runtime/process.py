"""Processes that we may not be the parent of, told apart for sure.

A process id alone is used again sooner or later; together with the time of its start (in
clock ticks since boot, ``/proc/PID/stat``) it names one process.  A zombie counts as dead,
though ``kill(pid, 0)`` and ``/proc/PID`` would still say otherwise.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Process:
    """One process of this boot."""

    pid: int
    ticks: int

    def alive(self) -> bool:
        """Return whether it still runs."""
        fields = _stat(self.pid)
        return bool(fields) and fields[0] not in {"Z", "X"} and self._is(fields)

    def signal(self, number: int) -> bool:
        """Send a signal; return whether there was somebody to hear it."""
        try:
            descriptor = os.pidfd_open(self.pid)
        except OSError:
            return False
        try:
            # The descriptor holds on to whoever has the id now; only then is it checked.
            if not self._is(_stat(self.pid)):
                return False
            signal.pidfd_send_signal(descriptor, number)
        except ProcessLookupError:
            return False
        finally:
            os.close(descriptor)
        return True

    def kill_group(self) -> None:
        """Kill it and all of its process group, if it leads one and still runs."""
        with suppress(ProcessLookupError, PermissionError):
            if self.alive():
                os.killpg(self.pid, signal.SIGKILL)

    def _is(self, fields: list[str]) -> bool:
        return bool(fields) and int(fields[19]) == self.ticks


def process_of(pid: int) -> Process | None:
    """Return the process that has this id now, or None."""
    fields = _stat(pid)
    return Process(pid, int(fields[19])) if fields else None


def boot_id() -> str:
    """Return the id of this boot, or nothing where the system has none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:
        return ""


def _stat(pid: int) -> list[str]:
    """Return ``/proc/PID/stat`` from behind the name on, or nothing if it is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
    except OSError:
        return []
    return text.rpartition(")")[2].split()
