"""How many seconds of warm-up are left, with honest bounds.

A phase's buckets are warmed from the largest to the smallest, so they get cheaper, and the
first ones also pay for one-off work.  The estimate is therefore *buckets left times the
mean of the last third that was timed*.  The bounds are the cheaper of that mean and the
mean of all, times ``_CHEAPER``, and the dearer of the two, times ``_DEARER``: on the five
progress bars of real and stand-in logs that we know, taken at every bucket, they held the
truth 95 times of 100.

A phase that has not begun is priced by the one before it.  On four public logs a decode
bucket took 0.45, 0.66, 1.4 and 1.6 times as long as a prompt bucket, which gives the
bounds of ``_DECODE_PER_PROMPT``.  Multimodal buckets tell nothing of the others.
"""

from __future__ import annotations

from dataclasses import dataclass

from hpuwatch.life.phases import Phase
from hpuwatch.state.model import DECODE, PROMPT, Progress, Start
from hpuwatch.state.snapshot import Left

FEWEST_TIMED = 3
"""Buckets of a phase that must be timed before anything is said."""

_CHEAPER, _DEARER = 0.4, 1.2
_DECODE_PER_PROMPT = (0.4, 0.9, 1.7)


@dataclass(frozen=True, slots=True)
class _Span:
    """Seconds: low, likely, high."""

    low: float
    value: float
    high: float

    def times(self, low: float, value: float, high: float) -> _Span:
        return _Span(self.low * low, self.value * value, self.high * high)

    def plus(self, other: _Span) -> _Span:
        return _Span(
            self.low + other.low, self.value + other.value, self.high + other.high
        )

    def less(self, seconds: float) -> _Span:
        return _Span(*(max(0.0, each - seconds) for each in self._all()))

    def _all(self) -> tuple[float, float, float]:
        return self.low, self.value, self.high


def estimate_left(start: Start, now: float) -> Left:
    """Return the seconds that are left at ``now`` (since the epoch), or why none.

    A bucket that takes longer than expected doesn't drive the estimate to 0: time since
    the last bucket counts up to the price of one.
    """
    warmup = start.warmup
    if warmup.skipped is not None:
        return Left(reason="warm-up is skipped")
    if warmup.seconds is not None or start.phase is Phase.READY:
        return Left(0.0, 0.0, 0.0, "warm-up is over")
    if start.phase is not Phase.WARMING or not warmup.progress:
        return Left()
    phases = [phase for phase in (PROMPT, DECODE) if phase in warmup.progress]
    if not phases:
        return Left(
            reason="so far only images were warmed, which tells nothing of the buckets"
        )
    return _priced(start, phases[-1], now)


def _priced(start: Start, phase: str, now: float) -> Left:
    progress = start.warmup.progress[phase]
    each = _seconds_each(progress)
    if each is None:
        return Left(reason=f"the first {phase} buckets are still being timed")
    todo = progress.total - progress.done
    planned = start.buckets.get(DECODE) if phase == PROMPT else None
    if not todo and planned is None:
        return Left(reason="every bucket is done, the end of warm-up is near")
    left = each.times(todo, todo, todo)
    if todo and progress.last_at is not None:
        left = left.less(min(max(0.0, now - progress.last_at), each.value))
    if planned is not None:
        count = planned.value.count
        low, value, high = _DECODE_PER_PROMPT
        left = left.plus(each.times(count * low, count * value, count * high))
    return Left(left.value, left.low, left.high, "")


def _timed(progress: Progress) -> int:
    points = progress.points
    return points[-1][0] - points[0][0] if points else 0


def _seconds_each(progress: Progress) -> _Span | None:
    """Return what one of the buckets to come takes, from those that were timed."""
    if _timed(progress) < FEWEST_TIMED:
        return None
    first, last = progress.points[0], progress.points[-1]
    wanted = max(FEWEST_TIMED, (last[0] - first[0]) // 3)
    since = next(
        point for point in reversed(progress.points) if last[0] - point[0] >= wanted
    )
    overall = (last[1] - first[1]) / (last[0] - first[0])
    recent = (last[1] - since[1]) / (last[0] - since[0])
    low, high = sorted((overall, recent))
    return _Span(low * _CHEAPER, recent, high * _DEARER)
