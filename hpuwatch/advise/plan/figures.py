"""What is expected of a proposal, each figure with its interval and how it is known.

Blocks follow from the split of memory by arithmetic, so their interval is print rounding.
Graphs, warm-up and the time to readiness follow the laws that this log and earlier starts
taught (``gaudi.graphlaw``, ``gaudi.warmuptime``): the better those are known, the narrower.
"""

from __future__ import annotations

from collections.abc import Iterator

from hpuwatch.advise.plan.padding import padding_percent
from hpuwatch.advise.plan.reserve import Proposal
from hpuwatch.gaudi.estimate import Estimate, exactly
from hpuwatch.gaudi.model import DECODE, PROMPT
from hpuwatch.gaudi.predict import Forecast
from hpuwatch.gaudi.refusal import ready_after
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
    yield "kv_blocks", _rounded(blocks)
    won = proposal.expected.get("kv_blocks_won")
    if won is not None:
        yield "kv_blocks_won", _rounded(won, least=None)
        size = _tokens_per_block(proposal, now, won)
        if size is not None:
            tokens = _rounded(blocks)
            yield (
                "kv_tokens",
                Estimate(
                    tokens.value * size,
                    tokens.low * size,
                    tokens.high * size,
                    "predicted",
                ),
            )
    reserve = proposal.expected.get("reserve_bytes")
    if reserve is not None:
        off = rounding_bytes(Amount(round(reserve), format_bytes(reserve)))
        yield (
            "reserve_bytes",
            Estimate(reserve, max(0.0, reserve - off), reserve + off, "predicted"),
        )


def _rounded(count: float, least: float | None = 0.0) -> Estimate:
    low = count - _ROUNDING_BLOCKS
    return Estimate(
        count,
        low if least is None else max(least, low),
        count + _ROUNDING_BLOCKS,
        "predicted",
    )


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
