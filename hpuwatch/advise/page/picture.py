"""A picture with all that stands around it: title, description, table; or why there is none.

A picture is never drawn from figures that nobody has.  Where they lack, ``missing`` says
what lacks and where it would come from, and ``draw`` is None.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hpuwatch.advise.page.drawing import Drawing

NOT_DRAWN = "Not drawn: "
"""Begins the description of a picture that there is not."""
WIDE, NARROW = 720.0, 340.0
"""Pixels: for a screen or paper, and for a telephone."""


@dataclass(frozen=True, slots=True)
class Table:
    """The figures of a picture; the first column names the rows.

    ``swatches`` are roles of colours, one a row, where the picture has a legend.
    """

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    swatches: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture, drawn or not.

    Attributes:
        name: a word for files and anchors.
        title: a few words.
        description: what can be seen, in sentences; the reason where there is no picture.
        caption: what of that a page says below the picture, whose legend and table tell
            the rest.
        draw: draws it for a width in pixels; None where figures lack.
        table: the same in figures.
    """

    name: str
    title: str
    description: str
    draw: Callable[[float], Drawing] | None = None
    table: Table | None = None
    caption: str = ""


def missing(name: str, title: str, sentence: str) -> Picture:
    """Return a picture that can't be drawn, and the sentence that says why."""
    return Picture(name, title, f"{NOT_DRAWN}{sentence}")
