"""Which check looks for which kind of finding, and all of them over one start.

The kinds themselves are declared in ``rules/advise``; a test compares the two.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from hpuwatch.advise import ends, gaps, listed, reserve, warmup
from hpuwatch.advise.catalogue import Catalogue
from hpuwatch.advise.finding import SEVERITIES, Case, Finding, Sighting
from hpuwatch.life.phases import Phase
from hpuwatch.state.model import Start

Check = Callable[[Case], "Sighting | None"]

ALL_GOOD = "all-good"

CHECKS: Mapping[str, Check] = MappingProxyType(
    {
        **{name: ends.ended_by(name) for name in ends.DEATHS},
        "kv-none": ends.nothing_left,
        "fault-noted": ends.noted,
        "not-ready": ends.not_ready,
        "stopped": ends.stopped,
        "reserve-short": reserve.short,
        "graphs-incomplete": reserve.incomplete,
        "reserve-idle": reserve.idle,
        "kv-tight": reserve.kv_tight,
        "memory-thin": reserve.thin,
        "card-mismatch": reserve.other_card,
        "warmup-skipped": warmup.skipped,
        "bucket-miss": warmup.misses,
        "buckets-above-kv": warmup.above_kv,
        "buckets-differ": listed.differ,
        "log-incomplete": gaps.incomplete,
    }
)
"""By the name of the kind; ``all-good`` needs none."""


def findings_of(
    start: Start, catalogue: Catalogue, earlier: Sequence[Start] = ()
) -> tuple[Finding, ...]:
    """Return what was found, the gravest first, else in the order of the codes."""
    found = []
    for kind in catalogue.kinds:
        check = CHECKS.get(kind.name)
        seen = check and check(Case(start, tuple(earlier), kind.limits))
        if seen:
            found.append(kind.told(seen))
    good = catalogue.kind(ALL_GOOD)
    if not found and good and start.phase is Phase.READY:
        return (good.told(Sighting(cure=())),)
    return tuple(sorted(found, key=lambda each: -SEVERITIES.index(each.severity)))
