"""Checks of the graph reserve, of the KV cache beside it, and of the card they are on."""

from __future__ import annotations

from hpuwatch.advise.figures import (
    PLENTY,
    STATS_SECONDS,
    about,
    evidence_of_split,
    has_traffic,
    kv_is_short,
    reserve_of,
    tokens_per_block,
)
from hpuwatch.advise.finding import INFO, Sighting
from hpuwatch.advise.proposal import (
    incomplete_phases,
    is_short,
    is_worth_a_look,
    propose,
)
from hpuwatch.gaudi.cards import card_of_memory
from hpuwatch.gaudi.planning import RESERVE
from hpuwatch.records import Line
from hpuwatch.state.model import DECODE, PROMPT, Start, Traffic
from hpuwatch.units import format_bytes

_THIN_RATIO = 0.02
"""Free device memory after warm-up below this share of the card is thin."""


def idle(start: Start) -> Sighting | None:
    """Look for a reserve larger than graphs need."""
    reserve = reserve_of(start)
    if reserve is None or not is_worth_a_look(start, reserve):
        return None
    if incomplete_phases(start):
        return None  # the budget was used up, only not by the phase that needed it
    free_bytes = reserve.idle_bytes or 0
    blocks = int(free_bytes / reserve.block_bytes)
    all_blocks = start.kv.blocks.value if start.kv.blocks else 0
    percent = 100 * blocks / all_blocks
    title = (
        f"{about(free_bytes)} of the {format_bytes(reserve.reserve_bytes)} graph reserve "
        f"lie idle after warm-up: about {blocks:,} KV blocks, {percent:.0f} % more"
    )
    return Sighting(
        title=title,
        why=f"Graphs took {format_bytes(reserve.used_bytes or 0)}. " + _load(start),
        cure=_idle_cure(start),
        numbers={
            "reserve_bytes": reserve.reserve_bytes,
            "used_bytes": reserve.used_bytes or 0,
            "idle_bytes": free_bytes,
            "idle_kv_blocks": blocks,
            "idle_kv_blocks_percent": round(percent, 1),
            "idle_kv_tokens": blocks * tokens_per_block(start)[0],
            **_load_numbers(start),
        },
        lines=evidence_of_split(start) + _load_lines(start),
        severity=None if propose(start) else INFO,
    )


def _idle_cure(start: Start) -> str:
    if kv_is_short(start) is False:
        return "Change nothing: more KV cache would not be used."
    if propose(start) is None:
        return (
            "Change nothing yet: real requests may need the idle memory, since neither "
            "the profile run nor warm-up has measured activations."
        )
    return "Take the proposed first step, run real load, then look again."


def _load(start: Start) -> str:
    if not has_traffic(start):
        few = "hardly any" if start.traffic.busy_lines else "no"
        return (
            f"The log shows {few} requests, so this is not proven under load: activations "
            "of real requests come on top."
        )
    traffic = start.traffic
    use = traffic.kv_use_peak
    parts = [f"KV use peaked at {100 * use.value:.1f} %"] if use else []
    parts += [_preemptions(traffic), _waited(start)]
    need = (
        "so the KV cache was not short"
        if kv_is_short(start) is False
        else "so more KV cache may help"
    )
    return f"Under the load of this log {', '.join(parts)}, {need}."


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


def short(start: Start) -> Sighting | None:
    """Look for graphs that took more than the reserve."""
    reserve = reserve_of(start)
    if reserve is None or not is_short(reserve):
        return None
    used = reserve.used_bytes or 0
    over = used - reserve.reserve_bytes
    return Sighting(
        title=(
            f"Graphs took {format_bytes(used)}, {about(over)} more than the reserve of "
            f"{format_bytes(reserve.reserve_bytes)}"
        ),
        why=(
            f"The rest came out of the {format_bytes(reserve.outside_bytes)} outside of "
            "vLLM's budget, which requests may need for themselves."
        ),
        cure=_cure_of_short(start),
        numbers={
            "reserve_bytes": reserve.reserve_bytes,
            "used_bytes": used,
            "short_bytes": over,
            "outside_reserve_bytes": reserve.outside_bytes,
        },
        lines=evidence_of_split(start),
    )


def _cure_of_short(start: Start) -> str:
    proposal = propose(start)
    if proposal is not None and RESERVE in proposal.env:
        return f"Raise {RESERVE} as proposed, or warm fewer buckets."
    return (
        "Warm fewer buckets, or raise --gpu-memory-utilization: a reserve that large would "
        "leave no room for a KV cache."
    )


def incomplete(start: Start) -> Sighting | None:
    """Look for phases whose graphs did not fit their budget (releases up to 1.21)."""
    cut = incomplete_phases(start)
    if not cut:
        return None
    listed = " and ".join(
        f"{100 * captured.value:.1f} % of the {phase} graphs"
        for phase, captured in cut.items()
    )
    used = start.graphs_used.get(DECODE)
    hint = "Raise VLLM_GRAPH_RESERVED_MEM."
    if PROMPT in cut and DECODE not in cut and used is not None:
        hint = (
            f"Decode graphs took only {format_bytes(used.value.bytes)}: raise "
            "VLLM_GRAPH_PROMPT_RATIO first, then VLLM_GRAPH_RESERVED_MEM."
        )
    return Sighting(
        title=f"The graph budget ran out: only {listed} were captured",
        why="Shapes without a graph run slower, operation by operation.",
        cure=hint,
        numbers={
            f"{phase}_captured_percent": round(100 * captured.value, 1)
            for phase, captured in cut.items()
        },
        lines=tuple(captured.line for captured in cut.values()),
    )


def kv_tight(start: Start) -> Sighting | None:
    """Look for a KV cache that the log's own load fills."""
    if not kv_is_short(start):
        return None
    traffic = start.traffic
    use = traffic.kv_use_peak
    peak = f"{100 * use.value:.1f} %" if use else "an unknown share"
    full = use is not None and use.value >= PLENTY
    told = [known.line for known in (use, traffic.preempted) if known is not None]
    waiting = (
        f", {traffic.waiting_peak.value:,} requests waited"
        if traffic.waiting_peak
        else ""
    )
    cure = (
        "More KV cache: a smaller graph reserve where one lies idle, more cards, or "
        "fewer requests at once."
    )
    if not full and not traffic.preemptions:
        cure = (
            "The cache itself was not full: look at --max-num-seqs and "
            "--max-num-batched-tokens first."
        )
    return Sighting(
        title=(
            f"KV cache under load: use peaked at {peak}, "
            f"{_preemptions(traffic)}{waiting}"
        ),
        why="Requests wait or are computed again when the KV cache is full.",
        cure=cure,
        numbers=_load_numbers(start),
        lines=tuple(told),
    )


def thin(start: Start) -> Sighting | None:
    """Look for a card that warm-up has all but filled."""
    if start.warmup.seconds is None:
        return None
    last = [each.free for each in start.warmup.progress.values() if each.free]
    total = next((each.total for each in start.memory.values() if each.total), None)
    if not last or total is None:
        return None
    least = min(last, key=lambda free: free.value.bytes)
    if least.value.bytes >= total.value.bytes * _THIN_RATIO:
        return None
    return Sighting(
        title=f"Only {format_bytes(least.value.bytes)} of the card are free after warm-up",
        why="The first large request may run out of memory.",
        cure="Lower --gpu-memory-utilization, or warm fewer buckets.",
        numbers={
            "free_bytes": least.value.bytes,
            "total_bytes": total.value.bytes,
        },
        lines=(least.line,),
    )


def other_card(start: Start) -> Sighting | None:
    """Look for a card whose memory is that of another one."""
    card = start.server.card
    total = next((each.total for each in start.memory.values() if each.total), None)
    if card is None or total is None:
        return None
    like = card_of_memory(total.value.bytes)
    if like is None or like == card.value:
        return None
    return Sighting(
        title=(
            f"The log calls the card {card.value}, but its {format_bytes(total.value.bytes)} "
            f"are the memory of a {like}"
        ),
        why="Figures of this report follow the memory, not the name.",
        cure="Check which card it is (hl-smi) before you compare it with others.",
        numbers={"total_bytes": total.value.bytes},
        lines=(card.line, total.line),
    )
