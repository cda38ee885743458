"""The parts that a proposal may be made of, each of which a log gives a reason for.

Every step has its need: a fault, a shape that traffic missed, a time-out that a warm-up
comes near to.  What nothing in the log asks for is no step (see ``advise.plan_left``).

Steps are told in the order of their ranks: what makes the server start comes before what
keeps it from dying, that before what users wait for, and that before more KV cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, floor

from hpuwatch.advise.baseline import Baseline
from hpuwatch.advise.bucketing import Ranges, ranges_of
from hpuwatch.advise.causes import code_of, root_fault
from hpuwatch.advise.checks.memory_peak import ran_out
from hpuwatch.advise.checks.memory_phases import is_thin, roomy_share
from hpuwatch.advise.checks.warmup_time import ready_after as seen_ready_after
from hpuwatch.advise.figures import about, reserve_of
from hpuwatch.advise.finding import Case
from hpuwatch.advise.plan.reserve import (
    LARGEST_RATIO,
    Proposal,
    Step,
    decimals,
    incomplete_phases,
    propose,
)
from hpuwatch.gaudi.buckets import Bucket
from hpuwatch.gaudi.caution import ready_after
from hpuwatch.gaudi.filestrategy import as_file
from hpuwatch.gaudi.knobs import KNOBS
from hpuwatch.gaudi.planning import (
    READY_TIMEOUT,
    RESERVE,
    UTILISATION,
    Change,
    Plan,
    default_utilisation,
    patient_seconds,
)
from hpuwatch.gaudi.predict import Forecast
from hpuwatch.gaudi.resolve import FILE_VARIABLE
from hpuwatch.gaudi.variables import flag_number
from hpuwatch.life.phases import Phase
from hpuwatch.state.model import DECODE, PROMPT, Start
from hpuwatch.units import counted

STARTS, LIVES, ANSWERS_AT_ONCE, HOLDS_MORE = range(4)
"""Ranks: it starts; it stays alive; nobody waits for a compilation; it holds more."""

MISSES = "bucket-miss"
"""The finding that wider ranges answer."""

PROMPT_RATIO = "VLLM_GRAPH_PROMPT_RATIO"
SKIP = "VLLM_SKIP_WARMUP"
_BUCKET_FILE = "/etc/vllm/buckets.txt"
_MOST_SHAPES = 64
"""More shapes than that are a storm."""

_LARGEST_PROMPT_RATIO = 0.95
_DECODE_SLACK = 1.5
"""The decode graphs keep so many times what they took: the next start may list more."""

_AXES = ((PROMPT, 1), (PROMPT, 2), (DECODE, 0), (DECODE, 2))
"""Axes whose end traffic can show to be too low; the batch of a prefill is a choice."""
_SIZES = {0: "batch", 1: "query", 2: "blocks"}


def memory_step(start: Start, earlier: Sequence[Start] = ()) -> Step | None:
    """Return the one move of the memory split that the log supports.

    After a warm-up that ran out of memory it goes as far as that warm-up's need, where the
    steps before and earlier starts tell more than half as much again (``memorypeak``).
    """
    found = propose(start)
    if found is None:
        return None
    won = found.expected.get("kv_blocks_won", 0)
    percent = found.expected.get("kv_blocks_won_percent", 0)
    changes, why = found.changes, found.why
    if start.phase is Phase.FAILED:
        rank = LIVES if found.answers == "serving-oom" else STARTS
        gain = (
            "the server stays up"
            if rank == LIVES
            else "the server gets further or starts"
        )
        changes, why = _as_needed(start, earlier, found)
    elif won < 0:
        rank, gain = LIVES, "graphs have the memory that they take"
    else:
        rank, gain = HOLDS_MORE, f"{won:,.0f} KV blocks more ({percent:g} %)"
    return Step(changes, found.answers, gain, why, rank)


def _as_needed(
    start: Start, earlier: Sequence[Start], found: Proposal
) -> tuple[tuple[Change, ...], str]:
    seen = ran_out(Case(start, tuple(earlier)))
    needed = seen.figures.get("reserve_needed_ratio") if seen else None
    planned = float(found.env.get(RESERVE, 1))
    if needed is None or not planned < needed.value <= LARGEST_RATIO:
        return found.changes, found.why
    return (Change(RESERVE, decimals(needed.value)),), (
        f"Warm-up needs a reserve of about {needed.value:g} ({needed.low:g} to "
        f"{needed.high:g}, {needed.origin}) at its peak, by the steps before it died."
    )


def prompt_ratio(start: Start, plan: Plan) -> Step | None:
    """Give prompts the graph memory that decodes leave, where a budget cut them short.

    Only releases up to fork 1.21 divide the reserve into two budgets.  The reserve itself
    stays: more of it is KV cache lost, and nothing shows that all graphs are needed.
    """
    cut = incomplete_phases(start)
    decode, reserve = start.graphs_used.get(DECODE), reserve_of(start)
    knob = KNOBS[PROMPT_RATIO]
    if PROMPT not in cut or DECODE in cut or decode is None or reserve is None:
        return None
    default = knob.plain(plan.at)
    if not knob.acts(plan.at) or default is None:
        return None
    kept = decode.value.bytes * _DECODE_SLACK / reserve.reserve_bytes
    ratio = min(_LARGEST_PROMPT_RATIO, floor(100 * (1 - kept)) / 100)
    now = _number(plan.env.get(PROMPT_RATIO), float(default))
    if ratio <= now:
        return None
    share = 100 * cut[PROMPT].value
    return Step(
        (Change(PROMPT_RATIO, decimals(ratio)),),
        "graphs-incomplete",
        f"more than {share:g} % of the prompt graphs",
        f"Prompts got {share:g} % of their graphs, and decodes took "
        f"{about(decode.value.bytes)} of the {about(reserve.reserve_bytes)} reserve: the "
        f"share of prompts goes from {now:g} to {ratio:g}.",
        ANSWERS_AT_ONCE,
    )


def lower_utilisation(start: Start, plan: Plan) -> Step | None:
    """Leave more outside of vLLM's budget where that was too little, or all but taken.

    A KV cache that the card could not hold tells no number: the release's default is tried.
    """
    fault, usual = root_fault(start), default_utilisation(plan.at)
    if fault is not None:
        if code_of(fault) != "sizing-oom" or plan.utilisation <= usual:
            return None
        return Step(
            (Change(UTILISATION, f"{usual:g}"),),
            "sizing-oom",
            "so that the server starts",
            f"The card could not hold what {plan.utilisation:g} of its free memory comes to; "
            f"{usual:g} is the release's default.",
            STARTS,
        )
    share = roomy_share(start) if is_thin(start) else None
    if share is None:
        return None
    return Step(
        (Change(UTILISATION, f"{share:g}"),),
        "memory-thin",
        "the first large requests have room",
        "Warm-up has all but filled the card, and what real requests take comes on top.",
        LIVES,
    )


def unskip(start: Start) -> Step | None:
    """Let a server that serves warm up again where it skipped that."""
    if start.warmup.skipped is None or root_fault(start) is not None:
        return None
    missed = sum(miss.count for miss in start.misses)
    waited = f", {counted(missed, 'time')} in this log" if missed else ""
    return Step(
        (Change(SKIP, None),),
        "warmup-skipped",
        "no compilation while users wait",
        f"Warm-up was skipped, so each new shape compiles while a user waits{waited}; with "
        "it the start takes longer, once.",
        ANSWERS_AT_ONCE,
    )


def _number(text: str | None, default: float) -> float:
    try:
        return default if text is None else float(text)
    except ValueError:
        return default


def wider_buckets(start: Start, plan: Plan) -> Step | None:
    """Let ranges reach as far as traffic did, where variables of the server move them.

    Shapes inside of a range that no bucket combines need another remedy.
    """
    ranges = ranges_of(start)
    changes, said = [], []
    for phase, axis in _AXES:
        found = _beyond(start, phase, axis)
        variable = ranges.variable(phase, axis) if ranges.acting is not None else None
        if found is None or variable is None:
            continue
        asked, largest = found
        end = _stepped(
            asked, plan.env.get(variable.replace("_MAX", "_STEP")), axis, plan
        )
        changes.append(Change(variable, str(end)))
        said.append(
            f"{phase} {_SIZES[axis]} {asked:,} where buckets end at {largest:,}"
        )
    if not changes:
        return None
    count = sum(miss.count for miss in start.misses)
    return Step(
        tuple(changes),
        MISSES,
        "no compilation while users wait",
        f"Traffic asked {count:,} times for shapes without a bucket: {'; '.join(said)}.",
        ANSWERS_AT_ONCE,
    )


def _beyond(start: Start, phase: str, axis: int) -> tuple[int, int] | None:
    """Return the largest size that was asked for and that of the buckets, where larger."""
    listed = start.buckets.get(phase)
    shapes = [each for each in listed.value.shapes if len(each) == 3] if listed else []
    asked = [
        miss.shape[axis]
        for miss in start.misses
        if miss.phase == phase and miss.count and len(miss.shape) == 3
    ]
    if not shapes or not asked:
        return None
    largest = max(each[axis] for each in shapes)
    return (max(asked), largest) if max(asked) > largest > 0 else None


def _stepped(asked: int, step_text: str | None, axis: int, plan: Plan) -> int:
    """Return the size rounded up to the axis's own step."""
    usual = {0: 32, 1: plan.flags.block_size, 2: plan.flags.block_size}[axis]
    step = flag_number(step_text or "") or usual
    return ceil(asked / max(1, step)) * max(1, step)


def listed_shapes(start: Start, baseline: Baseline) -> Step | None:
    """List the missed shapes in a bucket file, together with all buckets of the log.

    It is the one way where no variable ends the range (the exponential strategy), and where
    shapes lie between buckets.  A storm of shapes is no list: that wants other limits.
    """
    printed = baseline.basis.printed
    lists = dict(printed.lists) if printed else {}
    ranges = ranges_of(start)
    if root_fault(start) is not None or not lists or not ranges.reads_file:
        return None
    size = baseline.plan.flags.block_size
    missed = {
        phase: {
            _rounded(shape, phase, size)
            for asked, shape in baseline.misses
            if asked == phase
        }
        - set(lists[phase])
        for phase in lists
    }
    count = sum(map(len, missed.values()))
    if not 0 < count <= _MOST_SHAPES:
        return None
    text = as_file(*((*lists[each], *sorted(missed[each])) for each in lists))
    path = baseline.plan.env.get(FILE_VARIABLE) or _BUCKET_FILE
    return Step(
        (Change(FILE_VARIABLE, path),),
        MISSES,
        "no compilation while users wait",
        f"Traffic asked for {counted(count, 'shape')} without a bucket: the file at {path} "
        f"lists {'it' if count == 1 else 'them'} together with the buckets of this log.",
        ANSWERS_AT_ONCE,
        text,
    )


def _rounded(shape: Bucket, phase: str, size: int) -> Bucket:
    """Return the bucket for a shape: whole blocks of a prompt's tokens, or of a decode's."""
    if phase == PROMPT:
        return shape._replace(query=ceil(shape.query / size) * size)
    return shape._replace(context=ceil(shape.context / size) * size)


def lower_decode_top(start: Start, forecast: Forecast) -> Step | None:
    """End the decode blocks at the cache where warm-up died of memory on its way there.

    Only then: requests that share prefixes may refer to more blocks than there are, so a
    server that came through its warm-up keeps its range.
    """
    fault = root_fault(start)
    if fault is None or code_of(fault) != "warmup-oom":
        return None
    if not (fault.at or "").startswith(DECODE):
        return None
    ranges: Ranges = ranges_of(start)
    top = ranges.variable(DECODE, 2) if ranges.acting is not None else None
    blocks, deepest = forecast.num_blocks, forecast.deepest
    if top is None or blocks < forecast.blocks_per_sequence or deepest <= blocks:
        return None
    least = flag_number(forecast.plan.env.get(top.replace("_MAX", "_MIN"), ""))
    changes = [Change(top, str(blocks))]
    if least is not None and least > blocks:
        changes.append(Change(top.replace("_MAX", "_MIN"), None))
    return Step(
        tuple(changes),
        "warmup-oom",
        "warm-up asks for no more blocks than there are",
        f"Warm-up died at {fault.at}, and its largest decode bucket has {deepest:,} blocks "
        f"where the card holds {blocks:,}.",
        STARTS,
    )


def patience(start: Start, forecast: Forecast) -> Step | None:
    """Let the front end wait longer, where it ended a start that outlasted its time-out.

    Only then: with one API server the time-out was seen not to bound a start at all.
    """
    plan, ready = forecast.plan, ready_after(forecast)
    waits, fault = plan.ready_seconds, root_fault(start)
    if fault is None or code_of(fault) != "warmup-timeout":
        return None
    if waits is None or not KNOBS[READY_TIMEOUT].acts(plan.at):
        return None
    known = ready.value > 0 and ready.origin != "prior"
    wanted = max(patient_seconds(ready.high / 2), patient_seconds(waits))
    seen = seen_ready_after(start)
    if seen is not None:  # twice what this start took or would have taken
        wanted = max(wanted, patient_seconds(seen.value))
    if wanted <= waits:
        return None
    said = f"The front end gave up after {waits:,} s, and the engine was still warming."
    if known:
        said = (
            f"Loading and warm-up take {ready.low:,.0f} to {ready.high:,.0f} s "
            f"({ready.origin}), and the front end waits {waits:,} s for the engine."
        )
    return Step(
        (Change(READY_TIMEOUT, str(wanted)),),
        "warmup-timeout",
        "the front end doesn't end a server that is still warming",
        said,
        STARTS,
    )
