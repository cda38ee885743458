"""One fault of a server on its way: waiting for its moment, on, or over."""

from __future__ import annotations

from dataclasses import dataclass

from hpuwatch.sim.faults.fault import Fault
from hpuwatch.sim.hooks import Moment


@dataclass(frozen=True, slots=True)
class Reading:
    """How far a server has come.

    Attributes:
        seconds: simulated, since its start.
        real_seconds: on the clock.
        requests: completions asked for.
    """

    now: Moment
    seconds: float
    real_seconds: float
    requests: int


@dataclass(slots=True)
class Case:
    """One fault of a server: waiting for its moment, on, or over.

    Attributes:
        number: what the control endpoint calls it.
        struck: how often it has struck.
        is_on: it has struck and is not lifted.
    """

    number: int
    fault: Fault
    struck: int = 0
    is_on: bool = False
    _due_at: float | None = None
    _until: float = 0.0

    def is_due(self, reading: Reading, ready: Reading | None) -> bool:
        """Tell whether it strikes now, and take note of the next time."""
        when = self.fault.when
        reached = self._reached(reading, ready)
        if self._due_at is None:
            self._due_at = when.threshold
        if reached is None or reached < self._due_at:
            return False
        if self.struck and (when.every is None or self.struck == when.times):
            return False
        if when.every is not None:
            # What was passed over in one leap strikes once.
            skipped = (reached - self._due_at) // when.every
            self._due_at += when.every * (1 + skipped)
        return True

    def begin(self, reading: Reading) -> None:
        """Be on, until its time is up."""
        self.struck += 1
        self.is_on = True
        fault = self.fault
        if fault.for_seconds is not None:
            self._until = reading.seconds + fault.for_seconds
        elif fault.for_real_seconds is not None:
            self._until = reading.real_seconds + fault.for_real_seconds

    def is_over(self, reading: Reading) -> bool:
        """Tell whether its time is up."""
        if self.fault.for_seconds is not None:
            return reading.seconds >= self._until
        if self.fault.for_real_seconds is not None:
            return reading.real_seconds >= self._until
        return False

    def _reached(self, reading: Reading, ready: Reading | None) -> float | None:
        """Return how far the server has come in what the fault counts."""
        when = self.fault.when
        if when.phase is not None:
            return reading.now.index if reading.now.phase == when.phase else None
        if when.requests is not None:
            return reading.requests
        if when.since == "ready" and ready is None:
            return None
        begun = ready if when.since == "ready" else None
        if when.seconds is not None:
            return reading.seconds - (begun.seconds if begun else 0.0)
        if when.real_seconds is not None:
            return reading.real_seconds - (begun.real_seconds if begun else 0.0)
        return 0.0
