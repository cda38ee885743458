"""What is kept of a start, made from a log's text."""

from __future__ import annotations

from dataclasses import replace

from hpuwatch.advise.account.record import StartRecord, proof_of, record_of
from hpuwatch.advise.report import build_report
from hpuwatch.app.catalogue import shipped_findings
from hpuwatch.testing.lives import Told
from hpuwatch.testing.logs import state_of_text

_BLOCKS_PER_GIB = 64  # of 16 MiB, as lives print their dummy block
_DUMMY_GIB = 0.016


def kept_of_text(text: str, file: str = "x.log") -> tuple[dict[str, str], StartRecord]:
    """Return the proof and the record of a log's last start."""
    state = state_of_text(text)
    report = build_report([(file, state)], shipped_findings()).reports[0]
    start = state.starts[-1]
    return proof_of(start), record_of(start, report)


def record_of_text(text: str, file: str = "x.log") -> StartRecord:
    """Return the record of a log's last start."""
    return kept_of_text(text, file)[1]


def divided(told: Told) -> Told:
    """Return a life with as many KV blocks as its split of memory leaves room for."""
    cache = told.free * told.utilisation * (1 - told.reserve) - _DUMMY_GIB
    return replace(told, blocks=int(cache * _BLOCKS_PER_GIB))
