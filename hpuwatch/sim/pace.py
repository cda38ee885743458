"""Simulated time: it runs ``speed`` times as fast as the clock, and never ahead of it.

Whoever simulates work *spends* seconds.  Spending moves simulated time on at once and then
waits until the clock has caught up, so that short steps don't add up their rounding.  When
computing takes longer than the steps it simulates, simulated time falls behind; a lag of
more than a moment is forgotten instead of being caught up in a rush.
"""

from __future__ import annotations

import asyncio

from hpuwatch.clock import Clock

_WORTH_WAITING = 0.001
_FORGET_LAG = 0.05


class Pace:
    """Simulated time of one server."""

    def __init__(self, clock: Clock, speed: float) -> None:
        """Start at 0 simulated seconds, now."""
        self._clock = clock
        self._speed = speed
        self._zero = clock.boottime()
        self._began_at = clock.now()
        self._passed = 0.0
        self._spent_from = 0.0

    @property
    def passed(self) -> float:
        """Simulated seconds since the start, what is being spent included."""
        return self._passed

    @property
    def present(self) -> float:
        """Simulated seconds since the start, in the midst of what is being spent."""
        by_clock = (self._clock.boottime() - self._zero) * self._speed
        return min(self._passed, max(self._spent_from, by_clock))

    @property
    def reached(self) -> float:
        """Simulated seconds by the clock, which goes on while nothing is simulated."""
        return max(self._passed, (self._clock.boottime() - self._zero) * self._speed)

    def stamp(self) -> float:
        """Return simulated time as seconds since the epoch."""
        return self._began_at + self._passed

    def change_speed(self, speed: float) -> None:
        """Go on at another speed from here."""
        self._speed = speed
        self._zero = self._clock.boottime() - self._passed / speed

    def pass_idle(self) -> None:
        """Let the time pass that went by while there was nothing to simulate."""
        self._passed = self._spent_from = self.reached

    def real_seconds(self, seconds: float) -> float:
        """Return how long simulated seconds last on the clock."""
        return seconds / self._speed

    async def spend(self, seconds: float) -> None:
        """Let simulated seconds pass."""
        self._spent_from = self._passed
        self._passed += seconds
        ahead = self._zero + self._passed / self._speed - self._clock.boottime()
        if ahead < -_FORGET_LAG:
            self._zero -= ahead
        await asyncio.sleep(ahead if ahead > _WORTH_WAITING else 0)
