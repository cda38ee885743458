"""Checks of the graph reserve, of the KV cache beside it, and of the card they are on."""

from __future__ import annotations

from hpuwatch.advise.causes import root_fault
from hpuwatch.advise.checks.memory_ledger import is_mismatched
from hpuwatch.advise.figures import (
    PLENTY,
    STATS_SECONDS,
    Reserve,
    about,
    evidence_of_split,
    has_traffic,
    kv_is_short,
    reserve_of,
    tightest,
    tokens_per_block,
)
from hpuwatch.advise.finding import WARNING, Case, Sighting
from hpuwatch.advise.plan.reserve import (
    incomplete_phases,
    is_short,
    is_worth_a_look,
    propose,
)
from hpuwatch.gaudi.cards import card_of_memory
from hpuwatch.gaudi.estimate import Estimate
from hpuwatch.gaudi.planning import RESERVE
from hpuwatch.records import Line
from hpuwatch.state.model import Start, Traffic
from hpuwatch.units import rounding_bytes


def idle(case: Case) -> Sighting | None:
    """Look for a reserve larger than graphs need."""
    start = case.start
    reserve = reserve_of(start)
    if reserve is None or not is_worth_a_look(start, reserve):
        return None
    if incomplete_phases(start):
        return None  # the budget was used up, only not by the phase that needed it
    if root_fault(start) is not None or is_mismatched(start):
        return None  # what lay idle after warm-up was not what the server had
    free_bytes = reserve.idle_bytes or 0
    blocks = int(free_bytes / reserve.block_bytes)
    all_blocks = start.kv.blocks.value if start.kv.blocks else 0
    return Sighting(
        why=("why", _load(start)),
        cure=(_idle_cure(start),),
        numbers={
            "reserve_bytes": reserve.reserve_bytes,
            "used_bytes": reserve.used_bytes or 0,
            "idle_bytes": free_bytes,
            "idle_kv_blocks": blocks,
            "idle_kv_blocks_percent": round(100 * blocks / all_blocks, 1),
            "idle_kv_tokens": blocks * tokens_per_block(start)[0],
            **_load_numbers(start),
        },
        words=_load_words(start),
        lines=evidence_of_split(start) + _load_lines(start),
        figures={"idle_kv_blocks": _blocks(start, reserve)},
        severity=WARNING if kv_is_short(start) else None,
    )


def _blocks(start: Start, reserve: Reserve) -> Estimate:
    """Return the blocks that what lies idle would hold, as far as the split is printed."""
    idle, block = reserve.idle_bytes or 0, reserve.block_bytes
    found = tightest(start)
    printed = found[1].reserve if found else None
    off = rounding_bytes(printed.value) if printed else 0.0
    return Estimate(
        int(idle / block),
        max(0, int((idle - off) / block)),
        int((idle + off) / block),
        "predicted",
    )


def _idle_cure(start: Start) -> str:
    if kv_is_short(start) is False:
        return "cure_no_need"
    return "cure_activations" if propose(start) is None else "cure"


def _load(start: Start) -> str:
    if not has_traffic(start):
        return "why_few_requests" if start.traffic.busy_lines else "why_no_requests"
    return "why_kv_plenty" if kv_is_short(start) is False else "why_kv_short"


def _load_words(start: Start) -> dict[str, object]:
    use = start.traffic.kv_use_peak
    parts = [f"KV use peaked at {100 * use.value:.1f} %"] if use else []
    parts += [_preemptions(start.traffic), _waited(start)]
    return {"load": ", ".join(parts)}


def _preemptions(traffic: Traffic) -> str:
    if traffic.preemptions or traffic.preemptions_printed:
        return f"{traffic.preemptions:,} preemptions"
    return "no preemptions reported"


def _waited(start: Start) -> str:
    """Say how long requests waited on end, by the engine's periodic lines."""
    lines = start.traffic.waiting_lines_longest
    if not lines:
        return "no request waiting when the engine printed its periodic line"
    engine = start.server.engine
    each = STATS_SECONDS["V0" if engine and engine.value == "V0" else "V1"]
    on_end = " in a row" if lines > 1 else ""
    return (
        f"requests waiting in at most {lines:,} of the engine's periodic lines{on_end} "
        f"(about {lines * each:,} s)"
    )


def _load_numbers(start: Start) -> dict[str, float]:
    traffic = start.traffic
    if not has_traffic(start):
        return {}
    numbers: dict[str, float] = {"preemptions": traffic.preemptions}
    if traffic.kv_use_peak:
        numbers["kv_use_peak_percent"] = round(100 * traffic.kv_use_peak.value, 1)
    if traffic.waiting_peak:
        numbers["waiting_requests_peak"] = traffic.waiting_peak.value
    return numbers


def _load_lines(start: Start) -> tuple[Line, ...]:
    use = start.traffic.kv_use_peak
    return (use.line,) if use else ()


def short(case: Case) -> Sighting | None:
    """Look for graphs that took more than the reserve."""
    start = case.start
    reserve = reserve_of(start)
    if reserve is None or not is_short(reserve):
        return None
    used = reserve.used_bytes or 0
    proposal = propose(start)
    proposed = proposal is not None and RESERVE in proposal.env
    phases = {phase: each.value for phase, each in start.graphs_used.items()}
    return Sighting(
        why=("why", "why_phases") if len(phases) > 1 else ("why",),
        cure=("cure" if proposed else "cure_no_room",),
        numbers={
            "reserve_bytes": reserve.reserve_bytes,
            "used_bytes": used,
            "short_bytes": used - reserve.reserve_bytes,
            "outside_reserve_bytes": reserve.outside_bytes,
            **{f"{phase}_used_bytes": each.bytes for phase, each in phases.items()},
        },
        words={
            "by_phase": " and ".join(
                f"{about(each.bytes)} are of the {phase} graphs"
                for phase, each in phases.items()
            )
        },
        lines=evidence_of_split(start),
    )


def kv_tight(case: Case) -> Sighting | None:
    """Look for a KV cache that the log's own load fills."""
    start = case.start
    if not kv_is_short(start):
        return None
    traffic = start.traffic
    use, waiting = traffic.kv_use_peak, traffic.waiting_peak
    is_full = (use is not None and use.value >= PLENTY) or traffic.preemptions > 0
    told = [known.line for known in (use, traffic.preempted) if known is not None]
    return Sighting(
        cure=("cure" if is_full else "cure_not_full",),
        numbers=_load_numbers(start),
        words={
            "peak": f"{100 * use.value:.1f} %" if use else "an unknown share",
            "preempted": _preemptions(traffic),
            "waited": f", {waiting.value:,} requests waited" if waiting else "",
        },
        lines=tuple(told),
    )


def other_card(case: Case) -> Sighting | None:
    """Look for a card whose memory is that of another one."""
    start = case.start
    card = start.server.card
    total = next((each.total for each in start.memory.values() if each.total), None)
    if card is None or total is None:
        return None
    like = card_of_memory(total.value.bytes)
    if like is None or like == card.value:
        return None
    return Sighting(
        numbers={"total_bytes": total.value.bytes},
        words={"card": card.value, "like": like},
        lines=(card.line, total.line),
    )
