"""What a run measured, in numbers: the fields of ``vllm bench serve --save-result``.

Names and units are vLLM's, so that what reads its results reads ours.  The definitions:

- ttft: from sending a request to the first piece of its text.
- e2el: from sending to the last piece.
- tpot: (e2el - ttft) / (tokens - 1) of a request with two tokens or more.
- itl: time between two pieces, divided by the tokens of a piece where pieces hold several
  (their mean in that request, by the server's own count), so that tpot and itl agree.
- goodput: requests per second that kept every limit; a failed one keeps none.

Only requests that succeeded count, except in ``failed``.  Percentiles are values that
occurred (nearest rank).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, sqrt
from statistics import fmean, median

from hpuwatch.errors import UsageError
from hpuwatch.load.drive import Record, Run

PERCENTILES = (50, 90, 95, 99)
METRICS = ("ttft", "tpot", "itl", "e2el")
_LIMITED = ("ttft", "tpot", "e2el")


@dataclass(frozen=True, slots=True)
class Good:
    """The latencies of one request that succeeded, in seconds.

    Attributes:
        sent: when it was sent; ``arrivals`` are on the same clock.
        tokens_each: tokens of a piece after the first.
    """

    sent: float
    arrivals: Sequence[float]
    input_tokens: int
    tokens: int

    @property
    def ttft(self) -> float:
        """Return the time to the first piece."""
        return self.arrivals[0] - self.sent

    @property
    def e2el(self) -> float:
        """Return the time to the last piece."""
        return self.arrivals[-1] - self.sent

    @property
    def tpot(self) -> float | None:
        """Return the time of a token after the first, None without one."""
        return (self.e2el - self.ttft) / (self.tokens - 1) if self.tokens > 1 else None

    @property
    def tokens_each(self) -> float:
        """Return the tokens of a piece after the first, on average."""
        pieces = len(self.arrivals)
        return max(1.0, (self.tokens - 1) / (pieces - 1)) if pieces > 1 else 1.0

    def itls(self) -> Iterator[float]:
        """Yield the times between tokens, one for each piece after the first."""
        each = self.tokens_each
        for before, after in pairwise(self.arrivals):
            yield (after - before) / each


def good_of(record: Record) -> Good | None:
    """Return a record's latencies, None if it failed or was stopped."""
    outcome = record.outcome
    if outcome is None or outcome.failure:
        return None
    counted = outcome.input_tokens
    length = record.request.input_tokens if counted is None else counted
    return Good(record.sent, outcome.arrivals, length, outcome.tokens)


def read_limits(words: Sequence[str]) -> dict[str, float]:
    """Read limits like ``ttft:2000``, in milliseconds.

    Raises:
        UsageError: one is no such limit.
    """
    limits = {}
    for word in (part for given in words for part in given.split()):
        name, _, text = word.partition(":")
        try:
            value = float(text)
        except ValueError:
            value = -1.0
        if name not in _LIMITED or not value > 0:
            raise UsageError(
                f"{word!r} is no limit like ttft:2000: one of {', '.join(_LIMITED)}, a "
                "colon and milliseconds"
            )
        limits[name] = value
    return limits


@dataclass(frozen=True, slots=True)
class Measured:
    """A run whose latencies have been looked through once: there may be millions.

    Attributes:
        run: what was noted.
        good: the requests that succeeded.
        latencies: mean, median, deviation and percentiles by vLLM's keys, in milliseconds
            of the clock; None where there was nothing to measure.
    """

    run: Run
    good: Sequence[Good]
    latencies: Mapping[str, float | None]


def measured(run: Run) -> Measured:
    """Look through a run."""
    good = [one for one in map(good_of, run.records) if one is not None]
    told: dict[str, float | None] = {}
    for name, values in _latencies(good).items():
        told |= _spread(name, values)
    return Measured(run, good, told)


def figures(
    seen: Measured, limits: Mapping[str, float], speed: float = 1.0
) -> dict[str, object]:
    """Return what a run measured.

    Args:
        seen: the run.
        limits: of a good request, in milliseconds, by ``ttft``, ``tpot`` and ``e2el``.
        speed: the server's seconds in one of the clock's; another than 1 for a simulated
            server, whose own seconds are then what is told.
    """
    run, good = seen.run, seen.good
    seconds = run.seconds * speed
    inputs = sum(one.input_tokens for one in good)
    outputs = sum(one.tokens for one in good)

    def rate(amount: float) -> float:
        return amount / seconds if seconds > 0 else 0.0

    kept = sum(_keeps(one, limits, speed) for one in good)
    return {
        "duration": seconds,
        "completed": len(good),
        "failed": run.failed,
        "total_input_tokens": inputs,
        "total_output_tokens": outputs,
        "request_throughput": rate(len(good)),
        "request_goodput": rate(kept) if limits else None,
        "output_throughput": rate(outputs),
        "total_token_throughput": rate(inputs + outputs),
        "max_output_tokens_per_s": _peak_rate(run, good, speed),
        "max_concurrent_requests": _peak_concurrency(run),
        **{
            key: None if value is None else value * speed
            for key, value in seen.latencies.items()
        },
    }


def _latencies(good: Sequence[Good]) -> dict[str, list[float]]:
    return {
        "ttft": [one.ttft for one in good],
        "tpot": [one.tpot for one in good if one.tpot is not None],
        "itl": [gap for one in good for gap in one.itls()],
        "e2el": [one.e2el for one in good],
    }


def _keeps(one: Good, limits: Mapping[str, float], speed: float) -> bool:
    values = {"ttft": one.ttft, "tpot": one.tpot or 0.0, "e2el": one.e2el}
    return all(values[name] * speed * 1000 <= most for name, most in limits.items())


def _spread(name: str, seconds: Sequence[float]) -> dict[str, float | None]:
    """Return the middle, the spread and the percentiles of times, in milliseconds."""
    values = sorted(value * 1000 for value in seconds)
    mean = fmean(values) if values else None
    told = {f"mean_{name}_ms": mean, f"median_{name}_ms": None, f"std_{name}_ms": None}
    if mean is not None:
        # pstdev() of the standard library counts exactly, which takes seconds here.
        told[f"std_{name}_ms"] = sqrt(fmean((value - mean) ** 2 for value in values))
        told[f"median_{name}_ms"] = median(values)
    for percent in PERCENTILES:
        told[f"p{percent}_{name}_ms"] = percentile(values, percent)
    return told


def percentile(ordered: Sequence[float], percent: float) -> float | None:
    """Return the smallest value that ``percent`` of them don't exceed (nearest rank).

    ``ordered`` must be sorted; None where it is empty.
    """
    if not ordered:
        return None
    return ordered[max(0, ceil(len(ordered) * percent / 100) - 1)]


def _peak_rate(run: Run, good: Sequence[Good], speed: float) -> float:
    """Return the most output tokens of any one second."""
    seconds: dict[int, float] = {}
    for one in good:
        each = one.tokens_each
        for place, arrival in enumerate(one.arrivals):
            second = int((arrival - run.begun) * speed)
            seconds[second] = seconds.get(second, 0.0) + (each if place else 1.0)
    return max(seconds.values(), default=0.0)


def _peak_concurrency(run: Run) -> int:
    """Return the most requests that were in flight at any moment."""
    ends = [one.ended if one.outcome else run.ended for one in run.records]
    # An end counts before a begin of the same moment.
    changes = sorted(
        [(end, -1) for end in ends] + [(one.sent, 1) for one in run.records]
    )
    most = now = 0
    for _, change in changes:
        now += change
        most = max(most, now)
    return most


def detail(run: Run) -> dict[str, list[object]]:
    """Return what is known of each request, in the order of sending."""
    rows: dict[str, list[object]] = {
        key: []
        for key in (
            "input_lens",
            "output_lens",
            "start_times",
            "ttfts",
            "itls",
            "errors",
        )
    }
    for record in run.records:
        one = good_of(record)
        outcome = record.outcome
        rows["input_lens"].append(
            one.input_tokens if one else record.request.input_tokens
        )
        rows["output_lens"].append(one.tokens if one else 0)
        rows["start_times"].append(record.sent - run.begun)
        rows["ttfts"].append(one.ttft if one else 0.0)
        rows["itls"].append(list(one.itls()) if one else [])
        rows["errors"].append(outcome.failure if outcome else "stopped")
    return rows
