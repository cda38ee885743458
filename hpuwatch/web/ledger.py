"""The memory of a rank that is watched, as pieces for the status page's bar."""

from __future__ import annotations

from hpuwatch.advise.ledger import Piece, pieces_of
from hpuwatch.state.model import Memory


def pieces(memory: Memory, graphs_used_bytes: int | None) -> tuple[Piece, ...]:
    """Return the pieces that are known (see :func:`hpuwatch.advise.ledger.pieces_of`)."""
    figures = {name: amount.bytes for name, amount in memory.amounts().items()}
    return pieces_of(figures, graphs_used_bytes)
