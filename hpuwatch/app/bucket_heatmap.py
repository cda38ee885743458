"""The buckets of a configuration as a picture.

Prompts stand by query and context, decodes by batch and blocks.  A cell is a shape of one
prompt, or of a decode; its colour is the share of its bucket that is padding.  A red cell
has no bucket: its graph compiles while a request waits.  A white one can't come, by
``gaudi.coverage``.  Dots are the buckets.  matplotlib comes with the extra ``tune``; it is
imported only where a picture is drawn, and without pyplot, so no display is needed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from hpuwatch.app.buckets import Answer, padding
from hpuwatch.errors import ExtraMissing, ResourceError, UsageError
from hpuwatch.gaudi.buckets import DECODE, PROMPT, Bucket, BucketSettings
from hpuwatch.gaudi.coverage import reach, widest
from hpuwatch.gaudi.lookuptable import look_up_all

FORMS = (".png", ".svg")

_CELLS = 96  # of an axis
_RED = "#dc2626"
_OPEN = 2.0  # stands in the picture for no bucket; an infinite value would not be drawn
_STYLE: dict[Any, Any] = {
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#9ca3af",
    "svg.fonttype": "none",
    "svg.hashsalt": "hpuwatch",
}
_AXES = {
    PROMPT: ("query (new tokens)", "context (KV blocks)", "prompts of one sequence"),
    DECODE: ("batch (sequences)", "context (KV blocks)", "decodes"),
}


@dataclass(frozen=True, slots=True)
class Map:
    """The padding of one phase over a grid.

    Attributes:
        across: the values of the horizontal axis: queries, or batches.
        up: the contexts, in blocks.
        padding: a row for each context; the share of the bucket that is padding, infinite
            where no bucket holds the shape, None where no such shape can come.
    """

    phase: str
    across: tuple[int, ...]
    up: tuple[int, ...]
    padding: tuple[tuple[float | None, ...], ...]

    @property
    def shares(self) -> tuple[float, ...]:
        """Return the padding of every shape that can come."""
        return tuple(
            share for row in self.padding for share in row if share is not None
        )

    @property
    def open(self) -> int:
        """Return how many of them have no bucket."""
        return self.shares.count(math.inf)

    @property
    def mean(self) -> float:
        """Return the mean padding of those that have one."""
        known = [share for share in self.shares if share < math.inf]
        return sum(known) / len(known) if known else 0.0


def padding_map(found: Answer, phase: str) -> Map:
    """Return how much of each shape's bucket is padding."""
    listed = found.prepared.of(phase)
    across, up = _grid(found, phase)
    shapes = [_shape(phase, x, y) for y in up for x in across]
    known = set(listed)
    buckets = look_up_all(found.prepared, phase, shapes)
    shares: list[float | None] = []
    for shape, bucket in zip(shapes, buckets, strict=True):
        share = padding(phase, shape, bucket) if bucket in known else None
        share = math.inf if share is None else share
        shares.append(share if _can_come(found.settings, phase, shape) else None)
    width = len(across)
    rows = (tuple(shares[n : n + width]) for n in range(0, len(shares), width))
    return Map(phase, across, up, tuple(rows))


def _grid(found: Answer, phase: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    settings, is_prompt = found.settings, phase == PROMPT
    most = widest(settings, phase)
    deepest = reach(settings, phase, 1 if is_prompt else most)
    return _steps(1, most), _steps(0 if is_prompt else 1, max(1, deepest))


def _steps(first: int, last: int) -> tuple[int, ...]:
    """Return whole numbers from first to last, evenly spaced, at most ``_CELLS`` of them."""
    count = min(_CELLS, last - first + 1)
    if count < 2:
        return (first,)
    return tuple(first + (last - first) * n // (count - 1) for n in range(count))


def _shape(phase: str, across: int, up: int) -> Bucket:
    return Bucket(1, across, up) if phase == PROMPT else Bucket(across, 1, up)


def _can_come(settings: BucketSettings, phase: str, shape: Bucket) -> bool:
    if phase == PROMPT:
        return shape.context <= reach(settings, phase, shape.query)
    least = 1 if settings.contiguous_pa else shape.batch
    return least <= shape.context <= reach(settings, phase, shape.batch)


def describe(found: Answer, maps: Sequence[Map]) -> str:
    """Return the picture in words."""
    settings = found.settings
    head = f"Buckets of {found.release.name}, strategy {settings.strategy}"
    lines = [f"{head}, {settings.num_blocks} KV blocks"]
    for each in maps:
        across, up, what = _AXES[each.phase]
        lines.append(
            f"{each.phase}: {len(found.prepared.of(each.phase))} buckets "
            f"({found.origin(each.phase)}) over {across} {each.across[0]} to "
            f"{each.across[-1]} and {up} {each.up[0]} to {each.up[-1]}; of {len(each.shares)} "
            f"{what} on a grid {each.open} have no bucket, and padding is "
            f"{each.mean:.0%} of the others' buckets on average"
        )
    return "\n".join(lines)


def draw(found: Answer, path: Path) -> str:
    """Draw the buckets into a file, whose name says if it is a PNG or an SVG.

    Returns the picture in words, which stand in the file's description too.

    Raises:
        UsageError: the name ends in something else.
        ExtraMissing: matplotlib is not installed.
        ResourceError: the file can't be written.
    """
    form = path.suffix.lower()
    if form not in FORMS:
        raise UsageError(f"--out {str(path)!r} doesn't end in .png or .svg")
    if find_spec("matplotlib") is None:
        raise ExtraMissing(
            "hpuwatch buckets heatmap needs matplotlib: pip install 'hpuwatch[tune]'"
        )
    maps = [padding_map(found, phase) for phase in (PROMPT, DECODE)]
    words = describe(found, maps)
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with rc_context(_STYLE):
        figure = Figure(figsize=(12, 5), layout="constrained")
        FigureCanvasAgg(figure)
        _panels(figure, found, maps)
        about = {"Title": words.partition("\n")[0], "Description": words}
        undated = {"Date": None} if form == ".svg" else {}
        try:
            figure.savefig(path, format=form[1:], dpi=150, metadata=about | undated)
        except OSError as error:
            raise ResourceError(
                f"{path} can't be written ({error.strerror}): give another --out"
            ) from error
    return words


def _panels(figure: Any, found: Answer, maps: Sequence[Map]) -> None:
    from matplotlib import colormaps

    panels = figure.subplots(1, 2)
    colours = colormaps["viridis_r"].with_extremes(over=_RED)
    shown = None
    for axes, each in zip(panels, maps, strict=True):
        across, up, _ = _AXES[each.phase]
        shares = [
            [math.nan if share is None else min(share, _OPEN) for share in row]
            for row in each.padding
        ]
        shown = axes.pcolormesh(
            each.across,
            each.up,
            shares,
            cmap=colours,
            vmin=0,
            vmax=1,
            shading="nearest",
            rasterized=True,
        )
        dots = _dots(found, each)
        axes.plot(*zip(*dots, strict=True), ".", color="#111827", markersize=3)
        axes.set_xlabel(across)
        axes.set_ylabel(up)
        axes.set_title(f"{each.phase}: {len(found.prepared.of(each.phase))} buckets")
    figure.colorbar(
        shown,
        ax=panels,
        label="share of the bucket that is padding; red: no bucket",
        extend="max",
    )
    figure.suptitle(
        f"{found.release.name}, {found.settings.strategy}", fontweight="bold"
    )


def _dots(found: Answer, each: Map) -> list[tuple[int, int]]:
    """Return where buckets stand; those beyond the picture are left out."""
    listed = found.prepared.of(each.phase)
    places = {
        (b.query if each.phase == PROMPT else b.batch, b.context)
        for b in listed
        if each.phase == DECODE or b.batch == 1
    }
    inside = [
        place
        for place in sorted(places)
        if place[0] <= each.across[-1] and place[1] <= each.up[-1]
    ]
    return inside or [(each.across[0], each.up[0])]
