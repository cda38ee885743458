"""Graph memory by phase, and what is left of the card once all graphs are there.

Up to fork 1.21 the reserve is divided: prompt graphs may take VLLM_GRAPH_PROMPT_RATIO of it
and decode graphs the rest.  What one phase leaves, the other gets only afterwards, so a
share that doesn't fit leaves prompts without graphs beside memory that nobody uses.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from math import floor

from hpuwatch.advise.figures import (
    ACTIVATION_SHARE,
    activations_unmeasured,
    tightest,
    within,
)
from hpuwatch.advise.finding import Case, Sighting
from hpuwatch.advise.graphmemory import observations_of
from hpuwatch.advise.plan.reserve import incomplete_phases
from hpuwatch.gaudi.estimate import Estimate
from hpuwatch.gaudi.graphlaw import fit
from hpuwatch.records import Line
from hpuwatch.state.configured import printed_lists
from hpuwatch.state.model import (
    DECODE,
    PROMPT,
    Known,
    Memory,
    Progress,
    Start,
    value_of,
)
from hpuwatch.units import Amount

_ACTIVATIONS = (0.056, 0.067, ACTIVATION_SHARE)
"""What profile runs that really ran took of the free memory, in public logs (see
``advise.plan.reserve``): the least, the middle and the allowance."""
_LEAST_SHARE = 0.5
"""A utilisation below that wants more cards, or another server."""
_THIN_RATIO = 0.02


def incomplete(case: Case) -> Sighting | None:
    """Look for phases whose graphs did not fit their budget (releases up to 1.21)."""
    start = case.start
    cut = incomplete_phases(start)
    if not cut:
        return None
    used, budgets = start.graphs_used, start.warmup.budgets
    ratio_helps = PROMPT in cut and DECODE not in cut and DECODE in used
    needs = {
        f"{phase}_need_bytes": need
        for phase in cut
        if (need := _need(start, phase)) is not None
    }
    numbers: dict[str, float | str] = {
        f"{phase}_captured_percent": round(100 * captured.value, 1)
        for phase, captured in cut.items()
    }
    numbers |= {f"{phase}_used_bytes": each.value.bytes for phase, each in used.items()}
    numbers |= {
        f"{phase}_budget_bytes": each.value.bytes for phase, each in budgets.items()
    }
    ratio = start.warmup.prompt_ratio
    if ratio is not None:
        numbers["prompt_ratio"] = ratio.value
    divided = {PROMPT, DECODE} <= budgets.keys() and {PROMPT, DECODE} <= used.keys()
    return Sighting(
        why=(
            "why",
            *(("why_budgets",) if divided else ()),
            *(("why_need",) if needs else ()),
        ),
        cure=("cure_ratio" if ratio_helps else "cure",),
        numbers=numbers,
        figures=needs,
        words={
            "captured": " and ".join(
                f"{100 * seen.value:.1f} % of the {phase} graphs"
                for phase, seen in cut.items()
            ),
            "needs": _in_words(needs),
        },
        aspect=PROMPT if ratio_helps else "",
        lines=_in_order(*cut.values(), *used.values(), *budgets.values()),
    )


def _in_words(needs: Mapping[str, Estimate]) -> str:
    return " and ".join(
        f"all {name.removesuffix('_need_bytes')} graphs would take {within(need)}"
        for name, need in needs.items()
    )


def _in_order(*known: Known[Amount] | Known[float]) -> tuple[Line, ...]:
    return tuple(sorted({each.line for each in known}, key=lambda line: line.number))


def _need(start: Start, phase: str) -> Estimate | None:
    """Return what all graphs of a phase would take, by those that were captured."""
    listed = printed_lists(start).get(phase)
    seen = [each for each in observations_of(start) if each.phase == phase]
    if not listed or not seen:
        return None
    return fit(seen).phases[phase].bytes_of(listed)


def thin(case: Case) -> Sighting | None:
    """Look for a card that warm-up has all but filled."""
    start = case.start
    if start.warmup.seconds is None:
        return None
    told = [each for each in start.warmup.progress.values() if each.free]
    total = next((each.total for each in start.memory.values() if each.total), None)
    if not told or total is None:
        return None
    least = min((each.free for each in told if each.free), key=_bytes)
    if least.value.bytes >= total.value.bytes * case.limits["free_ratio"]:
        return None
    figures = {"free_after_warmup_bytes": _left(least.value.bytes, told)}
    activations = _activations(start)
    if activations is not None:
        figures["activations_bytes"] = activations
    share = roomy_share(start)
    return Sighting(
        why=("why", "why_activations") if activations else ("why",),
        cure=("cure",) if share is None else ("cure_share",),
        numbers={"free_bytes": least.value.bytes, "total_bytes": total.value.bytes},
        figures=figures,
        words={
            "activations": within(activations) if activations else "",
            "share": "" if share is None else f"{share:g}",
        },
        lines=(least.line, total.line),
    )


def is_thin(start: Start) -> bool:
    """Tell whether warm-up has all but filled the card."""
    return thin(Case(start, limits={"free_ratio": _THIN_RATIO})) is not None


def roomy_share(start: Start) -> float | None:
    """Return a utilisation that leaves requests what they may need beside warm-up's graphs.

    None where nothing tells what they need, or no utilisation above ``_LEAST_SHARE`` does.
    """
    found, need = tightest(start), _activations(start)
    told = [each for each in start.warmup.progress.values() if each.free]
    memory = found[1] if found else Memory()
    free, share = memory.free, value_of(memory.utilisation)
    if need is None or free is None or share is None or not told:
        return None
    left = min(each.free.value.bytes for each in told if each.free)
    lacks = need.value - _left(left, told).value
    roomy = floor(100 * (share - lacks / free.value.bytes)) / 100
    return roomy if _LEAST_SHARE <= roomy < share else None


def _bytes(known: Known[Amount]) -> int:
    return known.value.bytes


def _left(free_bytes: int, told: list[Progress]) -> Estimate:
    """Return what is free after the last bucket, whose own work no line shows."""
    falls = [
        max(0, before.bytes - after.bytes)
        for each in told
        for (_, before), (_, after) in pairwise(each.steps)
    ]
    largest = max((0, *falls))
    usual = sorted(falls)[len(falls) // 2] if falls else 0
    return Estimate(free_bytes - usual, free_bytes - largest, free_bytes, "predicted")


def _activations(start: Start) -> Estimate | None:
    """Return what real requests may need on top, where nothing has measured it."""
    if not activations_unmeasured(start):
        return None
    free = next((each.free for each in start.memory.values() if each.free), None)
    if free is None:
        return None
    low, value, high = (free.value.bytes * share for share in _ACTIVATIONS)
    return Estimate(value, low, high, "prior")
