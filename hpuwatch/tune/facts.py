"""What a trial's log says, cut down to what tuning needs, and why a trial failed."""

from __future__ import annotations

from collections.abc import Mapping

from hpuwatch.advise.causes import code_of, root_fault
from hpuwatch.advise.checks.ends import told
from hpuwatch.advise.figures import reserve_of, tightest
from hpuwatch.advise.plan.reserve import activation_allowance_bytes
from hpuwatch.life.phases import Phase
from hpuwatch.state.configured import printed_strategy, release
from hpuwatch.state.model import Fault, Known, Memory, Server, Start, value_of
from hpuwatch.state.warmup_timed import timed_start
from hpuwatch.tune.trial import Facts, Outcome, TrialState
from hpuwatch.units import Amount

RESERVE = "VLLM_GRAPH_RESERVED_MEM"
STRATEGY = "VLLM_BUCKETING_STRATEGY"
LEGACY_STRATEGY = "VLLM_EXPONENTIAL_BUCKETING"

OTHER = "other"

_LOADING = (Phase.STOPPED, Phase.STARTING, Phase.LOADING)
_WHILE = {
    Phase.STARTING: "while starting",
    Phase.LOADING: "while weights loaded",
    Phase.SIZING: "while memory was sized",
    Phase.WARMING: "in warm-up",
    Phase.READY: "while serving",
}
_LONGEST_CAUSE = 300


def facts_of(start: Start) -> Facts:
    """Return what the log of one start said, of the rank with the least memory."""
    found = tightest(start)
    memory = found[1] if found else Memory()
    server, timed = start.server, timed_start(start)
    return Facts(
        simulated=server.simulated,
        release=_release(server),
        model=value_of(server.model) or "",
        card=value_of(server.card) or "",
        tensor_parallel=value_of(server.tensor_parallel),
        strategy=printed_strategy(start) or "",
        flags={
            name: known.value for name, known in server.flags.items() if tunable(name)
        },
        usable_bytes=_bytes(memory.usable),
        reserve_bytes=_bytes(memory.reserve),
        reserve_ratio=value_of(memory.reserve_ratio),
        kv_bytes=_bytes(memory.kv_cache),
        kv_blocks=value_of(start.kv.blocks),
        block_size=start.kv.block_size,
        allowance_bytes=_allowance(start),
        graph_bytes=_graph_bytes(start),
        buckets={phase: known.value.count for phase, known in start.buckets.items()},
        warmup_seconds=value_of(start.warmup.seconds),
        phase_seconds=timed.phase_seconds if timed else {},
        fixed_seconds=timed.fixed_seconds if timed else 0.0,
        max_num_seqs=value_of(server.max_num_seqs),
        max_num_batched_tokens=value_of(server.max_num_batched_tokens),
        max_model_len=value_of(server.max_model_len),
    )


def tunable(variable: str) -> bool:
    """Tell whether a variable is one that tuning may set or must know."""
    return (
        variable in (RESERVE, STRATEGY, LEGACY_STRATEGY, "VLLM_CONTIGUOUS_PA")
        or "_BUCKET_" in variable
    )


def failure_of(
    start: Start | None, how: str, otherwise: TrialState | None = None
) -> Outcome:
    """Return the failure of a server that ended, stood still or broke off.

    Args:
        start: what its log said, None for an empty log.
        how: one sentence on how it ended, said before the cause that the log names.
        otherwise: the outcome where memory was not the cause; by the phase if None.
    """
    if start is None:
        return Outcome(otherwise or TrialState.NOT_READY, how, Phase.STARTING.value)
    fault = root_fault(start)
    phase = fault.phase if fault else _last_living(start)
    state = otherwise or _by_phase(phase)
    if fault and _is_memory(fault):
        state = TrialState.OUT_OF_MEMORY
    cause = f"{how}: {describe(start, fault)}" if fault else how
    return Outcome(state, cause, phase.value, facts_of(start))


def describe(start: Start, fault: Fault) -> str:
    """Return a fault in a few words: what, where, how much."""
    what = "device memory ran out" if _is_memory(fault) else told(start, fault)
    words = [what[:_LONGEST_CAUSE], during(fault.phase)]
    if fault.at:
        words.append(f"at {fault.at}")
    if fault.wanted:
        words.append(f"({fault.wanted.printed} wanted)")
    return " ".join(words)


def during(phase: Phase) -> str:
    """Return a phase as the end of a sentence: ``in warm-up``."""
    return _WHILE.get(phase, f"while {phase.value.replace('_', ' ')}")


def _is_memory(fault: Fault) -> bool:
    return code_of(fault).endswith("-oom")


def wanted_bytes(facts: Facts) -> int:
    """Return what a log shows that its reserve should hold: graphs and the allowance."""
    return sum(facts.graph_bytes.values()) + facts.allowance_bytes


def reserve_is_short(facts: Facts) -> bool:
    """Tell whether a log shows a reserve that is smaller than what it should hold."""
    return bool(facts.reserve_bytes) and wanted_bytes(facts) > (
        facts.reserve_bytes or 0
    )


def shows_reserve_too_small(outcome: Outcome) -> bool:
    """Tell whether memory ran out where a larger reserve would have helped.

    Memory that runs out while weights load says nothing of the reserve.
    """
    return outcome.state is TrialState.OUT_OF_MEMORY and outcome.phase not in {
        phase.value for phase in _LOADING
    }


def missing_arrival(
    settings: Mapping[str, str], facts: Facts, *, so_far: bool = False
) -> str | None:
    """Return why the log doesn't show that all settings arrived, None when it does.

    With ``so_far`` the log is not complete yet, and only a contradiction counts.
    """
    for variable, value in settings.items():
        seen = _seen(variable, facts)
        if seen is None and not so_far:
            return f"the log doesn't show {variable}, so nobody knows if it arrived"
        if seen is not None and not _equal(value, seen):
            return f"{variable}={value} was set, but the log shows {seen}"
    return None


def _seen(variable: str, facts: Facts) -> str | None:
    if variable == RESERVE:
        return None if facts.reserve_ratio is None else str(facts.reserve_ratio)
    if variable == STRATEGY and facts.strategy:
        return facts.strategy
    return facts.flags.get(variable)


def _equal(one: str, other: str) -> bool:
    try:
        return float(one) == float(other)
    except ValueError:
        return one == other


def _by_phase(phase: Phase) -> TrialState:
    warming = phase is Phase.WARMING
    return TrialState.WARMUP_FAILED if warming else TrialState.NOT_READY


def _last_living(start: Start) -> Phase:
    """Return the phase that the log had come to before the end."""
    if start.warmup.progress and not start.warmup.seconds:
        return Phase.WARMING
    if start.phase in (Phase.FAILED, Phase.STOPPED, Phase.STOPPING):
        return Phase.SIZING if start.memory else Phase.STARTING
    return start.phase


def _allowance(start: Start) -> int:
    """Return what the reserve has to hold for activations, by the rule of ``advise``."""
    reserve = reserve_of(start)
    if reserve is None:
        return 0
    return max(0, activation_allowance_bytes(reserve) - reserve.outside_bytes)


def _graph_bytes(start: Start) -> dict[str, int]:
    """Return what graphs took by phase, and what else warm-up allocated as ``other``."""
    phases = {phase: known.value.bytes for phase, known in start.graphs_used.items()}
    allocated = _bytes(start.warmup.allocated) or 0
    return phases | {OTHER: max(0, allocated - sum(phases.values()))}


def _release(server: Server) -> str:
    """Return the release (``plugin-0.26``), else the version that the log printed."""
    found = release(server)
    return found.name if found else value_of(server.version) or ""


def _bytes(known: Known[Amount] | None) -> int | None:
    return known.value.bytes if known else None
