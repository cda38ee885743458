"""Pictures as rectangles, lines and words, before they are written in any format.

A picture is drawn once.  :func:`svg` writes it for a page or as a file of its own; whoever
has another canvas walks through the shapes.  Lengths are CSS pixels, y grows downwards.
Colours are named by their role; ``advise.page.palette`` has them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from hpuwatch.advise.page.markup import Markup, element

Anchor = Literal["start", "middle", "end"]
Point = tuple[float, float]

SIZE = 12.0
"""Of the words in a picture, in pixels."""

_LETTER = 0.54
"""Mean width of a letter, as a share of its height, in the usual sans-serif faces."""


@dataclass(frozen=True, slots=True)
class Box:
    """A filled rectangle; ``tip`` is shown where a pointer rests on it."""

    x: float
    y: float
    width: float
    height: float
    role: str
    tip: str = ""

    def moved(self, down: float) -> Box:
        """Return the same further down."""
        return replace(self, y=self.y + down)

    def written(self) -> Markup:
        """Return the element of an SVG."""
        tip = (element("title", self.tip),) if self.tip else ()
        return element(
            "rect",
            *tip,
            x=_number(self.x),
            y=_number(self.y),
            width=_number(max(0.0, self.width)),
            height=_number(self.height),
            class_=f"f-{self.role}",
        )


@dataclass(frozen=True, slots=True)
class Stroke:
    """A line through points."""

    points: tuple[Point, ...]
    role: str
    width: float = 1.0
    dashed: bool = False

    def moved(self, down: float) -> Stroke:
        """Return the same further down."""
        return replace(self, points=tuple((x, y + down) for x, y in self.points))

    def written(self) -> Markup:
        """Return the element of an SVG."""
        return element(
            "polyline",
            points=" ".join(f"{_number(x)},{_number(y)}" for x, y in self.points),
            stroke_width=_number(self.width),
            stroke_dasharray="5 4" if self.dashed else None,
            class_=f"s-{self.role}",
        )


@dataclass(frozen=True, slots=True)
class Dot:
    """A filled circle."""

    x: float
    y: float
    radius: float
    role: str

    def moved(self, down: float) -> Dot:
        """Return the same further down."""
        return replace(self, y=self.y + down)

    def written(self) -> Markup:
        """Return the element of an SVG."""
        return element(
            "circle",
            cx=_number(self.x),
            cy=_number(self.y),
            r=_number(self.radius),
            class_=f"f-{self.role}",
        )


@dataclass(frozen=True, slots=True)
class Words:
    """A line of text; ``y`` is its base line."""

    x: float
    y: float
    text: str
    anchor: Anchor = "start"
    role: str = "text"
    size: float = SIZE
    bold: bool = False

    def moved(self, down: float) -> Words:
        """Return the same further down."""
        return replace(self, y=self.y + down)

    def written(self) -> Markup:
        """Return the element of an SVG."""
        return element(
            "text",
            self.text,
            x=_number(self.x),
            y=_number(self.y),
            text_anchor=self.anchor if self.anchor != "start" else None,
            font_size=_number(self.size),
            font_weight="600" if self.bold else None,
            class_=f"f-{self.role}",
        )


Shape = Box | Stroke | Dot | Words


@dataclass(frozen=True, slots=True)
class Drawing:
    """Shapes on a canvas, the first one lowest."""

    width: float
    height: float
    shapes: tuple[Shape, ...]


def headed(drawing: Drawing, lines: Sequence[str]) -> Drawing:
    """Return the drawing below a title and further lines, for a file of its own."""
    words: list[Shape] = []
    y = 8.0
    for number, line in enumerate(lines):
        for part in folded(line, drawing.width - 16):
            y += 18
            words.append(Words(8, y, part, bold=number == 0, size=13 - min(number, 1)))
    down = y + 10
    moved: list[Shape] = [shape.moved(down) for shape in drawing.shapes]
    return Drawing(drawing.width, drawing.height + down, (*words, *moved))


def folded(text: str, width: float, size: float = SIZE) -> list[str]:
    """Return a text in lines that are about that wide at most."""
    lines: list[str] = []
    for word in text.split():
        if lines and width_of(f"{lines[-1]} {word}", size) <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines


def width_of(text: str, size: float = SIZE) -> float:
    """Return about how wide a text is, in pixels."""
    return len(text) * size * _LETTER


def svg(
    drawing: Drawing, *, title: str, description: str, name: str, style: str = ""
) -> Markup:
    """Return an SVG with a title and a description for those who don't see it.

    Args:
        drawing: what to show.
        title: a few words.
        description: what can be seen, in sentences.
        name: unique on the page.
        style: a style sheet, where the SVG stands alone.
    """
    parts: Iterable[Markup] = (shape.written() for shape in drawing.shapes)
    return element(
        "svg",
        element("title", title, id=f"{name}-title"),
        element("desc", description, id=f"{name}-desc"),
        *((element("style", Markup(style)),) if style else ()),
        *parts,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {_number(drawing.width)} {_number(drawing.height)}",
        width=_number(drawing.width),
        height=_number(drawing.height),
        role="img",
        aria_labelledby=f"{name}-title {name}-desc",
    )


def _number(value: float) -> str:
    """Print with one decimal at most, so that the same figures give the same text."""
    return f"{value:.1f}".removesuffix(".0")
