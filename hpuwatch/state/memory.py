"""Events that tell of device memory and of the KV cache.

Every rank prints its own ledger, so each figure goes to the rank that spoke.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType

from hpuwatch.events import Event
from hpuwatch.state import fields
from hpuwatch.state.model import Known, Kv, Memory, Start
from hpuwatch.state.times import seconds_between
from hpuwatch.units import GIB, Amount, format_bytes

Handler = Callable[[Start, Event], Start]

WEIGHTS_LOADED = "weights_loaded"
KV_ALLOCATED = "kv_allocated"

_CARDS = ((28, 34, "gaudi"), (90, 98, "gaudi2"), (120, 130, "gaudi3"))
"""Device memory in GiB that tells the card where nothing else does."""


def rank_of(start: Start, event: Event) -> int:
    """Return the tensor-parallel rank that spoke; workers without one count by pid."""
    speaker = event.speaker
    if speaker.rank is not None:
        return speaker.rank
    return start.worker_ranks.get(speaker.pid or 0, 0)


def of_rank(start: Start, event: Event, **figures: object) -> Start:
    """Put figures into the ledger of the rank that spoke; None changes nothing."""
    rank = rank_of(start, event)
    news = {name: value for name, value in figures.items() if value is not None}
    if not news:
        return start
    ledger = replace(start.memory.get(rank, Memory()), **news)  # type: ignore[arg-type]
    return replace(start, memory={**start.memory, rank: ledger})


def mark(start: Start, event: Event, step: str) -> Start:
    """Note the header time of a step of rank 0; the first one counts."""
    if event.logged_at is None or rank_of(start, event) != 0 or step in start.marks:
        return start
    return replace(start, marks={**start.marks, step: event.logged_at})


def _device(start: Start, event: Event) -> Start:
    total = fields.amount(event, "device_total")
    if total is None:
        return start
    start = of_rank(start, event, total=total)
    card = card_of_memory(total.value.bytes)
    if start.server.card is None and card is not None:
        known = replace(start.server, card=Known(card, total.line))
        return replace(start, server=known)
    return start


def card_of_memory(total_bytes: int) -> str | None:
    """Return the card that has so much device memory, None where no one card does."""
    gib = total_bytes / GIB
    return next((card for low, high, card in _CARDS if low <= gib <= high), None)


def _preload(start: Start, event: Event) -> Start:
    start = _device(start, event)
    ledger = start.memory.get(rank_of(start, event), Memory())
    if ledger.weights is not None:
        return start
    return of_rank(start, event, weights=fields.amount(event, "device_delta"))


def _weights(start: Start, event: Event) -> Start:
    start = _device(start, event)
    took = fields.amount(event, "device_delta") or fields.amount(event, "gb")
    if took is None:
        return start
    start = mark(start, event, WEIGHTS_LOADED)
    if event.fields.get("variant") == "drafter":
        return _more_weights(start, event, took)
    return of_rank(start, event, weights=took)


def _quantised(start: Start, event: Event) -> Start:
    """V1 loads to the CPU first, so weights are 0 and this line has what moved over."""
    start = _device(start, event)
    took = fields.amount(event, "gb")
    return start if took is None else _more_weights(start, event, took)


def _more_weights(start: Start, event: Event, more: Known[Amount]) -> Start:
    before = start.memory.get(rank_of(start, event), Memory()).weights
    both = more.value.bytes + (before.value.bytes if before else 0)
    known = Known(Amount(both, format_bytes(both)), event.line)
    return of_rank(start, event, weights=known)


def _profile(start: Start, event: Event) -> Start:
    took = fields.amount(event, "device_delta")
    if took is None:
        return start
    start = _device(start, event)
    seconds = None
    if rank_of(start, event) == 0:
        seconds = seconds_between(start.marks.get(WEIGHTS_LOADED), event.logged_at)
    return of_rank(start, event, profile_run=took, profile_seconds=seconds)


def _split(start: Start, event: Event) -> Start:
    return of_rank(
        start,
        event,
        free=fields.amount(event, "free"),
        usable=fields.amount(event, "usable"),
        utilisation=fields.number(event, "gmu"),
        reserve=fields.amount(event, "graphs"),
        reserve_ratio=fields.number(event, "grm"),
        dummy_block=fields.amount(event, "dummy"),
        kv_cache=fields.amount(event, "kv"),
    )


def _hybrid(start: Start, event: Event) -> Start:
    """Hybrid models get less KV cache than the split said; this line corrects it."""
    corrected = fields.amount(event, "kv_to")
    factor = fields.number(event, "factor")
    before = start.memory.get(rank_of(start, event), Memory()).kv_cache
    if corrected is None and factor is not None and before is not None:
        count = round(before.value.bytes * factor.value)
        corrected = Known(Amount(count, format_bytes(count)), event.line)
    return of_rank(start, event, kv_cache=corrected)


def _allocated(start: Start, event: Event) -> Start:
    start = mark(_device(start, event), event, KV_ALLOCATED)
    return of_rank(start, event, used_after_kv=fields.amount(event, "device_used"))


def _kv(start: Start, **figures: object) -> Start:
    news = {name: value for name, value in figures.items() if value is not None}
    changed: Kv = replace(start.kv, **news)  # type: ignore[arg-type]
    return replace(start, kv=changed)


def _blocks_v0(start: Start, event: Event) -> Start:
    return _kv(
        start,
        blocks=fields.whole(event, "hpu"),
        cpu_blocks=fields.whole(event, "cpu"),
    )


def _blocks_v1(start: Start, event: Event) -> Start:
    return _kv(start, blocks=fields.whole(event, "usable"))


def _capacity(start: Start, event: Event) -> Start:
    override = fields.whole(event, "override")
    blocks = fields.whole(event, "blocks")
    if override is not None:
        return _kv(start, blocks=override)
    longest = fields.whole(event, "max_model_len") or fields.whole(event, "len_to")
    if longest is not None:
        start = replace(start, server=replace(start.server, max_model_len=longest))
    return _kv(
        start,
        blocks=None if start.kv.blocks else blocks,
        tokens=fields.whole(event, "tokens"),
        max_concurrency=fields.number(event, "x"),
    )


def _too_small(start: Start, event: Event) -> Start:
    """V1 prints GiB, V0 tokens; both say what one request of the longest kind needs."""
    wanted, available = _gib(event, "n"), _gib(event, "a")
    longest, held = fields.whole(event, "m"), fields.whole(event, "k")
    found = _smallest_kv_cache(start)
    if found is not None and longest is not None and held is not None and held.value:
        needs = round(found.value.bytes / held.value * longest.value)
        wanted = Known(Amount(needs, format_bytes(needs)), event.line)
        available = found
    return _kv(
        start,
        fitting_len=fields.whole(event, "e") or held,
        wanted_len=longest,
        wanted=wanted,
        available=available,
    )


def _gib(event: Event, name: str) -> Known[Amount] | None:
    count = fields.number(event, name)
    if count is None:
        return None
    bytes_ = round(count.value * GIB)
    return Known(Amount(bytes_, format_bytes(bytes_)), count.line)


def _smallest_kv_cache(start: Start) -> Known[Amount] | None:
    """Return the smallest KV cache over the ranks: it bounds all of them."""
    caches = [each.kv_cache for each in start.memory.values() if each.kv_cache]
    return min(caches, key=lambda cache: cache.value.bytes, default=None)


HANDLERS: Mapping[str, Handler] = MappingProxyType(
    {
        "weights_preload": _preload,
        "weights_total": _weights,
        "inc_prepare": _quantised,
        "hpu_graph_wrap": _device,
        "model_compile_mem": _device,
        "model_profiling_run": _profile,
        "memory_split": _split,
        "hybrid_kv_adjust": _hybrid,
        "cache_engine_init": _allocated,
        "kv_blocks_v0": _blocks_v0,
        "kv_alloc_v1": _blocks_v1,
        "kv_capacity": _capacity,
        "kv_too_small": _too_small,
    }
)
