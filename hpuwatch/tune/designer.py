"""Who proposes the next point: stateless, so that a study survives any kill.

A designer is built anew from the history at each call.  The same axes, history and seed
give the same point.  :class:`SkoptDesigner` is a Latin hypercube and then Expected
Improvement under a Gaussian process; it imports scikit-optimize only when it is asked for
a point.  :class:`RandomDesigner` needs nothing, for tests and as the yardstick.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Protocol

from hpuwatch.errors import ExtraMissing
from hpuwatch.tune.axes import Axis, Coordinate, Ladder, Point, Stretch, Told

CANDIDATES = 2000
MOST_INITIAL = 8


class Designer(Protocol):
    """Proposes points."""

    def suggest(
        self, axes: Sequence[Axis], history: Sequence[Told], seed: int
    ) -> Point:
        """Return a point of ``axes`` to try next."""
        ...


class RandomDesigner:
    """Any point, each as likely as the other."""

    def suggest(
        self, axes: Sequence[Axis], history: Sequence[Told], seed: int
    ) -> Point:
        """Return a random point; the history only moves the random numbers on."""
        chance = random.Random(f"{seed}/{len(history)}")  # noqa: S311  no secret
        return tuple(_draw(axis, chance) for axis in axes)


def _draw(axis: Axis, chance: random.Random) -> Coordinate:
    if isinstance(axis, Stretch):
        return math.exp(chance.uniform(math.log(axis.low), math.log(axis.high)))
    if isinstance(axis, Ladder):
        return chance.randrange(len(axis.values))
    return chance.choice(axis.values)


@dataclass(frozen=True, slots=True)
class SkoptDesigner:
    """scikit-optimize: a Latin hypercube, then Expected Improvement under a GP.

    Attributes:
        initial: points of the Latin hypercube; None for two more than there are axes.
    """

    initial: int | None = None

    @staticmethod
    def require() -> None:
        """Check that scikit-optimize is there, without importing it.

        Raises:
            ExtraMissing: it is not installed.
        """
        if find_spec("skopt") is None:
            raise ExtraMissing(
                "hpuwatch tune needs scikit-optimize: pip install 'hpuwatch[tune]'"
            )

    def suggest(
        self, axes: Sequence[Axis], history: Sequence[Told], seed: int
    ) -> Point:
        """Return the next point of the hypercube, or where improvement is expected.

        Raises:
            ExtraMissing: scikit-optimize is not installed.
        """
        self.require()
        initial = self.initial or min(MOST_INITIAL, len(axes) + 2)
        designed = sum(told.designed for told in history)
        optimizer = _optimizer(axes, initial, seed)
        # The optimizer counts what it is told against its initial points.  The baseline
        # is none of them, so it is told only once they are used up.
        known = history if designed >= initial else [t for t in history if t.designed]
        if known:
            optimizer.tell([list(told.point) for told in known], _losses(known))
        return tuple(
            _plain(axis, value)
            for axis, value in zip(axes, optimizer.ask(), strict=True)
        )


def _optimizer(axes: Sequence[Axis], initial: int, seed: int) -> Any:
    from skopt import Optimizer  # noqa: PLC0415  1.5 s and 130 MB, paid by tune alone

    return Optimizer(
        [_dimension(axis) for axis in axes],
        base_estimator="GP",
        acq_func="EI",
        acq_optimizer="sampling",
        acq_optimizer_kwargs={"n_points": CANDIDATES},
        n_initial_points=initial,
        initial_point_generator="lhs",
        model_queue_size=1,
        random_state=seed % 2**32,
    )


def _dimension(axis: Axis) -> Any:
    from skopt.space import Categorical, Integer, Real  # noqa: PLC0415  as above

    if isinstance(axis, Stretch):
        return Real(axis.low, axis.high, prior="log-uniform", name=axis.name)
    if isinstance(axis, Ladder):
        return Integer(0, len(axis.values) - 1, name=axis.name)
    return Categorical(axis.values, name=axis.name)


def _losses(history: Sequence[Told]) -> list[float]:
    """Return what to minimise: a failure lies below the worst success, never at nothing.

    A failure that were left out would be tried again; one told as zero would flatten
    everything else.  It is told as worse than the worst success by as much as the best
    is better than it, and by a tenth at least.
    """
    scores = [told.score for told in history if told.score is not None]
    worst, best = min(scores, default=0.0), max(scores, default=0.0)
    failed = worst - max(best - worst, 0.1 * abs(worst), 1e-9)
    return [-(failed if told.score is None else told.score) for told in history]


def _plain(axis: Axis, value: Any) -> Coordinate:
    """Return a coordinate of Python's own types, as numpy's can't be stored as JSON."""
    if isinstance(axis, Stretch):
        return min(max(float(value), axis.low), axis.high)
    if isinstance(axis, Ladder):
        return int(value)
    return str(value)
