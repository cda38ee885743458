"""What a plan leaves as it is, and why: a reader would otherwise wonder.

Each line rests on figures of the log; where it has none, nothing is said.  A step that was
looked at and objected to stands here too, with the objection.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from hpuwatch.advise.figures import (
    about,
    has_traffic,
    kv_is_short,
    reserve_of,
    tightest,
)
from hpuwatch.advise.plan.whole import Planned
from hpuwatch.gaudi.planning import READY_TIMEOUT, RESERVE, UTILISATION
from hpuwatch.gaudi.predict import Forecast
from hpuwatch.gaudi.refusal import ready_after
from hpuwatch.gaudi.remedies import MAX_LEN, MAX_SEQS
from hpuwatch.state.model import DECODE, PROMPT, Start, value_of
from hpuwatch.units import counted

BUCKETS = "buckets"


@dataclass(frozen=True, slots=True)
class Left:
    """A setting that stays, what it is now (None for a default), and why."""

    name: str
    value: str | None
    why: str


def left_alone(start: Start, plan: Planned) -> tuple[Left, ...]:
    """Return what stays as it is, in the order in which people think of it."""
    proposal = plan.proposal
    changed = {each.name for each in proposal.changes} if proposal else set()
    tried = {each.name for dropped in plan.dropped for each in dropped.step.changes}
    found = [
        *_objected(plan),
        *_reserve(start),
        *_utilisation(start),
        *_length(start, plan.now),
        *_sequences(start),
        *_buckets(start, changed | tried),
        *_patience(plan),
    ]
    return tuple(each for each in found if each.name not in changed)


def _objected(plan: Planned) -> Iterator[Left]:
    for each in plan.dropped:
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
    else:
        why = (
            f"graphs took {about(reserve.used_bytes)} of its {held}, and what is left is "
            "kept for activations or too little for a restart"
        )
    yield Left(RESERVE, f"{reserve.ratio:g}", why)


def _peak(start: Start) -> str:
    use = start.traffic.kv_use_peak
    return f" (at most {100 * use.value:.1f} %)" if use else ""


def _utilisation(start: Start) -> Iterator[Left]:
    found, reserve = tightest(start), reserve_of(start)
    share = value_of(found[1].utilisation) if found else None
    if share is None or reserve is None:
        return
    why = (
        f"the {about(reserve.outside_bytes)} outside of it are all that requests and the "
        "runtime have beside the reserve; a higher one never helps a warm-up that runs "
        "out of memory"
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
        why += "; fewer would warm fewer buckets, yet one log shows a part of the load only"
    yield Left(MAX_SEQS, str(most), why)


def _buckets(start: Start, looked_at: set[str]) -> Iterator[Left]:
    listed = [start.buckets[each] for each in (PROMPT, DECODE) if each in start.buckets]
    if not listed or any("_BUCKET" in name for name in looked_at):
        return
    count = sum(each.value.count for each in listed)
    missed = sum(miss.count for miss in start.misses)
    if missed:
        why = (
            f"traffic missed them ({counted(missed, 'time')}), yet no higher bound of a "
            "range that acts here would have covered that"
        )
    elif has_traffic(start):
        why = "no shape of this log's load missed them"
    else:
        why = "the log shows no load, so nothing tells which shapes come"
    yield Left(BUCKETS, f"{count:,}", why)


def _patience(plan: Planned) -> Iterator[Left]:
    forecast = plan.then or plan.now
    waits = forecast.plan.ready_seconds if forecast else None
    if forecast is None or waits is None:
        return
    ready = ready_after(forecast)
    if ready.value <= 0 or ready.origin == "prior":
        return
    why = f"loading and warm-up take about {ready.value:,.0f} s ({ready.origin})"
    yield Left(READY_TIMEOUT, str(waits), why)
