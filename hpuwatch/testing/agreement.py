"""What a report must not do: contradict itself.

Findings, the proposal, the headline and what is left as it is come from different hands of
the code.  Here they are held against one another, for tests over many logs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from hpuwatch.advise.document import LeftPart, StartReport
from hpuwatch.gaudi.planning import READY_TIMEOUT, RESERVE

_STAYS = ("Leave ", "Change nothing", "Run normal traffic")
_SECONDS = re.compile(r"about ([\d,]+) s")


def contradictions(report: StartReport) -> list[str]:
    """Return what one part of a report says against another, a sentence each."""
    return [
        *_moved_and_left(report),
        *_useless(report),
        *_counted_by_blocks(report),
        *_times(report),
    ]


def _moves(report: StartReport) -> dict[str, str | None]:
    proposal = report.proposal
    if proposal is None:
        return {}
    words = iter(proposal.flags)
    found: dict[str, str | None] = {**proposal.env, **dict.fromkeys(proposal.unset)}
    return found | {name: next(words) for name in words}


def _moved_and_left(report: StartReport) -> Iterator[str]:
    moved, do = _moves(report), report.headline.do
    for left in report.left:
        if left.name in moved:
            yield f"{left.name} is both changed and left"
        asked = left.name in do and not do.startswith(_STAYS)
        if asked and report.proposal is None and not _is_objection(left):
            yield f"{left.name} is left, and the headline says: {do}"


def _is_objection(left: LeftPart) -> bool:
    return left.why.startswith("left out of the plan")


def _useless(report: StartReport) -> Iterator[str]:
    """See moves that a grave finding calls useless or harmful."""
    now = {each.name: each.value for each in report.settings}
    for name, value in _moves(report).items():
        for finding in report.findings:
            for each in finding.cannot_help:
                if finding.severity == "info" or each.knob != name or value is None:
                    continue
                if each.change == "change":
                    yield f"{finding.code} says that {name} can't help, {value} is proposed"
                if each.change in ("raise", "lower") and name in now:
                    moved = "raise" if float(value) > float(now[name]) else "lower"
                    if moved == each.change:
                        yield f"{finding.code} says not to {moved} {name}"


def _counted_by_blocks(report: StartReport) -> Iterator[str]:
    codes = {each.name for each in report.findings}
    won = report.proposal.expected.get("kv_blocks_won", 0) if report.proposal else 0
    if "kv-mismatch" in codes and won > 0:
        yield f"blocks are not what they seem, and {won:,.0f} of them are won"
    if "reserve-idle" in codes and any(name.endswith("-oom") for name in codes):
        yield f"memory ran out, and {RESERVE} is called idle"


def _times(report: StartReport) -> Iterator[str]:
    """See a time-out that stays for fewer seconds than a finding measured."""
    seen = [each.figures.get("ready_seconds") for each in report.findings]
    least = max((each.low for each in seen if each is not None), default=0.0)
    for left in report.left:
        told = _SECONDS.search(left.why)
        if left.name == READY_TIMEOUT and told:
            seconds = float(told[1].replace(",", ""))
            if seconds < 0.9 * least:
                yield f"{seconds:,.0f} s are told of a start that takes {least:,.0f} s"
