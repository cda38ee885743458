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

from hpuwatch.advise.causes import root_fault
from hpuwatch.advise.figures import tokens_per_block
from hpuwatch.advise.plan.desk import Desk, Dropped, desk_of
from hpuwatch.advise.plan.figures import figures_of
from hpuwatch.advise.plan.reserve import Proposal, Step, of_changes, propose
from hpuwatch.advise.plan.steps import (
    MISSES,
    listed_shapes,
    lower_decode_top,
    memory_step,
    patience,
    prompt_ratio,
    wider_buckets,
)
from hpuwatch.advise.plan.widening import all_widened
from hpuwatch.gaudi.caution import cautions
from hpuwatch.gaudi.predict import Forecast
from hpuwatch.state.model import Start

_TOLD_ANYWAY = frozenset(
    {"assumed", "rules-differ", "set-in-vain", "seqs-times-length"}
)
"""Cautions that findings tell, or that hold of the server whatever is proposed."""
_NOTHING: Mapping[str, float] = MappingProxyType({})


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
    starts: Sequence[Start], widenings: Mapping[str, float] = _NOTHING
) -> Planned:
    """Return the one plan for the newest start, which earlier ones teach.

    Args:
        starts: oldest first, at least one.
        widenings: by how much intervals grow, by the figure's name: what earlier
            predictions were worth.
    """
    desk = desk_of(starts)
    for step in _first_steps(desk):
        desk.lay(step)
    listed = listed_shapes(desk.start, desk.baseline) if desk.baseline else None
    if listed is not None and all(step.answers != MISSES for step in desk.steps):
        desk.lay(listed)
    for make in (lower_decode_top, patience):
        step_after = make(desk.start, desk.then) if desk.then is not None else None
        if step_after is not None:
            desk.lay(step_after)
    desk.mend()
    found = _proposal(desk)
    if found is not None:
        found = replace(found, figures=all_widened(found.figures, widenings))
    return Planned(found, desk.now, desk.then, tuple(desk.dropped))


def _first_steps(desk: Desk) -> Iterator[Step]:
    """Yield what the log asks for, the most gain first: where two quarrel it stays."""
    steps = [memory_step(desk.start, desk.earlier)]
    if desk.baseline is not None and root_fault(desk.start) is None:
        plan = desk.baseline.plan
        steps += [prompt_ratio(desk.start, plan), wider_buckets(desk.start, plan)]
    found = [each for each in steps if each is not None]
    yield from sorted(found, key=attrgetter("rank"))


def _proposal(desk: Desk) -> Proposal | None:
    if not desk.steps:
        return None
    steps = tuple(sorted(desk.steps, key=attrgetter("rank")))
    memory = propose(desk.start)
    if memory is None or all(each.changes != memory.changes for each in steps):
        memory = Proposal({}, " ".join(each.why for each in steps), steps[0].answers)
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
    if told is not None and abs(told - then.num_blocks) <= 1:
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
    """Say what is uncertain of the plan and was not of the running server."""
    if desk.baseline is None or desk.then is None or desk.now is None:
        return
    basis = desk.baseline.basis
    before = {each.code for each in cautions(desk.now, basis)}
    for each in cautions(desk.then, basis):
        if each.code not in _TOLD_ANYWAY | before:
            yield each.text
