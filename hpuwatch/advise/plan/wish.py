"""What a server is to be before it was ever started, and what speaks against it.

Weights are an estimate of the model's shape; a card that they may fill, or graphs that by
the best guess have no room beside the KV cache, are no first configuration to propose.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from hpuwatch.advise.figures import ACTIVATION_SHARE
from hpuwatch.advise.plan.reserve import Step
from hpuwatch.advise.plan.traffic import ExpectedTraffic
from hpuwatch.gaudi.basis import Device
from hpuwatch.gaudi.cards import GaudiCard
from hpuwatch.gaudi.estimate import Estimate
from hpuwatch.gaudi.memory import free_after_load
from hpuwatch.gaudi.modelshape import ModelShape
from hpuwatch.gaudi.planning import Change
from hpuwatch.gaudi.predict import Forecast
from hpuwatch.gaudi.refusal import Remark
from hpuwatch.units import format_bytes

CARDS = "--tensor-parallel-size"
_WEIGHTS_MORE = 1.05
"""Printed weights were up to so many times the estimate (see docs/memory.md)."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What a server is to be.

    Attributes:
        model: its shape.
        card: the kind of card.
        tensor_parallel: cards that the model is divided among.
        release: as a user names it.
        traffic: what it is to bear; None where nobody said.
    """

    model: ModelShape
    card: GaudiCard
    tensor_parallel: int
    release: str
    traffic: ExpectedTraffic | None = None


def weights_of(model: ModelShape, tensor_parallel: int) -> Estimate:
    """Return the bytes of the weights on one card, by estimate."""
    found = model.weight_bytes(tensor_parallel)
    return Estimate(found, found, found * _WEIGHTS_MORE, "prior")


def device_of(model: ModelShape, card: GaudiCard, tensor_parallel: int) -> Device:
    """Return what a card has beside the weights, by estimate."""
    weights = weights_of(model, tensor_parallel)
    free = free_after_load(card.total_bytes, round(weights.value))
    allowance = round(ACTIVATION_SHARE * max(0, free))
    # A profile run may take as much as the allowance.
    low = card.total_bytes - weights.high - allowance
    return Device(Estimate(free, low, free, "prior"), allowance, model)


def too_full(wish: Wish) -> Iterator[Remark]:
    """See weights that may fill the card: then nobody can promise that any setting starts."""
    weights = weights_of(wish.model, wish.tensor_parallel)
    if weights.high >= wish.card.total_bytes:
        yield Remark(
            "weights-too-large",
            f"The weights need {format_bytes(weights.value)} to "
            f"{format_bytes(weights.high)} of each card (prior), and it has "
            f"{format_bytes(wish.card.total_bytes)}: the model needs more cards "
            f"({CARDS}).",
            {"weights_bytes": weights.value},
        )


def too_short(wish: Wish, forecast: Forecast) -> bool:
    """Tell whether a repair no longer takes the requests that are to come."""
    wanted = wish.traffic.tokens if wish.traffic is not None else 0
    return forecast.plan.flags.max_model_len < wanted


def without(steps: Iterable[Step], changes: Iterable[Change]) -> Iterator[Step]:
    """Yield the steps without what is changed otherwise after them."""
    names = {each.name for each in changes}
    for step in steps:
        kept = tuple(each for each in step.changes if each.name not in names)
        if kept:
            yield replace(step, changes=kept)


def graphs_short(forecast: Forecast) -> Remark | None:
    """See graphs that by the best guess don't fit beside the KV cache."""
    room = forecast.room
    if room is None or not forecast.warms or not room.is_short:
        return None
    need, there = format_bytes(room.need.value), format_bytes(room.room_bytes)
    return Remark(
        "graphs-above-reserve",
        f"Graphs are expected to need {need} ({room.need.origin}), and beside weights and "
        f"KV cache {there} are left.",
        {"graph_bytes": room.need.value, "room_bytes": room.room_bytes},
    )
