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
from hpuwatch.gaudi.predict import Forecast
from hpuwatch.gaudi.refusal import UNMENDED, Remark, refusals
from hpuwatch.gaudi.remedies import (
    REMEDIES,
    Remedy,
    coarser,
    makes_many,
    reached,
    smaller,
)
from hpuwatch.gaudi.search import Search, SearchCutError

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
        SearchCutError: the lists are too long to try out enough plans.
        ConfigError: as :func:`hpuwatch.gaudi.predict.predict`.
    """
    try:
        return _repaired(forecast.plan, Search(basis), Repaired((), forecast))
    except SearchCutError:
        for back in coarser(forecast.plan):
            again = Search(basis)
            begun = _changed(forecast.plan, again, back)
            return _repaired(forecast.plan, again, begun)
        raise


def _repaired(plan: Plan, search: Search, begun: Repaired) -> Repaired | None:
    made = {change.name: change for change in begun.changes}
    forecast = begun.forecast
    for _ in range(_STEPS):
        left = refusals(forecast, search.basis)
        if any(each.code in UNMENDED for each in left):
            return None
        if not left:
            return _needed(plan, search, Repaired(tuple(made.values()), forecast))
        step = _helping(forecast, search, left) or _shrinking(forecast.plan, search)
        if step is None:
            return None
        for change in step.changes:
            made.pop(change.name, None)
            made[change.name] = change
        forecast = step.forecast
    return None


def _changed(plan: Plan, search: Search, remedy: Remedy) -> Repaired:
    return Repaired(remedy, search.predict(applied(plan, remedy)))


def _needed(plan: Plan, search: Search, found: Repaired) -> Repaired:
    """Take back every change without which the plan works too, the last one first."""
    for change in reversed(found.changes if len(found.changes) > 1 else ()):
        others = tuple(each for each in found.changes if each != change)
        try:
            without = _changed(plan, search, others)
        except SearchCutError:
            return found  # it works as it is
        if not refusals(without.forecast, search.basis):
            return _needed(plan, search, without)
    return found


def _helping(
    forecast: Forecast, search: Search, left: Sequence[Remark]
) -> Repaired | None:
    """Return the nearest remedy of the first refusal that gets the start further."""
    first = left[0]
    offered = REMEDIES[first.code](forecast, search, first)
    if makes_many(forecast):
        offered = chain(coarser(forecast.plan), offered)
    for remedy in offered:
        then = _changed(forecast.plan, search, remedy)
        if reached(refusals(then.forecast, search.basis)) > reached(left):
            return then
    return None


def _shrinking(plan: Plan, search: Search) -> Repaired | None:
    """Return a step towards the smallest plan, None at its end."""
    step = smaller(plan)
    return None if step is None else _changed(plan, search, step)
