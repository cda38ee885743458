"""What pictures share: a frame with axes, ticks at round figures, a legend."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor, log10

from hpuwatch.advise.page.drawing import Box, Shape, Stroke, Words, width_of

_ROUND = (1, 2, 5, 10)
_SWATCH = 11.0
_ROW = 20.0


@dataclass(frozen=True, slots=True)
class Frame:
    """A rectangle that stands for a range of figures, in pixels.

    Attributes:
        across: the figures of its left and right edge.
        up: the figures of its lower and upper edge.
    """

    left: float
    top: float
    width: float
    height: float
    across: tuple[float, float]
    up: tuple[float, float] = (0.0, 1.0)

    def x(self, value: float) -> float:
        """Return where a figure stands across."""
        first, last = self.across
        return self.left + self.width * (value - first) / ((last - first) or 1)

    def y(self, value: float) -> float:
        """Return where a figure stands upright."""
        low, high = self.up
        return self.top + self.height * (1 - (value - low) / ((high - low) or 1))

    @property
    def foot(self) -> float:
        """Return where the horizontal axis runs."""
        return self.top + self.height


def ticks(low: float, high: float, most: int) -> tuple[float, ...]:
    """Return round figures between two, evenly spaced, about ``most`` of them at most."""
    span = high - low
    if span <= 0 or most < 1:
        return (low,)
    rough = span / most
    scale = 10.0 ** floor(log10(rough))
    step = next(n * scale for n in _ROUND if n * scale >= rough * 0.999)
    first, last = ceil(low / step - 1e-9), floor(high / step + 1e-9)
    return tuple(n * step for n in range(first, last + 1))


def plain(value: float) -> str:
    """Print a figure of an axis."""
    return f"{value:,.0f}" if value == round(value) else f"{value:,.4g}"


def foot_axis(frame: Frame, label: str, *, whole: bool = False) -> list[Shape]:
    """Return the horizontal axis with its figures and its label."""
    most = 4 if frame.width < 400 else 8
    places = ticks(*frame.across, most)
    if whole:
        places = tuple(place for place in places if place == round(place))
    shapes: list[Shape] = [
        Stroke(
            ((frame.left, frame.foot), (frame.left + frame.width, frame.foot)), "soft"
        )
    ]
    for place in places:
        x = frame.x(place)
        shapes += [
            Stroke(((x, frame.foot), (x, frame.foot + 4)), "soft"),
            Words(x, frame.foot + 17, plain(place), "middle", "soft"),
        ]
    middle = frame.left + frame.width / 2
    shapes.append(Words(middle, frame.foot + 35, label, "middle", "soft"))
    return shapes


def side_axis(frame: Frame, label: str) -> list[Shape]:
    """Return lines across at round figures, and the label above them."""
    shapes: list[Shape] = [Words(2, frame.top - 9, label, role="soft")]
    for place in ticks(*frame.up, 5):
        y = frame.y(place)
        shapes += [
            Stroke(((frame.left, y), (frame.left + frame.width, y)), "line"),
            Words(frame.left - 6, y + 4, plain(place), "end", "soft"),
        ]
    return shapes


def legend(
    items: Sequence[tuple[str, str]], top: float, width: float, left: float = 0.0
) -> tuple[list[Shape], float]:
    """Return a legend of roles and words, row by row, and its height."""
    shapes: list[Shape] = []
    first = left + 8.0
    x, y = first, top
    for role, words in items:
        takes = _SWATCH + 6 + width_of(words) + 14
        if x > first and x + takes > left + width:
            x, y = first, y + _ROW
        shapes += [
            Box(x, y, _SWATCH, _SWATCH, role),
            Words(x + _SWATCH + 6, y + 10, words),
        ]
        x += takes
    return shapes, y + _ROW - top
