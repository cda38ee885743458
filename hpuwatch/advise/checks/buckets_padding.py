"""Padding: what a server computes in vain because the next bucket is far away.

From the lists alone there is only a bound, and the mean over sizes that are all as likely
(``advise.padding``): it hangs on the traffic whether anybody pays it.  Where the log shows a
load, the sizes at its peaks are padded as the server pads them, which is a real share.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from hpuwatch.advise.checks.buckets_made import speculates
from hpuwatch.advise.figures import has_traffic
from hpuwatch.advise.finding import Case, Sighting
from hpuwatch.advise.plan.padding import padding_percent
from hpuwatch.gaudi.estimate import Estimate, exactly
from hpuwatch.state.configured import printed_lists
from hpuwatch.state.model import DECODE, PROMPT, Known, Start


@dataclass(frozen=True, slots=True)
class _Gap:
    """Two neighbouring sizes of an axis, and the most that a request between them wastes."""

    below: int
    above: int

    @property
    def waste(self) -> float:
        """Return the share that is padding for a request one larger than the lower."""
        return 1 - (self.below + 1) / self.above


def wide(case: Case) -> Sighting | None:
    """Look for buckets so far apart that requests between them are mostly padding."""
    start, limits = case.start, case.limits
    lists = printed_lists(start)
    gaps = {
        phase: found
        for phase, least in ((PROMPT, limits["tokens"]), (DECODE, limits["requests"]))
        if (found := _widest(_sizes(lists.get(phase, ()), phase), least)) is not None
        and found.waste >= limits["waste_ratio"]
    }
    if not gaps:
        return None
    figures: dict[str, Estimate] = {
        # From this server's list; that all sizes are as likely is assumed.
        f"{phase}_padding_percent": replace(known, origin="predicted")
        for phase in gaps
        if (known := padding_percent(lists[phase], phase)) is not None
    }
    real = _at_the_peak(start, _sizes(lists.get(DECODE, ()), DECODE))
    lines = [start.buckets[phase].line for phase in gaps]
    if real is not None:
        figures["decode_padding_at_peak_percent"] = exactly(real.percent)
        lines.append(real.known.line)
    return Sighting(
        why=("why", "why_peak") if real else ("why", "why_unknown"),
        cure=("cure",) if real is None else (),
        numbers={
            name: value
            for phase, gap in gaps.items()
            for name, value in (
                (f"{phase}_gap_from", gap.below + 1),
                (f"{phase}_gap_to", gap.above),
                (f"{phase}_padding_worst_percent", round(100 * gap.waste, 1)),
            )
        },
        figures=figures,
        words={
            "worst": " and ".join(_said(*each) for each in gaps.items()),
            "means": " and ".join(
                f"{figures[f'{phase}_padding_percent'].value:g} % of {phase} work"
                for phase in gaps
                if f"{phase}_padding_percent" in figures
            ),
            "peak": real.said if real else "",
        },
        lines=tuple(lines),
    )


def _sizes(buckets: Sequence[tuple[int, int, int]], phase: str) -> list[int]:
    """Return the queries of prompts or the batches of decodes, each once."""
    axis = 1 if phase == PROMPT else 0
    return sorted({each[axis] for each in buckets})


def _widest(sizes: Sequence[int], least: float) -> _Gap | None:
    """Return the gap with the most waste, of those that are wide at all."""
    gaps = [
        _Gap(below, above) for below, above in pairwise(sizes) if above - below >= least
    ]
    return max(gaps, key=lambda gap: gap.waste, default=None)


def _said(phase: str, gap: _Gap) -> str:
    noun = "a prompt" if phase == PROMPT else "a decode"
    unit = "tokens" if phase == PROMPT else "requests"
    return (
        f"{noun} of {gap.below + 1:,} {unit} runs as {gap.above:,} "
        f"({100 * gap.waste:.0f} % padding)"
    )


@dataclass(frozen=True, slots=True)
class _Peak:
    """What the decodes of the log's busiest moment were padded with."""

    percent: float
    said: str
    known: Known[int]


def _at_the_peak(start: Start, batches: Sequence[int]) -> _Peak | None:
    running = start.traffic.running_peak
    if running is None or not has_traffic(start) or not batches or running.value < 1:
        return None
    if speculates(start):
        return None  # the rows of a batch are more than its requests
    place = bisect_left(batches, running.value)
    if place == len(batches):
        return None  # that is a missed shape
    batch = batches[place]
    percent = round(100 * (1 - running.value / batch), 1)
    said = f"{running.value:,} requests ran as a batch of {batch:,} ({percent:g} % padding)"
    return _Peak(percent, said, running)
