"""Why the server is or isn't ready, in one sentence for probes and people."""

from __future__ import annotations

from hpuwatch.advise.causes import root_fault
from hpuwatch.advise.checks.ends import told
from hpuwatch.life.phases import Phase
from hpuwatch.state.hang import seems_to_hang
from hpuwatch.state.model import MULTIMODAL, Start

_LONGEST_CAUSE = 300

PHASE_WORDS = {
    Phase.STOPPED: "the server is not running",
    Phase.STARTING: "the server is starting",
    Phase.LOADING: "the server loads its weights",
    Phase.SIZING: "the server measures its memory",
    Phase.WARMING: "the server warms up",
    Phase.READY: "the server answers requests",
    Phase.SWITCHING: "the server switches models",
    Phase.DEGRADED: "the server answers, but something is broken",
    Phase.DRAINING: "the server was asked to stop and finishes its requests",
    Phase.STOPPING: "the server is stopping",
    Phase.FAILED: "the server failed",
    Phase.BACKING_OFF: "the server failed and will be started again",
    Phase.HALTED: "the server failed and will not be started again",
}

_UNITS = {MULTIMODAL: "steps"}
"""What warm-up counts: of an image size it warms several batches, each a step."""

_BROKEN = frozenset({Phase.DEGRADED, Phase.FAILED, Phase.BACKING_OFF, Phase.HALTED})


def reason_of(
    phase: Phase, start: Start | None, silent_seconds: float | None = None
) -> str:
    """Return the sentence, without a full stop.

    Args:
        phase: where the process is.
        start: its life as far as the log tells, or None before its first line.
        silent_seconds: since it last printed anything, None where nobody knows.
    """
    words = PHASE_WORDS[phase]
    if start is None:
        return words
    if silent_seconds is not None and seems_to_hang(start, phase, silent_seconds):
        minutes = silent_seconds / 60
        return f"{words}, but printed nothing for {minutes:.0f} minutes: it may hang"
    if phase is Phase.WARMING:
        progress = [
            f"{each.done:,} of {each.total:,} {name} {_UNITS.get(name, 'buckets')} done"
            for name, each in start.warmup.progress.items()
            if each.done < each.total
        ]
        return f"{words}: {', '.join(progress)}" if progress else words
    cause = root_fault(start) if phase in _BROKEN else None
    return f"{words}: {told(start, cause)[:_LONGEST_CAUSE]}" if cause else words
