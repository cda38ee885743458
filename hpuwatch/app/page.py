"""The report's files: a page or a text where the operator wants it, and pictures.

Pictures are drawn by ``advise.page``; an SVG is written by it too.  For a PNG the same
shapes are drawn with matplotlib, of the extra ``tune``: it is imported only there, and
without pyplot, so no display is needed.  Beside each picture stands a text with the same
name, for those who can't see it.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from hpuwatch.advise.document import Report
from hpuwatch.advise.page.drawing import (
    Box,
    Dot,
    Drawing,
    Shape,
    Stroke,
    Words,
    headed,
    svg,
)
from hpuwatch.advise.page.page import name_of, origin_of, pictures
from hpuwatch.advise.page.palette import LIGHT, own_style
from hpuwatch.advise.page.picture import WIDE, Picture
from hpuwatch.errors import ExtraMissing, ResourceError

PLOT_FORMS = ("svg", "png")

_DOTS_PER_PIXEL = 2
_POINTS_PER_PIXEL = 0.75  # matplotlib measures letters and lines in points
_DPI = 96
_ALIGNMENTS = {"start": "left", "middle": "center", "end": "right"}


def write_text(path: Path, text: str) -> None:
    """Write a report into a file.

    Raises:
        ResourceError: it can't be written.
    """
    _write(path, text.encode("utf-8", "replace"), "--output")


def plot_forms(wanted: str | None) -> tuple[str, ...]:
    """Return the formats to write: the wanted one, else all that can be.

    Raises:
        ExtraMissing: PNG is wanted, and matplotlib is not installed.
    """
    there = find_spec("matplotlib") is not None
    if wanted == "png" and not there:
        raise ExtraMissing(
            "--plot-format png needs matplotlib: pip install 'hpuwatch[tune]', or take svg"
        )
    if wanted:
        return (wanted,)
    return PLOT_FORMS if there else PLOT_FORMS[:1]


def write_plots(report: Report, folder: Path, forms: Sequence[str]) -> Iterator[str]:
    """Write the pictures of a report, and yield a sentence on each.

    Names of files begin with the report's number where there are several.

    Raises:
        ResourceError: the folder or a file can't be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unwritable(folder, error, "--plots") from error
    for number, each in enumerate(report.reports, start=1):
        prefix = f"{number}-" if len(report.reports) > 1 else ""
        head = (name_of(each), origin_of(each))
        for picture in pictures(each):
            name = f"{prefix}{picture.name}"
            if picture.draw is None:
                yield f"{name}: {picture.description}"
                continue
            title = f"{picture.title}: {head[0]}"
            drawing = headed(picture.draw(WIDE), (title, head[1]))
            for form in forms:
                data = _encoded(drawing, picture, form, title)
                _write(folder / f"{name}.{form}", data, "--plots")
            _write(folder / f"{name}.txt", in_words(picture, head).encode(), "--plots")
            yield f"{name}: {folder / name}.{{{','.join((*forms, 'txt'))}}}"


def in_words(picture: Picture, head: Sequence[str]) -> str:
    """Return a picture as a text: what it shows, and its table."""
    lines = [picture.title, *head, "", picture.description]
    if picture.table is not None:
        rows = [picture.table.head, *picture.table.rows]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines.append("")
        for row in rows:
            cells = (c.ljust(width) for c, width in zip(row, widths, strict=True))
            lines.append("  ".join(cells).rstrip())
    return "\n".join(lines) + "\n"


def _encoded(drawing: Drawing, picture: Picture, form: str, title: str) -> bytes:
    if form == "png":
        return _png(drawing, f"{title}. {picture.description}")
    drawn = svg(
        drawing,
        title=title,
        description=picture.description,
        name=picture.name,
        style=own_style(),
    )
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{drawn}\n'.encode()


def _png(drawing: Drawing, description: str) -> bytes:
    """Draw the shapes on matplotlib's canvas, a pixel of ours being a unit of its axes."""
    import io

    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    size = (drawing.width / _DPI, drawing.height / _DPI)
    figure: Any = Figure(
        figsize=size, dpi=_DPI * _DOTS_PER_PIXEL, facecolor=LIGHT["back"]
    )
    FigureCanvasAgg(figure)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_xlim(0, drawing.width)
    axes.set_ylim(drawing.height, 0)
    axes.set_axis_off()
    for order, shape in enumerate(drawing.shapes):
        _put(axes, shape, order)
    buffer = io.BytesIO()
    words = {"Description": description, "Software": None}
    figure.savefig(buffer, format="png", dpi="figure", metadata=words)
    return buffer.getvalue()


def _put(axes: Any, shape: Shape, order: int) -> None:
    from matplotlib.patches import Circle, Rectangle

    colour = LIGHT[shape.role]
    if isinstance(shape, Box):
        corner = (shape.x, shape.y)
        size = (max(0.0, shape.width), shape.height)
        axes.add_patch(
            Rectangle(corner, *size, facecolor=colour, linewidth=0, zorder=order)
        )
    elif isinstance(shape, Dot):
        centre = (shape.x, shape.y)
        axes.add_patch(
            Circle(centre, shape.radius, facecolor=colour, linewidth=0, zorder=order)
        )
    elif isinstance(shape, Stroke):
        xs, ys = zip(*shape.points, strict=True)
        axes.plot(
            xs,
            ys,
            color=colour,
            linewidth=shape.width * _POINTS_PER_PIXEL,
            linestyle=(0, (5, 4)) if shape.dashed else "-",
            zorder=order,
        )
    else:
        _put_words(axes, shape, order)


def _put_words(axes: Any, words: Words, order: int) -> None:
    axes.text(
        words.x,
        words.y,
        words.text.replace("$", r"\$"),  # no formula, whatever a model is called
        color=LIGHT[words.role],
        fontsize=words.size * _POINTS_PER_PIXEL,
        fontweight="bold" if words.bold else "normal",
        horizontalalignment=_ALIGNMENTS[words.anchor],
        verticalalignment="baseline",
        zorder=order,
    )


def _write(path: Path, data: bytes, option: str) -> None:
    try:
        if _is_replaceable(path):
            _replace(path.resolve(), data)
        else:
            path.write_bytes(data)
    except OSError as error:
        raise _unwritable(path, error, option) from error


def _is_replaceable(path: Path) -> bool:
    """Tell whether another file may take a path's place: pipes and mounts stay."""
    is_usual = not path.exists() or (path.is_file() and not path.is_mount())
    return is_usual and os.access(path.resolve().parent, os.W_OK)


def _replace(path: Path, data: bytes) -> None:
    """Write a file as a whole, or leave the old one as it is; it keeps its permissions."""
    new = path.with_name(f".hpuwatch-{os.getpid()}")
    try:
        new.write_bytes(data)
        if path.exists():
            shutil.copymode(path, new)
        new.replace(path)
    except OSError:
        new.unlink(missing_ok=True)
        raise


def _unwritable(path: Path, error: OSError, option: str) -> ResourceError:
    return ResourceError(
        f"{path} can't be written ({error.strerror}): give another {option}"
    )
