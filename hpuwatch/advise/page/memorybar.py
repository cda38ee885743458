"""The memory of a card before and after the proposal, as stacked bars.

The bar of after has the same weights, profile run and dummy block; reserve and KV cache are
those that the proposal expects, and what both leave of the budget goes to, or comes from,
the memory that is held back.
"""

from __future__ import annotations

from collections.abc import Sequence

from hpuwatch.advise.document import MemoryPart, ProposalPart, StartReport
from hpuwatch.advise.ledger import Piece, pieces_of
from hpuwatch.advise.page.charts import Frame, foot_axis, legend
from hpuwatch.advise.page.drawing import Box, Drawing, Shape, Words, width_of
from hpuwatch.advise.page.palette import ink_on
from hpuwatch.advise.page.picture import Picture, Table, missing
from hpuwatch.units import GIB, format_bytes

_NAME, _TITLE = "memory", "Where the memory of a card goes"
_BAR = 36.0
_GAP = 30.0
_MOVES_WEIGHTS = frozenset(
    {"--tensor-parallel-size", "-tp", "--quantization", "--dtype", "--model"}
)
_ROUNDING = 0.005
"""Sums of figures with four digits agree within that share of the card."""

Bar = tuple[str, tuple[Piece, ...]]


def memory_bars(report: StartReport) -> Picture:
    """Return the picture, of one bar where nothing is proposed or expected."""
    figures = _figures(report.memory)
    used = _graphs_used(report)
    now = _worth_drawing(pieces_of(figures, used))
    if len(now) < 2:
        return missing(
            _NAME,
            _TITLE,
            "nothing tells how memory is split (weights, free memory, graph "
            "reserve, KV cache). A server prints it as it starts.",
        )
    after = _after(report.proposal, figures, used)
    words = "expected" if report.origin == "predicted" else "now"
    bars: list[Bar] = [(words, now), *([("with the proposal", after)] if after else [])]
    return Picture(
        _NAME,
        _TITLE,
        _described(report, bars),
        lambda width: _draw(bars, width),
        _table(bars),
        " ".join([*_ranked(report), *_why_one(report, bars)]),
    )


def _figures(memory: MemoryPart) -> dict[str, int]:
    names = (
        "total",
        "weights",
        "profile_run",
        "free",
        "usable",
        "reserve",
        "dummy_block",
        "kv_cache",
    )
    found = {name: getattr(memory, name) for name in names}
    return {name: value for name, value in found.items() if value is not None}


def _graphs_used(report: StartReport) -> int | None:
    """Return what graphs took, None before the warm-up has ended."""
    if not report.warmup.finished:
        return None
    graphs = report.graphs
    parts = (graphs.prompt_used_bytes, graphs.decode_used_bytes)
    known = [part for part in parts if part is not None]
    allocated = report.warmup.allocated_bytes
    return max(sum(known), allocated or 0) if known or allocated is not None else None


def _after(
    proposal: ProposalPart | None, figures: dict[str, int], used: int | None
) -> tuple[Piece, ...] | None:
    """Return the pieces with the proposal, None where it doesn't say enough of them."""
    if proposal is None or _MOVES_WEIGHTS & set(proposal.flags):
        return None
    reserve = proposal.expected.get("reserve_bytes")
    cache = proposal.expected.get("kv_cache_bytes")
    free, usable = figures.get("free"), figures.get("usable")
    if reserve is None or cache is None or free is None or usable is None:
        return None
    taken = round(reserve + cache) + figures.get("dummy_block", 0)
    rounding = _ROUNDING * figures.get("total", free)
    budget = usable if abs(taken - usable) <= rounding else taken
    if budget > free + rounding:
        return None
    changed = {
        **figures,
        "reserve": round(reserve),
        "kv_cache": round(cache),
        "usable": min(budget, free),
    }
    return _worth_drawing(pieces_of(changed, used))


def _worth_drawing(pieces: tuple[Piece, ...]) -> tuple[Piece, ...]:
    """Leave out a rest that is only the rounding of the figures that were printed."""
    whole = sum(piece.bytes for piece in pieces)
    return tuple(
        piece
        for piece in pieces
        if piece.key != "other" or piece.bytes > whole * _ROUNDING
    )


def _described(report: StartReport, bars: Sequence[Bar]) -> str:
    said = [
        f"{words.capitalize()}: "
        + ", ".join(f"{piece.title} {format_bytes(piece.bytes)}" for piece in pieces)
        + "."
        for words, pieces in bars
    ]
    whose = _ranked(report) or ["One card."]
    return " ".join([*whose, *said, *_why_one(report, bars)])


def _ranked(report: StartReport) -> list[str]:
    """Say which of several cards it is."""
    rank, ranks = report.memory.rank, report.memory.ranks
    return [f"One card (rank {rank}, the tightest of {ranks})."] if ranks > 1 else []


def _why_one(report: StartReport, bars: Sequence[Bar]) -> list[str]:
    """Say why there is no bar of after, where one might be looked for."""
    if len(bars) > 1 or report.origin == "predicted":
        return []
    if report.proposal is None:
        return ["No change is proposed, so there is one bar."]
    return [
        "The proposal doesn't tell how the memory is split then, so there is one bar."
    ]


def _draw(bars: Sequence[Bar], width: float) -> Drawing:
    left, right = 12.0, width - 12
    longest = max(sum(piece.bytes for piece in pieces) for _, pieces in bars) / GIB
    shapes: list[Shape] = []
    y = 4.0
    frame = Frame(left, y, right - left, 0, (0, longest))
    for words, pieces in bars:
        shapes.append(Words(left, y + 14, words, bold=True))
        y += 22
        shapes += _bar(frame, pieces, y)
        y += _BAR + _GAP - 22
    frame = Frame(left, y - 6, right - left, 0, (0, longest))
    shapes += foot_axis(frame, "GiB of device memory")
    titles = {piece.key: piece.title for _, pieces in bars for piece in pieces}
    entries, height = legend(list(titles.items()), y + 44, width)
    return Drawing(width, y + 44 + height, (*shapes, *entries))


def _bar(frame: Frame, pieces: Sequence[Piece], y: float) -> list[Shape]:
    shapes: list[Shape] = []
    since = 0.0
    for piece in pieces:
        size = piece.bytes / GIB
        x, end = frame.x(since), frame.x(since + size)
        tip = f"{piece.title}: {format_bytes(piece.bytes)}"
        # A thin line of the background keeps neighbours apart.
        shapes.append(Box(x, y, max(1.0, end - x - 1), _BAR, piece.key, tip))
        words = f"{size:.3g}"
        if end - x > width_of(words) + 6:
            middle, ink = (x + end) / 2, ink_on(piece.key)
            shapes.append(Words(middle, y + 23, words, "middle", ink))
        since += size
    return shapes


def _table(bars: Sequence[Bar]) -> Table:
    titles = {piece.key: piece.title for _, pieces in bars for piece in pieces}
    sizes = [{piece.key: piece.bytes for piece in pieces} for _, pieces in bars]
    rows = [
        (title, *(format_bytes(size.get(key, 0)) for size in sizes))
        for key, title in titles.items()
    ]
    head = ("", *(words for words, _ in bars))
    if len(bars) == 2:
        head = (*head, "change")
        changes = [sizes[1].get(key, 0) - sizes[0].get(key, 0) for key in titles]
        rows = [
            (
                *row,
                f"{'+' if change > 0 else ''}{format_bytes(change)}"
                if change
                else "none",
            )
            for row, change in zip(rows, changes, strict=True)
        ]
    return Table(head, tuple(rows), tuple(titles))
