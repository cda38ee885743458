"""Intervals made wider by what earlier predictions were worth.

A prediction that missed teaches more than its own law admits.  Whoever keeps the score of
past predictions tells by which factor the half-widths of a figure have to grow; here that
factor is applied.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from hpuwatch.gaudi.estimate import Estimate

_WITH: Mapping[str, str] = MappingProxyType(
    dict.fromkeys(("kv_blocks_won", "kv_tokens", "kv_cache_bytes"), "kv_blocks")
)
"""Figures that follow from another one, and are scored with it."""


def widened(estimate: Estimate, factor: float) -> Estimate:
    """Return the estimate with both sides so many times as far away.

    What was measured has no doubt to widen, and no factor narrows an interval.  A figure
    that can't be negative stays so.

    Args:
        estimate: the interval as its law has it.
        factor: by which half-widths grow; below 1 counts as 1.
    """
    if estimate.origin == "measured" or factor <= 1:
        return estimate
    low = estimate.value - (estimate.value - estimate.low) * factor
    high = estimate.value + (estimate.high - estimate.value) * factor
    if estimate.low >= 0:
        low = max(0.0, low)
    return replace(estimate, low=low, high=high)


def all_widened(
    figures: Mapping[str, Estimate], factors: Mapping[str, float]
) -> dict[str, Estimate]:
    """Return the figures, each widened by the factor of its name where there is one."""
    return {
        name: widened(each, factors.get(_WITH.get(name, name), 1.0))
        for name, each in figures.items()
    }
