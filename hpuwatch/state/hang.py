"""Silence that is too long: the suspicion that a server hangs.

A server that comes up always has something to say: a bar moves, a bucket is named.  One that
serves says nothing while it is idle; its engine tells of its requests every ten seconds
only while it has any.  So silence means trouble before the server is ready, and afterwards
only if the last word was that requests wait.
"""

from __future__ import annotations

from itertools import pairwise

from hpuwatch.life.phases import Phase
from hpuwatch.state.model import Start

LIMIT_SECONDS = 600.0
"""No step of a start is quiet for longer; a bucket that took longer moves the limit."""

_COMING_UP = (Phase.STARTING, Phase.LOADING, Phase.SIZING, Phase.WARMING)


def seems_to_hang(start: Start, phase: Phase, silent_seconds: float) -> bool:
    """Tell whether a server whose process lives has been silent for too long.

    Args:
        start: its life as far as the log tells.
        phase: where the process is.
        silent_seconds: since it last printed anything, a bar's refresh included.
    """
    if phase in _COMING_UP:
        return silent_seconds > max(LIMIT_SECONDS, _longest_bucket_seconds(start))
    waits = start.traffic.waiting_lines > 0
    return phase is Phase.READY and waits and silent_seconds > LIMIT_SECONDS


def _longest_bucket_seconds(start: Start) -> float:
    gaps = [
        later - sooner
        for progress in start.warmup.progress.values()
        for (_, sooner), (_, later) in pairwise(progress.points)
    ]
    return max(gaps, default=0.0)
