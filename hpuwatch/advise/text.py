"""A report for people: text for a terminal, markdown for a ticket, an env file for a server.

All three are drawn from the document alone, so whatever a person reads stands in the JSON
too.  What to do and why comes first, then the ledger, the warm-up, the findings with the
lines that they rest on.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from hpuwatch.advise.document import (
    Evidence,
    FindingPart,
    ProposalPart,
    Report,
    ServerPart,
    StartReport,
    TrafficPart,
)
from hpuwatch.advise.envheader import EnvHeader
from hpuwatch.gaudi.planning import RESERVE
from hpuwatch.units import counted, format_bytes, parse_amount

_TAG = re.compile(r"<[^<>\s`]+>")

SIMULATED = "SIMULATED: none of these figures was measured on a Gaudi."

Emphasis = Callable[[str], str]

_LEDGER = (
    ("total", "card"),
    ("weights", "weights"),
    ("profile_run", "profile run"),
    ("free", "free after both"),
    ("usable", "usable"),
    ("reserve", "graph reserve"),
    ("dummy_block", "dummy block"),
    ("kv_cache", "KV cache"),
)
_BRIDGE_MODES = {
    "eager": "torch.compile (PT_HPU_LAZY_MODE=0)",
    "lazy": "lazy mode (PT_HPU_LAZY_MODE=1)",
}
_BLOCK_SIZE_FROM = {
    "derived": " (derived from the bucket ranges)",
    "assumed": " (assumed: usual on HPU)",
}
_DIGITS = 4
_LONGEST_QUOTE = 300
"""Characters of a quoted log line; the document has all of it."""
_PHASES = ("prompt", "decode", "multimodal")


def render_text(
    report: Report, *, width: int | None = None, emphasis: Emphasis = str
) -> str:
    """Return the report for a terminal.

    Args:
        report: the document.
        width: shorten quoted log lines to this many columns; None never shortens.
        emphasis: makes a headline stand out.
    """
    blocks = ["\n".join(_start_lines(each, width, emphasis)) for each in report.reports]
    return "\n\n".join(blocks) + "\n"


def render_markdown(report: Report) -> str:
    """Return the report as markdown."""
    return "\n\n".join(_markdown(each) for each in report.reports) + "\n"


def render_env(report: Report) -> str:
    """Return the proposals as ``KEY=VALUE`` lines with comments, or comments only."""
    lines: list[str] = []
    for each in report.reports:
        lines += [f"# {_name(each.source.file)}: {one_line(each.headline.why)}"]
        if each.origin == "simulated":
            lines.append(f"# {SIMULATED}")
        proposal = each.proposal
        if proposal is None:
            lines.append(f"# {one_line(each.headline.do)}")
            continue
        lines += _env_header(each.server).lines()
        lines += [f"# {line}" for line in _proposal_lines(proposal)]
        if proposal.flags:
            lines.append(f"# flags: {' '.join(proposal.flags)}")
        lines += [f"{name}={value}" for name, value in proposal.env.items()]
    return "\n".join(lines) + "\n"


def _env_header(server: ServerPart) -> EnvHeader:
    return EnvHeader(
        release=server.release,
        card=server.card,
        model=server.model,
        tp=None if server.tp is None else str(server.tp),
    )


def one_line(text: str) -> str:
    """Return the text without line ends, for comments."""
    return " ".join(text.split())


def _start_lines(
    each: StartReport, width: int | None, emphasis: Emphasis
) -> Iterator[str]:
    yield from _heading(each)
    yield ""
    yield emphasis(each.headline.do)
    yield f"  {each.headline.why}"
    if each.proposal is not None:
        yield from (f"  {line}" for line in _proposal_lines(each.proposal))
    ledger = _ledger(each)
    if ledger:
        yield ""
        yield _ledger_title(each)
        name_width = max(len(name) for name, _, _ in ledger)
        for name, amount, note in ledger:
            yield f"  {name:<{name_width}}  {amount:>12}  {note}".rstrip()
    yield ""
    yield from _warmup_lines(each)
    yield from _load_lines(each)
    yield ""
    yield "Findings"
    for finding in each.findings:
        yield from _finding_lines(
            finding, width, told=each.headline.why.startswith(finding.title)
        )
    if not each.findings:
        yield "  none"


def _name(file: str) -> str:
    return "standard input" if file == "-" else file


def _heading(each: StartReport) -> Iterator[str]:
    yield f"{_name(each.source.file)}: {_server(each)}"
    if each.origin == "simulated":
        yield SIMULATED
    if broken := each.source.broken_events:
        yield (
            f"{counted(broken, 'event')} of this log could not be taken in: that is a "
            "fault of hpuwatch, please report it"
        )
    if each.earlier and (gone := each.earlier[0].source.start - 1):
        starts = counted(gone, "earlier start")
        yield f"{starts} in this log were read, but are not kept"
    for earlier in each.earlier:
        yield (
            f"earlier start {earlier.source.start} in this log ended "
            f"{earlier.server.phase}: {_first_title(earlier)}"
        )


def _first_title(each: StartReport) -> str:
    return each.findings[0].title if each.findings else "nothing to say"


def _server(each: StartReport) -> str:
    server = each.server
    release = server.release
    if release and server.assumed_like:
        release += f", assumed like {server.assumed_like}"
    version = f"vLLM {server.version}" if server.version else "vLLM of unknown version"
    cards = f"{server.tp} x " if server.tp and server.tp > 1 else ""
    parts = [
        server.model or "unknown model",
        f"on {cards}{server.card}" if server.card else "on an unknown card",
        f"{version} ({release})" if release else version,
        f"engine {server.engine}" if server.engine else "",
        _BRIDGE_MODES.get(server.bridge_mode or "", server.bridge_mode or ""),
        f"last seen {server.phase}",
    ]
    return ", ".join(part for part in parts if part)


def _proposal_lines(proposal: ProposalPart) -> Iterator[str]:
    won = proposal.expected.get("kv_blocks_won")
    if won is None or won < 0:
        yield proposal.why
    if won is not None:
        expected = proposal.expected
        verb = "wins" if won > 0 else "costs"
        share = abs(expected["kv_blocks_won_percent"])
        yield (
            f"This step {verb} {abs(won):,.0f} KV blocks ({share:g} %), "
            f"{abs(expected['kv_tokens_won']):,.0f} tokens: then "
            f"{expected['kv_blocks']:,.0f} blocks in "
            f"{format_bytes(expected['kv_cache_bytes'])} of KV cache and "
            f"{format_bytes(expected['reserve_bytes'])} for graphs."
        )
    yield from proposal.kept
    if won is not None and won > 0 and not proposal.proven:
        yield "Never more than half of what lies idle is taken in one step."


def _ledger_title(each: StartReport) -> str:
    memory = each.memory
    if memory.ranks > 1:
        return (
            f"Memory of one card (rank {memory.rank}, the tightest of {memory.ranks})"
        )
    return "Memory of the card"


def _ledger(each: StartReport) -> list[tuple[str, str, str]]:
    memory, kv = each.memory, each.kv
    notes = {
        "profile_run": _seconds(memory.profile_seconds),
        "usable": _setting("gpu_memory_utilization", memory.utilisation),
        "reserve": _setting(RESERVE, memory.reserve_ratio),
    }
    rows = [
        (words, _rounded(memory.printed[name]), notes.get(name, ""))
        for name, words in _LEDGER
        if name in memory.printed
    ]
    if kv.blocks is not None:
        known = _BLOCK_SIZE_FROM.get(kv.block_size_from or "", "")
        tokens = f" = {kv.tokens:,} tokens" if kv.tokens is not None else ""
        note = f"of {kv.block_size} tokens{known}{tokens}"
        rows.append(("KV blocks", f"{kv.blocks:,}", note))
    elif kv.tokens is not None:
        rows.append(("KV tokens", f"{kv.tokens:,}", ""))
    return rows


def _seconds(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds:g} s"


def _setting(name: str, value: float | None) -> str:
    return "" if value is None else f"{name}={value:g}"


def _warmup_lines(each: StartReport) -> Iterator[str]:
    warmup, buckets = each.warmup, each.buckets
    counts = {"prompt": buckets.prompt, "decode": buckets.decode}
    listed = [
        f"{count:,} {phase}" for phase, count in counts.items() if count is not None
    ]
    of = f" of {' and '.join(listed)} buckets" if listed else ""
    if buckets.multimodal is not None:
        # Each image size is warmed in several batches, so these are no buckets.
        images = f"{buckets.multimodal:,} multimodal steps"
        of = f"{of}, {images}" if of else f" of {images}"
    if warmup.skipped:
        yield f"Warm-up{of}: skipped"
    elif warmup.finished:
        yield f"Warm-up{of}: finished in {warmup.seconds:g} s"
    elif warmup.total:
        yield f"Warm-up{of}: not finished ({warmup.done:,} of {warmup.total:,} done)"
    else:
        yield f"Warm-up{of}: not reached"
    steps = {
        **{phase: warmup.phase_seconds.get(phase) for phase in _PHASES},
        "sampler": warmup.sampler_seconds,
        "defragmenter": warmup.defragmenter_seconds,
        "engine in all": warmup.init_seconds,
    }
    took = [f"{name} {seconds:g} s" for name, seconds in steps.items() if seconds]
    if took:
        yield f"  took: {', '.join(took)}"
    used = [
        f"{name.removesuffix('_used_bytes')} {_rounded(printed)}"
        for name, printed in each.graphs.printed.items()
    ]
    if warmup.allocated_bytes is not None:
        used.append(f"all of warm-up {format_bytes(warmup.allocated_bytes)}")
    if used:
        yield f"  graphs really used: {', '.join(used)}"


def _load_lines(each: StartReport) -> Iterator[str]:
    traffic = each.traffic
    if not traffic.busy_lines:
        yield "Load: none in this log"
        return
    peaks = [
        f"{traffic.running_peak:,} running" if traffic.running_peak else "",
        f"{traffic.waiting_peak:,} waiting" if traffic.waiting_peak else "",
        f"KV use {traffic.kv_use_peak_percent:g} %"
        if traffic.kv_use_peak_percent is not None
        else "",
        _rate(traffic),
    ]
    short = (
        ""
        if traffic.running_peak
        else "requests too short to be seen running in a periodic line; "
    )
    yield (
        f"Load: {short}at most {', '.join(peak for peak in peaks if peak)}; "
        f"{_preemptions(traffic)}"
    )


def _rate(traffic: TrafficPart) -> str:
    rate = traffic.generation_tokens_per_second_peak
    return "" if rate is None else f"{rate:,.0f} generated tokens/s"


def _preemptions(traffic: TrafficPart) -> str:
    if traffic.preemptions or traffic.preemptions_printed:
        return f"{traffic.preemptions:,} preemptions"
    return "no preemptions reported"


def _rounded(printed: str) -> str:
    """Print an amount of the log with no more digits than all others here."""
    digits = printed.partition(" ")[0].replace(".", "").lstrip("-0")
    if len(digits) <= _DIGITS:
        return printed
    return format_bytes(parse_amount(printed).bytes)


def _finding_lines(
    finding: FindingPart, width: int | None, *, told: bool
) -> Iterator[str]:
    """Print a finding; the one that the headline told keeps its lines only."""
    yield f"  [{finding.severity}] {finding.code} {finding.name}: {finding.title}"
    if not told:
        yield f"      {finding.why}"
        if finding.cure:
            yield f"      > {finding.cure}"
    for line in finding.evidence:
        quoted = f"      {_quote(line)}"
        yield (
            quoted
            if width is None or len(quoted) <= width
            else quoted[: width - 1] + "…"
        )


def _quote(line: Evidence) -> str:
    """Quote a log line, cut where it would flood the report."""
    place = f":{line.line}" if line.line else ""  # 0: of another log's end
    where, text = f"{_name(line.file)}{place}: ", line.text
    more = len(text) - _LONGEST_QUOTE
    if more > 0:
        text = f"{text[:_LONGEST_QUOTE]}… ({more:,} more characters)"
    return where + text


def _visible(text: str) -> str:
    """Keep ``<path>`` and the like from vanishing as an HTML tag."""
    return _TAG.sub(r"`\g<0>`", text)


def _markdown(each: StartReport) -> str:
    heading = [_visible(line) for line in _heading(each)]
    lines = [f"## {heading[0]}", *heading[1:], "", f"**{_visible(each.headline.do)}**"]
    lines += ["", _visible(each.headline.why)]
    if each.proposal is not None:
        settings = [f"{name}={value}" for name, value in each.proposal.env.items()]
        settings += [" ".join(each.proposal.flags)] if each.proposal.flags else []
        lines += ["", "```", *settings, "```", "", *_proposal_lines(each.proposal)]
    ledger = _ledger(each)
    if ledger:
        lines += ["", _ledger_title(each), "", "| | | |", "|---|---:|---|"]
        lines += [f"| {name} | {amount} | {note} |" for name, amount, note in ledger]
    lines += ["", *(f"- {line.strip()}" for line in _warmup_lines(each))]
    lines += [f"- {line}" for line in _load_lines(each)]
    for finding in each.findings:
        title = _visible(finding.title)
        lines += [
            "",
            f"### `{finding.code}` {finding.name} ({finding.severity}): {title}",
            "",
        ]
        lines.append(_visible(f"{finding.why} {finding.cure}".strip()))
        lines += _quoted(finding)
    return "\n".join(lines)


def _quoted(finding: FindingPart) -> list[str]:
    if not finding.evidence:
        return []
    quoted = [_quote(line) for line in finding.evidence]
    return ["", "```text", *quoted, "```"]
