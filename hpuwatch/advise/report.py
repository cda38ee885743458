"""From what is known of logs to the document ``report/1``.

One report per file; its last start is the subject, earlier ones stand under ``earlier``.
``proposal`` is null where the answer is "change nothing".
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from hpuwatch.advise.catalogue import Catalogue
from hpuwatch.advise.causes import described
from hpuwatch.advise.document import (
    BucketsPart,
    Evidence,
    FaultPart,
    FigurePart,
    FindingPart,
    GraphsPart,
    Headline,
    KvPart,
    MemoryPart,
    ProposalPart,
    Report,
    ServerPart,
    SourcePart,
    StartReport,
    TrafficPart,
    WarmupPart,
)
from hpuwatch.advise.figures import block_size_of, has_traffic, tightest
from hpuwatch.advise.finding import Finding
from hpuwatch.advise.findings import findings_of
from hpuwatch.advise.proposal import Proposal, propose
from hpuwatch.gaudi.estimate import Estimate
from hpuwatch.gaudi.planning import RESERVE
from hpuwatch.life.phases import Phase
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


def build_report(states: Sequence[tuple[str, State]], catalogue: Catalogue) -> Report:
    """Return the report over logs, given as file name and what is known of it.

    A state without a start gives no report.
    """
    return Report(
        reports=[
            _of_file(file, state, catalogue) for file, state in states if state.starts
        ],
    )


def _of_file(file: str, state: State, catalogue: Catalogue) -> StartReport:
    *earlier, last = [
        _of_start(
            SourcePart(
                file=file,
                start=state.past.starts + number + 1,
                broken_events=state.broken,
            ),
            start,
            findings_of(start, catalogue, state.starts[:number]),
        )
        for number, start in enumerate(state.starts)
    ]
    return last.model_copy(update={"earlier": earlier})


def _of_start(
    source: SourcePart, start: Start, findings: Sequence[Finding]
) -> StartReport:
    proposal = propose(start)
    return StartReport(
        source=source,
        origin="simulated" if start.server.simulated else "measured",
        headline=_headline(start, findings, proposal),
        server=_server(start),
        memory=_memory(start),
        kv=_kv(start),
        buckets=_buckets(start),
        graphs=_graphs(start),
        warmup=_warmup(start),
        traffic=_traffic(start),
        faults=_faults(start),
        findings=[_finding(source.file, each) for each in findings],
        proposal=_proposal(proposal),
    )


def _headline(
    start: Start, findings: Sequence[Finding], proposal: Proposal | None
) -> Headline:
    """Say what to do and why, from the proposal's finding, else from the gravest."""
    if not findings:
        return Headline(do="Change nothing.", why="Nothing was found.")
    about = findings[0]
    if proposal is not None:
        answered = [each for each in findings if each.name == proposal.answers]
        about = next(iter(answered), about)
    why = f"{about.title.removesuffix('.')}. {about.why}"
    if proposal is None:
        return Headline(do=about.cure or "Change nothing.", why=why)
    if RESERVE not in proposal.env:
        return Headline(do=f"Set {' '.join(proposal.flags)}.", why=why)
    found = tightest(start)
    ratio = found[1].reserve_ratio if found else None
    now = f" (now {ratio.value:g})" if ratio else ""
    then = "start again" if start.phase is Phase.FAILED else "run real load"
    value = proposal.env[RESERVE]
    flags = f" and {' '.join(proposal.flags)}" if proposal.flags else ""
    do = f"Set {RESERVE}={value}{now}{flags} as a first step, then {then}."
    return Headline(do=do, why=why)


def _bytes(known: Known[Amount] | None) -> int | None:
    return known.value.bytes if known else None


def model_name(text: str) -> str:
    """Return ``owner/name`` where the model is a folder of the hub's cache."""
    hub = _HUB.search(text)
    return f"{hub[1]}/{hub[2]}" if hub else text


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
    return BucketsPart(**counts)


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
    done = total = 0
    for phase in _PHASES:
        listed, progress = start.buckets.get(phase), warmup.progress.get(phase)
        planned = listed.value.count if listed and phase != MULTIMODAL else 0
        planned = progress.total if progress else planned
        total += planned
        done += planned if finished else (progress.done if progress else 0)
    return WarmupPart(
        seconds=value_of(warmup.seconds),
        skipped=warmup.skipped is not None,
        finished=finished,
        done=done,
        total=total,
        allocated_bytes=_bytes(warmup.allocated),
        init_seconds=value_of(warmup.init_seconds),
        sampler_seconds=warmup.sampler_seconds,
        defragmenter_seconds=warmup.defragmenter_seconds,
        phase_seconds=dict(warmup.phase_seconds),
        compile_only=warmup.compile_only,
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


def _finding(file: str, finding: Finding) -> FindingPart:
    return FindingPart(
        code=finding.code,
        name=finding.name,
        severity=finding.severity,
        title=finding.title,
        why=finding.why,
        cure=finding.cure,
        confidence=finding.origin,
        numbers=_plain(finding.numbers),
        figures=_figures(finding.figures),
        evidence=[_evidence(file, line) for line in dict.fromkeys(finding.lines)],
    )


def _figures(figures: Mapping[str, Estimate]) -> dict[str, FigurePart]:
    return {
        name: FigurePart(
            value=each.value, low=each.low, high=each.high, origin=each.origin
        )
        for name, each in figures.items()
    }


def _evidence(file: str, line: Line) -> Evidence:
    return Evidence(file=file, line=line.number, text=line.text.strip())


def _proposal(proposal: Proposal | None) -> ProposalPart | None:
    if proposal is None:
        return None
    return ProposalPart(
        env=dict(proposal.env),
        flags=list(proposal.flags),
        expected=dict(proposal.expected),
        margin=_plain(proposal.margin),
        proven=proposal.proven,
        why=proposal.why,
        kept=list(proposal.kept),
    )


def _plain(numbers: Mapping[str, float | str]) -> dict[str, float | int | str]:
    return dict(numbers)
