"""What a proposal brings and what it costs, as rows and sentences, drawn from the document.

Text, markdown and page tell the same: the figures that change, with what they are now; the
price of the restart; and the settings that lead back.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import NamedTuple

from hpuwatch.advise.document import FigurePart, ProposalPart, StartReport
from hpuwatch.advise.page.quantities import (
    NAMES,
    duration,
    interval,
    known_word,
    told,
)
from hpuwatch.advise.render.figures import figure_text, figure_words
from hpuwatch.advise.render.settings import quoted_for_env
from hpuwatch.gaudi.estimate import Origin
from hpuwatch.gaudi.planning import RESERVE
from hpuwatch.life.phases import Phase

_PLACES = {name: place for place, name in enumerate(NAMES)}
"""The order in which figures are shown."""
_ALWAYS = frozenset({"kv_blocks", "kv_tokens", "warmup_seconds", "ready_seconds"})
"""What people weigh a restart by, whether or not they know what it is now."""
_TOLD = frozenset({"kv_cache_bytes", "reserve_bytes"})
"""What the sentences of a text tell already."""
_SAME = 0.01
"""Figures that differ by less, as a share, count as the same."""
_TIMES = {
    "ready_seconds": "ready again after",
    "warmup_seconds": "with a warm-up of",
}


class Prospect(NamedTuple):
    """A figure that is expected; ``now`` is None where the log doesn't tell it.

    ``figure`` is None where arithmetic gives the value and nobody an interval.
    """

    name: str
    now: float | None
    value: float
    figure: FigurePart | None

    @property
    def differs(self) -> bool:
        """Tell whether it is another one than now."""
        now = self.now
        return now is not None and abs(self.value - now) > _SAME * abs(now)

    @property
    def origin(self) -> Origin:
        """Return how it is known."""
        return "predicted" if self.figure is None else self.figure.origin


def prospects(report: StartReport, proposal: ProposalPart) -> list[Prospect]:
    """Return the figures that are expected, in the order in which people ask for them.

    What is won follows from the others, so it has no row of its own.
    """
    now = _now(report)
    names = [n for n in {**proposal.expected, **proposal.figures} if "_won" not in n]
    rows = []
    for name in sorted(names, key=lambda name: _PLACES.get(name, len(_PLACES))):
        figure = proposal.figures.get(name)
        value = proposal.expected[name] if figure is None else figure.value
        rows.append(Prospect(name, now.get(name), value, figure))
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


def expected_rows(report: StartReport) -> list[tuple[str, str, str]]:
    """Return what a text tells of a proposal: a figure's name, the best guess, a note.

    Figures that stay as they are, and the share of padding, which nobody knows well, are
    left to the page and the document.
    """
    if report.proposal is None:
        return []
    first = report.origin == "predicted"
    return [
        (figure_words(each.name), figure_text(each.name, each.value), _note(each))
        for each in prospects(report, report.proposal)
        if "padding" not in each.name and (first or _is_news(each))
    ]


def _is_news(each: Prospect) -> bool:
    """Tell whether a text tells the figure: it changes, or only its value tells anything."""
    if each.now is None:
        return each.name in _ALWAYS
    return each.differs and each.name not in _TOLD


def _note(each: Prospect) -> str:
    now = "" if each.now is None else f"now {figure_text(each.name, each.now)}; "
    known = known_word(each.name, each.origin)
    if each.figure is None or each.figure.low == each.figure.high:
        return now + known
    low, high = (
        figure_text(each.name, end) for end in (each.figure.low, each.figure.high)
    )
    return f"{now}{low} to {high}, {known}"


def cost_lines(report: StartReport) -> Iterator[str]:
    """Say what a proposal costs, what becomes worse first; nothing without one."""
    proposal = report.proposal
    if proposal is None:
        return
    yield from proposal.cautions
    seconds = report.warmup.seconds
    last = f" The last warm-up took {duration(seconds)}." if seconds else ""
    if report.origin != "predicted":
        yield f"One restart, no answers meanwhile: {_time(proposal)}.{last}"


def _time(proposal: ProposalPart) -> str:
    for name, what in _TIMES.items():
        figure: FigurePart | None = proposal.figures.get(name)
        if figure is not None:
            span = interval(name, figure.low, figure.high)
            known = known_word(name, figure.origin)
            return f"{what} {told(name, figure.value)} ({span}, {known})"
    return "nothing tells how long that takes"


def way_back(report: StartReport) -> tuple[list[str], list[str]]:
    """Return the settings as they were, as they are typed, and those that weren't set.

    Nobody goes back to a server that does not start.
    """
    proposal = report.proposal
    fails = report.server.phase == Phase.FAILED.value
    if proposal is None or fails or report.origin == "predicted":
        return [], []
    known = {each.name: each.value for each in report.settings}
    ratio = report.memory.reserve_ratio
    if ratio is not None:
        known.setdefault(RESERVE, f"{ratio:g}")
    flags = [word for word in proposal.flags if word.startswith("--")]
    file = [proposal.bucket_file.variable] if proposal.bucket_file else []
    names = (*proposal.env, *file, *flags, *proposal.unset)
    before = [_typed(name, known[name]) for name in names if name in known]
    return before, [name for name in names if name not in known]


def _typed(name: str, value: str) -> str:
    if name.startswith("--"):
        return f"{name} {shlex.quote(value)}"
    return f"{name}={quoted_for_env(value)}"


def back_line(report: StartReport) -> str:
    """Say how to go back, in a line; nothing where there is nothing to go back to."""
    before, added = way_back(report)
    parts = [" ".join(before), f"without {' and '.join(added)}" if added else ""]
    told_both = ", ".join(filter(None, parts))
    return f"To go back: {told_both}." if told_both else ""
