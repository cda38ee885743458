"""Graph reserves that people set by hand, for a server of which there is no log yet.

The ratios are those of public Helm values of one chart, one a model, for requests of
33,024 tokens and utilisations of 0.96 to 0.99.  Beside them stands a public rule of thumb:
so many bytes for each decode graph, over the usable memory that prompts leave, at most a
tenth.  Both are priors: the first log of the server itself is worth more.
"""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median
from types import MappingProxyType

from hpuwatch.gaudi.estimate import Estimate
from hpuwatch.units import MIB

HAND_SET: Mapping[str, tuple[float, ...]] = MappingProxyType(
    {
        "gaudi2": (
            *(0.08, 0.09, 0.11, 0.11, 0.11, 0.14, 0.17),
            *(0.18, 0.2, 0.26, 0.28, 0.33, 0.39, 0.5),
        ),
        "gaudi3": (
            *(0.06, 0.07, 0.07, 0.09, 0.1, 0.13),
            *(0.13, 0.16, 0.17, 0.17, 0.19, 0.2),
        ),
    }
)
"""By card; one of the first kind has no public values, and those of gaudi2 stand in."""

_GRAPH_MIB = (5, 10, 20)
"""MiB that the rule of thumb takes for a decode graph: the least, the usual, the most."""
_LEFT_BY_PROMPTS = 0.7
_LEAST, _MOST = 0.01, 0.1
_STAND_IN = "gaudi2"


def first_reserve(card: str, decode_graphs: int, usable_bytes: int) -> Estimate:
    """Return the share of the usable memory to reserve at first, with what others chose.

    Args:
        card: as ``gaudi3``.
        decode_graphs: decode buckets that warm-up will compile.
        usable_bytes: what the reserve is a share of, above 0.
    """
    chosen = HAND_SET.get(card, HAND_SET[_STAND_IN])
    by_rule = [
        min(
            _MOST,
            max(_LEAST, decode_graphs * each * MIB / usable_bytes / _LEFT_BY_PROMPTS),
        )
        for each in _GRAPH_MIB
    ]
    return Estimate(
        round(median(chosen), 3),
        round(min((*chosen, *by_rule)), 3),
        round(max((*chosen, *by_rule)), 3),
        "prior",
    )
