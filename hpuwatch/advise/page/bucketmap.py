"""The buckets as a map: prompts by query and context, decodes by batch and KV blocks.

Every cell of the grid stands for one size on each axis, or for a few neighbouring ones where
there are too many to show.  Its colour tells how many buckets lie there; where the log
prints what was free before each bucket's graph, it tells the memory that they took.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil

from hpuwatch.advise.document import StartReport
from hpuwatch.advise.page.charts import legend
from hpuwatch.advise.page.drawing import Box, Drawing, Shape, Stroke, Words, folded
from hpuwatch.advise.page.palette import HEATS
from hpuwatch.advise.page.picture import Picture, Table, missing
from hpuwatch.units import format_bytes

_NAME, _TITLE = "buckets", "The buckets that the server prepares"
_MOST = 24
"""Cells of an axis; a telephone still shows them."""
_CELL = 17.0
_LEFT = 62.0

Sizes = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Grid:
    """One phase.

    Attributes:
        across: what the horizontal axis is, and the groups of sizes along it.
        up: the same of the vertical axis.
        counts: buckets by cell, as (place across, place upwards).
        taken: bytes of graphs by cell; empty where the log doesn't tell.
        limit: place upwards from which on buckets need more than the KV cache has.
        blocks: KV blocks of that limit.
    """

    phase: str
    across: tuple[str, tuple[Sizes, ...]]
    up: tuple[str, tuple[Sizes, ...]]
    counts: Mapping[tuple[int, int], int]
    taken: Mapping[tuple[int, int], int]
    limit: int | None = None
    blocks: int = 0


def bucket_map(report: StartReport) -> Picture:
    """Return the picture of all lists that the log prints whole."""
    grids = [
        _grid(report, phase, shapes)
        for phase in ("prompt", "decode")
        if (shapes := report.buckets.shapes.get(phase))
    ]
    if not grids:
        return missing(_NAME, _TITLE, _why_none(report))
    return Picture(
        _NAME,
        _TITLE,
        " ".join(_described(grid) for grid in grids),
        lambda width: _draw(grids, width),
        _table(grids),
        " ".join(filter(None, map(_beyond, grids))),
    )


def _why_none(report: StartReport) -> str:
    if report.origin == "predicted":
        return "nothing tells yet which buckets there will be."
    if report.buckets.prompt or report.buckets.decode:
        return "the log counts the buckets, but doesn't list them whole."
    return "the log lists no buckets; it does so when warm-up begins."


def _grid(report: StartReport, phase: str, shapes: Sequence[Sizes]) -> Grid:
    places = {shape: _place(phase, shape) for shape in shapes}
    across = _groups({x for x, _ in places.values()})
    up = _groups({y for _, y in places.values()})
    column = {size: n for n, group in enumerate(across) for size in group}
    row = {size: n for n, group in enumerate(up) for size in group}
    cells = {shape: (column[x], row[y]) for shape, (x, y) in places.items()}
    counts: dict[tuple[int, int], int] = defaultdict(int)
    for cell in cells.values():
        counts[cell] += 1
    names = _axes(phase, len(shapes[0]))
    blocks = report.kv.blocks
    limit = None
    if phase == "decode" and len(shapes[0]) == 3 and blocks:
        above = [n for n, group in enumerate(up) if group[0] > blocks]
        limit = above[0] if above else None
    return Grid(
        phase,
        (names[0], across),
        (names[1], up),
        dict(counts),
        _taken(report, phase, cells),
        limit,
        blocks or 0,
    )


def _place(phase: str, shape: Sizes) -> tuple[int, int]:
    if len(shape) == 2:
        return shape[0], shape[1]
    return (shape[1] if phase == "prompt" else shape[0]), shape[-1]


def _axes(phase: str, sizes: int) -> tuple[str, str]:
    if sizes == 2:
        return "batch (sequences)", "length (tokens)" if phase == "prompt" else "length"
    if phase == "prompt":
        return "query (new tokens)", "context (KV blocks)"
    return "batch (sequences)", "context (KV blocks)"


def _groups(sizes: set[int]) -> tuple[Sizes, ...]:
    """Return the sizes in order, neighbours together where there are too many."""
    ordered = sorted(sizes)
    share = ceil(len(ordered) / _MOST)
    return tuple(tuple(ordered[n : n + share]) for n in range(0, len(ordered), share))


def _taken(
    report: StartReport, phase: str, cells: Mapping[Sizes, tuple[int, int]]
) -> dict[tuple[int, int], int]:
    """Return what the graphs of each cell took, as far as free memory was printed."""
    found: dict[tuple[int, int], int] = defaultdict(int)
    for before, after in pairwise(report.warmup.steps.get(phase, ())):
        cell = cells.get(before.shape)
        if cell is not None:
            found[cell] += max(0, before.free_bytes - after.free_bytes)
    return dict(found)


def _described(grid: Grid) -> str:
    total = sum(grid.counts.values())
    (across, columns), (up, rows) = grid.across, grid.up
    said = (
        f"{total:,} {grid.phase} buckets: {across} {columns[0][0]:,} to "
        f"{columns[-1][-1]:,}, {up} {rows[0][0]:,} to {rows[-1][-1]:,}."
    )
    scale = _scale(grid)
    heats = f"A cell has {' to '.join(words for _, words in scale)}." if scale else ""
    return " ".join(filter(None, (said, _beyond(grid), heats)))


def _beyond(grid: Grid) -> str:
    """Say how many buckets the KV cache has too few blocks for, where it has."""
    if grid.limit is None:
        return ""
    above = sum(n for (_, y), n in grid.counts.items() if y >= grid.limit)
    return (
        f"{above:,} of the {grid.phase} buckets, above the dashed line, have more blocks "
        f"than the {grid.blocks:,} of the KV cache."
    )


def _scale(grid: Grid) -> list[tuple[int, str]]:
    """Return the least and the most that a cell has, in words; nothing where all are alike."""
    values = (grid.taken or grid.counts).values()
    least, most = min(values), max(values)
    if least == most:
        return []
    words = format_bytes if grid.taken else _buckets
    return [(least, words(least)), (most, words(most))]


def _buckets(count: int) -> str:
    return f"{count:,} bucket{'' if count == 1 else 's'}"


def _draw(grids: Sequence[Grid], width: float) -> Drawing:
    shapes: list[Shape] = []
    side_by_side = len(grids) == 2 and width >= 600
    each = width / 2 if side_by_side else width
    x, top, bottom = 0.0, 0.0, 0.0
    for grid in grids:
        drawn, foot = _panel(grid, x, top, each)
        shapes += drawn
        bottom = max(bottom, foot)
        if side_by_side:
            x += each
        else:
            top = foot + 16
    return Drawing(width, bottom + 4, tuple(shapes))


def _panel(grid: Grid, x: float, top: float, width: float) -> tuple[list[Shape], float]:
    """Return one phase at a place, and where it ends."""
    (across, columns), (up, rows) = grid.across, grid.up
    total = sum(grid.counts.values())
    left, wide = x + _LEFT, (width - _LEFT - 14) / len(columns)
    wide = min(wide, 3 * _CELL)
    head = top + 44
    foot = head + _CELL * len(rows)
    shapes: list[Shape] = [
        Words(x + 4, top + 16, f"{grid.phase}: {total:,} buckets", bold=True),
        Words(x + 4, top + 35, up, role="soft"),
        Box(left, head, wide * len(columns), foot - head, "band"),
    ]
    for (column, row), count in sorted(grid.counts.items()):
        y = foot - _CELL * (row + 1)
        heat, tip = _heat(grid, (column, row), count)
        shapes.append(
            Box(left + wide * column, y, wide - 1, _CELL - 1, f"heat{heat}", tip)
        )
    shapes += _figures(grid, left, wide, foot)
    shapes.append(Words(left, foot + 35, across, role="soft"))
    end = foot + 42
    if grid.limit is not None:
        y = foot - _CELL * grid.limit - 0.5
        shapes.append(
            Stroke(((left - 4, y), (left + wide * len(columns), y)), "limit", 2, True)  # noqa: FBT003  dashed
        )
        note = f"above the line: more blocks than the KV cache's {grid.blocks:,}"
        for line in folded(note, width - 16):
            end += 16
            shapes.append(Words(x + 4, end, line, role="limit"))
    return shapes, end + _keyed(grid, shapes, end, (x, width))


def _keyed(
    grid: Grid, shapes: list[Shape], top: float, across: tuple[float, float]
) -> float:
    """Add what the colours stand for below a map; return the height that it takes."""
    x, width = across
    items = [(f"heat{_shade(grid, value)}", words) for value, words in _scale(grid)]
    if not items:
        return 0.0
    entries, height = legend(items, top + 8, width, x)
    shapes += entries
    return height + 8


def _heat(grid: Grid, cell: tuple[int, int], count: int) -> tuple[int, str]:
    """Return the step of the colour, and what the cell is."""
    (across, columns), (up, rows) = grid.across, grid.up
    sizes = f"{across} {_sizes(columns[cell[0]])}, {up} {_sizes(rows[cell[1]])}"
    tip = f"{sizes}: {_buckets(count)}"
    if grid.taken:
        value = grid.taken.get(cell, 0)
        return _shade(grid, value), f"{tip}, {format_bytes(value)} of graphs"
    return _shade(grid, count), tip


def _shade(grid: Grid, value: int) -> int:
    """Return the step of the colour of a cell; a graph of nothing is still a bucket."""
    most = max((grid.taken or grid.counts).values())
    if most == 1 and not grid.taken:
        return HEATS // 2
    return round((HEATS - 2) * value / (most or 1)) + 1


def _sizes(group: Sizes) -> str:
    if len(group) == 1:
        return f"{group[0]:,}"
    return f"{group[0]:,}\N{EN DASH}{group[-1]:,}"


def _figures(grid: Grid, left: float, wide: float, foot: float) -> list[Shape]:
    """Return sizes along both axes, as many as have room."""
    columns, rows = grid.across[1], grid.up[1]
    every = max(1, ceil(44 / wide))
    shapes: list[Shape] = [
        Words(
            left + wide * (n + 0.5), foot + 17, f"{columns[n][-1]:,}", "middle", "soft"
        )
        for n in range(0, len(columns), every)
    ]
    shapes += [
        Words(left - 7, foot - _CELL * (n + 0.25), f"{rows[n][-1]:,}", "end", "soft")
        for n in range(len(rows))
    ]
    return shapes


def _table(grids: Sequence[Grid]) -> Table:
    rows = []
    for grid in grids:
        (_, columns), (_, heights) = grid.across, grid.up
        for column, group in enumerate(columns):
            own = [(y, n) for (x, y), n in grid.counts.items() if x == column]
            tall = [size for y, _ in own for size in heights[y]]
            rows.append(
                (
                    f"{grid.phase}, {grid.across[0]} {_sizes(group)}",
                    f"{sum(n for _, n in own):,}",
                    f"{grid.up[0]} {min(tall):,} to {max(tall):,}",
                )
            )
    return Table(("buckets", "how many", "which"), tuple(rows))
