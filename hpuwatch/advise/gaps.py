"""What a log lacks: without the lines of the start nobody can call a server well sized.

A log that was cut at its head (``docker logs --tail``) or in the middle shows no fault and no
idle memory, since the lines that would tell are not there.
"""

from __future__ import annotations

from hpuwatch.advise.figures import tightest
from hpuwatch.advise.finding import INFO, Case, Sighting
from hpuwatch.life.phases import Phase
from hpuwatch.state.configured import release
from hpuwatch.state.model import Memory, Start

_WITHOUT_SPLIT = ("fork-1.16", "vllm-0.4")
"""Releases that never print how memory is split."""

_SERVES = (Phase.READY, Phase.DEGRADED)
_ENDED = (Phase.DRAINING, Phase.STOPPING, Phase.STOPPED)


def missing(start: Start) -> list[str]:
    """Return in words which lines of a whole start are not in the log."""
    found = tightest(start)
    memory = found[1] if found else Memory()
    warmup = start.warmup
    # With a KV budget of its own (--kv-cache-memory-bytes) a start has no more than these.
    split = (memory.free, memory.kv_cache)
    of = release(start.server)
    never = of is not None and of.name in _WITHOUT_SPLIT
    lacks = {
        "the split of memory": None in split and not never,
        "the number of KV blocks": start.kv.blocks is None,
    }
    if warmup.skipped is None:
        used = start.graphs_used or warmup.allocated
        lacks["the end of warm-up"] = warmup.seconds is None
        lacks["what graphs took"] = not used
    return [what for what, is_missing in lacks.items() if is_missing]


def incomplete(case: Case) -> Sighting | None:
    """Look for a server that was ready, though lines of its start are missing."""
    start = case.start
    lacks = missing(start)
    if start.phase not in _SERVES + _ENDED or not lacks:
        return None
    listed = " and ".join(filter(None, (", ".join(lacks[:-1]), lacks[-1])))
    return Sighting(
        numbers={"missing": len(lacks)},
        words={"lacks": listed},
        lines=(start.first_line,),
        severity=INFO if start.phase in _ENDED else None,
    )
