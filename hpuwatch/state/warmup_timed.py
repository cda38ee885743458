"""What a start's warm-up took, in the words of ``gaudi.warmuptime``.

From here the law of warm-up can be learned of a server's earlier starts.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

from hpuwatch.gaudi.model import DECODE, PROMPT, Bucket
from hpuwatch.gaudi.warmuptime import TimedStart, recipe_folder
from hpuwatch.state.configured import acting_variables, printed_lists
from hpuwatch.state.model import MULTIMODAL, Progress, Start, value_of

_CLOCKS_APART, _CLOCK_SECONDS = 1.1, 2
"""So far may the phases of a warm-up, by their headers, come to more than it says it took."""
_FEWEST_POINTS = 6  # of a bar: the times of fewer say little of its thirds


def timed_start(
    start: Start, graphs: Mapping[str, tuple[Bucket, ...]] | None = None
) -> TimedStart | None:
    """Return how a start's warm-up was timed, None where it wasn't, or not to its end.

    Args:
        start: one start.
        graphs: those that it compiled, by phase; without them, one for each bucket.
    """
    warmup = start.warmup
    total = value_of(warmup.seconds)
    known = printed_lists(start) if graphs is None else graphs
    counts = {
        phase: len(known.get(phase, ())) or start.buckets[phase].value.count
        for phase in (PROMPT, DECODE)
        if phase in start.buckets
    }
    if total is None or warmup.skipped is not None or not sum(counts.values()):
        return None
    seconds = {
        phase: took for phase, took in warmup.phase_seconds.items() if phase in counts
    }
    steps = steps_seconds(start)
    thirds = {
        phase: found
        for phase in counts
        if (found := _thirds(warmup.progress.get(phase))) is not None
    }
    if sum(seconds.values()) > total * _CLOCKS_APART + _CLOCK_SECONDS:
        seconds, thirds = (
            {},
            {},
        )  # clocks of headers that can't be: only the whole counts
    is_split = len(seconds) == len(counts)
    env = {name: each.value for name, each in acting_variables(start.server).items()}
    return TimedStart(
        counts=counts,
        total_seconds=total,
        buckets=known,
        phase_seconds=seconds,
        thirds=thirds,
        fixed_seconds=max(steps, total - sum(seconds.values())) if is_split else steps,
        had_recipes=recipe_folder(env) is not None,
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
