"""From what is known of logs to the document ``report/1``.

One report per file; its last start is the subject, earlier ones stand under ``earlier``.
``proposal`` is null where the answer is "change nothing".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Literal

from hpuwatch.advise.baseline import Lesson
from hpuwatch.advise.catalogue import Catalogue
from hpuwatch.advise.causes import described
from hpuwatch.advise.checks.gaps import unestablished
from hpuwatch.advise.document import (
    BucketsPart,
    Evidence,
    FaultPart,
    FindingPart,
    GraphsPart,
    KvPart,
    LeverPart,
    MemoryPart,
    Report,
    ServerPart,
    SourcePart,
    StartReport,
    TrafficPart,
    WarmedPart,
    WarmupPart,
)
from hpuwatch.advise.figures import block_size_of, has_traffic, tightest
from hpuwatch.advise.finding import Finding, Lever
from hpuwatch.advise.findings import findings_of
from hpuwatch.advise.plan.left import left_alone
from hpuwatch.advise.plan.parts import (
    defaults_of,
    figure_parts,
    headline,
    left_parts,
    proposal_part,
    settings_of,
)
from hpuwatch.advise.plan.reserve import propose
from hpuwatch.advise.plan.whole import Planned, planned
from hpuwatch.advise.whence import FileOf, files_of
from hpuwatch.records import Line
from hpuwatch.state.configured import release
from hpuwatch.state.model import (
    DECODE,
    MULTIMODAL,
    PROMPT,
    Known,
    Start,
    State,
    value_of,
)
from hpuwatch.units import Amount

_PHASES = (PROMPT, DECODE, MULTIMODAL)
_HUB = re.compile(r"models--([^/]+?)--([^/]+)")


def build_report(
    states: Sequence[tuple[str, State]],
    catalogue: Catalogue,
    widenings: Mapping[str, float] = MappingProxyType({}),
    lessons: Sequence[Lesson] = (),
) -> Report:
    """Return the report over logs, given as file name and what is known of it.

    A state without a start gives no report.  The starts of a log teach the plans of those
    after it, as far as they are of the same server.

    Args:
        states: the logs, the newest last.
        catalogue: the kinds of findings.
        widenings: by how much the intervals of predictions grow, by the figure's name.
        lessons: what starts taught whose logs aren't given, oldest first.
    """
    reports: list[StartReport] = []
    before: list[tuple[str, Start]] = []
    for file, state in states:
        if state.starts:
            known = [start for _, start in before]
            plan = partial(_plan, (*known, *state.starts), widenings, lessons)
            reports.append(_of_file((file, state), before, catalogue, plan))
        before += [(file, start) for start in state.starts]
    return Report(reports=reports)


def _plan(
    starts: Sequence[Start],
    widenings: Mapping[str, float],
    lessons: Sequence[Lesson],
    after: int,
) -> Planned:
    """Return the plan of the start that so many come after.

    The last start is the subject, and may have tried what the one before it was advised;
    those before are history, whose plan is not looked at as a whole.
    """
    until = starts[: len(starts) - after]
    if after > 1:
        return Planned(propose(until[-1]))
    return planned(until, widenings, lessons)


def _of_file(
    log: tuple[str, State],
    before: Sequence[tuple[str, Start]],
    catalogue: Catalogue,
    plan: Callable[[int], Planned],
) -> StartReport:
    file, state = log
    known = [start for _, start in before]
    file_of = files_of(file, state.starts, before)
    *earlier, last = [
        _of_start(
            SourcePart(
                file=file,
                start=state.past.starts + number + 1,
                broken_events=state.broken,
            ),
            start,
            findings_of(start, catalogue, state.starts[:number], known),
            plan(len(state.starts) - 1 - number),
            file_of,
        )
        for number, start in enumerate(state.starts)
    ]
    return last.model_copy(update={"earlier": earlier})


def _of_start(
    source: SourcePart,
    start: Start,
    findings: Sequence[Finding],
    plan: Planned,
    file_of: FileOf,
) -> StartReport:
    settings = settings_of(start)
    return StartReport(
        source=source,
        origin=_origin(start),
        headline=headline(start, findings, plan),
        server=_server(start),
        memory=_memory(start),
        kv=_kv(start),
        buckets=_buckets(start),
        graphs=_graphs(start),
        warmup=_warmup(start),
        traffic=_traffic(start),
        faults=_faults(start),
        findings=[_finding(file_of, each) for each in findings],
        not_established=unestablished(start),
        proposal=proposal_part(plan.proposal, findings, settings, defaults_of(plan)),
        settings=settings,
        left=left_parts(left_alone(start, plan, findings)),
        bucket_file=plan.now.plan.flags.bucket_file if plan.now else None,
    )


def _bytes(known: Known[Amount] | None) -> int | None:
    return known.value.bytes if known else None


def model_name(text: str) -> str:
    """Return ``owner/name`` where the model is a folder of the hub's cache."""
    hub = _HUB.search(text)
    return f"{hub[1]}/{hub[2]}" if hub else text


def identity_in_reports(start: Start) -> tuple[object, ...]:
    """Return release, model, card, cards and origin as a report of the start has them."""
    server = _server(start)
    return server.release, server.model, server.card, server.tp, _origin(start)


def _origin(start: Start) -> Literal["measured", "simulated"]:
    return "simulated" if start.server.simulated else "measured"


def _server(start: Start) -> ServerPart:
    server = start.server
    found = release(server)
    model = value_of(server.model)
    return ServerPart(
        release=found.name if found else None,
        assumed_like=found.assumed_like if found else None,
        version=value_of(server.version),
        build=value_of(server.build),
        engine=value_of(server.engine),
        model=model_name(model) if model else None,
        card=value_of(server.card),
        tp=value_of(server.tensor_parallel),
        bridge_mode=value_of(server.bridge_mode),
        max_model_len=value_of(server.max_model_len),
        phase=start.phase.value,
    )


def _memory(start: Start) -> MemoryPart:
    found = tightest(start)
    if found is None:
        return MemoryPart()
    rank, memory = found
    amounts = memory.amounts()
    return MemoryPart(
        rank=rank,
        ranks=len(start.memory),
        profile_seconds=memory.profile_seconds,
        utilisation=value_of(memory.utilisation),
        reserve_ratio=value_of(memory.reserve_ratio),
        printed={name: amount.printed for name, amount in amounts.items()},
        **{name: amount.bytes for name, amount in amounts.items()},
    )


def _kv(start: Start) -> KvPart:
    kv = start.kv
    if kv.blocks is None and kv.tokens is None:
        return KvPart()
    size, known = block_size_of(start)
    blocks, tokens = value_of(kv.blocks), value_of(kv.tokens)
    if tokens is None and blocks is not None:
        tokens = blocks * size
    return KvPart(
        blocks=blocks,
        tokens=tokens,
        block_size=size,
        block_size_assumed=known == "assumed",
        block_size_from=known,
        cpu_blocks=value_of(kv.cpu_blocks),
        max_concurrency=value_of(kv.max_concurrency),
    )


def _buckets(start: Start) -> BucketsPart:
    counts = {}
    for phase in _PHASES:
        listed, progress = start.buckets.get(phase), start.warmup.progress.get(phase)
        counts[phase] = listed.value.count if listed else None
        if progress and (phase == MULTIMODAL or listed is None):
            counts[phase] = progress.total
    shapes = {
        phase: list(listed.value.shapes)
        for phase, listed in start.buckets.items()
        if listed.value.shapes
    }
    return BucketsPart(**counts, shapes=shapes)


def _graphs(start: Start) -> GraphsPart:
    used = start.graphs_used
    return GraphsPart(
        prompt_used_bytes=_bytes(used.get(PROMPT)),
        decode_used_bytes=_bytes(used.get(DECODE)),
        printed={
            f"{phase}_used_bytes": known.value.printed for phase, known in used.items()
        },
    )


def _warmup(start: Start) -> WarmupPart:
    warmup = start.warmup
    finished = warmup.seconds is not None
    total, done_of = 0, dict[str, int]()
    for phase in _PHASES:
        listed, progress = start.buckets.get(phase), warmup.progress.get(phase)
        planned = listed.value.count if listed and phase != MULTIMODAL else 0
        planned = progress.total if progress else planned
        total += planned
        done_of[phase] = planned if finished else (progress.done if progress else 0)
    return WarmupPart(
        seconds=value_of(warmup.seconds),
        skipped=warmup.skipped is not None,
        finished=finished,
        done=sum(done_of.values()),
        total=total,
        phase_done={}
        if finished
        else {phase: done for phase, done in done_of.items() if done},
        allocated_bytes=_bytes(warmup.allocated),
        init_seconds=value_of(warmup.init_seconds),
        sampler_seconds=warmup.sampler_seconds,
        defragmenter_seconds=warmup.defragmenter_seconds,
        phase_seconds=dict(warmup.phase_seconds),
        compile_only=warmup.compile_only,
        steps={
            phase: [
                WarmedPart(shape=shape, free_bytes=free.bytes)
                for shape, free in progress.steps
            ]
            for phase, progress in warmup.progress.items()
            if progress.steps
        },
        pace={
            phase: [(done, at - (progress.first_at or 0)) for done, at in points]
            for phase, progress in warmup.progress.items()
            if len(points := progress.points) > 1
        },
    )


def _traffic(start: Start) -> TrafficPart:
    traffic = start.traffic
    peak = value_of(traffic.kv_use_peak)
    return TrafficPart(
        busy_lines=traffic.busy_lines,
        kv_use_peak_percent=None if peak is None else round(100 * peak, 1),
        running_peak=value_of(traffic.running_peak),
        waiting_peak=value_of(traffic.waiting_peak),
        preemptions=traffic.preemptions,
        preemptions_printed=traffic.preemptions_printed,
        prompt_tokens_per_second_peak=value_of(traffic.prompt_tokens_per_second_peak),
        generation_tokens_per_second_peak=value_of(
            traffic.generation_tokens_per_second_peak
        ),
        shown=has_traffic(start),
    )


def _faults(start: Start) -> list[FaultPart]:
    return [
        FaultPart(
            fault_class=fault.name,
            severity=fault.severity,
            phase=fault.phase.value,
            text=described(fault),
            line=fault.line.number,
            at=fault.at,
            root=fault.root,
        )
        for fault in start.faults
    ]


def _finding(file_of: FileOf, finding: Finding) -> FindingPart:
    return FindingPart(
        code=finding.code,
        name=finding.name,
        severity=finding.severity,
        title=finding.title,
        why=finding.why,
        cure=finding.cure,
        confidence=finding.origin,
        numbers=_plain(finding.numbers),
        figures=figure_parts(finding.figures),
        evidence=[
            _evidence(file_of(line), line) for line in dict.fromkeys(finding.lines)
        ],
        helps=_levers(finding.helps),
        cannot_help=_levers(finding.cannot_help),
    )


def _levers(levers: Sequence[Lever]) -> list[LeverPart]:
    return [
        LeverPart(knob=each.knob, change=each.change, why=each.why) for each in levers
    ]


def _evidence(file: str, line: Line) -> Evidence:
    return Evidence(file=file, line=line.number, text=line.text.strip())


def _plain(numbers: Mapping[str, float | str]) -> dict[str, float | int | str]:
    return dict(numbers)
