"""What a proposal brings and what it costs: figures with intervals, and the way back."""

from __future__ import annotations

from collections.abc import Iterator

from hpuwatch.advise.document import FigurePart, ProposalPart, StartReport
from hpuwatch.advise.page.glossary import Prose
from hpuwatch.advise.page.markup import Markup, element, joined
from hpuwatch.advise.page.parts import copyable, heading, setting_name, table
from hpuwatch.advise.page.quantities import (
    NAMES,
    ORIGINS,
    duration,
    interval,
    name_of,
    told,
)
from hpuwatch.gaudi.planning import RESERVE

_HEAD = ("figure", "now", "expected", "likely between", "how it is known")
_FIRST_HEAD = ("figure", "expected", "likely between", "how it is known")
_PLACES = {name: place for place, name in enumerate(NAMES)}
"""The order in which figures are shown."""
_UNKNOWN = "\N{EN DASH}"
_UNPROVEN = (
    "Not proven under load: a log of a start shows what the warm-up took, not what real "
    "requests will need. Run real load, then run hpuwatch suggest again."
)
_RESTART = (
    "One restart: the server answers nothing from the moment it stops until it is ready "
    "again."
)
_BACK = "To go back, if the server then dies or becomes slower"
_TIMES = {
    "ready_seconds": "From its start to ready it",
    "warmup_seconds": "The warm-up",
}

Row = tuple[str, ...]


def what_it_brings(report: StartReport, prose: Prose, anchor: str) -> Markup:
    """Return what is expected, with intervals, beside what is now."""
    parts = [heading(3, "What it will bring", f"{anchor}-brings")]
    proposal = report.proposal
    if proposal is None:
        nothing = "No setting is proposed, so no figure is expected to change."
        return element("section", *parts, element("p", nothing))
    if report.origin == "predicted":
        rows = [(row[0], *row[2:]) for _, row in _expected(report, proposal)]
        return element("section", *parts, table(_FIRST_HEAD, rows))
    expected = _expected(report, proposal)
    changed = [row for changes, row in expected if changes]
    others = [row for changes, row in expected if not changes]
    if changed:
        parts.append(table(_HEAD, changed))
    else:
        same = "No figure that this log prints is expected to change."
        parts.append(element("p", same))
    if others:
        summary = element("summary", "Further figures, as they are expected then")
        parts.append(element("details", summary, table(_HEAD, others)))
    if not proposal.proven:
        parts.append(prose.paragraph(_UNPROVEN))
    return element("section", *parts)


def _expected(report: StartReport, proposal: ProposalPart) -> list[tuple[bool, Row]]:
    """Return the figures that are expected, and whether each differs from what is now.

    What is won follows from the others, so it has no row of its own.
    """
    now = _now(report)
    names = [n for n in {**proposal.expected, **proposal.figures} if "_won" not in n]
    rows: list[tuple[bool, Row]] = []
    for name in sorted(names, key=lambda name: _PLACES.get(name, len(_PLACES))):
        figure, before = proposal.figures.get(name), now.get(name)
        value = proposal.expected[name] if figure is None else figure.value
        row = (
            name_of(name),
            _UNKNOWN if before is None else told(name, before),
            _with_change(name, value, before),
            interval(name, figure.low, figure.high) if figure else "not told",
            ORIGINS[figure.origin] if figure else "worked out from the log",
        )
        differs = before is not None and told(name, before) != told(name, value)
        rows.append((differs, row))
    return rows


def _now(report: StartReport) -> dict[str, float]:
    """Return the figures of the start, under the names of those that are expected.

    Before a server has started there are none: its document holds what is expected.
    """
    if report.origin == "predicted":
        return {}
    graphs = report.graphs
    used = [graphs.prompt_used_bytes, graphs.decode_used_bytes]
    known = {
        "kv_blocks": report.kv.blocks,
        "kv_tokens": report.kv.tokens,
        "kv_cache_bytes": report.memory.kv_cache,
        "reserve_bytes": report.memory.reserve,
        "graph_bytes": sum(each or 0 for each in used) or None,
        "warmup_seconds": report.warmup.seconds,
        "prompt_buckets": report.buckets.prompt,
        "decode_buckets": report.buckets.decode,
        "max_model_len_tokens": report.server.max_model_len,
    }
    return {name: value for name, value in known.items() if value is not None}


def _with_change(name: str, value: float, now: float | None) -> str:
    said = told(name, value)
    if now is not None and told(name, now) == said:
        return f"{said}, as now"
    if not now:
        return said
    return f"{said} ({100 * (value - now) / now:+.1f} %)"


def what_it_costs(report: StartReport, prose: Prose, anchor: str) -> Markup:
    """Return the price: a restart, a warm-up, the risk, and the way back."""
    parts = [heading(3, "What it costs", f"{anchor}-costs")]
    proposal = report.proposal
    if proposal is None:
        nothing = "No setting is proposed, so there is no price to name."
        return element("section", *parts, element("p", nothing))
    runs = report.origin != "predicted"
    costs = [*([_RESTART] if runs else []), _time(report, proposal)]
    parts.append(prose.items([*costs, *proposal.cautions]))
    if runs:
        parts += _way_back(report, proposal)
    return element("section", *parts)


def _time(report: StartReport, proposal: ProposalPart) -> str:
    seconds = report.warmup.seconds
    last = f" The last warm-up took {duration(seconds)}." if seconds else ""
    for name, what in _TIMES.items():
        figure: FigurePart | None = proposal.figures.get(name)
        if figure is not None:
            span = interval(name, figure.low, figure.high)
            return (
                f"{what} is expected to take {told(name, figure.value)} ({span}; "
                f"{ORIGINS[figure.origin]}).{last}"
            )
    return (
        f"A warm-up.{last}" if last else "A warm-up; nothing tells how long it takes."
    )


def _way_back(report: StartReport, proposal: ProposalPart) -> Iterator[Markup]:
    """Name the settings as they were before."""
    known = {each.name: each.value for each in report.settings}
    ratio = report.memory.reserve_ratio
    if ratio is not None:
        known.setdefault(RESERVE, f"{ratio:g}")
    flags = [word for word in proposal.flags if word.startswith("--")]
    names = (*proposal.env, *flags, *proposal.unset)
    before = [name for name in names if name in known]
    added = [name for name in names if name not in known]
    if before:
        yield element("p", f"{_BACK}, set again what was set:")
        yield copyable([_typed(name, known[name]) for name in before])
    if added:
        also = "Then also take away" if before else f"{_BACK}, take away"
        listed = joined([setting_name(name) for name in added], Markup(", "))
        yield element("p", f"{also} what wasn't set: ", listed, ".")


def _typed(name: str, value: str) -> str:
    return f"{name} {value}" if name.startswith("--") else f"{name}={value}"
