"""Checks of how a start ended: what broke, or that nothing did."""

from __future__ import annotations

from collections.abc import Callable

from hpuwatch.advise.causes import (
    Cause,
    bad_value,
    cause_of,
    code_of,
    described,
    root_fault,
)
from hpuwatch.advise.figures import about, reserve_of, tightest
from hpuwatch.advise.finding import INFO, Sighting
from hpuwatch.advise.proposal import propose
from hpuwatch.advise.shortage import in_words, shortage_of
from hpuwatch.gaudi.planning import RESERVE
from hpuwatch.life.phases import Phase
from hpuwatch.state.model import Fault, Start
from hpuwatch.state.serving import KV_ALLOCATION

Check = Callable[[Start], "Sighting | None"]

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

_NO_ROOM_FOR_KV = Cause(
    why="The KV cache was as large as vLLM had worked out, yet less was free by then: "
    "something else holds memory of the card, or took it after the profile run.",
    cure="Look at hl-smi for other processes on the card, then lower "
    "--gpu-memory-utilization.",
)
_WHAT_HELPS = {
    "weights-oom": Cause(
        why="The weights don't fit beside what else is on the card. The graph reserve "
        "can't help here: it is made after the weights.",
        cure="Spread the model over more cards (--tensor-parallel-size), or use FP8 weights.",
    ),
    "sizing-oom": Cause(
        why="The profile run of the largest prompt didn't fit beside the weights. The "
        "graph reserve can't help here: it is made after the profile run.",
        cure="Lower --max-num-batched-tokens, --max-num-seqs or --max-model-len, or spread "
        "the model over more cards.",
    ),
    "warmup-oom": Cause(
        why="Graphs and activations needed more than the reserve and the memory outside of "
        "vLLM's budget hold.",
        cure="Raise VLLM_GRAPH_RESERVED_MEM, or warm fewer or smaller buckets. Raising "
        "--gpu-memory-utilization would make it worse: it takes from the same memory.",
    ),
    "serving-oom": Cause(
        why="Real requests needed more than warm-up had shown.",
        cure="Raise VLLM_GRAPH_RESERVED_MEM or lower --gpu-memory-utilization: both leave "
        "more memory outside of the KV cache.",
    ),
}


def ended_by(code: str) -> Check:
    """Return the check for a server that a fault with this code ended."""

    def check(start: Start) -> Sighting | None:
        fault = root_fault(start)
        if fault is None or code_of(fault) != code:
            return None
        return _told(start, fault, code)

    return check


def nothing_left(start: Start) -> Sighting | None:
    """Look for a start without a KV cache, by its end or by figures that tell of one."""
    found = tightest(start)
    usable = found[1].usable if found else None
    blocks = start.kv.blocks
    died = ended_by("kv-none")(start)
    if died is not None or root_fault(start) is not None:
        return died
    if usable is not None and usable.value.bytes <= 0:
        said, line = f"{usable.value.printed} of usable memory", usable.line
    elif blocks is not None and blocks.value <= 0:
        said, line = f"{blocks.value:,} KV blocks", blocks.line
    else:
        return None
    return Sighting(
        title=f"The log prints {said}: nothing is left for the KV cache",
        why="With such figures no request can be served; if requests are served, the "
        "figures are wrong, and nothing can be proposed from them.",
        cure="Look at --gpu-memory-utilization and VLLM_GRAPH_RESERVED_MEM, and at what "
        "else uses the card (hl-smi).",
        lines=(line,),
    )


def told(start: Start, fault: Fault) -> str:
    """Say what broke in a few words: by the log's figures where a KV cache was short."""
    if code_of(fault) in _KV_ENDS:
        return in_words(start) or described(fault)
    return described(fault)


def _short_of_kv(start: Start, fault: Fault) -> Cause:
    """Say why the KV cache was short, the reserve first where that took the memory."""
    short = shortage_of(start)
    if short is None:
        return cause_of(fault)
    proposal = propose(start)
    if not short.is_of_the_reserve:
        return cause_of(fault)
    why = "A smaller reserve would still leave graphs their usual share."
    if short.ratio >= 1:
        why = (
            "VLLM_GRAPH_RESERVED_MEM must be below 1: it is a share of the usable memory, "
            "and from 1 on nothing is left for a KV cache."
        )
    elif short.reserve_is_unusual:
        why = f"So large a reserve is unusual: the runtime's own is {short.default_ratio:g}."
    if proposal is None or not proposal.env:
        return Cause(
            why, f"Lower VLLM_GRAPH_RESERVED_MEM first. {cause_of(fault).cure}"
        )
    value = proposal.env[RESERVE]
    cure = f"Lower VLLM_GRAPH_RESERVED_MEM to {value} first"
    if proposal.flags:
        return Cause(why, f"{cure}, and set {' '.join(proposal.flags)}.")
    return Cause(why, f"{cure}; a shorter --max-model-len comes second.")


def _helps(start: Start, fault: Fault, code: str) -> Cause:
    if code in _KV_ENDS:
        return _short_of_kv(start, fault)
    if fault.name == "bad_env_value":
        return bad_value(start, fault)
    if code == "sizing-oom" and fault.at == KV_ALLOCATION:
        return _NO_ROOM_FOR_KV
    return _WHAT_HELPS.get(code) or cause_of(fault)


def _told(start: Start, fault: Fault, code: str) -> Sighting:
    why, cure = _helps(start, fault, code)
    if code == "warmup-oom" and propose(start) is None and reserve_of(start):
        cure = (
            "Warm fewer or smaller buckets, or use more cards: with a larger "
            "VLLM_GRAPH_RESERVED_MEM the KV cache would not hold one full request."
        )
    where = _DURING.get(fault.phase, f"while {fault.phase.value}")
    at = f" ({fault.at})" if fault.at else ""
    numbers: dict[str, float | str] = {"phase": fault.phase.value, "class": fault.name}
    if fault.wanted:
        numbers["wanted_bytes"] = fault.wanted.bytes
        why += f" The allocation that failed asked for {about(fault.wanted.bytes)}."
    if fault.at:
        numbers["at"] = fault.at
    if code in _KV_ENDS:
        numbers |= _kv_numbers(start)
    others = [each.line for each in start.faults if each is not fault and each.root]
    return Sighting(
        title=f"The server died {where}{at}: {told(start, fault)}",
        why=why,
        cure=cure,
        numbers=numbers,
        lines=(fault.line, *others[:2]),
    )


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


def not_ready(start: Start) -> Sighting | None:
    """Look for a log that ends before the server was ready, without a fault."""
    if start.phase not in _NOT_YET or root_fault(start) is not None:
        return None
    progress = [
        f"{phase} {each.done} of {each.total}"
        for phase, each in start.warmup.progress.items()
        if each.done < each.total
    ]
    at = f" ({', '.join(progress)})" if progress else ""
    return Sighting(
        title=f"The log ends {_NOT_YET[start.phase]}{at}, before the server was ready",
        why="It may still be coming up, or something killed it from outside.",
        cure=(
            "If it is gone: look for a probe or a time limit that ended it, and at the "
            "kernel log."
        ),
        numbers={"phase": start.phase.value},
    )


def stopped(start: Start) -> Sighting | None:
    """Look for an ordinary end."""
    if start.phase not in (Phase.DRAINING, Phase.STOPPING, Phase.STOPPED):
        return None
    return Sighting(
        title="The server was stopped in the ordinary way",
        why="The log shows a stop that was asked for, and no fault before it.",
    )


def noted(start: Start) -> Sighting | None:
    """Look for faults that ended nothing."""
    lesser = [fault for fault in start.faults if fault.severity in ("error", "warning")]
    if not lesser:
        return None
    first = lesser[0]
    more = f", and {len(lesser) - 1} more" if len(lesser) > 1 else ""
    why, cure = cause_of(first)
    grave = any(fault.severity == "error" for fault in lesser)
    return Sighting(
        title=f"{described(first)}{more}",
        why=why,
        cure=cure,
        numbers={"faults": len(lesser)},
        lines=tuple(fault.line for fault in lesser[:3]),
        severity=None if grave else INFO,
    )
