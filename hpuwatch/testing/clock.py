"""A clock that moves only when it is told to."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class FakeClock:
    """A :class:`hpuwatch.clock.Clock` for tests; waiting moves it at once."""

    seconds: float = 1_800_000_000.0
    waits: list[float] = field(default_factory=list)

    def now(self) -> float:
        """Return the fake wall time."""
        return self.seconds

    def boottime(self) -> float:
        """Return the fake time since boot."""
        return self.seconds - 1_700_000_000.0

    def wait(self, seconds: float) -> None:
        """Note the wait and jump over it."""
        self.waits.append(seconds)
        self.seconds += seconds
