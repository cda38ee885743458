"""The page of ``hpuwatch predict``: the server as it runs, the proposal, the repair."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Sequence

from hpuwatch.app.predict import Prediction, Side
from hpuwatch.gaudi.basis import Lists
from hpuwatch.gaudi.buckets import DECODE, PROMPT
from hpuwatch.gaudi.estimate import Estimate
from hpuwatch.gaudi.memory import concurrency, tokens_of
from hpuwatch.gaudi.predict import Forecast
from hpuwatch.gaudi.warmuptime import total
from hpuwatch.parse.mask import mask
from hpuwatch.tune.report import align
from hpuwatch.units import counted, format_bytes

_WIDTH = 88
_SHOWN_MISSES = 3
_NONE = "-"


def text_page(told: Prediction) -> str:
    """Return the page for a terminal."""
    table = _table(told)
    lines = [_title(told), *_server(told), "", *align(table).splitlines(), ""]
    for line in _remarks(told):
        lines += textwrap.wrap(line, _WIDTH, subsequent_indent="  ")
    return "\n".join(lines).rstrip()


def markdown_page(told: Prediction) -> str:
    """Return the page as markdown."""
    head, *rows = _table(told)
    cells = [head, ["---"] * len(head), *rows]
    table = ["| " + " | ".join(row) + " |" for row in cells]
    remarks = [f"- {line}" for line in _remarks(told)]
    server = [each for line in _server(told) for each in ("", line)]
    return "\n".join([f"# {_title(told)}", *server, "", *table, "", *remarks]).rstrip()


def _title(told: Prediction) -> str:
    where = told.source or "without a log"
    simulated = " (SIMULATED: no figure was measured on a Gaudi)"
    return f"predict: {where}{simulated if told.simulated else ''}"


def _server(told: Prediction) -> list[str]:
    """Return what doesn't change from side to side: the model, and what a card holds."""
    lines = []
    if told.model is not None or told.card is not None:
        model, card = mask(told.model or "unknown"), told.card or "unknown"
        lines.append(f"model: {model}, card: {card}")
    device = told.basis.device
    if device is not None:
        weights = _figure(told.weights, format_bytes)
        free = _figure(device.free, format_bytes)
        lines.append(f"a card has weights: {weights}, free beside them: {free}")
    return lines


def _columns(told: Prediction) -> list[tuple[str, Side]]:
    sides = (("now", told.current), ("proposed", told.proposed))
    found = [(name, side) for name, side in sides if side is not None]
    if told.repaired is not None:
        found.append(("repaired", told.repaired))
    return found


def _table(told: Prediction) -> list[list[str]]:
    columns = _columns(told)
    before = told.current.forecast.lists if told.current else {}
    rows: list[tuple[str, Callable[[Side], str]]] = [
        ("release", lambda side: side.forecast.plan.release.name),
        ("cards (TP)", lambda side: _count(side.forecast.plan.tensor_parallel)),
        ("max_num_seqs", lambda side: _count(side.forecast.plan.flags.max_num_seqs)),
        ("max_model_len", lambda side: _count(side.forecast.plan.flags.max_model_len)),
        ("token budget", lambda side: _count(side.forecast.plan.tokens)),
        ("memory utilisation", lambda side: f"{side.forecast.plan.utilisation:g}"),
        ("strategy", _strategy),
        ("prompt buckets", lambda side: _buckets(side, before, PROMPT)),
        ("decode buckets", lambda side: _buckets(side, before, DECODE)),
        ("KV blocks", lambda side: _figure(side.forecast.blocks, _count)),
        ("KV tokens", _tokens),
        ("requests of full length at once", lambda side: _at_once(side.forecast)),
    ]
    if told.length_tokens is not None:
        length = told.length_tokens
        more = " or more" if told.length_from == "traffic" else ""
        label = f"requests of {length:,} tokens{more} at once"
        rows.append((label, lambda side: _at_length(side.forecast, length)))
    rows += [
        ("graph reserve", lambda side: _part(side.forecast, "reserve_bytes")),
        ("margin", lambda side: _part(side.forecast, "margin_bytes")),
        ("graphs", lambda side: _guess(side.forecast.graph_bytes, format_bytes)),
        *(
            [("KV scales", _scales)]
            if any(s.forecast.scale_bytes for _, s in columns)
            else []
        ),
        ("warm-up", lambda side: _guess(side.forecast.warmup, _seconds)),
        ("down-time, known part", lambda side: _away(side.forecast)),
    ]
    head = ["", *(name for name, _ in columns)]
    return [
        head,
        *([label, *(cell(side) for _, side in columns)] for label, cell in rows),
    ]


def _strategy(side: Side) -> str:
    prepared = side.forecast.prepared
    return prepared.settings.strategy if prepared else _NONE


def _buckets(side: Side, before: Lists, phase: str) -> str:
    found = side.forecast
    if found.broken is not None or not found.holds:
        return _NONE
    listed, old = set(found.lists.get(phase, ())), set(before.get(phase, ()))
    moved = ""
    if before and listed != old:
        moved = f"{len(listed - old):,} new, {len(old - listed):,} gone, "
    return f"{found.counts.get(phase, 0):,} ({moved}{found.lists_origin})"


def _figure(figure: Estimate | None, say: Callable[[float], str]) -> str:
    if figure is None:
        return _NONE
    low, value, high = (say(each) for each in (figure.low, figure.value, figure.high))
    between = f"{low} to {high}, " if low != high else ""
    return f"{value} ({between}{figure.origin})"


def _guess(figure: Estimate | None, say: Callable[[float], str]) -> str:
    """Say that a figure which other servers stand in for is not known."""
    if figure is None or figure.origin != "prior":
        return _figure(figure, say)
    return f"unknown (prior: {say(figure.low)} to {say(figure.high)})"


def _count(value: float) -> str:
    return f"{value:,.0f}"


def _seconds(value: float) -> str:
    return f"{value:,.0f} s"


def _tokens(side: Side) -> str:
    found = side.forecast
    return f"{tokens_of(found.num_blocks, found.plan.flags.block_size):,}"


def _at_once(found: Forecast) -> str:
    fit = concurrency(found.num_blocks, found.blocks_per_sequence)
    return f"{fit:,.1f} ({found.plan.flags.max_model_len:,} tokens each)"


def _at_length(found: Forecast, tokens: int) -> str:
    own = -(-tokens // found.plan.flags.block_size)
    return f"{concurrency(found.num_blocks, own):,.1f}"


def _part(found: Forecast, name: str) -> str:
    return _NONE if found.split is None else format_bytes(getattr(found.split, name))


def _scales(side: Side) -> str:
    return format_bytes(side.forecast.scale_bytes)


def _away(found: Forecast) -> str:
    known = total(found.away)
    return _guess(known, _seconds) if known.value else _NONE


def _remarks(told: Prediction) -> Iterator[str]:
    """Yield what is said below the table, a line each."""
    asked = told.asked
    if told.broke:
        yield f"The server of the log broke: {mask(told.broke)}; see hpuwatch suggest."
    yield from (f"REFUSED ({each.code}): {each.text}" for each in asked.refusals)
    if told.repairs is not None:
        changes = ", ".join(mask(str(change)) for change in told.repairs)
        yield f"The nearest plan that works: {changes}."
    elif told.cut is not None:
        yield (
            f"The search for a plan that works was cut: {told.cut}. Make the lists shorter "
            "(exponential strategy, greater steps, a smaller length) and ask again."
        )
    elif asked.refusals:
        yield "No setting that hpuwatch knows makes this plan work."
    shown = told.repaired or asked
    whose = ", repaired plan" if told.repaired else ""
    yield from (
        f"{each.severity} ({each.code}{whose}): {each.text}" for each in shown.cautions
    )
    yield from _misses(shown)
    if told.warmup_use is not None:
        most, kept = told.warmup_use.peak_bytes, told.warmup_use.steady_bytes
        yield (
            f"Warm-up of the running server took up to {format_bytes(most)} beside the KV "
            f"cache and kept {format_bytes(kept)}."
        )
    unknown = [part for part in shown.forecast.away if part.seconds is None]
    if unknown:
        parts = "; ".join(f"{part.name}: {part.why}" for part in unknown)
        yield f"Not in the down-time: {parts}."
    figures = (shown.forecast.graph_bytes, shown.forecast.warmup)
    if any(figure is not None and figure.origin == "prior" for figure in figures):
        yield (
            "Unknown before a first log of its warm-up: figures of other servers stand in "
            "(prior)."
        )
    yield from _of_the_logs(told)


def _of_the_logs(told: Prediction) -> Iterator[str]:
    if told.passed_over:
        yield (
            f"{counted(told.passed_over, 'start')} of the logs had another model, card or "
            "number of cards: nothing was learned from that."
        )
    if told.assumed:
        yield f"The log doesn't print {', '.join(told.assumed)}: taken at the default."


def _misses(side: Side) -> Iterator[str]:
    if not side.misses:
        return
    listed: Sequence[str] = [
        f"{phase} {tuple(shape)}" for phase, shape in side.misses[:_SHOWN_MISSES]
    ]
    yield (
        f"Of the shapes that traffic asked for in vain, {len(side.misses):,} still have no "
        f"bucket: {', '.join(listed)}."
    )
