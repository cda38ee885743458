"""Events that tell of device memory and of the KV cache.

Every rank prints its own ledger, so each figure goes to the rank that spoke.  The KV cache
is one: all ranks get the blocks of the poorest, and of several engines the poorest counts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import inf
from types import MappingProxyType

from hpuwatch.events import Event
from hpuwatch.gaudi.cards import card_of_memory
from hpuwatch.gaudi.kvcache import HPU_BLOCK_SIZE
from hpuwatch.state import fields
from hpuwatch.state.model import BlocksFrom, Contradiction, Known, Kv, Memory, Start
from hpuwatch.state.times import seconds_between
from hpuwatch.units import GIB, Amount, format_bytes

Handler = Callable[[Start, Event], Start]

WEIGHTS_LOADED = "weights_loaded"
KV_ALLOCATED = "kv_allocated"


def rank_of(start: Start, event: Event) -> int:
    """Return the rank that spoke: its tensor-parallel one, counted on as vLLM does.

    The stages of a pipeline follow one another, then the data-parallel engines: of two
    engines with two cards each, the second has the ranks 2 and 3.  Workers without a rank
    count by pid.
    """
    speaker = event.speaker
    if speaker.rank is None:
        return start.worker_ranks.get(speaker.pid or 0, 0)
    server = start.server
    cards = server.tensor_parallel.value if server.tensor_parallel else 1
    stages = server.pipeline_parallel.value if server.pipeline_parallel else 1
    return (speaker.engine * stages + speaker.stage) * cards + speaker.rank


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


_CONTRADICTS = 0.01
"""Two figures of one thing may be that far apart: print rounding, and a page or two."""
_MOST_CONTRADICTIONS = 8


def _split(start: Start, event: Event) -> Start:
    """Take a split of memory; one that can't be, by its own figures, tells nothing."""
    wrong = _impossible(event)
    if wrong is not None:
        return _noted(start, wrong)
    return of_rank(
        _compared(start, event),
        event,
        free=fields.amount(event, "free"),
        usable=fields.amount(event, "usable"),
        utilisation=fields.number(event, "gmu"),
        reserve=fields.amount(event, "graphs"),
        reserve_ratio=fields.number(event, "grm"),
        dummy_block=fields.amount(event, "dummy"),
        kv_cache=fields.amount(event, "kv"),
    )


def _impossible(event: Event) -> Contradiction | None:
    """Return what a split says against itself: each part is a printed share of a whole.

    With ``--enforce-eager`` nothing is set aside for graphs, whatever the share.
    """
    free, usable = fields.amount(event, "free"), fields.amount(event, "usable")
    reserve = fields.amount(event, "graphs")
    for figure, whole, ratio, part in (
        ("usable", free, fields.number(event, "gmu"), usable),
        ("reserve", usable, fields.number(event, "grm"), reserve),
    ):
        if whole is None or ratio is None or part is None:
            continue
        most = 1 if figure == "usable" else inf  # a reserve may leave less than nothing
        none_set_aside = figure == "reserve" and part.value.bytes == 0
        if not 0 <= ratio.value <= most or (
            _apart(round(whole.value.bytes * ratio.value), part) and not none_set_aside
        ):
            return Contradiction(figure, whole, part, ratio.value)
    return None


def _apart(expected: int, found: Known[Amount]) -> bool:
    bytes_ = found.value.bytes
    most = max(abs(expected), abs(bytes_))
    return abs(expected - bytes_) > most * _CONTRADICTS


def _compared(start: Start, event: Event) -> Start:
    """Note what a second split of the same rank gives differently: a life splits once."""
    ledger = start.memory.get(rank_of(start, event), Memory())
    for figure, before, now in (
        ("free", ledger.free, fields.amount(event, "free")),
        ("usable", ledger.usable, fields.amount(event, "usable")),
        ("reserve", ledger.reserve, fields.amount(event, "graphs")),
    ):
        if before and now and _apart(before.value.bytes, now):
            return _noted(start, Contradiction(figure, before, now))
    return start


def _noted(start: Start, found: Contradiction) -> Start:
    noted = (*start.contradictions, found)[:_MOST_CONTRADICTIONS]
    return replace(start, contradictions=noted)


_OF_STATES = {"factor", "kv_to", "n_gdn", "groups"}
"""Fields of the lines that models with recurrent layers print, not all mixed ones."""


def _hybrid(start: Start, event: Event) -> Start:
    """Hybrid models get less KV cache than the split said; this line corrects it."""
    corrected = fields.amount(event, "kv_to")
    factor = fields.number(event, "factor")
    before = start.memory.get(rank_of(start, event), Memory()).kv_cache
    if corrected is None and factor is not None and before is not None:
        count = round(before.value.bytes * factor.value)
        corrected = Known(Amount(count, format_bytes(count)), event.line)
    if not _OF_STATES.isdisjoint(event.fields):
        start = _kv(start, hybrid=True)
    return of_rank(start, event, kv_cache=corrected)


def _allocated(start: Start, event: Event) -> Start:
    start = mark(_device(start, event), event, KV_ALLOCATED)
    return of_rank(
        start,
        event,
        kv_taken=fields.amount(event, "device_delta"),
        used_after_kv=fields.amount(event, "device_used"),
    )


def _kv(start: Start, **figures: object) -> Start:
    news = {name: value for name, value in figures.items() if value is not None}
    changed: Kv = replace(start.kv, **news)  # type: ignore[arg-type]
    return replace(start, kv=changed)


def with_blocks(start: Start, known: Known[int] | None, source: BlocksFrom) -> Start:
    """Keep the number of the best source, and of equally good ones the smallest."""
    if known is None:
        return start
    before, count = start.kv.blocks_from, start.kv.blocks
    if count is not None and before is not None:
        worse = source < before
        if worse or (source is before and known.value >= count.value):
            return start
    return _kv(start, blocks=known, blocks_from=source)


def _blocks_v0(start: Start, event: Event) -> Start:
    start = _kv(start, cpu_blocks=fields.whole(event, "cpu"))
    return with_blocks(start, fields.whole(event, "hpu"), BlocksFrom.ENGINE)


def _blocks_v1(start: Start, event: Event) -> Start:
    return with_blocks(start, fields.whole(event, "usable"), BlocksFrom.WORKER)


def _blocks_of(start: Start, tokens: Known[int] | None) -> Known[int] | None:
    """Return the blocks that hold the tokens; in hybrid models these tell nothing."""
    if tokens is None or start.kv.hybrid:
        return None
    server = start.server
    told = server.block_size or server.range_block_size
    count, rest = divmod(tokens.value, told.value if told else HPU_BLOCK_SIZE)
    return None if rest else Known(count, tokens.line)


def _capacity(start: Start, event: Event) -> Start:
    longest = fields.whole(event, "max_model_len") or fields.whole(event, "len_to")
    if longest is not None:
        start = replace(start, server=replace(start.server, max_model_len=longest))
    tokens = fields.whole(event, "tokens")
    override = fields.whole(event, "override")
    for blocks, source in (
        (_blocks_of(start, tokens), BlocksFrom.TOKENS),
        (None if override else fields.whole(event, "blocks"), BlocksFrom.ENGINE),
        (override, BlocksFrom.OVERRIDE),
    ):
        start = with_blocks(start, blocks, source)
    kv = start.kv
    return _kv(
        start,
        tokens=fields.smaller(kv.tokens, tokens),
        max_concurrency=fields.smaller(kv.max_concurrency, fields.number(event, "x")),
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
