"""Why the server is or isn't ready, in one sentence for probes and people."""

from __future__ import annotations

from hpuwatch.advise.causes import root_fault
from hpuwatch.advise.ends import told
from hpuwatch.life.phases import Phase
from hpuwatch.state.model import MULTIMODAL, Start

_LONGEST_CAUSE = 300

_WORDS = {
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


def reason_of(phase: Phase, start: Start | None) -> str:
    """Return the sentence, without a full stop."""
    words = _WORDS[phase]
    if start is None:
        return words
    if phase is Phase.WARMING:
        progress = [
            f"{each.done:,} of {each.total:,} {name} {_UNITS.get(name, 'buckets')} done"
            for name, each in start.warmup.progress.items()
            if each.done < each.total
        ]
        return f"{words}: {', '.join(progress)}" if progress else words
    cause = root_fault(start) if phase in _BROKEN else None
    return f"{words}: {told(start, cause)[:_LONGEST_CAUSE]}" if cause else words
