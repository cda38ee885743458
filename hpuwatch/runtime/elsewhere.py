"""What a server's own output doesn't say: its device logs and the kernel's log.

After a failure the last errors in them are quoted, those since the start only; where they
can't be read, that is said with the reason.  Reading is bounded in bytes, files and time: a
stalled network disk costs a quote, not more.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from hpuwatch.clock import Clock
from hpuwatch.runtime.device_logs import device_errors, device_log_folder
from hpuwatch.runtime.kernel_log import kernel_errors
from hpuwatch.runtime.quote import Quote

PATIENCE_SECONDS = 2.0
_OF_INTEREST = ("HABANA_LOGS", "HOME")


class OtherLogs:
    """Reads the other logs of this machine for a server that has failed."""

    def __init__(self, env: Mapping[str, str], since: float, clock: Clock) -> None:
        """Begin to read, on a thread.

        Args:
            env: the server's environment, which decides where its device logs lie.
            since: when it was started, seconds since the epoch.
            clock: where time comes from.
        """
        self._env = env
        self._since = since
        self._clock = clock
        self._deadline = clock.boottime() + PATIENCE_SECONDS
        self._quotes: list[Quote] = []
        self._reader = threading.Thread(
            target=self._read, name="other logs", daemon=True
        )
        self._reader.start()

    def quotes(self) -> tuple[Quote, ...]:
        """Return what they say; whatever takes too long is left out, and that is told."""
        self._reader.join(max(0.0, self._deadline - self._clock.boottime()))
        told = tuple(self._quotes)
        if self._reader.is_alive():
            late = f"no answer within {PATIENCE_SECONDS:g} seconds"
            told += (Quote(source="device logs and the kernel's log", unread=late),)
        return told

    def _read(self) -> None:
        folder = device_log_folder(self._env)
        if folder is not None:
            self._quotes += device_errors(folder, self._since)
        self._quotes.append(kernel_errors(self._since, self._clock))


def log_environment(pid: int) -> dict[str, str]:
    """Return what decides where a process logs; nothing where that can't be read.

    It may change: a command like ``env NAME=VALUE vllm serve`` becomes the server.
    """
    found = {}
    with suppress(OSError):
        for entry in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
            name, _, value = entry.decode("utf-8", "replace").partition("=")
            if name in _OF_INTEREST:
                found[name] = value
    return found
