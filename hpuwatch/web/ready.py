"""Probes: whether the server is ready, and whether it is gone for good.

``ready/1`` goes to orchestrators and scripts, which need one sentence and, while a warm-up
runs, how far it is and how long it will take.  A server that is still loading is alive; so
is one that hpuwatch is about to start again.  Only one that will not come back is not.
While the output of before is still being read, nothing is known for sure: not ready, alive.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from hpuwatch.life.phases import Phase
from hpuwatch.metrics.readings import warmed
from hpuwatch.state.snapshot import Left, Snapshot

GONE = frozenset({Phase.FAILED, Phase.HALTED})
"""Phases that nothing follows: with a restart policy a dead server is ``backing_off``."""


class SecondsLeft(BaseModel):
    """An estimate and its range."""

    model_config = ConfigDict(frozen=True)

    value: float
    low: float
    high: float


class Ready(BaseModel):
    """The document ``hpuwatch.ready/1``."""

    model_config = ConfigDict(frozen=True, populate_by_name=True)

    schema_: str = Field("hpuwatch.ready/1", alias="schema")
    phase: Phase
    done: int | None
    total: int | None
    seconds_left: SecondsLeft | None
    reason: str


def ready_of(snapshot: Snapshot) -> Ready:
    """Return the readiness of a snapshot; ``done`` and ``total`` are buckets, or None."""
    start = snapshot.state.current
    counts = warmed(start) if start else {}
    left = _estimate(snapshot.left)
    return Ready(
        phase=snapshot.phase,
        done=sum(done for done, _ in counts.values()) if counts else None,
        total=sum(total for _, total in counts.values()) if counts else None,
        seconds_left=left,
        reason=_reason(snapshot, told_left=left is not None),
    )


def is_ready(snapshot: Snapshot) -> bool:
    """Return whether requests will be answered."""
    return snapshot.phase is Phase.READY and not snapshot.catching_up


def is_gone(snapshot: Snapshot) -> bool:
    """Return whether the server will not come back by itself."""
    return snapshot.phase in GONE and not snapshot.catching_up


def _estimate(left: Left) -> SecondsLeft | None:
    if left.value is None:
        return None
    low = left.value if left.low is None else left.low
    high = left.value if left.high is None else left.high
    # An estimate has no more digits than this, and people read them.
    return SecondsLeft(
        value=round(left.value, 1), low=round(low, 1), high=round(high, 1)
    )


def _reason(snapshot: Snapshot, *, told_left: bool) -> str:
    said = (
        snapshot.reason
        or f"the server's phase is {snapshot.phase.value.replace('_', ' ')}"
    )
    if snapshot.catching_up or snapshot.phase is not Phase.WARMING:
        return said
    if told_left:
        basis = snapshot.left.basis
        return f"{said}; time left by {basis}" if basis else said
    return f"{said}; time left unknown: {snapshot.left.reason}"
