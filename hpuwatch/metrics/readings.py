"""What the catalogue's metrics are at one moment: pure functions of a snapshot.

:func:`readings` maps each metric's name to its series; a metric without data has none.
Counters are summed over all lives of the server, so that a restart does not take them
back.  The label ``model_name`` is the server's ``served_model_name`` where the log tells
it, as vLLM labels its own metrics.  ``engine`` is ``0``: of several data-parallel engines
the smallest KV cache and the slowest warm-up count, and ranks count on over the engines.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from hpuwatch import __version__
from hpuwatch.life.phases import Phase
from hpuwatch.metrics.catalogue import CONSEQUENCE, OTHER, SEVERITIES
from hpuwatch.metrics.faults import FAULT_CLASSES
from hpuwatch.state.configured import release as release_of_server
from hpuwatch.state.model import (
    DECODE,
    MULTIMODAL,
    PROMPT,
    Known,
    Memory,
    MissKind,
    Server,
    Start,
    State,
)
from hpuwatch.state.serving import NOT_PREPARED, NOT_WARMED_UP, UNIFIED
from hpuwatch.state.snapshot import Ended, Left, Snapshot
from hpuwatch.units import Amount

Series = dict[tuple[str, ...], float]
"""The values of one metric by the values of its labels."""

GRAPH_PHASES = (PROMPT, DECODE, MULTIMODAL, UNIFIED)
MISS_REASONS = (NOT_WARMED_UP, NOT_PREPARED)

_ENGINE = "0"
_FATAL = "fatal"
_PHASES = frozenset(phase.value for phase in Phase)
_LONGEST_LABEL = 128
_MOST_MODELS = 16  # that one log may name; further ones are told as other
_MOST_RANKS = 64  # of one start; a log that tells of more is no server's


@dataclass(frozen=True, slots=True)
class Reading:
    """One value of one metric."""

    metric: str
    labels: tuple[str, ...]
    value: float


def readings(snapshot: Snapshot) -> dict[str, Series]:
    """Return every series that has data; readings of one series add up."""
    drawn: dict[str, Series] = {}
    for reading in _all(snapshot):
        series = drawn.setdefault(reading.metric, {})
        series[reading.labels] = series.get(reading.labels, 0.0) + reading.value
    return drawn


def warmed(start: Start) -> dict[str, tuple[int, int]]:
    """Return (buckets done, buckets planned) by phase; empty where warm-up is skipped.

    A phase that the log only announced counts with nothing done, until warm-up ends.
    """
    warmup = start.warmup
    if warmup.skipped is not None and warmup.skipped.value:
        return {}
    counts = {}
    for phase in dict.fromkeys((*start.buckets, *warmup.progress)):
        listed = start.buckets.get(phase)
        progress = warmup.progress.get(phase)
        planned = listed.value.count if listed else 0
        if progress is not None:
            counts[phase] = (progress.done, progress.total or planned)
        else:
            counts[phase] = (planned if warmup.seconds else 0, planned)
    return counts


def memory_split(memory: Memory) -> dict[str, Amount]:
    """Return the amounts that are known, by the catalogue's ``MEMORY_KINDS``."""
    spelled = {"reserve": "graph_reserve"}
    return {spelled.get(name, name): each for name, each in memory.amounts().items()}


def model_name(server: Server) -> str:
    """Return the name that vLLM labels its own metrics with, or "" before it is known."""
    return _label(server.served_name)


def _all(snapshot: Snapshot) -> Iterator[Reading]:
    yield from _process(snapshot)
    if snapshot.ended is not None:
        yield from _ended(snapshot.ended)
    yield from _faults(snapshot.state)
    start = snapshot.state.current
    model = ""
    for missed, name in _missed(snapshot.state):
        model = name
        yield from _misses(missed, (name, _ENGINE))
    engine = (model, _ENGINE)
    yield from _no_misses(engine)
    if start is not None:
        yield from _server(start, engine)
        yield from _warmup(start, snapshot.left, engine)


def _process(snapshot: Snapshot) -> Iterator[Reading]:
    for phase in Phase:
        now = float(phase is snapshot.phase)
        yield Reading("hpuwatch_runtime_state", (phase.value,), now)
    yield Reading("hpuwatch_build_info", (__version__,), 1)
    for name, count in {
        "hpuwatch_restarts_total": snapshot.restarts,
        "hpuwatch_log_lines_total": snapshot.lines,
        "hpuwatch_unparsed_lines_total": snapshot.unparsed_lines,
        "hpuwatch_rule_reload_failures_total": snapshot.rule_failures,
        "hpuwatch_replayed": float(snapshot.replayed),
        "hpuwatch_watcher_starts_total": snapshot.watcher_starts,
        "hpuwatch_log_dropped_bytes_total": snapshot.log_dropped_bytes,
        "hpuwatch_echo_dropped_bytes_total": snapshot.echo_dropped_bytes,
    }.items():
        yield Reading(name, (), count)
    if snapshot.rules:
        yield Reading("hpuwatch_rules_loaded", (), snapshot.rules)


def _ended(ended: Ended) -> Iterator[Reading]:
    code = "" if ended.code is None else str(ended.code)
    phase = ended.phase if ended.phase in _PHASES else ""
    asked = "true" if ended.asked else "false"
    yield Reading("hpuwatch_last_exit_info", (code, phase, asked), 1)
    yield Reading("hpuwatch_last_exit_timestamp_seconds", (), ended.at)


def _faults(state: State) -> Iterator[Reading]:
    for name, severity in FAULT_CLASSES.items():
        yield Reading("hpuwatch_faults_total", (name, severity), 0)
    yield Reading("hpuwatch_faults_total", (OTHER, OTHER), 0)
    faults = Counter(state.past.faults)
    for start in state.starts:
        faults.update(fault.kind for fault in start.faults)
    for (name, severity, root), count in faults.items():
        labels = (_one_of(name, FAULT_CLASSES), _severity(severity, root=root))
        yield Reading("hpuwatch_faults_total", labels, count)


def _severity(severity: str, *, root: bool) -> str:
    if severity == _FATAL and not root:
        return CONSEQUENCE
    return _one_of(severity, SEVERITIES)


def _misses(
    missed: Mapping[MissKind, int], engine: tuple[str, str]
) -> Iterator[Reading]:
    for (phase, reason), count in missed.items():
        labels = (_one_of(phase, GRAPH_PHASES), _one_of(reason, MISS_REASONS), *engine)
        yield Reading("hpuwatch_bucket_misses_total", labels, count)


def _no_misses(engine: tuple[str, str]) -> Iterator[Reading]:
    for phase in (PROMPT, DECODE):
        for reason in MISS_REASONS:
            labels = (phase, reason, *engine)
            yield Reading("hpuwatch_bucket_misses_total", labels, 0)


def _server(start: Start, engine: tuple[str, str]) -> Iterator[Reading]:
    yield Reading("hpuwatch_simulated", (), float(start.server.simulated))
    yield Reading("hpuwatch_runtime_info", (*engine, *_identity(start.server)), 1)
    yield from _memory(start.memory, engine)
    yield from _if_known("hpuwatch_kv_cache_blocks", start.kv.blocks, engine)
    yield from _if_known("hpuwatch_kv_cache_tokens", start.kv.tokens, engine)
    used = {phase: each.value.bytes for phase, each in start.graphs_used.items()}
    yield from _by_phase("hpuwatch_graph_memory_used_bytes", used, engine)
    generated = {phase: each.value.count for phase, each in start.buckets.items()}
    yield from _by_phase("hpuwatch_buckets", generated, engine)


def _memory(ranks: Mapping[int, Memory], engine: tuple[str, str]) -> Iterator[Reading]:
    for rank, memory in sorted(ranks.items())[:_MOST_RANKS]:
        for kind, amount in memory_split(memory).items():
            labels = (kind, str(rank), *engine)
            yield Reading("hpuwatch_device_memory_bytes", labels, amount.bytes)
    ratios = (each.reserve_ratio for each in ranks.values())
    told = next((each for each in ratios if each is not None), None)
    yield from _if_known("hpuwatch_graph_reserve_ratio", told, engine)


def _warmup(start: Start, left: Left, engine: tuple[str, str]) -> Iterator[Reading]:
    counts = warmed(start)
    done = {phase: each for phase, (each, _) in counts.items()}
    planned = {phase: each for phase, (_, each) in counts.items()}
    yield from _by_phase("hpuwatch_warmup_buckets_done", done, engine)
    yield from _by_phase("hpuwatch_warmup_buckets_planned", planned, engine)
    if all_planned := sum(planned.values()):
        ratio = sum(done.values()) / all_planned
        yield Reading("hpuwatch_warmup_progress_ratio", engine, ratio)
    seconds = start.warmup.seconds
    yield from _if_known("hpuwatch_warmup_duration_seconds", seconds, engine)
    for name, estimate in {
        "hpuwatch_warmup_left_seconds": left.value,
        "hpuwatch_warmup_left_low_seconds": left.low,
        "hpuwatch_warmup_left_high_seconds": left.high,
    }.items():
        if estimate is not None:
            yield Reading(name, engine, estimate)


def _identity(server: Server) -> tuple[str, ...]:
    release = release_of_server(server)
    return tuple(
        _label(text)
        for text in (
            release.name if release else "",
            _text(server.version),
            _text(server.engine),
            "true" if server.plugin else "false",
            _text(server.build),
            _text(server.card),
            _text(server.bridge_mode),
            _text(server.tensor_parallel),
        )
    )


def _missed(state: State) -> Iterator[tuple[Mapping[MissKind, int], str]]:
    """Yield misses by kind, each start's with its model's name, the newest start's last.

    Until a start says its own name, the one before counts.  Switches between models without
    end must not make series without end.
    """
    told = [(missed, name) for name, missed in state.past.misses.items()]
    name, seen = state.past.name, {""}
    for start in state.starts:
        name = start.server.served_name or name
        told.append((start.missed_by_kind(), name))
    for missed, name in told:
        label = _label(name)
        if label not in seen and len(seen) > _MOST_MODELS:
            label = OTHER
        seen.add(label)
        yield missed, label


def _if_known(
    metric: str, known: Known[int] | Known[float] | None, labels: tuple[str, ...]
) -> Iterator[Reading]:
    if known is not None:
        yield Reading(metric, labels, known.value)


def _by_phase(
    metric: str, counts: Mapping[str, int], engine: tuple[str, str]
) -> Iterator[Reading]:
    for phase, count in counts.items():
        yield Reading(metric, (_one_of(phase, GRAPH_PHASES), *engine), count)


def _one_of(text: str, known: Sequence[str] | Mapping[str, object]) -> str:
    return text if text in known else OTHER


def _text(known: Known[str] | Known[int] | None) -> str:
    return "" if known is None else str(known.value)


def _label(text: str) -> str:
    """Keep a label short and on one line, whatever the log said."""
    plain = "".join(each for each in text if each.isprintable())
    return plain[:_LONGEST_LABEL]
