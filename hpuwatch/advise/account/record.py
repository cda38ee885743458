"""What is kept of a start once its log is gone: who it was, how it was set, what came of it.

A record holds the figures of ``report/1``, the settings in force (masked) and, where the log
tells enough, the plan, from which the bucket rules can be asked again.  It quotes no line
of a log, and nothing of what users asked.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidatorFunctionWrapHandler,
    field_validator,
)

from hpuwatch.advise.baseline import Lesson, lesson_of, load_seconds, plan_of
from hpuwatch.advise.compare.settings import in_force
from hpuwatch.advise.document import (
    FaultPart,
    GraphsPart,
    KvPart,
    MemoryPart,
    ServerPart,
    SourcePart,
    StartReport,
    TrafficPart,
    WarmupPart,
)
from hpuwatch.gaudi.fingerprint import fingerprint
from hpuwatch.gaudi.model import Bucket
from hpuwatch.gaudi.planning import Plan
from hpuwatch.life.phases import Phase
from hpuwatch.parse.header import read
from hpuwatch.state.configured import acting_variables, configured, printed_lists
from hpuwatch.state.model import DECODE, PROMPT, Start

KEY = "first"
"""The part of a proof that every reading of a start has."""
_MOST_BUCKETS = 2_000
_KEPT = ("total", "weights", "profile_run", "free", "usable", "reserve", "kv_cache")


class ListPart(BaseModel):
    """A bucket list in short: how many, a fingerprint, and the largest of each axis."""

    model_config = ConfigDict(frozen=True)

    count: int
    fingerprint: str | None = None
    batch_max: int | None = None
    query_max: int | None = None
    blocks_max: int | None = None

    @property
    def largest(self) -> tuple[int, int, int] | None:
        """Return the largest batch, query and blocks; None where no list was printed."""
        found = self.batch_max, self.query_max, self.blocks_max
        if found[0] is None or found[1] is None or found[2] is None:
            return None
        return found[0], found[1], found[2]


class StartRecord(BaseModel):
    """A start, as the store keeps it.

    Attributes:
        source: where it was read.
        origin: measured or simulated.
        settings: in force, by variable or flag, masked.
        settings_given: the process's own environment and words are among them; else
            only what the log shows.
        lists: by phase.
        bucket_seconds: seconds per bucket by phase; of an unfinished phase, so far.
        load_seconds: from the first line to an allocated KV cache.
        ready_seconds: from the first line to readiness.
        began: the time in the first line's header, as printed.
        plan: what decides its buckets; None where the log tells too little.
        lesson: what it teaches of other starts of its server.
    """

    model_config = ConfigDict(frozen=True, populate_by_name=True)

    source: SourcePart
    origin: str
    server: ServerPart
    memory: MemoryPart
    kv: KvPart
    graphs: GraphsPart
    warmup: WarmupPart
    traffic: TrafficPart
    faults: tuple[FaultPart, ...] = ()
    settings: dict[str, str] = Field(default_factory=dict)
    settings_given: bool = False
    lists: dict[str, ListPart] = Field(default_factory=dict)
    bucket_seconds: dict[str, float] = Field(default_factory=dict)
    load_seconds: float | None = None
    ready_seconds: float | None = None
    began: str | None = None
    plan: Plan | None = None
    lesson: Lesson | None = None

    @field_validator("plan", "lesson", mode="wrap")
    @classmethod
    def _if_readable(cls, value: object, read: ValidatorFunctionWrapHandler) -> object:
        """Go without what another release of hpuwatch wrote in another form."""
        try:
            return read(value)
        except ValidationError:
            return None

    @property
    def identity(self) -> tuple[object, ...]:
        """Return what must be equal for one start to foretell another."""
        server = self.server
        return server.release, server.model, server.card, server.tp, self.origin

    @property
    def fingerprint(self) -> str:
        """Return the SHA-256 of identity and settings, hexadecimal."""
        text = json.dumps([self.identity, sorted(self.settings.items())])
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def died(self) -> FaultPart | None:
        """Return what ended it, None where nothing did."""
        if self.server.phase != Phase.FAILED.value:
            return None
        fatal = (each for each in self.faults if each.severity == "fatal" and each.root)
        return next(fatal, None)


def record_of(
    start: Start,
    report: StartReport,
    beyond: Mapping[str, str] | None = None,
) -> StartRecord:
    """Return the record of a start.

    Args:
        start: what its log told.
        report: the same start's report.
        beyond: the settings that its process was given, where we own it; None: unknown.
    """
    settings = {**(beyond or {}), **in_force(start)}
    return StartRecord(
        source=report.source,
        origin=report.origin,
        server=report.server,
        memory=report.memory,
        kv=report.kv,
        graphs=report.graphs,
        # What only pictures need may be long.
        warmup=report.warmup.model_copy(update={"steps": {}, "pace": {}}),
        traffic=report.traffic,
        faults=tuple(report.faults),
        settings=settings,
        settings_given=beyond is not None,
        lists=_lists(start),
        bucket_seconds=_bucket_seconds(start),
        load_seconds=load_seconds(start),
        ready_seconds=_ready_seconds(start),
        began=_began(start),
        plan=_plan(start),
        lesson=_lesson(start),
    )


def proof_of(start: Start) -> dict[str, str]:
    """Return what a start is known by: one read further keeps all of it and adds to it.

    The first line counts by its hash, so that no line of a log is stored.
    """
    first = hashlib.sha256(start.first_line.text.strip().encode()).hexdigest()
    proof = {KEY: first}
    proof |= {
        f"at {step}": at for step, at in start.marks.items() if step != "last_step"
    }
    for rank, memory in start.memory.items():
        amounts = memory.amounts()
        proof |= {
            f"{rank} {name}": amounts[name].printed for name in _KEPT if name in amounts
        }
    if start.warmup.skipped is not None:
        proof["warm-up"] = "skipped"
    elif start.warmup.seconds is not None:
        proof["warm-up"] = f"{start.warmup.seconds.value:g}"
    if start.kv.blocks is not None:  # all that is printed of settings is by then
        known = {
            name: each.value for name, each in acting_variables(start.server).items()
        }
        known |= {name: each.value for name, each in start.server.flags.items()}
        text = json.dumps(known, sort_keys=True)
        proof["settings"] = hashlib.sha256(text.encode()).hexdigest()
    return proof


def is_further(before: Mapping[str, str], now: Mapping[str, str]) -> bool:
    """Tell whether two proofs are of one start, whichever was read further."""
    return all(now[name] == before[name] for name in before.keys() & now.keys())


def _lists(start: Start) -> dict[str, ListPart]:
    shown = printed_lists(start)
    return {
        phase: _list_part(start.buckets[phase].value.count, shown.get(phase, ()))
        for phase in (PROMPT, DECODE)
        if phase in start.buckets
    }


def _list_part(count: int, shown: Sequence[Bucket]) -> ListPart:
    if not shown:
        return ListPart(count=count)
    return ListPart(
        count=count,
        fingerprint=fingerprint(sorted(shown)),
        batch_max=max(each.batch for each in shown),
        query_max=max(each.query for each in shown),
        blocks_max=max(each.context for each in shown),
    )


def _bucket_seconds(start: Start) -> dict[str, float]:
    """Return seconds per bucket, over those that were done."""
    warmup = start.warmup
    found = {}
    for phase in (PROMPT, DECODE):
        progress, listed = warmup.progress.get(phase), start.buckets.get(phase)
        total = progress.total if progress else (listed.value.count if listed else 0)
        took = warmup.phase_seconds.get(phase)
        is_whole = warmup.seconds is not None or progress is None
        done = total if is_whole or progress is None else progress.done
        if took and done:
            found[phase] = took / done
        elif progress and progress.done and progress.elapsed_seconds:
            found[phase] = progress.elapsed_seconds / progress.done
        elif progress and len(progress.points) > 1:
            (done, first), (more, last) = progress.points[0], progress.points[-1]
            if more > done and last > first:
                found[phase] = (last - first) / (more - done)
    return found


def _ready_seconds(start: Start) -> float | None:
    """Return the seconds to readiness: loading and warm-up, else as they were lived.

    The headers' seconds come first, as predictions are made of them.
    """
    loaded, warmed = load_seconds(start), start.warmup.seconds
    if loaded and warmed:
        return loaded + warmed.value
    reached = start.reached.get(Phase.READY.value)
    if reached is None or reached.received_at is None or start.began_at is None:
        return None
    return max(0.0, reached.received_at - start.began_at)


def _began(start: Start) -> str | None:
    records = read(start.first_line.text)
    return records[0].logged_at if records else None


def _lesson(start: Start) -> Lesson | None:
    """Return what the start teaches, None where its lists are too long to be kept."""
    made = sum(each.value.count for each in start.buckets.values())
    return lesson_of(start) if made <= _MOST_BUCKETS else None


def _plan(start: Start) -> Plan | None:
    known = configured(start)
    if known is None or known.bucket_file is not None:
        return None  # a file's list may be long, and no rule makes it
    plan = plan_of(start, known)
    return replace(plan, env=dict(plan.env))
