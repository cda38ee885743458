"""What a plan leaves as it is, and why: a reader would otherwise wonder.

Each line rests on figures of the log; where it has none, nothing is said.  A step that was
looked at and objected to stands here too, with the objection.  What the gravest finding asks
to be changed doesn't stay, and where information has a word on a setting, its code is named.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from hpuwatch.advise.checks.warmup_time import ready_after as seen_ready_after
from hpuwatch.advise.figures import (
    about,
    has_traffic,
    kv_is_short,
    reserve_of,
    tightest,
)
from hpuwatch.advise.finding import INFO, Finding, gravest
from hpuwatch.advise.plan.whole import Planned
from hpuwatch.gaudi.caution import ready_after
from hpuwatch.gaudi.planning import (
    READY_TIMEOUT,
    RESERVE,
    UTILISATION,
    default_utilisation,
)
from hpuwatch.gaudi.predict import Forecast
from hpuwatch.gaudi.remedies import MAX_LEN, MAX_SEQS
from hpuwatch.life.phases import Phase
from hpuwatch.state.model import DECODE, PROMPT, Start, value_of
from hpuwatch.units import counted

BUCKETS = "buckets"


@dataclass(frozen=True, slots=True)
class Left:
    """A setting that stays, what it is now (None for a default), and why."""

    name: str
    value: str | None
    why: str


def left_alone(
    start: Start, plan: Planned, findings: Sequence[Finding] = ()
) -> tuple[Left, ...]:
    """Return what stays as it is, in the order in which people think of it."""
    proposal = plan.proposal
    changed = {each.name for each in proposal.changes} if proposal else set()
    tried = {each.name for dropped in plan.dropped for each in dropped.step.changes}
    found = [
        *_objected(plan, changed),
        *_reserve(start),
        *_utilisation(start, plan.now),
        *_length(start, plan.now),
        *_sequences(start),
        *_buckets(start, changed | tried),
        *_patience(start, plan),
    ]
    first = gravest(findings)
    if proposal is None and first is not None and first.severity != INFO:
        changed |= {each.name for each in found if _named(each.name, first)}
    return tuple(
        _with_findings(each, findings) for each in found if each.name not in changed
    )


def _named(name: str, finding: Finding) -> bool:
    """Tell whether a finding's cure has a word on a setting."""
    return re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", finding.cure) is not None


def _with_findings(left: Left, findings: Sequence[Finding]) -> Left:
    codes = [
        each.code
        for each in findings
        if each.severity == INFO and _named(left.name, each)
    ]
    if not codes or left.name == BUCKETS:
        return left
    tells = "tells" if len(codes) == 1 else "tell"
    why = left.why.removesuffix(".")
    return replace(left, why=f"{why}; {' and '.join(codes)} {tells} when to change it")


def _objected(plan: Planned, changed: set[str]) -> Iterator[Left]:
    for each in plan.dropped:
        if {change.name for change in each.step.changes} <= changed:
            continue  # what the plan came to in another way
        typed = " ".join(map(str, each.step.changes))
        yield Left(typed, None, f"left out of the plan: {each.why}")


def _reserve(start: Start) -> Iterator[Left]:
    reserve = reserve_of(start)
    if reserve is None:
        return
    held = about(reserve.reserve_bytes)
    if reserve.used_bytes is None:
        why = f"nothing in this log tells what graphs take of its {held}"
    elif kv_is_short(start) is False:
        why = (
            f"graphs took {about(reserve.used_bytes)} of its {held}; the load of this log "
            f"never came near the end of the KV cache{_peak(start)}, so more of it would "
            "bring nothing"
        )
    elif reserve.used_bytes > reserve.reserve_bytes:
        more = about(reserve.used_bytes - reserve.reserve_bytes)
        why = f"graphs took {more} more than it, from the memory outside of it"
    else:
        why = (
            f"graphs took {about(reserve.used_bytes)} of its {held}, and what is left is "
            "kept for activations or too little for a restart"
        )
    yield Left(RESERVE, f"{reserve.ratio:g}", why)


def _peak(start: Start) -> str:
    use = start.traffic.kv_use_peak
    return f" (at most {100 * use.value:.1f} %)" if use else ""


def _utilisation(start: Start, now: Forecast | None) -> Iterator[Left]:
    found, reserve = tightest(start), reserve_of(start)
    share = value_of(found[1].utilisation) if found else None
    if share is None or reserve is None:
        return
    why = (
        f"the {about(reserve.outside_bytes)} it leaves free are the only safety margin "
        "beside the reserve; raising it would shrink that"
    )
    usual = default_utilisation(now.plan.at) if now is not None else share
    if share > usual:
        more = about(reserve.free_bytes * (share - usual))
        why += (
            f"; {usual:g}, the default, would leave {more} more: try it where a larger "
            "reserve doesn't help"
        )
    yield Left(UTILISATION, f"{share:g}", why)


def _length(start: Start, now: Forecast | None) -> Iterator[Left]:
    longest, blocks = value_of(start.server.max_model_len), value_of(start.kv.blocks)
    if now is None or not longest or not blocks or now.blocks_per_sequence > blocks:
        return
    why = (
        f"one request of that length takes {now.blocks_per_sequence:,} of the {blocks:,} "
        "KV blocks; only your users know whether they need it"
    )
    yield Left(MAX_LEN, str(longest), why)


def _sequences(start: Start) -> Iterator[Left]:
    most = value_of(start.server.max_num_seqs)
    running = value_of(start.traffic.running_peak)
    if most is None or not running or not has_traffic(start):
        return
    why = f"at most {running:,} requests ran at once in this log"
    if running < most:
        why += ", which shows a part of the load only"
    yield Left(MAX_SEQS, str(most), why)


def _buckets(start: Start, looked_at: set[str]) -> Iterator[Left]:
    listed = {
        each: start.buckets[each] for each in (PROMPT, DECODE) if each in start.buckets
    }
    if not listed or any("_BUCKET" in name for name in looked_at):
        return
    missed = sum(miss.count for miss in start.misses)
    if missed and start.warmup.skipped is not None:
        why = (
            f"traffic missed them ({counted(missed, 'time')}) since warm-up was skipped"
        )
    elif missed:
        why = (
            f"traffic missed them ({counted(missed, 'time')}), yet no bound that this "
            "release heeds would have covered that"
        )
    elif has_traffic(start):
        why = "no shape of this log's load missed them"
    else:
        why = "the log shows no load, so nothing tells which shapes come"
    counts = (f"{each.value.count:,} {phase}" for phase, each in listed.items())
    yield Left(BUCKETS, ", ".join(counts), why)


def _patience(start: Start, plan: Planned) -> Iterator[Left]:
    """Tell the seconds of the start, as they were measured where nothing changes them."""
    forecast = plan.then or plan.now
    waits = forecast.plan.ready_seconds if forecast else None
    if forecast is None or waits is None or start.warmup.skipped is not None:
        return
    ready = ready_after(forecast)
    seen = seen_ready_after(start)
    if seen is not None and (plan.then is None or seen.value > ready.value):
        ready = seen
    if ready.value <= 0 or ready.origin == "prior":
        return
    why = f"loading and warm-up take about {ready.value:,.0f} s ({ready.origin})"
    if Phase.READY.value in start.reached and ready.value > waits:
        why += "; the server came up all the same"
    yield Left(READY_TIMEOUT, str(waits), why)
