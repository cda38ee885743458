"""What pictures of the warm-up share: its buckets in their order, phase after phase."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hpuwatch.advise.document import StartReport
from hpuwatch.advise.page.charts import Frame, legend
from hpuwatch.advise.page.drawing import Box, Shape, Words, width_of

PHASES = ("multimodal", "prompt", "decode")
"""In the order in which the runtime warms them."""
_HEIGHT = 180.0


@dataclass(frozen=True, slots=True)
class Span:
    """Neighbouring buckets with one figure each: from ``first`` on, before ``last``."""

    first: float
    last: float
    value: float
    phase: str
    tip: str = ""


@dataclass(frozen=True, slots=True)
class Band:
    """The place of a phase among all buckets."""

    phase: str
    first: int
    last: int


def bands_of(counts: Mapping[str, int]) -> list[Band]:
    """Return the places of the phases that have buckets."""
    bands: list[Band] = []
    first = 0
    for phase in PHASES:
        if counts.get(phase):
            bands.append(Band(phase, first, first + counts[phase]))
            first += counts[phase]
    return bands


def backdrop(frame: Frame, bands: Sequence[Band]) -> list[Shape]:
    """Return every second phase shaded, and the names of those that have room."""
    shapes: list[Shape] = []
    for number, band in enumerate(bands):
        x, end = frame.x(band.first), frame.x(band.last)
        if number % 2 == 0:
            shapes.append(Box(x, frame.top, end - x, frame.height, "band"))
        if _has_room(frame, band):
            middle = (x + end) / 2
            shapes.append(Words(middle, frame.top + 14, band.phase, "middle", "soft"))
    return shapes


def phase_legend(frame: Frame, bands: Sequence[Band]) -> tuple[list[Shape], float]:
    """Return a legend below the frame where a phase has no room for its name, and its height."""
    if all(_has_room(frame, band) for band in bands):
        return [], 0.0
    items = [(band.phase, band.phase) for band in bands]
    return legend(items, frame.foot + 46, frame.left + frame.width)


def _has_room(frame: Frame, band: Band) -> bool:
    return frame.x(band.last) - frame.x(band.first) > width_of(band.phase)


def frame_of(
    width: float, top: float, bands: Sequence[Band], values: Sequence[float]
) -> Frame:
    """Return the frame for buckets in their order and figures from 0 on."""
    highest = max(values) * 1.15 or 1.0
    return Frame(
        52, top, width - 64, _HEIGHT, (0, max(bands[-1].last, 1)), (0, highest)
    )


def why_no_steps(report: StartReport) -> str:
    """Say why nothing tells what was free before each bucket."""
    if report.warmup.skipped:
        return "warm-up was skipped."
    if report.origin == "predicted":
        return "no server has been warmed up yet."
    if not report.warmup.total:
        return "the log holds no warm-up."
    return (
        "the log doesn't print what was free before each bucket. vllm-gaudi prints it "
        "with VLLM_DEVELOPER_MODE=1, the older fork always."
    )
