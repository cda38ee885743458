"""Which check looks for which kind of finding, and all of them over one start.

The kinds themselves are declared in ``rules/advise``; a test compares the two.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from hpuwatch.advise.bucketing import ranges_of
from hpuwatch.advise.catalogue import Acts, Catalogue
from hpuwatch.advise.checks import (
    buckets_above,
    buckets_asked,
    buckets_open,
    buckets_padding,
    buckets_time,
    ends,
    gaps,
    hygiene,
    interrupted,
    listed,
    memory_ledger,
    memory_peak,
    memory_phases,
    releases,
    reserve,
    serving,
    warmup,
    warmup_recipes,
    warmup_time,
)
from hpuwatch.advise.finding import INFO, SEVERITIES, Case, Finding, Sighting
from hpuwatch.gaudi.knob import BUCKETS
from hpuwatch.gaudi.knobs import KNOBS
from hpuwatch.life.phases import Phase
from hpuwatch.state.model import Start

Check = Callable[[Case], "Sighting | None"]

ALL_GOOD = "all-good"
_HYGIENE = "HPW6"

CHECKS: Mapping[str, Check] = MappingProxyType(
    {
        **{name: ends.ended_by(name) for name in ends.DEATHS},
        "kv-none": ends.nothing_left,
        "fault-noted": ends.noted,
        "not-ready": ends.not_ready,
        "stopped": ends.stopped,
        "reserve-short": reserve.short,
        "graphs-incomplete": memory_phases.incomplete,
        "reserve-idle": reserve.idle,
        "kv-tight": reserve.kv_tight,
        "memory-thin": memory_phases.thin,
        "card-mismatch": reserve.other_card,
        "warmup-short": memory_peak.ran_out,
        "warmup-peak": memory_peak.peak,
        "memory-unexplained": memory_ledger.unexplained,
        "kv-one-request": memory_ledger.one_request,
        "kv-mismatch": memory_ledger.mismatch,
        "warmup-skipped": warmup.skipped,
        "bucket-miss": warmup.misses,
        "buckets-above-kv": buckets_above.above_kv,
        "buckets-differ": listed.differ,
        "buckets-open": buckets_open.left_open,
        "settings-ignored": buckets_asked.ignored,
        "padding-wide": buckets_padding.wide,
        "buckets-unreachable": buckets_open.unreachable,
        "buckets-cold": buckets_open.cold,
        "batch-unused": buckets_time.batch_unused,
        "buckets-many": buckets_time.many,
        "stopped-early": interrupted.stopped_early,
        "restart-loop": interrupted.restart_loop,
        "warmup-long": warmup_time.too_long,
        "warmup-slow": warmup_time.slow,
        "recipes-unset": warmup_recipes.unset,
        "recipes-recompiled": warmup_recipes.recompiled,
        "recipes-remote": warmup_recipes.remote,
        "recompile-storm": serving.storm,
        "first-pass": serving.first_pass,
        "stalled": serving.stalled,
        "knob-dead": releases.dead_knobs,
        "default-changed": releases.changed_defaults,
        "kv-regressed": releases.kv_regressed,
        "worked-before": releases.worked_before,
        "release-newer": releases.unknown_release,
        "secret-shown": hygiene.secrets,
        "open-to-all": hygiene.open_to_all,
        "log-incomplete": gaps.incomplete,
        "log-mixed": gaps.mixed,
        "log-contradicts": gaps.contradicted,
    }
)
"""By the name of the kind; ``all-good`` needs none."""


def findings_of(
    start: Start,
    catalogue: Catalogue,
    earlier: Sequence[Start] = (),
    before: Sequence[Start] = (),
) -> tuple[Finding, ...]:
    """Return what was found, the gravest first, else in the order of the codes.

    Args:
        start: what is judged.
        catalogue: the kinds.
        earlier: the starts before it in its log, oldest first.
        before: starts of other logs, older than those.
    """
    found = []
    acts = _acting(start)
    for kind in catalogue.kinds:
        check = CHECKS.get(kind.name)
        seen = check and check(Case(start, tuple(earlier), kind.limits, tuple(before)))
        if seen:
            found.append(kind.told(seen, acts))
    good = catalogue.kind(ALL_GOOD)
    if good and start.phase is Phase.READY and not any(map(_matters, found)):
        return (good.told(ends.all_good(start)), *found)
    return tuple(sorted(found, key=lambda each: -SEVERITIES.index(each.severity)))


def _acting(start: Start) -> Acts:
    """Return the test for knobs that act under the start's release and strategy."""
    at, heeded = warmup_time.release_point(start), ranges_of(start).acting

    def acts(name: str) -> bool:
        knob = KNOBS.get(name)
        if knob is None or at is None:
            return True
        of_a_range = knob.group == BUCKETS and not knob.is_flag
        ignored = of_a_range and heeded is not None and name not in heeded
        return knob.acts(at) and not ignored

    return acts


def _matters(finding: Finding) -> bool:
    """Tell whether a finding is of the server's own work, not of who may reach it."""
    return finding.severity != INFO or not finding.code.startswith(_HYGIENE)
