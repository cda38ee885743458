"""One frozen picture of an instance, which metrics, probes and the status page draw from."""

from __future__ import annotations

from dataclasses import dataclass, field

from hpuwatch.life.phases import Phase
from hpuwatch.state.model import State


@dataclass(frozen=True, slots=True)
class Left:
    """An estimate of the seconds of warm-up that are left, or why there is none.

    Attributes:
        reason: why there is none.
        basis: what it rests on, where this warm-up itself doesn't tell.
    """

    value: float | None = None
    low: float | None = None
    high: float | None = None
    reason: str = "warm-up has not begun"
    basis: str = ""


@dataclass(frozen=True, slots=True)
class Ended:
    """How the server before this one ended, under the same name.

    Attributes:
        code: its exit code, or 128 + signal; None if nobody knows.
        phase: the phase in which it broke or was ended, or "" if unknown.
        asked: somebody asked for the end.
        at: when nothing of it was left, seconds since the epoch.
    """

    code: int | None
    phase: str
    asked: bool
    at: float


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What is known at one moment.

    Attributes:
        name: the instance.
        phase: the process's phase; it follows the log and the process (a dead server is
            not ready, whatever its log said last).
        state: everything read from the log.
        now: when the picture was taken, seconds since the epoch.
        lines: lines read since the start of the log.
        unparsed_lines: lines with WARNING or above that no rule knew.
        restarts: starts of the server after the first, under this instance.
        watcher_starts: how often a watcher took up this spool.
        log_dropped_bytes: output given up before it was read.
        echo_dropped_bytes: output not passed through because the reader stalled.
        left: time left in warm-up.
        reason: one sentence on why the server is or isn't ready.
        ended: how the server before this one ended, where that is known.
        rules: log rules in force; 0 where nobody counts them.
        rule_failures: how often the operator's own rules could not be loaded.
        replayed: all this is of a recorded log that is played again.
        catching_up: the output of before is still being read, so that all that is said
            of the server is of the past.
    """

    name: str
    phase: Phase
    state: State = field(default_factory=State)
    now: float = 0.0
    lines: int = 0
    unparsed_lines: int = 0
    restarts: int = 0
    watcher_starts: int = 0
    log_dropped_bytes: int = 0
    echo_dropped_bytes: int = 0
    left: Left = field(default_factory=Left)
    reason: str = ""
    ended: Ended | None = None
    rules: int = 0
    rule_failures: int = 0
    replayed: bool = False
    catching_up: bool = False
