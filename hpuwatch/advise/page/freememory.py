"""What was free before each bucket of the warm-up, as a line: how near it came to 0."""

from __future__ import annotations

from collections.abc import Sequence

from hpuwatch.advise.document import StartReport, WarmedPart
from hpuwatch.advise.page.charts import foot_axis, side_axis
from hpuwatch.advise.page.drawing import Drawing, Stroke
from hpuwatch.advise.page.picture import Picture, Table, missing
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
from hpuwatch.units import GIB, format_bytes

_NAME, _TITLE = "free-memory", "Free memory over the warm-up"


def free_memory(report: StartReport) -> Picture:
    """Return what was free before each bucket whose line prints it."""
    steps = {
        phase: report.warmup.steps[phase]
        for phase in PHASES
        if phase in report.warmup.steps
    }
    if sum(map(len, steps.values())) < 2:
        return missing(_NAME, _TITLE, why_no_steps(report))
    bands = bands_of({phase: len(parts) for phase, parts in steps.items()})
    spans = [
        Span(band.first + n, band.first + n + 1, part.free_bytes / GIB, band.phase)
        for band in bands
        for n, part in enumerate(steps[band.phase])
    ]
    lowest = min(spans, key=lambda span: span.value)
    silent = [phase for phase in _silent(report) if phase not in steps]
    lacks = (
        f" Lines of {' and '.join(silent)} buckets don't print it." if silent else ""
    )
    return Picture(
        _NAME,
        _TITLE,
        f"Free memory of the card before each of {len(spans):,} graphs: "
        f"{spans[0].value:.4g} GiB before the first one, {spans[-1].value:.4g} GiB before "
        f"the last one, the least {lowest.value:.4g} GiB. At 0 the start would die.{lacks}",
        lambda width: _drawing(spans, bands, width),
        _table(steps),
        f"At 0 the start would die.{lacks}",
    )


def _silent(report: StartReport) -> list[str]:
    buckets = report.buckets
    counts = {"prompt": buckets.prompt, "decode": buckets.decode}
    return [phase for phase, count in counts.items() if count]


def _drawing(spans: Sequence[Span], bands: Sequence[Band], width: float) -> Drawing:
    frame = frame_of(width, 26, bands, [span.value for span in spans])
    shapes = [
        *backdrop(frame, bands),
        *side_axis(frame, "GiB free"),
        *foot_axis(frame, "graphs, in the order of the warm-up", whole=True),
    ]
    for band in bands:
        own = [span for span in spans if span.phase == band.phase]
        corners = [
            point
            for span in own
            for point in (
                (frame.x(span.first), frame.y(span.value)),
                (frame.x(span.last), frame.y(span.value)),
            )
        ]
        shapes.append(Stroke(tuple(corners), band.phase, 2))
    entries, height = phase_legend(frame, bands)
    return Drawing(width, frame.foot + 44 + height, (*shapes, *entries))


def _table(steps: dict[str, list[WarmedPart]]) -> Table:
    rows = []
    for phase, parts in steps.items():
        free = [part.free_bytes for part in parts]
        rows.append(
            (
                phase,
                f"{len(parts):,}",
                format_bytes(free[0]),
                format_bytes(min(free)),
                format_bytes(free[-1]),
            )
        )
    head = ("phase", "graphs", "free before the first", "least", "before the last")
    return Table(head, tuple(rows))
