"""A search among plans that ends in time: every plan tried is paid for in buckets.

What a prediction takes is mostly the making of its lists.  So the bound is a number of
buckets, not of seconds, and the same search ends the same way everywhere.
"""

from __future__ import annotations

from dataclasses import dataclass

from hpuwatch.errors import ConfigError
from hpuwatch.gaudi.basis import Basis
from hpuwatch.gaudi.planning import Plan
from hpuwatch.gaudi.predict import Forecast, predict

BUDGET = 400_000
"""Buckets that a search may make in all."""
_TRY = 200
"""What a try costs beside its lists, in buckets."""


class SearchCutError(ConfigError):
    """The budget of a search is spent."""


@dataclass(slots=True)
class Search:
    """A search under way: what its predictions rest on, and the buckets it may still make."""

    basis: Basis
    left: int = BUDGET

    def predict(self, plan: Plan) -> Forecast:
        """Return what a plan comes to.

        Raises:
            SearchCutError: too many buckets were made before.
            ConfigError: as :func:`hpuwatch.gaudi.predict.predict`.
        """
        if self.left <= 0:
            raise SearchCutError(
                f"the plans tried out made more than {BUDGET:,} buckets"
            )
        forecast = predict(plan, self.basis)
        made = sum(map(len, forecast.lists.values()))
        self.left -= _TRY + (forecast.broken.made if forecast.broken else made)
        return forecast
