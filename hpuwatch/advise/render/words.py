"""What text and markdown of a report have in common, drawn from the document alone.

Rows and sentences only; how they are laid out is the business of ``advise.text``.
"""

from __future__ import annotations

from collections.abc import Iterator

from hpuwatch.advise.document import (
    Evidence,
    LeftPart,
    ProposalPart,
    StartReport,
    TrafficPart,
)
from hpuwatch.advise.render.escaping import printable
from hpuwatch.gaudi.planning import RESERVE
from hpuwatch.units import counted, format_bytes, parse_amount

SIMULATED = "SIMULATED: none of these figures was measured on a Gaudi."
PREDICTED = (
    "PREDICTED: there is no log yet; these figures stand on the model's shape and on other "
    "people's servers."
)

BUCKET_FILE = (
    "The bucket file has to be there first: --format docker, compose and helm bring its "
    "text, and so does the JSON."
)

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


def name_of(file: str) -> str:
    """Return what a file is called for people, on one line."""
    return "standard input" if file == "-" else printable(file)


def heading(each: StartReport) -> Iterator[str]:
    """Tell whose report it is, and on what its figures stand."""
    yield f"{name_of(each.source.file)}: {_server(each)}"
    if each.origin == "predicted":
        yield PREDICTED
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


def left_rows(each: StartReport) -> list[tuple[str, str]]:
    """Return what is left as it is, and why."""
    return [
        (
            _named(left),
            left.why.removesuffix("."),
        )
        for left in each.left
    ]


def _named(left: LeftPart) -> str:
    """Return a setting as it is typed; what is none, with what it is in brackets."""
    if left.value is None:
        return left.name
    is_setting = not left.name.isalpha()
    return f"{left.name} {left.value}" if is_setting else f"{left.name} ({left.value})"


def trial_lines(each: StartReport) -> Iterator[str]:
    """Tell a study's trials, a line each; none without a study."""
    if not each.trials:
        return
    yield ""
    yield "Trials"
    for trial in each.trials:
        typed = " ".join(f"{name}={value}" for name, value in trial.settings.items())
        rate = trial.tokens_per_second
        measured = f", {rate:,.1f} output tokens/s" if rate is not None else ""
        if rate is not None and trial.plus_minus is not None:
            measured += f" ± {trial.plus_minus:,.1f}"
        blocks = trial.kv_blocks
        held = f", {blocks:,} KV blocks" if blocks is not None else ""
        cause = f": {trial.cause}" if trial.cause else ""
        yield (
            f"  {trial.number}  {typed or 'the original'}: {trial.outcome}"
            f"{measured}{held}{cause}"
        )


def _first_title(each: StartReport) -> str:
    return each.findings[0].title if each.findings else "nothing to say"


def _server(each: StartReport) -> str:
    server = each.server
    release = server.release
    if release and server.assumed_like:
        release += f", taken to behave like {server.assumed_like}"
    unknown = "vLLM" if each.origin == "predicted" else "vLLM of unknown version"
    version = f"vLLM {server.version}" if server.version else unknown
    cards = f"{server.tp} x " if server.tp and server.tp > 1 else ""
    parts = [
        server.model or "unknown model",
        f"on {cards}{server.card}" if server.card else "on an unknown card",
        f"{version} ({release})" if release else version,
        f"engine {server.engine}" if server.engine else "",
        _BRIDGE_MODES.get(server.bridge_mode or "", server.bridge_mode or ""),
        f"last seen {server.phase}" if each.source.start else server.phase,
    ]
    return ", ".join(part for part in parts if part)


def proposal_lines(proposal: ProposalPart) -> Iterator[str]:
    """Say what the proposal brings and what it keeps."""
    won = proposal.expected.get("kv_blocks_won")
    if proposal.why and (won is None or won < 0):
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
            f"{format_bytes(expected['reserve_bytes'])} for graphs.{_half(proposal, won)}"
        )
    yield from proposal.kept
    if proposal.bucket_file is not None:
        yield BUCKET_FILE


def _half(proposal: ProposalPart, won: float) -> str:
    if won <= 0 or proposal.proven or "kept_idle_bytes" not in proposal.margin:
        return ""
    return " No step takes more than half of what lies idle."


def ledger_title(each: StartReport) -> str:
    """Say of which card the ledger is."""
    memory = each.memory
    if memory.ranks > 1:
        return (
            f"Memory of one card (rank {memory.rank}, the tightest of {memory.ranks})"
        )
    return "Memory of the card"


def ledger(each: StartReport) -> list[tuple[str, str, str]]:
    """Return the memory of the card: its part, the amount, a note."""
    memory, kv = each.memory, each.kv
    notes = {
        "profile_run": _seconds(memory.profile_seconds),
        "usable": _setting("gpu_memory_utilization", memory.utilisation),
        "reserve": _setting(RESERVE, memory.reserve_ratio),
    }
    rows = [
        (words, _amount(each, memory.printed[name]), notes.get(name, ""))
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


def _amount(each: StartReport, printed: str) -> str:
    """Return an amount as it is shown; a card that is too small has nothing free."""
    if each.origin == "predicted" and printed.startswith("-"):
        return "none"
    return _rounded(printed)


def _seconds(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds:g} s"


def _setting(name: str, value: float | None) -> str:
    return "" if value is None else f"{name}={value:g}"


def warmup_lines(each: StartReport) -> Iterator[str]:
    """Tell how warm-up went and what it took."""
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
        by_phase = warmup.phase_done or {f"of {warmup.total:,}": warmup.done}
        done = ", ".join(f"{count:,} {phase}" for phase, count in by_phase.items())
        yield f"Warm-up{of}: not finished ({done} done)"
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


def load_lines(each: StartReport) -> Iterator[str]:
    """Tell what load the log shows."""
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
    short = "" if traffic.running_peak else "a few short requests only; "
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


def quoted_line(line: Evidence) -> str:
    """Quote a log line, cut where it would flood the report."""
    place = f":{line.line}" if line.line else ""  # 0: of another log's end
    where, text = f"{name_of(line.file)}{place}: ", line.text
    more = len(text) - _LONGEST_QUOTE
    if more > 0:
        text = f"{text[:_LONGEST_QUOTE]}… ({more:,} more characters)"
    return where + text
