"""The status page: one look says what the server does, how long it will, and what is wrong.

It is plain HTML that loads nothing and runs nothing, so it works behind any proxy and
leaks nothing.  Everything that came out of a log is escaped here, at the one place where
text becomes HTML.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timezone
from html import escape

from hpuwatch import __version__
from hpuwatch.advise.ledger import Piece
from hpuwatch.advise.report import model_name as public_name
from hpuwatch.life.phases import Phase
from hpuwatch.metrics.readings import model_name, warmed
from hpuwatch.state.model import (
    MULTIMODAL,
    Fault,
    Known,
    Memory,
    Miss,
    Server,
    Start,
    Traffic,
)
from hpuwatch.state.snapshot import Ended, Left, Snapshot
from hpuwatch.units import Amount, format_bytes
from hpuwatch.web.ledger import pieces
from hpuwatch.web.style import STYLE

REFRESH_SECONDS = 5

_MOST_ROWS = 20
_MOST_RANKS = 16
_LONGEST_TEXT = 400
_NOTHING = "&ndash;"

_BAD = frozenset({Phase.FAILED, Phase.HALTED, Phase.DEGRADED, Phase.BACKING_OFF})


def status_page(snapshot: Snapshot) -> str:
    """Return the whole page."""
    title = f"{snapshot.name}: {_words(snapshot.phase)}"
    body = "\n".join(_body(snapshot))
    return f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="refresh" content="{REFRESH_SECONDS}">
<title>hpuwatch &ndash; {escape(title)}</title><style>{STYLE}</style></head>
<body>
{body}
</body></html>
"""


def _body(snapshot: Snapshot) -> Iterator[str]:
    start = snapshot.state.current
    yield f"<h1>{escape(snapshot.name)}</h1>"
    if start and start.server.simulated:
        yield (
            '<p class="simulated">Simulated: this server is simulated, none of its figures'
            " was measured on a Gaudi.</p>"
        )
    if snapshot.replayed:
        yield (
            '<p class="simulated">Replay: a recorded log is played again, this is no server'
            " of now. Times are the log's; one that names no zone is shown as UTC.</p>"
        )
    mood = _mood(snapshot.phase)
    yield f'<p><span class="phase {mood}">{_words(snapshot.phase)}</span></p>'
    if snapshot.reason:
        yield f"<p>{_text(snapshot.reason)}</p>"
    if snapshot.ended and not snapshot.ended.asked:
        yield f'<p class="soft">{_before(snapshot.ended)}</p>'
    if start:
        yield f'<p class="soft">{_identity(start.server)}</p>'
        yield from _warmup(start, snapshot)
        yield from _load(start.traffic)
        yield from _memory(start)
        yield from _buckets(start)
    else:
        yield '<p class="soft">The server has not printed anything yet.</p>'
    starts = snapshot.state.starts
    yield from _misses([miss for each in starts for miss in each.misses if miss.count])
    yield from _faults([fault for each in starts for fault in each.faults])
    if gone := snapshot.state.past.starts:
        yield (
            f'<p class="soft">Misses and faults of the first {gone:,} starts are only '
            "counted, in the metrics.</p>"
        )
    yield _footer(snapshot)


def _warmup(start: Start, snapshot: Snapshot) -> Iterator[str]:
    yield "<h2>Warm-up</h2>"
    warmup = start.warmup
    if warmup.skipped is not None and warmup.skipped.value:
        yield "<p>Skipped: graphs are compiled while users wait.</p>"
        return
    counts = warmed(start)
    done = sum(count for count, _ in counts.values())
    planned = sum(count for _, count in counts.values())
    if not planned:
        yield '<p class="soft">Not begun.</p>'
        return
    share = min(100.0, 100 * done / planned)
    yield (
        f'<div class="bar" role="progressbar" aria-label="warm-up" aria-valuemin="0" aria-valuemax="100"'
        f' aria-valuenow="{share:.0f}"><i class="done" style="width:{share:.2f}%"></i></div>'
    )
    yield f"<p>{done} of {planned} buckets ({share:.0f} %)</p>"
    if warmup.seconds is not None:
        yield f"<p>Finished in {_duration(warmup.seconds.value)}.</p>"
    elif snapshot.phase is Phase.WARMING:
        yield f"<p>{_left(snapshot.left)}</p>"


def _before(ended: Ended) -> str:
    code = "" if ended.code is None else f" with code {ended.code}"
    phase = f" while {_text(ended.phase.replace('_', ' '))}" if ended.phase else ""
    return (
        f"The server before this one ended unasked{code}{phase}, {_moment(ended.at)}."
    )


def _load(traffic: Traffic) -> Iterator[str]:
    """Tell the peaks of the engine's periodic lines; what it does now is vLLM's to tell."""
    counts = {
        "requests running": traffic.running_peak,
        "requests waiting": traffic.waiting_peak,
    }
    speeds = {
        "prompt tokens/s": traffic.prompt_tokens_per_second_peak,
        "generated tokens/s": traffic.generation_tokens_per_second_peak,
    }
    rows = [(title, f"{known.value:,}") for title, known in counts.items() if known]
    if traffic.kv_use_peak:
        rows.append(("KV cache in use", f"{100 * traffic.kv_use_peak.value:.1f} %"))
    rows += [(title, f"{known.value:,.1f}") for title, known in speeds.items() if known]
    if traffic.preemptions:
        rows.append(("preemptions, all in all", f"{traffic.preemptions:,}"))
    if rows:
        yield "<h2>Load</h2>"
        yield _table(("of this start", "peak"), rows, numbers_from=1)


def _left(left: Left) -> str:
    if left.value is None:
        return f"Time left unknown: {_text(left.reason)}"
    span = ""
    if left.low is not None and left.high is not None:
        span = f" ({_duration(left.low)} to {_duration(left.high)})"
    basis = f", by {_text(left.basis)}" if left.basis else ""
    return f"About {_duration(left.value)} left{span}{basis}."


def _memory(start: Start) -> Iterator[str]:
    if not start.memory:
        return
    yield "<h2>Device memory</h2>"
    ranks = sorted(start.memory)[:_MOST_RANKS]
    for rank in ranks:
        # The log tells one rank's use of graphs; the first one stands for it.
        used = _graphs_used(start) if rank == ranks[0] else None
        parts = pieces(start.memory[rank], used)
        if len(ranks) > 1:
            yield f'<p class="soft">Rank {rank}</p>'
        yield _stack(parts)
        if rank == ranks[0]:
            yield _legend(parts)
            yield from _memory_notes(start, start.memory[rank])


def _graphs_used(start: Start) -> int | None:
    if not start.graphs_used:
        return None
    return sum(used.value.bytes for used in start.graphs_used.values())


def _stack(parts: Sequence[Piece]) -> str:
    whole = sum(part.bytes for part in parts) or 1
    cells = "".join(
        f'<i class="{part.key}" style="width:{100 * part.bytes / whole:.3f}%"'
        f' title="{part.title}: {format_bytes(part.bytes)}"></i>'
        for part in parts
    )
    names = ", ".join(f"{part.title} {format_bytes(part.bytes)}" for part in parts)
    return f'<div class="bar ledger" role="img" aria-label="{names}">{cells}</div>'


def _legend(parts: Sequence[Piece]) -> str:
    whole = sum(part.bytes for part in parts) or 1
    rows = (
        (
            f'<span class="swatch {part.key}"></span>{part.title}',
            format_bytes(part.bytes),
            f"{100 * part.bytes / whole:.1f} %",
        )
        for part in parts
    )
    return _table(("part", "size", "of the card"), rows, numbers_from=1)


def _memory_notes(start: Start, memory: Memory) -> Iterator[str]:
    notes = [
        _note("total", memory.total),
        _note("free after the profile run", memory.free),
        _note("usable", memory.usable),
        _note("graph reserve", memory.reserve),
    ]
    if start.kv.blocks:
        notes.append(f"KV cache {start.kv.blocks.value:,} blocks")
    if start.kv.tokens:
        notes.append(f"{start.kv.tokens.value:,} tokens")
    told = ", ".join(note for note in notes if note)
    if told:
        yield f'<p class="soft">As printed: {told}.</p>'


def _note(title: str, known: Known[Amount] | None) -> str:
    return f"{title} {escape(known.value.printed)}" if known else ""


def _buckets(start: Start) -> Iterator[str]:
    counts = warmed(start)
    phases = dict.fromkeys((*start.buckets, *counts, *start.graphs_used))
    if not phases:
        return
    rows = []
    for phase in phases:
        listed = start.buckets.get(phase)
        done, planned = counts.get(phase, (None, None))
        used = start.graphs_used.get(phase)
        # Images are listed by their number of patches, and warmed up by resolution.
        sizes, steps = (" sizes", " steps") if phase == MULTIMODAL else ("", "")
        rows.append(
            (
                _text(phase),
                f"{listed.value.count}{sizes}" if listed else _NOTHING,
                f"{done} of {planned}{steps}" if planned is not None else _NOTHING,
                escape(used.value.printed) if used else _NOTHING,
            )
        )
    yield "<h2>Buckets</h2>"
    yield _table(
        ("phase", "generated", "warmed up", "graphs took"), rows, numbers_from=1
    )


def _misses(misses: Sequence[Miss]) -> Iterator[str]:
    yield "<h2>Bucket misses</h2>"
    if not misses:
        yield '<p class="soft">None.</p>'
        return
    often = sorted(misses, key=lambda miss: -miss.count)
    rows = (
        (
            _text(miss.phase),
            _text(miss.reason.replace("_", " ")),
            _text(str(miss.shape)),
            f"{miss.count:,}",
        )
        for miss in often[:_MOST_ROWS]
    )
    yield _table(("phase", "reason", "shape", "count"), rows, numbers_from=3)
    yield _more(len(misses))


def _faults(faults: Sequence[Fault]) -> Iterator[str]:
    yield "<h2>Faults</h2>"
    if not faults:
        yield '<p class="soft">None.</p>'
        return
    newest = faults[::-1]
    causes = [fault for fault in newest if fault.root]
    consequences = [fault for fault in newest if not fault.root]
    rows = (
        (
            _text(fault.name),
            _text(fault.severity if fault.root else "consequence"),
            _text(fault.at or _words(fault.phase)),
            _text(fault.line.text),
        )
        for fault in (causes + consequences)[:_MOST_ROWS]
    )
    yield _table(("class", "severity", "when", "line"), rows, numbers_from=4)
    yield _more(len(faults))


def _footer(snapshot: Snapshot) -> str:
    parts = [
        f"{snapshot.lines:,} log lines read",
        f"{snapshot.unparsed_lines:,} not understood",
        f"restarts: {snapshot.restarts:,}",
    ]
    if snapshot.watcher_starts > 1:
        parts.append(f"watchers that died: {snapshot.watcher_starts - 1:,}")
    if snapshot.log_dropped_bytes:
        parts.append(f"{format_bytes(snapshot.log_dropped_bytes)} never read")
    if snapshot.echo_dropped_bytes:
        parts.append(f"{format_bytes(snapshot.echo_dropped_bytes)} not passed through")
    return (
        f"<footer><p>{' · '.join(parts)}</p><p>hpuwatch {__version__}, as of"
        f" {_moment(snapshot.now)}, refreshed every {REFRESH_SECONDS} seconds ·"
        ' <a href="/metrics">metrics</a> · <a href="/readyz">readyz</a></p></footer>'
    )


def _table(
    head: Sequence[str], rows: Iterable[Sequence[str]], *, numbers_from: int
) -> str:
    """Return a table of cells that are HTML already; columns from there on are numbers."""

    def kind(column: int) -> str:
        return "n" if column >= numbers_from else "text"

    top = "".join(
        f'<th class="{kind(column)}">{title}</th>' for column, title in enumerate(head)
    )
    lines = "".join(
        "<tr>"
        + "".join(
            f'<td class="{kind(column)}">{cell}</td>' for column, cell in enumerate(row)
        )
        + "</tr>\n"
        for row in rows
    )
    return f'<div class="scroll"><table><tr>{top}</tr>\n{lines}</table></div>'


def _more(count: int) -> str:
    hidden = count - _MOST_ROWS
    return f'<p class="soft">and {hidden:,} more</p>' if hidden > 0 else ""


def _identity(server: Server) -> str:
    known = {
        "": public_name(model_name(server)),
        "vLLM": server.version.value if server.version else "",
        "Gaudi software": server.build.value if server.build else "",
        "card": server.card.value if server.card else "",
        "TP": str(server.tensor_parallel.value) if server.tensor_parallel else "",
        "bridge": server.bridge_mode.value if server.bridge_mode else "",
    }
    told = (f"{title} {_text(text)}".strip() for title, text in known.items() if text)
    return " · ".join(told)


def _mood(phase: Phase) -> str:
    if phase is Phase.READY:
        return "good"
    return "bad" if phase in _BAD else "busy"


def _words(phase: Phase) -> str:
    return phase.value.replace("_", " ")


def _text(text: str) -> str:
    short = text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}…"
    return escape(short)


def _moment(at: float) -> str:
    return f"{datetime.fromtimestamp(at, tz=timezone.utc):%Y-%m-%d %H:%M:%S} UTC"


def _duration(seconds: float) -> str:
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
