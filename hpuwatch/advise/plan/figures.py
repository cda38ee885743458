"""What is expected of a proposal, each figure with its interval and how it is known.

Blocks follow from the split of memory by arithmetic, so their interval is print rounding:
the more blocks an amount of four digits holds, the wider.
Graphs, warm-up and the time to readiness follow the laws that this log and earlier starts
taught (``gaudi.graphlaw``, ``gaudi.warmuptime``): the better those are known, the narrower.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil, inf

from hpuwatch.advise.plan.padding import padding_percent
from hpuwatch.advise.plan.reserve import Proposal
from hpuwatch.gaudi.caution import ready_after
from hpuwatch.gaudi.estimate import Estimate, exactly
from hpuwatch.gaudi.model import DECODE, PROMPT
from hpuwatch.gaudi.predict import Forecast
from hpuwatch.units import Amount, format_bytes, rounding_bytes

_ROUNDING_BLOCKS = 1
"""Blocks that print rounding and the rest that no block fills may make more or less."""


def figures_of(
    proposal: Proposal, now: Forecast | None, then: Forecast | None
) -> dict[str, Estimate]:
    """Return every figure that the log supports, the unit in its name.

    Args:
        proposal: its ``expected`` numbers are those of the arithmetic on the log.
        now: what the running server comes to, None where the log tells too little.
        then: the same with the proposal.
    """
    figures = dict(_of_blocks(proposal, now, then))
    if then is not None and then.holds and then.broken is None:
        figures |= dict(_of_forecast(then))
    return figures


def _of_blocks(
    proposal: Proposal, now: Forecast | None, then: Forecast | None
) -> Iterator[tuple[str, Estimate]]:
    blocks = proposal.expected.get("kv_blocks")
    if blocks is None:
        if then is not None and then.num_blocks:
            yield "kv_blocks", then.blocks
        return
    off = _off_blocks(proposal)
    yield "kv_blocks", _rounded(blocks, off)
    cache = proposal.expected.get("kv_cache_bytes")
    if cache is not None and blocks:
        off_bytes = cache / blocks * off
        yield "kv_cache_bytes", _rounded(cache, off_bytes)
    won = proposal.expected.get("kv_blocks_won")
    if won is not None:
        yield "kv_blocks_won", _rounded(won, off, least=-inf)
        size = _tokens_per_block(proposal, now, won)
        if size is not None:
            yield "kv_tokens", _rounded(blocks * size, off * size)
    reserve = proposal.expected.get("reserve_bytes")
    if reserve is not None:
        yield "reserve_bytes", _rounded(reserve, _rounding(reserve))


def _rounding(count: float) -> float:
    return rounding_bytes(Amount(round(count), format_bytes(count)))


def _off_blocks(proposal: Proposal) -> int:
    """Return how many blocks print rounding may hide: of the reserve, and the last one."""
    expected = proposal.expected
    blocks, cache = expected.get("kv_blocks", 0), expected.get("kv_cache_bytes", 0)
    if not blocks or not cache:
        return _ROUNDING_BLOCKS
    hidden = _rounding(expected.get("reserve_bytes", 0)) / (cache / blocks)
    return _ROUNDING_BLOCKS + ceil(hidden)


def _rounded(count: float, off: float, least: float = 0.0) -> Estimate:
    return Estimate(count, max(least, count - off), count + off, "predicted")


def _tokens_per_block(
    proposal: Proposal, now: Forecast | None, won: float
) -> float | None:
    tokens = proposal.expected.get("kv_tokens_won")
    if tokens and won:
        return tokens / won
    return now.plan.flags.block_size if now is not None else None


def _of_forecast(then: Forecast) -> Iterator[tuple[str, Estimate]]:
    if then.graph_bytes is not None and then.warms:
        yield "graph_bytes", then.graph_bytes
    if then.warmup is not None:
        yield "warmup_seconds", then.warmup
        ready = ready_after(then)
        if any(part.name == "load" and part.seconds for part in then.away):
            yield "ready_seconds", ready
    for phase in (PROMPT, DECODE):
        if phase in then.counts:
            yield f"{phase}_buckets", exactly(then.counts[phase], then.lists_origin)
        share = padding_percent(then.lists.get(phase, ()), phase)
        if share is not None:
            yield f"{phase}_padding_percent", share
