"""Our HTTP side, opened as soon as it can be.

A port that is in use costs the metrics, not the server: it is said once, and tried again,
since it may only be the watcher before us that still lets go of it.
"""

from __future__ import annotations

from collections.abc import Callable

from hpuwatch.clock import Clock
from hpuwatch.errors import ResourceError
from hpuwatch.runtime.announce import say
from hpuwatch.state.snapshot import Snapshot
from hpuwatch.web.server import Web

RETRY_SECONDS = 5.0


class Door:
    """Metrics, probes and the status page of one watcher."""

    def __init__(self, listen: str, take: Callable[[], Snapshot], clock: Clock) -> None:
        """Prepare, and stay closed until asked to open.

        Raises:
            ConfigError: ``listen`` is no address.
        """
        self._web = Web(listen, take)
        self._clock = clock
        self._due = 0.0
        self._opened = self._excused = False

    def open(self) -> None:
        """Open, if it is closed and time for another try."""
        if self._opened or self._clock.boottime() < self._due:
            return
        try:
            self._web.start()
        except ResourceError as error:
            self._due = self._clock.boottime() + RETRY_SECONDS
            if not self._excused:
                self._excused = True
                say(f"{error}; the server goes on without metrics until it is free")
            return
        self._opened = True
        say(f"metrics, probes and the status page: http://{self._web.address}/")

    def close(self) -> None:
        """Close."""
        if self._opened:
            self._web.close()
            self._opened = False
