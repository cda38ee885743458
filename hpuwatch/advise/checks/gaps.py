"""What a log lacks or says twice: without the lines of the start nobody can judge a server.

A log that was cut at its head (``docker logs --tail``) or in the middle shows no fault and no
idle memory, since the lines that would tell are not there.  A log into which two servers
wrote, or that gives one figure twice, tells too much: nobody knows which line is whose.
"""

from __future__ import annotations

from collections.abc import Iterable

from hpuwatch.advise.ages import last_age_seconds, ready_age_seconds
from hpuwatch.advise.checks.interrupted import was_in_vain
from hpuwatch.advise.checks.releases import unknown_release
from hpuwatch.advise.checks.warmup_time import LONGEST_START_SECONDS, left_of_warmup
from hpuwatch.advise.figures import has_traffic, tightest
from hpuwatch.advise.finding import INFO, Case, Sighting
from hpuwatch.life.phases import Phase
from hpuwatch.records import Line
from hpuwatch.state.configured import release
from hpuwatch.state.model import Memory, Start

_WITHOUT_SPLIT = ("fork-1.16", "vllm-0.4")
"""Releases that never print how memory is split."""

_SERVES = (Phase.READY, Phase.DEGRADED)
_ENDED = (Phase.DRAINING, Phase.STOPPING, Phase.STOPPED)
_SIZED = (Phase.WARMING, Phase.READY, Phase.SWITCHING, Phase.DEGRADED)
"""Phases in which the split of memory and the KV blocks have been printed."""


def missing(start: Start) -> list[str]:
    """Return in words which lines of a whole start are not in the log."""
    found = tightest(start)
    memory = found[1] if found else Memory()
    warmup = start.warmup
    # With a KV budget of its own (--kv-cache-memory-bytes) a start has no more than these.
    split = (memory.free, memory.kv_cache)
    of = release(start.server)
    never = of is not None and of.name in _WITHOUT_SPLIT
    lacks = {
        "its version and configuration": start.server.version is None,
        "the split of memory": None in split and not never,
        "the number of KV blocks": start.kv.blocks is None,
    }
    if warmup.skipped is None:
        used = start.graphs_used or warmup.allocated
        lacks["the end of warm-up"] = warmup.seconds is None
        lacks["what graphs took"] = not used
    return [what for what, is_missing in lacks.items() if is_missing]


def incomplete(case: Case) -> Sighting | None:
    """Look for a server that was ready, though lines of its start are missing."""
    start = case.start
    lacks = missing(start)
    if start.phase not in _SERVES + _ENDED or not lacks:
        return None
    if was_in_vain(start):
        return None  # it was stopped before those lines came
    listed = " and ".join(filter(None, (", ".join(lacks[:-1]), lacks[-1])))
    return Sighting(
        numbers={"missing": len(lacks)},
        words={"lacks": listed},
        lines=(start.first_line,),
        severity=INFO if start.phase in _ENDED else None,
    )


def mixed(case: Case) -> Sighting | None:
    """Look for the lines of a second server between those of the first."""
    start = case.start
    if not is_mixed(start):
        return None
    lines: dict[Line, None] = {}
    said = []
    if len(start.fronts) > 1:
        said.append(f"API servers with the pids {_listed(start.fronts)}")
        lines |= dict.fromkeys(start.fronts.values())
    if len(start.ports) > 1:
        said.append(f"the ports {_listed(start.ports)}")
        lines |= dict.fromkeys(start.ports.values())
    if len(start.versions) > 1:
        said.append(f"the versions {_listed(start.versions)}")
        lines |= dict.fromkeys(start.versions.values())
    return Sighting(
        numbers={
            "api_servers": len(start.fronts),
            "ports": len(start.ports),
            "versions": len(start.versions),
        },
        words={"said": " and ".join(said)},
        lines=tuple(lines)[:4],
    )


def is_mixed(start: Start) -> bool:
    """Tell whether lines of two servers stand in the log."""
    return any(len(each) > 1 for each in (start.fronts, start.ports, start.versions))


def _listed(names: Iterable[object]) -> str:
    return " and ".join(map(str, names))


_FIGURES = {
    "free": "free memory",
    "usable": "usable memory",
    "reserve": "the graph reserve",
}
_WHOLES = {"usable": "free memory", "reserve": "usable memory"}


def contradicted(case: Case) -> Sighting | None:
    """Look for a split of memory that two lines give differently, or one line impossibly."""
    start = case.start
    if not start.contradictions:
        return None
    # What can't be outweighs what was said twice: none of it is used.
    first = max(start.contradictions, key=lambda each: each.share is not None)
    numbers: dict[str, float | str] = {
        "first_bytes": first.first.value.bytes,
        "then_bytes": first.then.value.bytes,
        "contradictions": len(start.contradictions),
    }
    words = {"figure": _FIGURES[first.figure]}
    if first.share is not None:
        return Sighting(
            title="impossible",
            why=("why_impossible",),
            cure=("cure_impossible",),
            numbers=numbers | {"share_ratio": first.share},
            words=words | {"whole": _WHOLES[first.figure]},
            lines=(first.then.line,),
        )
    return Sighting(
        numbers=numbers, words=words, lines=(first.first.line, first.then.line)
    )


def _lasts_too_long(start: Start) -> bool:
    ready, left = ready_age_seconds(start), left_of_warmup(start)
    age = ready if ready is not None else last_age_seconds(start)
    came_up = ready is not None
    until_ready = (age or 0) + (left.high if left and not came_up else 0)
    return (came_up or left is not None) and until_ready > LONGEST_START_SECONDS


def unestablished(start: Start) -> list[str]:
    """Return in sentences what the log leaves open, and what can't be said for it."""
    lacks = missing(start)
    server = start.server
    came_up = start.phase in _SIZED or (
        start.phase in _ENDED and not was_in_vain(start)
    )
    rows = {
        "Whose figures these are: lines of two servers stand in this log.": is_mixed(
            start
        ),
        "How memory is split: two lines of one card say it differently, and the later "
        "one is used here.": any(each.share is None for each in start.contradictions),
        "How memory is split: a line that tells can't be right, and is not used.": any(
            each.share is not None for each in start.contradictions
        ),
        "Which release runs, so no rule of a release was applied: no line tells its "
        "version.": release(server) is None,
        "Whether this release follows the rules used here: it is newer than those that "
        "hpuwatch knows.": unknown_release(Case(start)) is not None,
        "Which model it serves: no line names it.": server.model is None,
        "Which card it runs on: no line names it.": server.card is None,
        "How memory is split, so nothing is said of the reserve: the line is missing.": (
            came_up and "the split of memory" in lacks
        ),
        "How long a start takes: the times of this log come to more than a week.": (
            _lasts_too_long(start)
        ),
        "How many KV blocks there are: no line tells.": (
            came_up and "the number of KV blocks" in lacks
        ),
        "What graphs take: warm-up's own last lines are missing.": (
            came_up and start.phase in _SERVES + _ENDED and "what graphs took" in lacks
        ),
        "How it does under load: no line shows requests for half a minute.": (
            start.phase in _SERVES and not has_traffic(start)
        ),
    }
    return [said for said, holds in rows.items() if holds]
