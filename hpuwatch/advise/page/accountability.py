"""Prediction against observation: what an earlier report promised of this start's settings.

Figures have different units, so each is drawn as a share of its prediction: the bar is the
interval, the line in the middle what was predicted, the dot what came.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from hpuwatch.advise.document import AccountabilityPart, StartReport
from hpuwatch.advise.page.charts import Frame, foot_axis, legend
from hpuwatch.advise.page.drawing import Box, Dot, Drawing, Shape, Stroke, Words
from hpuwatch.advise.page.picture import Picture, Table, missing
from hpuwatch.advise.page.quantities import interval, known_as, name_of, told

_NAME, _TITLE = "predictions", "What was predicted, and what came"
_ROW = 46.0
_FARTHEST = 3.0
"""Times the prediction at which the picture ends; what came beyond stands at its edge."""


def predictions(report: StartReport) -> Picture:
    """Return each prediction that this start put to the test."""
    parts = [part for part in report.accountability if part.predicted > 0]
    if not parts:
        return missing(_NAME, _TITLE, _why(report))
    came = [part for part in parts if part.observed is not None]
    inside = sum(part.inside for part in parts)
    score = f"{inside} of {len(parts)} figures came out within the interval that was predicted."
    return Picture(
        _NAME,
        _TITLE,
        " ".join([score, *(_sentence(part) for part in came)]),
        lambda width: _draw(parts, width),
        Table(
            ("figure", "predicted", "likely between", "came", "how it was known"),
            tuple(_row(part) for part in parts),
        ),
        score,
    )


def _why(report: StartReport) -> str:
    if report.origin != "predicted" and not report.store_read:
        return "what is remembered of earlier reports was not read."
    if report.proposal is not None and report.proposal.figures:
        return (
            "no start with suggested settings has been seen yet. Start the server with "
            "these, then run hpuwatch suggest on its log: what was predicted here will "
            "stand beside what came."
        )
    return (
        "no start with settings that hpuwatch suggested has been seen, so there is no "
        "prediction to compare with."
    )


def _sentence(part: AccountabilityPart) -> str:
    came = told(part.figure, part.observed or 0)
    verdict = "inside" if part.inside else "outside"
    predicted = told(part.figure, part.predicted)
    name = name_of(part.figure)
    return (
        f"{name[0].upper()}{name[1:]}: {predicted} predicted, {came} came, {verdict}."
    )


def _row(part: AccountabilityPart) -> tuple[str, ...]:
    if part.observed is None:
        came = "never came: the server died first"
    else:
        verdict = "inside" if part.inside else "outside"
        came = f"{told(part.figure, part.observed)} ({verdict})"
    return (
        name_of(part.figure),
        told(part.figure, part.predicted),
        interval(part.figure, part.low, part.high),
        came,
        known_as(part.figure, part.origin),
    )


def _draw(parts: Sequence[AccountabilityPart], width: float) -> Drawing:
    shares = [
        value / part.predicted
        for part in parts
        for value in (part.low, part.high, part.observed)
        if value is not None
    ]
    low = max(0.0, min(0.9, *shares, inf) - 0.03)
    high = min(_FARTHEST, max(1.1, *shares) + 0.03)
    frame = Frame(10, 6, width - 20, _ROW * len(parts), (low, high))
    shapes: list[Shape] = []
    for number, part in enumerate(parts):
        shapes += _figure(frame, part, frame.top + _ROW * number)
    one = frame.x(1.0)
    shapes.append(Stroke(((one, frame.top), (one, frame.foot)), "soft", dashed=True))
    shapes += foot_axis(frame, "times the prediction")
    items = [("expected", "predicted interval"), ("inside", "came, inside")]
    items += [] if all(part.inside for part in parts) else [("outside", "outside")]
    entries, height = legend(items, frame.foot + 48, width)
    return Drawing(width, frame.foot + 48 + height, (*shapes, *entries))


def _figure(frame: Frame, part: AccountabilityPart, top: float) -> list[Shape]:
    first, last = frame.across
    low, high = (
        frame.x(min(last, max(first, value / part.predicted)))
        for value in (part.low, part.high)
    )
    gone = part.observed is None
    name = f"{name_of(part.figure)}{': never came' if gone else ''}"
    shapes: list[Shape] = [
        Words(
            frame.left, top + 14, name, role="outside" if gone else "text", bold=True
        ),
        Box(low, top + 22, max(2.0, high - low), 14, "expected"),
    ]
    if part.observed is None:
        return shapes
    x = frame.x(min(last, max(first, part.observed / part.predicted)))
    return [*shapes, Dot(x, top + 29, 6, "inside" if part.inside else "outside")]
