"""Checks of the release: knobs that died, defaults that changed, what worked before."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hpuwatch.advise.causes import described, root_fault
from hpuwatch.advise.changed import (
    READY,
    RELEASE,
    Changed,
    changed_settings,
    last_good,
    listed,
)
from hpuwatch.advise.checks.warmup_time import release_point
from hpuwatch.advise.figures import about, tightest
from hpuwatch.advise.finding import Case, Sighting
from hpuwatch.gaudi.knob import Knob
from hpuwatch.gaudi.knobs import KNOBS
from hpuwatch.gaudi.planning import RESERVE, UTILISATION
from hpuwatch.gaudi.releases import NEWEST
from hpuwatch.gaudi.spans import Point, point_of, prose
from hpuwatch.records import Line
from hpuwatch.state.configured import acting_variables, release, release_text
from hpuwatch.state.model import Known, Memory, Start
from hpuwatch.units import Amount

_SHOWN = 4
_OF_NO_RELEASE = frozenset({"port_in_use", "model_not_found", "bad_env_value"})
"""Faults whose own cause says all: no earlier start tells more of them."""


def dead_knobs(case: Case) -> Sighting | None:
    """Look for variables that are set and that this release passes over."""
    start = case.start
    at, found = release_point(start), release(start.server)
    if at is None or found is None:
        return None
    dead = [*_dead(start, at)]
    if not dead:
        return None
    said = [_where_it_acts(knob, at) for knob, _ in dead]
    return Sighting(
        title="title" if len(dead) > 1 else "title_one",
        numbers={"knobs": len(dead)},
        words={
            "names": ", ".join(knob.name for knob, _ in dead[:_SHOWN]),
            "more": f" and {len(dead) - _SHOWN} more" if len(dead) > _SHOWN else "",
            "release": found.name,
            "acts": " ".join(said[:_SHOWN]),
        },
        lines=tuple(known.line for _, known in dead[:_SHOWN]),
    )


def _dead(start: Start, at: Point) -> Iterator[tuple[Knob, Known[str]]]:
    """Yield the variables that are set, known, and of no effect here."""
    for name, known in sorted(acting_variables(start.server).items()):
        knob = KNOBS.get(name)
        if knob is not None and not knob.internal and not knob.acts(at):
            yield knob, known


def _where_it_acts(knob: Knob, at: Point) -> str:
    newer = KNOBS.get(knob.successor)
    if newer is not None and newer.acts(at):
        return f"{knob.name} is called {newer.name} now."
    where = prose(knob.honoured)
    return f"{knob.name} acts in {'no release' if where == 'none' else where}."


def changed_defaults(case: Case) -> Sighting | None:
    """Look for defaults that another release brought since the last good start."""
    start = case.start
    before = last_good(start, case.history)
    if before is None:
        return None
    old, new = release_point(before), release_point(start)
    if old is None or new is None or old == new:
        return None
    unset = [each for each in KNOBS.values() if not _is_set(each, before, start)]
    said = [
        f"{knob.name} {knob.plain(old)} → {knob.plain(new)}"
        for knob in unset
        if None not in (knob.default(old), knob.default(new))
        and knob.plain(old) != knob.plain(new)
    ]
    if not said:
        return None
    more = f" and {len(said) - _SHOWN} more" if len(said) > _SHOWN else ""
    versions = (before.server.version, start.server.version)
    return Sighting(
        numbers={"defaults": len(said)},
        words={
            "said": "; ".join(said[:_SHOWN]) + more,
            "release": release_text(start.server),
            "release_before": release_text(before.server),
        },
        lines=tuple(each.line for each in versions if each is not None),
    )


def _is_set(knob: Knob, *starts: Start) -> bool:
    """Tell whether a log shows the knob to be set: then its default doesn't matter.

    A ratio that the split of memory prints is shown whether or not it was set.
    """
    if knob.name in (UTILISATION, RESERVE):
        return len({_printed(each, knob.name) for each in starts}) == 1
    names = {knob.name, knob.name.removeprefix("--").replace("-", "_")}
    return any(names & each.server.flags.keys() for each in starts)


def _printed(start: Start, name: str) -> float | None:
    memory = _ledger(start)
    known = memory.utilisation if name == UTILISATION else memory.reserve_ratio
    return known.value if known else None


def _ledger(start: Start) -> Memory:
    found = tightest(start)
    return found[1] if found else Memory()


def kv_regressed(case: Case) -> Sighting | None:
    """Look for a KV cache that shrank though nothing that decides it was set otherwise."""
    start = case.start
    before = last_good(start, case.history)
    if before is None:
        return None
    now, then = _ledger(start), _ledger(before)
    if now.kv_cache is None or then.kv_cache is None:
        return None
    lost = then.kv_cache.value.bytes - now.kv_cache.value.bytes
    if lost < then.kv_cache.value.bytes * case.limits["lost_ratio"]:
        return None
    changes = changed_settings(before, start)
    if any(each.name in (UTILISATION, RESERVE) for each in changes):
        return None  # somebody asked for it
    moved = _moved(now, then, lost)
    return Sighting(
        why=("why", "why_changes") if changes else ("why", "why_unseen"),
        cure=(_cure_of(changes),),
        numbers={
            "kv_cache_bytes": now.kv_cache.value.bytes,
            "kv_cache_bytes_before": then.kv_cache.value.bytes,
            "lost_bytes": lost,
        },
        words={"moved": moved, "changes": listed(changes)},
        lines=tuple(
            dict.fromkeys(
                (
                    then.kv_cache.line,
                    now.kv_cache.line,
                    *(line for each in changes[:2] for line in each.lines),
                )
            )
        ),
    )


def _cure_of(changes: Sequence[Changed]) -> str:
    """Choose what to do: a release alone can be gone back to."""
    if not changes:
        return "cure"
    only_release = all(each.name == RELEASE for each in changes)
    return "cure_release" if only_release else "cure_changes"


def _moved(now: Memory, then: Memory, lost: int) -> str:
    """Say which parts of the ledger changed, and which did not."""
    parts: tuple[tuple[str, Known[Amount] | None, Known[Amount] | None], ...] = (
        ("weights", then.weights, now.weights),
        ("profile run", then.profile_run, now.profile_run),
        ("free memory", then.free, now.free),
    )
    grown, same = [], []
    for name, old, new in parts:
        if old is None or new is None:
            continue
        change = new.value.bytes - old.value.bytes
        if abs(change) < abs(lost) / 10:
            same.append(name)
        else:
            sign = "+" if change > 0 else "-"
            grown.append(f"{name} {sign}{about(abs(change))}")
    said = ", ".join(grown) or "none of the printed parts changed as much"
    kept = f"; {' and '.join(same)} as before" if same else ""
    return f"{said}{kept}"


def worked_before(case: Case) -> Sighting | None:
    """Look for a configuration that served before and is broken now."""
    start = case.start
    fault = root_fault(start)
    before = last_good(start, case.history)
    if fault is None or before is None or fault.name in _OF_NO_RELEASE:
        return None
    if READY in start.reached:
        return None  # then both came up
    changes = changed_settings(before, start)
    upgrade = next((each for each in changes if each.name == RELEASE), None)
    points = release_point(before), release_point(start)
    others = [
        each
        for each in changes
        if each is not upgrade and not _by_default(each, points)
    ]
    if others:
        return None  # another configuration: then it proves nothing
    return Sighting(
        title="title_release" if upgrade else "title",
        why=("why_release",) if upgrade else ("why",),
        cure=("cure_release",) if upgrade else ("cure",),
        words={
            "what": described(fault),
            **({"before": upgrade.before, "now": upgrade.now} if upgrade else {}),
        },
        lines=(*_proof(before, start, upgrade), fault.line),
    )


def _by_default(change: Changed, points: tuple[Point | None, Point | None]) -> bool:
    """Tell whether a setting differs only since each release has another default."""
    knob = KNOBS.get(change.name)
    if knob is None or None in points:
        return False
    defaults = [knob.plain(at) for at in points if at is not None]
    return [change.before, change.now] == defaults


def _proof(before: Start, now: Start, upgrade: Changed | None) -> tuple[Line, ...]:
    ready = before.reached.get(READY)
    lines = (ready, *(upgrade.lines if upgrade else (now.first_line,)))
    return tuple(dict.fromkeys(line for line in lines if line is not None))


def unknown_release(case: Case) -> Sighting | None:
    """Look for a release that is newer than those that hpuwatch knows."""
    server = case.start.server
    found, version = release(server), server.version or server.build
    at = release_point(case.start)
    if found is None or version is None or at is None or found.assumed_like is None:
        return None
    newest = point_of(NEWEST)
    if at.family != newest.family or at.numbers <= newest.numbers:
        return None
    return Sighting(
        words={
            "version": version.value,
            "like": found.assumed_like,
            "newest": NEWEST,
        },
        lines=(version.line,),
    )
