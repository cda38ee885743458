"""One rank's device memory as pieces that don't overlap, for a stacked bar.

The server prints figures that contain each other: usable memory is a share of what was
free, and reserve, dummy block and KV cache are parts of it.  Here the reserve is split
further, into what graphs took and what lies idle.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Piece:
    """A share of device memory.

    Attributes:
        key: a short name without blanks, for the style sheet.
        title: what people call it.
        bytes: its size, above 0.
    """

    key: str
    title: str
    bytes: int


def pieces_of(
    figures: Mapping[str, int], graphs_used_bytes: int | None
) -> tuple[Piece, ...]:
    """Return the pieces that are known, in the order in which the server takes them.

    Args:
        figures: bytes by the names of the ledger (``weights``, ``free``, ``usable`` …), as
            far as they are known.
        graphs_used_bytes: None where warm-up has not told it; the reserve then is one
            piece.

    What the known pieces leave of the card's total is "other".
    """
    named = figures.get
    reserve, usable, free = (
        named("reserve", 0),
        named("usable", 0),
        named("free", 0),
    )
    used = graphs_used_bytes or 0
    over = max(0, used - reserve)  # graphs beyond the reserve eat what was held back
    idle = "reserve, idle" if graphs_used_bytes is not None else "graph reserve"
    found = [
        Piece("weights", "weights", named("weights", 0)),
        Piece("profile", "profile run", named("profile_run", 0)),
        Piece("graphs", "graphs", used),
        Piece("idle", idle, reserve - used),
        Piece("dummy", "dummy block", named("dummy_block", 0)),
        Piece("kv", "KV cache", named("kv_cache", 0)),
    ]
    if "usable" in figures and "free" in figures:
        found.append(Piece("held", "held back by utilisation", free - usable - over))
    known = sum(max(0, piece.bytes) for piece in found)
    found.append(Piece("other", "other", named("total", 0) - known))
    return tuple(piece for piece in found if piece.bytes > 0)
