"""What hpuwatch makes of a log, as values that can be kept and compared.

A log goes in as bytes, cut anywhere.  Out come its events, its state, its metrics, and a
short list of facts for each start, in words that a person can check against the log.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from enum import Enum
from itertools import pairwise
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from hpuwatch.advise.figures import tightest
from hpuwatch.events import Event, Value
from hpuwatch.life.machine import Fact
from hpuwatch.loop.watch import Watch
from hpuwatch.metrics.collector import exposition
from hpuwatch.parse.parser import Parser
from hpuwatch.records import Line
from hpuwatch.source.lines import Lines
from hpuwatch.state.configured import release
from hpuwatch.state.model import Fault, Known, Memory, Start, State, value_of
from hpuwatch.state.reduce import reduce
from hpuwatch.state.snapshot import Left
from hpuwatch.state.warmup_left import estimate_left
from hpuwatch.testing.clock import FakeClock
from hpuwatch.testing.logs import rules
from hpuwatch.units import Amount

EVENTS, STATE, METRICS = "events.jsonl", "state.json", "metrics.prom"

_LONGEST = 60

NOW = 1_767_225_600.0
"""When the picture is taken: 2026-01-01."""


@dataclass(frozen=True, slots=True)
class Told:
    """What a log told us."""

    events: tuple[Event, ...]
    state: State
    lines: int
    unparsed: int


def read(data: bytes, cuts: Iterable[int] = ()) -> Told:
    """Read a log that arrives in pieces, cut at the given places."""
    parser = Parser(rules())
    lines = Lines(parser)
    events: list[Event] = []
    for start, end in pairwise([0, *sorted(cuts), len(data)]):
        for line in lines.feed(data[start:end]):
            events += parser.feed(line)
    for line in lines.close():
        events += parser.feed(line)
    events += parser.close()
    return Told(tuple(events), state_of(events), parser.lines, parser.unparsed)


def state_of(events: Iterable[Event]) -> State:
    """Return what is known after some events."""
    state = State()
    for event in events:
        state = reduce(state, event)
    return state


def facts(told: Told) -> list[dict[str, object]]:
    """Return what each start of a log comes to, in the words of ``facts.yaml``."""
    starts = told.state.starts
    return [
        {**_facts(start), "seconds_left": _left(starts[: number + 1]).value}
        for number, start in enumerate(starts)
    ]


def _left(starts: Sequence[Start]) -> Left:
    """Return what is left of warm-up at the newest start's last sign of it."""
    start = starts[-1]
    seen = [each.last_at for each in start.warmup.progress.values() if each.last_at]
    return estimate_left(
        start, max(seen, default=start.phase_since or NOW), starts[:-1]
    )


def _facts(start: Start) -> dict[str, Any]:
    server, kv, warmup = start.server, start.kv, start.warmup
    found = tightest(start)
    known = release(server)
    return {
        "phase": start.phase.value,
        "broke_in": start.broke_in.value if start.broke_in else None,
        "release": known.name if known else None,
        "version": value_of(server.version),
        "engine": value_of(server.engine),
        "model": value_of(server.model),
        "card": value_of(server.card),
        "ranks": len(start.memory),
        "tightest_rank": found[0] if found else None,
        **_memory(found[1] if found else Memory()),
        "blocks": value_of(kv.blocks),
        "tokens": value_of(kv.tokens),
        "block_size": kv.block_size,
        "buckets": {name: each.value.count for name, each in start.buckets.items()},
        "captured": {name: each.value for name, each in start.captured.items()},
        "graphs_used": {
            name: each.value.printed for name, each in start.graphs_used.items()
        },
        "skipped": warmup.skipped is not None,
        "warmup_seconds": value_of(warmup.seconds),
        "init_seconds": value_of(warmup.init_seconds),
        "sampler_seconds": warmup.sampler_seconds,
        "defragmenter_seconds": warmup.defragmenter_seconds,
        "phase_seconds": dict(warmup.phase_seconds),
        "compile_only": warmup.compile_only,
        "progress": {
            name: f"{each.done} of {each.total}"
            for name, each in warmup.progress.items()
        },
        "misses": [
            f"{miss.phase} {miss.reason} {miss.shape} x{miss.count}"
            for miss in start.misses
        ],
        "preemptions": start.traffic.preemptions,
        "running_peak": value_of(start.traffic.running_peak),
        "waiting_peak": value_of(start.traffic.waiting_peak),
        "causes": [_fault(fault) for fault in start.faults if fault.root],
        "consequences": sum(not fault.root for fault in start.faults),
    }


def _memory(memory: Memory) -> dict[str, object]:
    amounts = {name: each.printed for name, each in memory.amounts().items()}
    return {
        name: amounts.get(name)
        for name in ("weights", "profile_run", "free", "usable", "reserve", "kv_cache")
    }


def _fault(fault: Fault) -> dict[str, object]:
    return {
        "name": fault.name,
        "phase": fault.phase.value,
        "at": fault.at,
        "rank": fault.rank,
        "wanted_bytes": fault.wanted.bytes if fault.wanted else None,
        "line": fault.line.number,
    }


def event_rows(told: Told) -> list[object]:
    """Return the events as plain values: line, kind, who, and fields.

    Long texts, as a whole configuration, stand in the log and are left out.
    """
    return [
        [event.line.number, event.kind, _speaker(event), plain(_short(event.fields))]
        for event in told.events
    ]


def _short(named: Mapping[str, Value]) -> dict[str, Value]:
    return {
        name: each
        for name, each in named.items()
        if not isinstance(each, str) or len(each) <= _LONGEST
    }


def _speaker(event: Event) -> str:
    speaker = event.speaker
    rank = "" if speaker.rank == 0 else f" rank {speaker.rank}"
    engine = f" engine {speaker.engine}" if speaker.engine else ""
    return f"{speaker.process}{rank}{engine}"


def plain(value: object) -> object:
    """Return any of our values as JSON can hold it.

    A line becomes its number, a known figure ``[value, number of its line]``; of a
    dataclass only what differs from its defaults is told.
    """
    if isinstance(value, Known):
        return [plain(value.value), value.line.number]
    for kind, told in _TOLD.items():
        if isinstance(value, kind):
            return told(value)
    if is_dataclass(value) and not isinstance(value, type):
        return {
            each.name: plain(getattr(value, each.name))
            for each in fields(value)
            if getattr(value, each.name) != _default(each)
        }
    if isinstance(value, Mapping):
        return {str(name): plain(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    return value


_TOLD: Mapping[type, Callable[[Any], object]] = {
    Line: lambda line: line.number,
    Amount: lambda amount: amount.printed,
    Enum: lambda member: member.value,
    frozenset: sorted,
}


def _default(field: Field[Any]) -> object:
    if field.default_factory is not MISSING:
        return field.default_factory()
    return field.default


def exposition_of(data: bytes) -> str:
    """Return the metrics that whoever follows the log would show after it."""
    watch = Watch("golden", rules(), FakeClock(NOW), unwrap=True)
    watch.process(Fact.SPAWNED)
    watch.take(data, None)
    watch.close()
    return exposition(watch.snapshot()).decode()


def samples(text: str) -> dict[str, float]:
    """Return an exposition's samples that aren't 0; our own version isn't compared."""
    return {
        f"{sample.name}{sorted(sample.labels.items())}": sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.value and not sample.name.startswith("hpuwatch_build")
    }


def _lines_of_metrics(data: bytes) -> Iterator[str]:
    for line in sorted(exposition_of(data).splitlines()):
        if not line.startswith(("#", "hpuwatch_build")) and not line.endswith(" 0.0"):
            yield line


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _lines_of_state(state: State) -> Iterator[str]:
    """Yield JSON with a line for each part of each start, so that changes can be read."""
    for number, start in enumerate(state.starts):
        yield "[\n{\n" if number == 0 else ",\n{\n"
        parts = plain(start)
        assert isinstance(parts, dict)  # noqa: S101  it is a dataclass
        rows = (f'"{name}":{_json(each)}' for name, each in parts.items())
        yield ",\n".join(rows)
        yield "\n}"
    yield "\n]\n"


def made(data: bytes) -> dict[str, str]:
    """Return what is kept of a log: the text of each file, by name."""
    told = read(data)
    rows = [_json(row) for row in event_rows(told)]
    return {
        EVENTS: "\n".join(rows) + "\n",
        STATE: "".join(_lines_of_state(told.state)),
        METRICS: "\n".join(_lines_of_metrics(data)) + "\n",
    }
