"""The search space in physical coordinates, and the way back to legal settings.

The reserve is searched as *slack*: reserved bytes over the bytes that graphs are known to
need, from 1.05 to what the operator reserves now.  Only where the log shows that to be too
little (graphs and the allowance for activations exceed it), the search goes on to 1.3 times
what they need.  In this coordinate the optimum of any model and card lies near the same
place, and running out of memory has one edge.
Steps go along a ladder of legal values.  The ratio is rounded up to a thousandth, so that
rounding never takes from what graphs need.

Two settings are the *same* when a restart couldn't tell them apart: equal bucket settings
(or equal bucket lists) and KV caches that differ by less than half a per cent.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hpuwatch.tune.axes import Axis, Choice, Coordinate, Ladder, Point, Stretch
from hpuwatch.tune.facts import RESERVE, STRATEGY, reserve_is_short, wanted_bytes
from hpuwatch.tune.knobs import Knob
from hpuwatch.tune.predict import Forecast

LEAST_SLACK = 1.05
GUESSED_SLACK = 1.3
_NARROWEST = 1.01  # an axis needs two ends, even where nothing lies between them
RATIO_STEP = 0.001
LARGEST_RATIO = 0.9
SAME_KV = 0.005
LONGEST_WARMUP_FACTOR = 3.0


@dataclass(frozen=True, slots=True)
class Space:
    """Knobs, and the arithmetic that gives them a meaning."""

    knobs: tuple[Knob, ...]
    forecast: Forecast

    @property
    def axes(self) -> tuple[Axis, ...]:
        """Return what the designer searches."""
        return tuple(self._axis(knob) for knob in self.knobs)

    def _axis(self, knob: Knob) -> Axis:
        if knob.variable == RESERVE:
            need = max(1, self.forecast.predict({}).need_bytes)
            most = self.largest_ratio * self.forecast.usable_bytes / need
            return Stretch(knob.name, LEAST_SLACK, max(LEAST_SLACK * _NARROWEST, most))
        values = self._values(knob)
        kind = Choice if knob.variable == STRATEGY else Ladder
        return kind(knob.name, values)

    def _values(self, knob: Knob) -> tuple[str, ...]:
        """Return a knob's legal values, the operator's own among them."""
        own = self._own(knob)
        if own in knob.values or knob.variable == STRATEGY:
            return knob.values
        return tuple(sorted((*knob.values, own), key=float))

    def _value(self, knob: Knob, coordinate: Coordinate) -> str:
        if isinstance(coordinate, str):
            return coordinate
        return self._values(knob)[int(coordinate)]

    def _own(self, knob: Knob) -> str:
        return self.forecast.environment.get(knob.variable, knob.default)

    def settings_of(self, point: Point) -> Mapping[str, str]:
        """Return the environment variables of a point, those that change something.

        Raises:
            BucketError: the runtime would make no buckets of them.
        """
        settings: dict[str, str] = {}
        slack = None
        for knob, coordinate in zip(self.knobs, point, strict=True):
            if knob.variable == RESERVE:
                slack = float(coordinate)
            elif (value := self._value(knob, coordinate)) != self._own(knob):
                settings[knob.variable] = value
        if slack is not None:
            settings[RESERVE] = self._ratio(slack, settings)
        return settings

    @property
    def largest_ratio(self) -> float:
        """Return the largest reserve worth trying: the operator's own, if it suffices."""
        facts = self.forecast.baseline
        own = self.forecast.ratio_of({})
        if not reserve_is_short(facts):
            return own
        wanted = GUESSED_SLACK * wanted_bytes(facts) / self.forecast.usable_bytes
        return max(own, min(_rounded_up(wanted), LARGEST_RATIO))

    def _ratio(self, slack: float, others: Mapping[str, str]) -> str:
        need = self.forecast.predict(others).need_bytes
        ratio = _rounded_up(slack * need / self.forecast.usable_bytes)
        most = self.largest_ratio
        return f"{ratio:.3f}" if ratio < most else f"{most:g}"

    def point_of(self, settings: Mapping[str, str]) -> Point:
        """Return where settings lie, on the edge when they are out of bounds."""
        return tuple(self._coordinate(knob, settings) for knob in self.knobs)

    def _coordinate(self, knob: Knob, settings: Mapping[str, str]) -> Coordinate:
        axis = self._axis(knob)
        if isinstance(axis, Stretch):
            return min(max(self._slack(settings), axis.low), axis.high)
        value = settings.get(knob.variable, self._own(knob))
        if isinstance(axis, Choice):
            return value
        return axis.values.index(value)

    def _slack(self, settings: Mapping[str, str]) -> float:
        predicted = self.forecast.predict(settings)
        return predicted.reserve_bytes / max(1, predicted.need_bytes)

    def same(self, one: Mapping[str, str], other: Mapping[str, str]) -> bool:
        """Tell whether two settings come to the same for the server."""
        shares = [1 - self.forecast.ratio_of(settings) for settings in (one, other)]
        if abs(shares[0] - shares[1]) >= SAME_KV * max(shares):
            return False
        return self._buckets(one) == self._buckets(other)

    def _buckets(self, settings: Mapping[str, str]) -> object:
        """Return the bucket lists of settings, or their values where nobody knows them."""
        lists = self.forecast.lists(settings)
        if lists is not None:
            return lists
        return [
            settings.get(knob.variable, self._own(knob))
            for knob in self.knobs
            if knob.variable != RESERVE
        ]

    def objection(self, settings: Mapping[str, str]) -> str | None:
        """Return why settings aren't worth a restart, None when they are."""
        try:
            predicted = self.forecast.predict(settings)
        except ValueError as error:
            return f"the runtime would refuse them: {error}"
        now = self.forecast.baseline.warmup_seconds
        if predicted.warmup_seconds and now:
            factor = predicted.warmup_seconds / now
            if factor > LONGEST_WARMUP_FACTOR:
                return f"warm-up would take about {factor:.0f} times as long"
        return None

    def first_guess(self) -> Point:
        """Return the operator's configuration with 1.3 times the need, if that is less."""
        own: Sequence[Coordinate] = self.point_of({})
        return tuple(
            min(GUESSED_SLACK, float(coordinate))
            if knob.variable == RESERVE
            else coordinate
            for knob, coordinate in zip(self.knobs, own, strict=True)
        )


def _rounded_up(ratio: float) -> float:
    return max(1, math.ceil(round(ratio / RATIO_STEP, 6))) * RATIO_STEP
