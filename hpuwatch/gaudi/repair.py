"""The nearest plan that works, for one that is refused.

Refusals are mended in the order in which a start would meet them, each by the nearest of
its remedies (``gaudi.remedies``) that gets the start further.  Where none does, the plan
shrinks step by step (bucket variables go, then sequences and length are halved), so that
the search always ends.  At last every change is taken back that proves needless.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

from hpuwatch.gaudi.basis import Basis
from hpuwatch.gaudi.planning import Change, Plan, applied
from hpuwatch.gaudi.predict import Forecast, predict
from hpuwatch.gaudi.refusal import Remark, refusals
from hpuwatch.gaudi.remedies import (
    MANY_BUCKETS,
    REMEDIES,
    Remedy,
    coarser,
    reached,
    smaller,
)

_STEPS = 64


@dataclass(frozen=True, slots=True)
class Repaired:
    """A plan, and how it came of the one before.

    Attributes:
        changes: what was changed.
        forecast: what the new plan comes to.
    """

    changes: tuple[Change, ...]
    forecast: Forecast


def repair(forecast: Forecast, basis: Basis) -> Repaired | None:
    """Return the nearest plan that isn't refused, None where no setting helps.

    Args:
        forecast: what the plan in question comes to.
        basis: what it rests on.

    Raises:
        ConfigError: as :func:`hpuwatch.gaudi.predict.predict`.
    """
    plan = forecast.plan
    made: dict[str, Change] = {}
    for _ in range(_STEPS):
        left = refusals(forecast, basis)
        if any(each.code == "weights-too-large" for each in left):
            return None
        if not left:
            return _needed(plan, basis, Repaired(tuple(made.values()), forecast))
        step = _helping(forecast, basis, left) or _shrinking(forecast.plan, basis)
        if step is None:
            return None
        for change in step.changes:
            made.pop(change.name, None)
            made[change.name] = change
        forecast = step.forecast
    return None


def _changed(plan: Plan, basis: Basis, remedy: Remedy) -> Repaired:
    return Repaired(remedy, predict(applied(plan, remedy), basis))


def _needed(plan: Plan, basis: Basis, found: Repaired) -> Repaired:
    """Take back every change without which the plan works too, the last one first."""
    for change in reversed(found.changes if len(found.changes) > 1 else ()):
        others = tuple(each for each in found.changes if each != change)
        without = _changed(plan, basis, others)
        if not refusals(without.forecast, basis):
            return _needed(plan, basis, without)
    return found


def _helping(
    forecast: Forecast, basis: Basis, left: Sequence[Remark]
) -> Repaired | None:
    """Return the nearest remedy of the first refusal that gets the start further."""
    first = left[0]
    offered = REMEDIES[first.code](forecast, basis, first)
    if sum(map(len, forecast.lists.values())) > MANY_BUCKETS:
        # Each try would take long, and no server warms so many buckets.
        offered = chain(coarser(forecast.plan), offered)
    for remedy in offered:
        then = _changed(forecast.plan, basis, remedy)
        if reached(refusals(then.forecast, basis)) > reached(left):
            return then
    return None


def _shrinking(plan: Plan, basis: Basis) -> Repaired | None:
    """Return a step towards the smallest plan, None at its end."""
    step = smaller(plan)
    return None if step is None else _changed(plan, basis, step)
