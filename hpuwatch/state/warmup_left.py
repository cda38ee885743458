"""How many seconds of warm-up are left, with honest bounds.

A phase's buckets are warmed from the largest to the smallest, so they get cheaper, and the
first ones also pay for one-off work.  The estimate is therefore *buckets left times the
mean of the last third that was timed*.  The bounds are the cheaper of that mean and the
mean of all, times ``_CHEAPER``, and the dearer of the two, times ``_DEARER``: on the five
progress bars of real and stand-in logs that we know, taken at every bucket, they held the
truth 95 times of 100.

A phase that has not begun is priced by the one before it, with the bounds of
``DECODE_PER_PROMPT``.  Multimodal buckets tell nothing of the others.

V0 goes over its buckets twice: it compiles them, then it captures their graphs.  In the one
public log that times both, the second pass took 21 s where the first took 28, which makes
the middle of ``_SECOND_PER_FIRST``; its ends are a guess.

Some releases print neither bars nor bucket lines, or print the bars where nobody keeps them.
Then all buckets are priced by this server's earlier starts in the same log, less the time
that has gone by.  Buckets that no line lists are predicted from the configuration.  The
estimate's ``basis`` says all that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hpuwatch.gaudi.warmuptime import DECODE_PER_PROMPT, learn
from hpuwatch.life.phases import Phase
from hpuwatch.state.configured import predicted_count
from hpuwatch.state.model import DECODE, PROMPT, Progress, Start, value_of
from hpuwatch.state.snapshot import Left
from hpuwatch.state.warmup_timed import steps_seconds, timed_start

FEWEST_TIMED = 3
"""Buckets of a phase that must be timed before anything is said."""

_CHEAPER, _DEARER = 0.4, 1.2
_SECOND_PER_FIRST = (0.3, 0.75, 1.5)

_BY_EARLIER = "the seconds per bucket of this server's earlier starts"
_BY_PREDICTED = "the buckets that its configuration should make"


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


def estimate_left(start: Start, now: float, before: Sequence[Start] = ()) -> Left:
    """Return the seconds that are left at ``now``, or why none.

    A bucket that takes longer than expected doesn't drive the estimate to 0: time since
    the last bucket counts up to the price of one.

    Args:
        start: the one that is warming up.
        now: seconds since the epoch.
        before: earlier starts of the same log, oldest first.
    """
    warmup = start.warmup
    if warmup.skipped is not None:
        return Left(reason="warm-up is skipped")
    if warmup.seconds is not None or start.phase is Phase.READY:
        return Left(0.0, 0.0, 0.0, "warm-up is over")
    if start.phase not in (Phase.WARMING, Phase.SWITCHING):
        return Left()
    phases = [phase for phase in (PROMPT, DECODE) if phase in warmup.progress]
    return _priced(start, phases[-1], now) if phases else _foretold(start, now, before)


def _foretold(start: Start, now: float, before: Sequence[Start]) -> Left:
    """Price all buckets by earlier starts: this one tells of none of them."""
    model = value_of(start.server.model)
    same = [each for each in before if value_of(each.server.model) == model]
    timed = [found for each in same if (found := timed_start(each)) is not None]
    counts, basis = _planned(start)
    if not timed or not counts:
        if start.warmup.progress:
            said = "so far only images were warmed, which tells nothing of the buckets"
            return Left(reason=said)
        return Left(reason="no bucket has been told of yet")
    whole = learn(timed).of_counts(counts)
    left = _Span(whole.low, whole.value, whole.high)
    if start.phase is Phase.WARMING and start.phase_since is not None:
        left = left.less(max(0.0, now - start.phase_since - steps_seconds(start)))
    told = " and ".join(filter(None, (_BY_EARLIER, basis)))
    return Left(left.value, left.low, left.high, "", told)


def _planned(start: Start) -> tuple[Mapping[str, int], str]:
    """Return the buckets by phase, and what that rests on where no line lists them."""
    listed = {phase: _count(start, phase) for phase in (PROMPT, DECODE)}
    counts = {phase: count for phase, (count, _) in listed.items() if count is not None}
    whole = len(counts) == len(listed)
    return counts if whole else {}, next(
        filter(None, (b for _, b in listed.values())), ""
    )


def _count(start: Start, phase: str) -> tuple[int | None, str]:
    known = start.buckets.get(phase)
    if known is not None:
        return known.value.count, ""
    return predicted_count(start, phase), _BY_PREDICTED


def _priced(start: Start, phase: str, now: float) -> Left:
    progress = start.warmup.progress[phase]
    each = _seconds_each(progress)
    if each is None:
        return Left(reason=f"the first {phase} buckets are still being timed")
    todo = progress.total - progress.done
    to_come, basis = _count(start, DECODE) if phase == PROMPT else (None, "")
    second = _second_pass(start, phase, each)
    if not todo and to_come is None and second is None:
        return Left(reason="every bucket is done, the end of warm-up is near")
    left = each.times(todo, todo, todo)
    if todo and progress.last_at is not None:
        left = left.less(min(max(0.0, now - progress.last_at), each.value))
    if to_come is not None:
        left = left.plus(each.times(*(to_come * ratio for ratio in DECODE_PER_PROMPT)))
    if second is not None:
        left = left.plus(second)
    return Left(left.value, left.low, left.high, "", basis if to_come else "")


def _second_pass(start: Start, phase: str, each: _Span) -> _Span | None:
    """Return what capturing takes once all is compiled, None where no such pass comes."""
    server, progress = start.server, start.warmup.progress
    by_lines = progress[phase].elapsed_seconds is None
    if value_of(server.engine) != "V0" or progress[phase].capturing or not by_lines:
        return None
    without_graphs = value_of(server.flags.get("enforce_eager")) == "True"
    if without_graphs or value_of(server.bridge_mode) == "eager":
        return None
    prompt = each if phase == PROMPT else _seconds_each(progress.get(PROMPT))
    decode = each if phase == DECODE else each.times(*DECODE_PER_PROMPT)
    first = _Span(0.0, 0.0, 0.0)
    for name, rate in ((PROMPT, prompt), (DECODE, decode)):
        count = _count(start, name)[0] or 0
        first = first.plus((rate or each).times(count, count, count))
    return first.times(*_SECOND_PER_FIRST)


def _timed(progress: Progress) -> int:
    points = progress.points
    return points[-1][0] - points[0][0] if points else 0


def _seconds_each(progress: Progress | None) -> _Span | None:
    """Return what one of the buckets to come takes, from those that were timed."""
    if progress is None or _timed(progress) < FEWEST_TIMED:
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
