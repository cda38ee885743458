"""Checks of how a start ended: what broke, or that nothing did."""

from __future__ import annotations

from collections.abc import Callable

from hpuwatch.advise.ages import last_age_seconds
from hpuwatch.advise.causes import (
    bad_value,
    cause_of,
    code_of,
    described,
    root_fault,
)
from hpuwatch.advise.checks.interrupted import stop_line, was_interrupted
from hpuwatch.advise.checks.memory_ledger import memory_was_free
from hpuwatch.advise.checks.warmup_time import ready_after
from hpuwatch.advise.figures import reserve_of, tightest
from hpuwatch.advise.finding import INFO, Case, Sighting
from hpuwatch.advise.plan.reserve import propose
from hpuwatch.advise.plan.shortage import Shortage, in_words, shortage_of
from hpuwatch.gaudi.planning import RESERVE
from hpuwatch.life.phases import Phase
from hpuwatch.records import Line
from hpuwatch.state.model import Fault, Start
from hpuwatch.state.serving import KV_ALLOCATION

DEATHS = (
    "weights-oom",
    "sizing-oom",
    "kv-short",
    "warmup-oom",
    "warmup-failed",
    "warmup-timeout",
    "start-failed",
    "serving-oom",
    "server-died",
)
"""The names of findings that tell of a server that a fault ended."""

_NOT_YET = {
    Phase.STARTING: "while starting",
    Phase.LOADING: "while loading weights",
    Phase.SIZING: "while sizing memory",
    Phase.WARMING: "in warm-up",
}
_DURING = {
    **_NOT_YET,
    Phase.READY: "while serving",
    Phase.SWITCHING: "while switching models",
    Phase.DEGRADED: "while serving",
}
_KV_ENDS = ("kv-short", "kv-none")
_BY_PHASE = ("weights-oom", "sizing-oom", "warmup-oom", "serving-oom")
"""Deaths whose phase says what helps; for the others the fault itself does."""


def ended_by(name: str) -> Callable[[Case], Sighting | None]:
    """Return the check for a server that a fault of this kind ended."""

    def check(case: Case) -> Sighting | None:
        fault = root_fault(case.start)
        if fault is None or code_of(fault) != name:
            return None
        return _told(case.start, fault, name)

    return check


def nothing_left(case: Case) -> Sighting | None:
    """Look for a start without a KV cache, by its end or by figures that tell of one."""
    start = case.start
    found = tightest(start)
    usable = found[1].usable if found else None
    blocks = start.kv.blocks
    died = ended_by("kv-none")(case)
    if died is not None or root_fault(start) is not None:
        return died
    if usable is not None and usable.value.bytes <= 0:
        said, line = f"{usable.value.printed} of usable memory", usable.line
    elif blocks is not None and blocks.value <= 0:
        said, line = f"{blocks.value:,} KV blocks", blocks.line
    else:
        return None
    return Sighting(
        title="title_printed",
        why=("why_printed",),
        cure=("cure_printed",),
        words={"said": said},
        lines=(line,),
    )


def told(start: Start, fault: Fault) -> str:
    """Say what broke in a few words: by the log's figures where a KV cache was short."""
    if code_of(fault) in _KV_ENDS:
        return in_words(start) or described(fault)
    return described(fault)


def _told(start: Start, fault: Fault, name: str) -> Sighting:
    why, cure, words = _helps(start, fault, name)
    numbers: dict[str, float | str] = {"phase": fault.phase.value, "class": fault.name}
    if fault.wanted:
        numbers["wanted_bytes"] = fault.wanted.bytes
        why = (*why, "why_wanted")
    if fault.at:
        numbers["at"] = fault.at
    if name in _KV_ENDS:
        numbers |= _kv_numbers(start)
    at = f" ({fault.at})" if fault.at else ""
    others = [each.line for each in start.faults if each is not fault and each.root]
    return Sighting(
        why=why,
        cure=cure,
        numbers=numbers,
        words={
            **words,
            "where": _DURING.get(fault.phase, f"while {fault.phase.value}") + at,
            "what": told(start, fault),
        },
        lines=(fault.line, *others[:2]),
        aspect=_aspect(fault),
    )


def _aspect(fault: Fault) -> str:
    """Return which case of its kind a fault is, for the knobs that help only in one."""
    if fault.name == "device_oom_warmup_hybrid":
        return "hybrid model"
    if fault.phase is not Phase.SIZING:
        return ""
    return "KV allocation" if fault.at == KV_ALLOCATION else "profile run"


_Words = tuple[tuple[str, ...], tuple[str, ...], dict[str, object]]
"""Names of sentences: why and cure; and what they need."""


def _helps(start: Start, fault: Fault, name: str) -> _Words:
    short = shortage_of(start) if name in _KV_ENDS else None
    if short is not None and short.is_of_the_reserve:
        return _of_the_reserve(start, fault, short)
    if name == "sizing-oom" and fault.at == KV_ALLOCATION:
        return ("why_kv",), ("cure_kv",), {}
    reserve = reserve_of(start)
    if name == "serving-oom" and reserve and memory_was_free(start, reserve):
        there = reserve.reserve_bytes + reserve.outside_bytes
        free = there - (reserve.used_bytes or 0)
        return ("why_free",), ("cure_free",), {"free_bytes": free}
    if name in _BY_PHASE:
        no_room = name == "warmup-oom" and propose(start) is None and reserve_of(start)
        return ("why",), ("cure_no_room" if no_room else "cure",), {}
    is_value = fault.name == "bad_env_value"
    why, cure = bad_value(start, fault) if is_value else cause_of(fault)
    return ("why",), ("cure",), {"cause": why, "remedy": cure}


def _of_the_reserve(start: Start, fault: Fault, short: Shortage) -> _Words:
    """Name the reserve first, where that took the memory of the KV cache."""
    why = "why_reserve"
    if short.ratio >= 1:
        why = "why_reserve_all"
    elif short.reserve_is_unusual:
        why = "why_reserve_unusual"
    words: dict[str, object] = {
        "remedy": cause_of(fault).cure,
        "default_ratio": short.default_ratio,
    }
    proposal = propose(start)
    if proposal is None or not proposal.env:
        return (why,), ("cure_reserve",), words
    words |= {"value": proposal.env[RESERVE], "flags": " ".join(proposal.flags)}
    return (why,), ("cure_both" if proposal.flags else "cure_first",), words


def _kv_numbers(start: Start) -> dict[str, float | str]:
    short = shortage_of(start)
    if short is None:
        return {}
    numbers: dict[str, float | str] = {
        "kv_cache_bytes": short.cache_bytes,
        "usable_bytes": short.usable_bytes,
        "reserve_bytes": short.reserve_bytes,
        "reserve_ratio": short.ratio,
    }
    if short.wanted_bytes is not None:
        numbers["kv_cache_wanted_bytes"] = short.wanted_bytes
    return numbers


def not_ready(case: Case) -> Sighting | None:
    """Look for a log that ends before the server was ready, without a fault."""
    start = case.start
    if start.phase not in _NOT_YET or root_fault(start) is not None:
        return None
    progress = [
        f"{phase} {each.done} of {each.total}"
        for phase, each in start.warmup.progress.items()
        if each.done < each.total
    ]
    at = f" ({', '.join(progress)})" if progress else ""
    numbers: dict[str, float | str] = {"phase": start.phase.value}
    age, after = last_age_seconds(start), ready_after(start, case.history)
    if age is not None:
        numbers["age_seconds"] = age
    return Sighting(
        why=("why",) if after is None else ("why", "why_left"),
        numbers=numbers,
        figures={} if after is None else {"ready_seconds": after},
        words={"where": _NOT_YET[start.phase] + at},
        lines=(start.first_line, *[*start.reached.values()][-1:]),
    )


def stopped(case: Case) -> Sighting | None:
    """Look for an ordinary end."""
    start = case.start
    if start.phase not in (Phase.DRAINING, Phase.STOPPING, Phase.STOPPED):
        return None
    line = stop_line(start)
    if line is None or was_interrupted(start):
        return None
    return Sighting(cure=(), lines=tuple(dict.fromkeys((line, *_ended(start)))))


def _ended(start: Start) -> tuple[Line, ...]:
    line = start.reached.get(Phase.STOPPED.value)
    return (line,) if line is not None else ()


def all_good(start: Start) -> Sighting:
    """Return what shows that a start came to its end as it should."""
    found = tightest(start)
    known = (
        found[1].kv_cache if found else None,
        start.kv.blocks,
        start.warmup.seconds,
    )
    lines = [each.line for each in known if each is not None]
    ready = start.reached.get(Phase.READY.value)
    lines += [ready] if ready is not None else []
    return Sighting(cure=(), lines=tuple(dict.fromkeys(lines)))


def noted(case: Case) -> Sighting | None:
    """Look for faults that ended nothing."""
    faults = case.start.faults
    lesser = [fault for fault in faults if fault.severity in ("error", "warning")]
    if not lesser:
        return None
    first = lesser[0]
    why, cure = cause_of(first)
    grave = any(fault.severity == "error" for fault in lesser)
    return Sighting(
        numbers={"faults": len(lesser)},
        words={
            "what": described(first),
            "more": f", and {len(lesser) - 1} more" if len(lesser) > 1 else "",
            "cause": why,
            "remedy": cure,
        },
        lines=tuple(fault.line for fault in lesser[:3]),
        severity=None if grave else INFO,
    )
