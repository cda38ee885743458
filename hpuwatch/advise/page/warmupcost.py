"""What each bucket cost at warm-up: seconds, and memory of its graph.

Seconds come from the progress bars: between two of their figures, a bucket took the mean.
Where a phase has no bar, its whole time is shared evenly.  Memory is what was free before a
bucket's graph less what was free before the next one's.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from hpuwatch.advise.document import StartReport, WarmedPart
from hpuwatch.advise.page.charts import foot_axis, side_axis
from hpuwatch.advise.page.drawing import Box, Drawing, Shape
from hpuwatch.advise.page.picture import Picture, Table, missing
from hpuwatch.advise.page.quantities import duration
from hpuwatch.advise.page.warmupcourse import (
    PHASES,
    Band,
    Span,
    backdrop,
    bands_of,
    frame_of,
    phase_legend,
    why_no_steps,
)
from hpuwatch.units import MIB, format_bytes

_NAME, _TITLE = "warmup-cost", "What each bucket cost at warm-up"
_DEAREST = 8
_KEPT = 0.8
"""Share of what graphs took that must stay taken, for it to be called their cost."""


def warmup_cost(report: StartReport) -> Picture:
    """Return the seconds and the memory of each bucket, as far as they are known."""
    timed, counts = _timed(report)
    remembered = _taken(report)
    if not timed and not remembered:
        return missing(
            _NAME,
            _TITLE,
            _why_no_cost(report),
        )
    panels: list[tuple[str, list[Span], list[Band]]] = []
    if timed:
        panels.append(("seconds a bucket", timed, bands_of(counts)))
    if remembered:
        shown = {span.phase for span in remembered}
        sizes = {
            phase: len(parts)
            for phase, parts in report.warmup.steps.items()
            if phase in shown
        }
        panels.append(("MiB a bucket's graph took", remembered, bands_of(sizes)))
    said = " ".join(filter(None, (_said_of_times(timed), _said_of_memory(remembered))))
    return Picture(
        _NAME,
        _TITLE,
        said,
        lambda width: _drawing(panels, width),
        _table(report, timed, remembered),
        said,
    )


def _why_no_cost(report: StartReport) -> str:
    if report.warmup.skipped or report.origin == "predicted":
        return why_no_steps(report)
    return "the log prints neither times nor free memory of single buckets."


def _timed(report: StartReport) -> tuple[list[Span], dict[str, int]]:
    """Return the seconds of a bucket by place, and how many buckets each phase shows."""
    warmup, buckets = report.warmup, report.buckets
    planned = {
        "multimodal": buckets.multimodal,
        "prompt": buckets.prompt,
        "decode": buckets.decode,
    }
    counts: dict[str, int] = {}
    found: list[Span] = []
    since = 0
    for phase in PHASES:
        count, took = planned[phase] or 0, warmup.phase_seconds.get(phase)
        pace = warmup.pace.get(phase, [])
        if pace:
            found += _paced(phase, pace, since)
            count = max(count, pace[-1][0])
        elif took and count:
            words = f"{count:,} {_things(phase)} in {duration(took)}: the mean"
            found.append(Span(since, since + count, took / count, phase, words))
        else:
            continue
        counts[phase] = count
        since += count
    return found, counts


def _paced(phase: str, pace: Sequence[tuple[int, float]], since: int) -> list[Span]:
    # What the bar shows first took its time too, where it tells of more than the start.
    points = [(0, 0.0), *pace] if pace[0][1] > 0 and pace[0][0] > 0 else list(pace)
    return [
        Span(
            since + before,
            since + done,
            (at - earlier) / (done - before),
            phase,
            f"{_things(phase)} {before + 1:,} to {done:,}: {duration(at - earlier)}",
        )
        for (before, earlier), (done, at) in pairwise(points)
        if done > before and at >= earlier
    ]


def _taken(report: StartReport) -> list[Span]:
    """Return what each bucket's graph took, as what was free before and after it."""
    steps = {
        phase: parts for phase, parts in report.warmup.steps.items() if _is_kept(parts)
    }
    bands = bands_of({phase: len(parts) for phase, parts in steps.items()})
    return [
        Span(
            band.first + n,
            band.first + n + 1,
            max(0, before.free_bytes - after.free_bytes) / MIB,
            band.phase,
            f"{band.phase} {_shape(before.shape)}",
        )
        for band in bands
        for n, (before, after) in enumerate(pairwise(steps[band.phase]))
    ]


def _is_kept(parts: Sequence[WarmedPart]) -> bool:
    """Tell whether what the graphs of a phase take is theirs for good.

    Where free memory goes up again all the time, as between images, steps only borrow it.
    """
    changes = [a.free_bytes - b.free_bytes for a, b in pairwise(parts)]
    taken = sum(change for change in changes if change > 0)
    return sum(changes) >= _KEPT * taken


def _shape(shape: Sequence[int]) -> str:
    return "(" + ", ".join(f"{size:,}" for size in shape) + ")"


def _said_of_times(spans: Sequence[Span]) -> str:
    if not spans:
        return ""
    parts = []
    for phase in dict.fromkeys(span.phase for span in spans):
        own = [span for span in spans if span.phase == phase]
        count = sum(span.last - span.first for span in own)
        took = sum((span.last - span.first) * span.value for span in own)
        most = max(span.value for span in own)
        dearest = f", {most:.3g} s where it was slowest" if len(own) > 1 else ""
        parts.append(
            f"{count:,.0f} {_things(phase)} took {duration(took)}, "
            f"{took / count:.3g} s each{dearest}"
        )
    whole = all(float(at).is_integer() for at in _ends(spans))
    rough = " The log's times are whole seconds, so a single bar is rough."
    return "; ".join(parts) + "." + (rough if whole and len(spans) > len(parts) else "")


def _things(phase: str) -> str:
    """Return what the warm-up of a phase consists of: an image size has several steps."""
    return f"{phase} {'steps' if phase == 'multimodal' else 'buckets'}"


def _ends(spans: Sequence[Span]) -> list[float]:
    return [round(span.value * (span.last - span.first), 6) for span in spans]


def _said_of_memory(spans: Sequence[Span]) -> str:
    if not spans:
        return ""
    most = max(spans, key=lambda span: span.value)
    whole = sum(span.value for span in spans) * MIB
    return (
        f"The graphs of {len(spans):,} buckets took {format_bytes(whole)} together, the "
        f"largest {format_bytes(most.value * MIB)}: {most.tip}."
    )


def _drawing(
    panels: Sequence[tuple[str, list[Span], list[Band]]], width: float
) -> Drawing:
    shapes: list[Shape] = []
    top = 26.0
    for label, spans, bands in panels:
        frame = frame_of(width, top, bands, [span.value for span in spans])
        shapes += backdrop(frame, bands)
        shapes += side_axis(frame, label)
        for span in spans:
            x, end = frame.x(span.first), frame.x(span.last)
            y = frame.y(span.value)
            gap = 1 if end - x > 4 else 0
            tip = f"{span.tip}: {span.value:.3g} {label}"
            shapes.append(
                Box(x, y, max(0.6, end - x - gap), frame.foot - y, span.phase, tip)
            )
        shapes += foot_axis(frame, "buckets, in the order of the warm-up", whole=True)
        entries, height = phase_legend(frame, bands)
        shapes += entries
        top = frame.foot + 76 + height
    return Drawing(width, top - 32, tuple(shapes))


def _table(
    report: StartReport, timed: Sequence[Span], remembered: Sequence[Span]
) -> Table:
    rows = []
    for phase in PHASES:
        own = [span for span in timed if span.phase == phase]
        count = sum(span.last - span.first for span in own)
        took = sum((span.last - span.first) * span.value for span in own)
        whole = report.warmup.phase_seconds.get(phase, took)
        if count:
            rows.append((f"{count:,.0f} {_things(phase)}", duration(whole)))
    dear = sorted(remembered, key=lambda span: -span.value)[:_DEAREST]
    rows += [
        (f"graph of {span.tip}", format_bytes(span.value * MIB))
        for span in dear
        if span.value > 0
    ]
    return Table(("what", "cost"), tuple(rows))
