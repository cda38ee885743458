"""One plan: the steps that a log gives reasons for, combined and looked at as a whole.

Settings interact.  A larger reserve leaves fewer blocks, fewer blocks make other decode
buckets, other buckets another warm-up, and that may outlast the front end's patience.  So
the steps (``advise.plan.steps``) are laid upon one another, and after each the whole is
looked at (``advise.plan.desk``).  A start that failed and still would is repaired
(``gaudi.repair``), as far as settings can.

Where a log tells too little for a prediction, the one move of the memory split remains,
which has bounds of its own (``advise.plan.reserve``), and lint.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from types import MappingProxyType

from hpuwatch.advise.baseline import Lesson
from hpuwatch.advise.causes import root_fault
from hpuwatch.advise.figures import has_traffic, tokens_per_block
from hpuwatch.advise.plan.desk import DECODE_ABOVE, Desk, Dropped, desk_of
from hpuwatch.advise.plan.figures import figures_of
from hpuwatch.advise.plan.reserve import Proposal, Step, of_changes, propose
from hpuwatch.advise.plan.steps import (
    HOLDS_MORE,
    MISSES,
    listed_shapes,
    lower_decode_top,
    lower_utilisation,
    memory_step,
    patience,
    prompt_ratio,
    unskip,
    wider_buckets,
)
from hpuwatch.advise.plan.widening import all_widened
from hpuwatch.gaudi.caution import cautions
from hpuwatch.gaudi.planning import RESERVE, UTILISATION
from hpuwatch.gaudi.predict import Forecast
from hpuwatch.gaudi.refusal import refusals
from hpuwatch.state.configured import release_text
from hpuwatch.state.model import Start
from hpuwatch.units import counted

_TOLD_ANYWAY = frozenset(
    {"assumed", "rules-differ", "set-in-vain", "seqs-times-length"}
)
"""Cautions that findings tell, or that hold of the server whatever is proposed."""
_NOTHING: Mapping[str, float] = MappingProxyType({})
_ROUNDING = 0.001
"""Two ways to count blocks may differ by that share: the sizes were printed rounded."""


@dataclass(frozen=True, slots=True)
class Planned:
    """What came of planning.

    Attributes:
        proposal: None for "change nothing".
        now: what the running server comes to; None where the log tells too little.
        then: what it comes to with the proposal.
        dropped: steps that were left out.
    """

    proposal: Proposal | None = None
    now: Forecast | None = None
    then: Forecast | None = None
    dropped: tuple[Dropped, ...] = ()


def planned(
    starts: Sequence[Start],
    widenings: Mapping[str, float] = _NOTHING,
    lessons: Sequence[Lesson] = (),
) -> Planned:
    """Return the one plan for the newest start, which earlier ones teach.

    Args:
        starts: oldest first, at least one.
        widenings: by how much intervals grow, by the figure's name: what earlier
            predictions were worth.
        lessons: of earlier starts whose logs aren't at hand.
    """
    desk = _shallower(desk_of(starts, lessons)) or _laid(desk_of(starts, lessons))
    found = _proposal(desk)
    if found is not None:
        found = replace(found, figures=all_widened(found.figures, widenings))
    return Planned(found, desk.now, desk.then, tuple(desk.dropped))


def _shallower(desk: Desk) -> Desk | None:
    """Return the plan against a death at the first decode bucket, None where it's another.

    A bucket above the cache wants to be cut, and KV cache given away for it would be lost.
    """
    now = desk.now
    if now is None or all(each.code != DECODE_ABOVE for each in desk.left(now)):
        return None
    cut = lower_decode_top(desk.start, now)
    if cut is not None:
        desk.lay(cut)
    desk.mend()
    return desk if desk.steps else None


def _laid(desk: Desk) -> Desk:
    """Return the desk with all steps that the log gives reasons for."""
    for step in _first_steps(desk):
        left_out = _unproven(desk, step)
        if left_out is None:
            desk.lay(step)
        else:
            desk.dropped.append(left_out)
    listed = None
    if desk.baseline is not None and desk.start.warmup.skipped is None:
        listed = listed_shapes(desk.start, desk.baseline)
    if listed is not None and all(step.answers != MISSES for step in desk.steps):
        desk.lay(listed)
    for make in (lower_decode_top, patience):
        step_after = make(desk.start, desk.then) if desk.then is not None else None
        if step_after is not None:
            desk.lay(step_after)
    desk.mend()
    return desk


def _first_steps(desk: Desk) -> Iterator[Step]:
    """Yield what the log asks for, the most gain first: where two quarrel it stays."""
    steps = [memory_step(desk.start, desk.earlier), unskip(desk.start)]
    if desk.baseline is not None:
        steps.append(lower_utilisation(desk.start, desk.baseline.plan))
    if desk.baseline is not None and root_fault(desk.start) is None:
        plan = desk.baseline.plan
        steps.append(prompt_ratio(desk.start, plan))
        if (
            desk.start.warmup.skipped is None
        ):  # else each shape was missed, ranges or not
            steps.append(wider_buckets(desk.start, plan))
    found = [each for each in steps if each is not None]
    yield from sorted(found, key=attrgetter("rank"))


def _unproven(desk: Desk, step: Step) -> Dropped | None:
    """Leave out a further step down while the last one has borne no load.

    A reserve never loses more than half of what lies idle at once; a second half would rest
    on nothing that is new.
    """
    start, baseline = desk.start, desk.baseline
    if step.rank != HOLDS_MORE or baseline is None or has_traffic(start):
        return None
    now, release = baseline.plan.reserve_ratio, release_text(start.server)
    larger = [
        each.reserve_ratio
        for each in baseline.before
        if each.warmed and each.release == release and (each.reserve_ratio or 0) > now
    ]
    if not larger:
        return None
    why = (
        f"the reserve was lowered already ({larger[-1]:g} before), and this log shows no "
        "load: nothing new is known of what requests need."
    )
    return Dropped(
        step, why, f"Run normal traffic with {RESERVE}={now:g} before a further step."
    )


def _proposal(desk: Desk) -> Proposal | None:
    if not desk.steps:
        return None
    steps = tuple(sorted(desk.steps, key=attrgetter("rank")))
    memory = propose(desk.start)
    if memory is None or all(each.changes != memory.changes for each in steps):
        memory = Proposal({}, " ".join(each.why for each in steps), steps[0].answers)
    if any(change.name == UTILISATION for change in desk.changes()):
        memory = replace(memory, kept=(), margin={})  # they are of the old share
    found = replace(
        of_changes(desk.changes(), memory),
        answers=next((each.answers for each in steps if each.answers), ""),
        steps=steps,
        expected=_expected(desk, memory),
        checked=desk.baseline is not None,
        bucket_file=desk.bucket_file,
        cautions=tuple(_cautions(desk)),
    )
    return replace(found, figures=figures_of(found, desk.now, desk.then))


def _expected(desk: Desk, memory: Proposal) -> Mapping[str, float]:
    """Return the plain numbers: those of the memory move, unless more moved the blocks."""
    then, now = desk.then, desk.now
    told = memory.expected.get("kv_blocks")
    if then is None or now is None or not then.num_blocks:
        return memory.expected
    if told is not None and abs(told - then.num_blocks) <= 1 + _ROUNDING * told:
        return memory.expected
    won = then.num_blocks - now.num_blocks
    if told is None and won == 0:
        return memory.expected
    size, _ = tokens_per_block(desk.start)
    expected = dict(memory.expected) | {
        "kv_blocks": then.num_blocks,
        "kv_blocks_won": won,
        "kv_blocks_won_percent": round(100 * won / now.num_blocks, 1)
        if now.num_blocks
        else 0.0,
        "kv_tokens_won": won * size,
    }
    if then.split is not None:
        expected["kv_cache_bytes"] = then.split.kv_cache_bytes
        expected["reserve_bytes"] = then.split.reserve_bytes
    return expected


def _cautions(desk: Desk) -> Iterator[str]:
    """Say what users lose, and what is uncertain of the plan and was not of the server."""
    if desk.baseline is None or desk.then is None or desk.now is None:
        return
    most, now = desk.then.plan.flags, desk.now.plan.flags
    if most.max_num_seqs < now.max_num_seqs:
        yield (
            f"At most {counted(most.max_num_seqs, 'request')} run at once, not "
            f"{now.max_num_seqs:,}; the others wait."
        )
    if most.max_model_len < now.max_model_len:
        yield (
            f"A request may have at most {most.max_model_len:,} tokens, not "
            f"{now.max_model_len:,}; longer ones are refused."
        )
    basis = desk.baseline.basis
    before = {each.code for each in cautions(desk.now, basis)}
    for each in cautions(desk.then, basis):
        if each.code not in _TOLD_ANYWAY | before:
            yield each.text
    refused = {each.code for each in refusals(desk.now, basis)}
    for each in refusals(desk.then, basis):
        if each.code not in refused:  # one that is excused
            yield each.text
