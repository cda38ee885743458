"""One rank's device memory as pieces that don't overlap, for a stacked bar.

The server prints figures that contain each other: usable memory is a share of what was
free, and reserve, dummy block and KV cache are parts of it.  Here the reserve is split
further, into what graphs took and what lies idle.
"""

from __future__ import annotations

from dataclasses import dataclass

from hpuwatch.state.model import Known, Memory
from hpuwatch.units import Amount


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


def pieces(memory: Memory, graphs_used_bytes: int | None) -> tuple[Piece, ...]:
    """Return the pieces that are known, in the order in which the server takes them.

    ``graphs_used_bytes`` is None where warm-up has not told it; the reserve then is one
    piece.  What the known pieces leave of the card's total is "other".
    """
    reserve, usable, free = (
        _bytes(memory.reserve),
        _bytes(memory.usable),
        _bytes(memory.free),
    )
    used = graphs_used_bytes or 0
    over = max(0, used - reserve)  # graphs beyond the reserve eat what was held back
    idle = "reserve, idle" if graphs_used_bytes is not None else "graph reserve"
    found = [
        Piece("weights", "weights", _bytes(memory.weights)),
        Piece("profile", "profile run", _bytes(memory.profile_run)),
        Piece("graphs", "graphs", used),
        Piece("idle", idle, reserve - used),
        Piece("dummy", "dummy block", _bytes(memory.dummy_block)),
        Piece("kv", "KV cache", _bytes(memory.kv_cache)),
    ]
    if memory.usable and memory.free:
        found.append(Piece("held", "held back by utilisation", free - usable - over))
    known = sum(max(0, piece.bytes) for piece in found)
    found.append(Piece("other", "other", _bytes(memory.total) - known))
    return tuple(piece for piece in found if piece.bytes > 0)


def _bytes(known: Known[Amount] | None) -> int:
    return known.value.bytes if known else 0
