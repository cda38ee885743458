"""What a start's warm-up took, in the words of ``gaudi.warmuptime``.

From here the law of warm-up can be learned of a server's earlier starts.
"""

from __future__ import annotations

from itertools import pairwise

from hpuwatch.gaudi.model import DECODE, PROMPT
from hpuwatch.gaudi.warmuptime import RECIPES, TimedStart
from hpuwatch.state.configured import printed_buckets, value_of
from hpuwatch.state.model import MULTIMODAL, Progress, Start

_FEWEST_POINTS = 4  # of a bar, so that its thirds are timed


def timed_start(start: Start) -> TimedStart | None:
    """Return how a start's warm-up was timed, None where it wasn't, or not to its end."""
    warmup = start.warmup
    total = value_of(warmup.seconds)
    counts = {
        phase: start.buckets[phase].value.count
        for phase in (PROMPT, DECODE)
        if phase in start.buckets
    }
    if total is None or not sum(counts.values()):
        return None
    lists = {phase: printed_buckets(start, phase) for phase in counts}
    thirds = {
        phase: found
        for phase in counts
        if (found := _thirds(warmup.progress.get(phase))) is not None
    }
    return TimedStart(
        counts=counts,
        total_seconds=total,
        buckets={phase: listed for phase, listed in lists.items() if listed},
        phase_seconds={
            phase: seconds
            for phase, seconds in warmup.phase_seconds.items()
            if phase in counts
        },
        thirds=thirds,
        fixed_seconds=steps_seconds(start),
        had_recipes=bool(start.server.flags.get(RECIPES)),
    )


def steps_seconds(start: Start) -> float:
    """Return what the parts of a warm-up took that are no buckets, as far as they ended."""
    warmup = start.warmup
    return sum(
        seconds or 0.0
        for seconds in (
            warmup.sampler_seconds,
            warmup.defragmenter_seconds,
            warmup.phase_seconds.get(MULTIMODAL),
        )
    )


def _thirds(progress: Progress | None) -> tuple[float, float] | None:
    """Return the seconds of a bucket in the cheapest and the dearest third of a bar."""
    points = progress.points if progress else ()
    if len(points) < _FEWEST_POINTS:
        return None
    cuts = [points[len(points) * third // 3 - (third == 3)] for third in range(4)]
    rates = [(end[1] - begin[1]) / (end[0] - begin[0]) for begin, end in pairwise(cuts)]
    return min(rates), max(rates)
