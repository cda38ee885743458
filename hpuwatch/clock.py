"""Time as something that is passed in.

``now()`` is wall time for people and records; ``boottime()`` counts on while the machine
sleeps and never jumps, so deadlines use it.  Nothing else in hpuwatch asks the system for
the time, so that every test and every replay can bring its own.
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Where time comes from."""

    def now(self) -> float:
        """Return seconds since the epoch, UTC."""
        ...

    def boottime(self) -> float:
        """Return seconds since boot, never jumping back."""
        ...

    def wait(self, seconds: float) -> None:
        """Return after that many seconds."""
        ...


class SystemClock:
    """The machine's own time."""

    def now(self) -> float:
        """Return seconds since the epoch, UTC."""
        return time.time()

    def boottime(self) -> float:
        """Return seconds since boot, never jumping back."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    def wait(self, seconds: float) -> None:
        """Sleep."""
        time.sleep(seconds)
