"""A first configuration, for a model and a card of which there is no log yet.

Sizes follow from the traffic that is wished for, memory from the model's shape, and the
reserve from what other people set by hand (``gaudi.handset``).  All of it is a prior: it is
to make the first start succeed, whose log then tells what graphs and requests really take.

The plan is looked at like any other (``gaudi.predict``, ``gaudi.repair``): where it would
not come up, the nearest one that would takes its place.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import ceil

from hpuwatch.advise.plan.left import Left
from hpuwatch.advise.plan.padding import padding_percent
from hpuwatch.advise.plan.reserve import Proposal, Step, of_changes
from hpuwatch.advise.plan.steps import HOLDS_MORE, LIVES, STARTS
from hpuwatch.advise.plan.wish import (
    CARDS,
    Wish,
    device_of,
    graphs_short,
    too_full,
    too_short,
    weights_of,
    without,
)
from hpuwatch.errors import ConfigError
from hpuwatch.gaudi.basis import Basis, Device
from hpuwatch.gaudi.caution import cautions, ready_after
from hpuwatch.gaudi.estimate import Estimate, exactly
from hpuwatch.gaudi.graphlaw import prior
from hpuwatch.gaudi.handset import first_reserve
from hpuwatch.gaudi.knobs import KNOBS
from hpuwatch.gaudi.model import DECODE, PROMPT
from hpuwatch.gaudi.planning import (
    READY_TIMEOUT,
    RESERVE,
    UTILISATION,
    Change,
    Plan,
    applied,
    patient_seconds,
)
from hpuwatch.gaudi.predict import Forecast, predict
from hpuwatch.gaudi.refusal import UNMENDED, Remark, refusals
from hpuwatch.gaudi.remedies import MAX_LEN, MAX_SEQS
from hpuwatch.gaudi.repair import repair
from hpuwatch.gaudi.resolve import MAX_NUM_SEQS, Flags
from hpuwatch.units import format_bytes

_GROUPS = (1, 2, 4, 8)
"""Numbers of cards that a model is divided among, in one machine."""
_TAKEN_UP = frozenset({"seqs-times-length", "timeout-uncertain"})
"""Cautions that the plan's own figures and words tell already."""


@dataclass(frozen=True, slots=True)
class FirstPlan:
    """What came of it.

    Attributes:
        proposal: None where no setting makes the model fit.
        forecast: what it comes to.
        device: what one card has.
        weights: bytes of the weights on one card.
        refused: why there is no proposal.
        cards_needed: the least number of cards that would do; None if none was found.
        left: what is left at its default, and why.
    """

    forecast: Forecast
    device: Device
    weights: Estimate
    proposal: Proposal | None = None
    refused: Remark | None = None
    cards_needed: int | None = None
    left: tuple[Left, ...] = ()


def first_plan(wish: Wish) -> FirstPlan:
    """Return a first configuration.

    Raises:
        ConfigError: the release is unknown, or the traffic exceeds what the model was
            made for.
    """
    basis = Basis(
        device=device_of(wish.model, wish.card, wish.tensor_parallel),
        graphs=prior(wish.model.hidden_size),
    )
    steps = list(_sizes(wish))
    forecast = predict(applied(_bare(wish), _changes(steps)), basis)
    reserve = _reserve_of(wish, forecast)
    if reserve is not None:
        steps.append(_reserve(wish, reserve))
        forecast = predict(applied(_bare(wish), _changes(steps)), basis)
    left = (*too_full(wish), *refusals(forecast, basis))
    if left:
        found = (
            None
            if any(each.code in UNMENDED for each in left)
            else _mend(forecast, basis)
        )
        if found is None or too_short(wish, found[1]):
            return _refused(wish, forecast, basis, left[0])
        step = Step(found[0], "", "so that the server starts", left[0].text, STARTS)
        steps = [*without(steps, found[0]), step]
        forecast = found[1]
    if (short := graphs_short(forecast)) is not None:
        return _refused(wish, forecast, basis, short)
    patience = _patience(forecast)
    if patience is not None:
        steps.append(patience)
        forecast = predict(applied(forecast.plan, patience.changes), basis)
    return _told(wish, forecast, basis, steps)


def _bare(wish: Wish) -> Plan:
    flags = Flags(
        max_num_seqs=MAX_NUM_SEQS,
        max_num_batched_tokens=0,
        max_model_len=wish.model.max_position,
        num_blocks=0,
    )
    return Plan(wish.release, flags, tensor_parallel=wish.tensor_parallel)


def _changes(steps: list[Step]) -> list[Change]:
    return [change for step in steps for change in step.changes]


def _sizes(wish: Wish) -> Iterator[Step]:
    """Set the sizes that follow from traffic, in whole blocks."""
    cards = Change(CARDS, str(wish.tensor_parallel))
    traffic, longest = wish.traffic, wish.model.max_position
    if traffic is None:
        why = f"nobody said what requests come, so the model's own {longest:,} tokens count"
        yield Step(
            (Change(MAX_LEN, str(longest)), cards), "", "any request fits", why, LIVES
        )
        return
    if traffic.tokens > longest:
        raise ConfigError(
            f"requests of {traffic.tokens:,} tokens (--traffic) exceed the {longest:,} that "
            f"{wish.model.name} was made for"
        )
    size = _bare(wish).flags.block_size
    wanted = min(longest, ceil(traffic.tokens / size) * size)
    yield Step(
        (Change(MAX_LEN, str(wanted)), Change(MAX_SEQS, str(traffic.at_once)), cards),
        "",
        "no bucket for what never comes",
        f"Requests have {traffic.prompt_tokens:,} + {traffic.output_tokens:,} tokens, and "
        f"{traffic.at_once:,} run at once: larger sizes would only make more buckets.",
        LIVES,
    )


def _reserve_of(wish: Wish, forecast: Forecast) -> Estimate | None:
    parts = forecast.split
    if (
        parts is None
        or parts.usable_bytes <= 0
        or not KNOBS[RESERVE].acts(forecast.plan.at)
    ):
        return None
    graphs = len(forecast.graphs.get(DECODE, ()))
    return first_reserve(wish.card.name, graphs, parts.usable_bytes)


def _reserve(wish: Wish, reserve: Estimate) -> Step:
    return Step(
        (Change(RESERVE, f"{reserve.value:g}"),),
        "",
        "graphs have room",
        f"Servers of other people on {wish.card.name} have {reserve.low:g} to "
        f"{reserve.high:g}; the middle of those set by hand is taken until the first log "
        "tells what graphs take.",
        HOLDS_MORE,
    )


def _mend(
    forecast: Forecast, basis: Basis
) -> tuple[tuple[Change, ...], Forecast] | None:
    try:
        found = repair(forecast, basis)
    except ConfigError:  # the search was cut, too
        return None
    return None if found is None else (found.changes, found.forecast)


def _refused(wish: Wish, forecast: Forecast, basis: Basis, why: Remark) -> FirstPlan:
    device = basis.device or device_of(wish.model, wish.card, wish.tensor_parallel)
    more = (
        count
        for count in _GROUPS
        if count > wish.tensor_parallel and wish.model.heads % count == 0
    )
    for count in more:
        try:
            found = first_plan(replace(wish, tensor_parallel=count))
        except ConfigError:
            continue
        needed = count if found.proposal is not None else found.cards_needed
        return FirstPlan(
            forecast,
            device,
            weights_of(wish.model, wish.tensor_parallel),
            refused=why,
            cards_needed=needed,
        )
    weights = weights_of(wish.model, wish.tensor_parallel)
    return FirstPlan(forecast, device, weights, refused=why)


def _patience(forecast: Forecast) -> Step | None:
    """Let the front end wait as long as warm-up may take, where it can be told to."""
    plan, ready = forecast.plan, ready_after(forecast)
    waits = plan.ready_seconds
    if waits is None or not KNOBS[READY_TIMEOUT].acts(plan.at) or ready.high <= waits:
        return None
    wanted = max(patient_seconds(ready.value), patient_seconds(ready.high / 2))
    if wanted <= waits:
        return None
    return Step(
        (Change(READY_TIMEOUT, str(wanted)),),
        "",
        "the front end doesn't end a server that is still warming",
        f"Warm-up may take up to {ready.high:,.0f} s (prior), and the front end waits "
        f"{waits:,} s for the engine.",
        LIVES,
    )


def _told(
    wish: Wish,
    forecast: Forecast,
    basis: Basis,
    steps: list[Step],
) -> FirstPlan:
    device = basis.device or device_of(wish.model, wish.card, wish.tensor_parallel)
    figures = dict(_figures(wish, forecast, device))
    proposal = Proposal(
        env={},
        why="",
        answers="",
        expected={"kv_blocks": forecast.num_blocks},
        kept=tuple(_kept(forecast)),
        figures=figures,
        steps=tuple(sorted(steps, key=lambda step: step.rank)),
        checked=True,
        cautions=tuple(_cautions(wish, forecast, basis, figures)),
    )
    weights = weights_of(wish.model, wish.tensor_parallel)
    left = tuple(_left(forecast))
    proposal = of_changes(_changes(steps), proposal)
    return FirstPlan(forecast, device, weights, proposal, left=left)


def _figures(
    wish: Wish, forecast: Forecast, device: Device
) -> Iterator[tuple[str, Estimate]]:
    size = forecast.plan.flags.block_size
    yield "kv_blocks", forecast.blocks
    yield "kv_tokens", _times(forecast.blocks, size)
    if wish.traffic is not None:
        own = ceil(wish.traffic.tokens / size)
        ends = forecast.blocks.value, forecast.blocks.low, forecast.blocks.high
        value, low, high = (each // own for each in ends)
        yield "sequences_at_once", Estimate(value, low, high, forecast.blocks.origin)
    if RESERVE in forecast.plan.env and forecast.split is not None:
        usable = forecast.split.usable_bytes
        # It is set: only what it is a share of is uncertain.
        held, free = forecast.plan.reserve_ratio * usable, device.free
        least = held * max(0.0, free.low) / free.value if free.value else 0.0
        yield "reserve_bytes", Estimate(held, least, held, "prior")
    if forecast.graph_bytes is not None and forecast.warms:
        yield "graph_bytes", forecast.graph_bytes
    if forecast.warmup is not None:
        yield "warmup_seconds", forecast.warmup
    for phase in (PROMPT, DECODE):
        if phase in forecast.counts:
            yield f"{phase}_buckets", exactly(forecast.counts[phase], "predicted")
        share = padding_percent(forecast.lists.get(phase, ()), phase)
        if share is not None:
            yield f"{phase}_padding_percent", share


def _times(figure: Estimate, factor: float) -> Estimate:
    return Estimate(
        figure.value * factor, figure.low * factor, figure.high * factor, figure.origin
    )


def _kept(forecast: Forecast) -> Iterator[str]:
    parts = forecast.split
    if parts is not None:
        yield (
            f"The card keeps {format_bytes(parts.margin_bytes)} outside of vLLM's budget and "
            f"{format_bytes(parts.reserve_bytes)} for graphs."
        )


def _cautions(
    wish: Wish, forecast: Forecast, basis: Basis, figures: dict[str, Estimate]
) -> Iterator[str]:
    held = figures.get("sequences_at_once")
    if wish.traffic is not None and held is not None:
        at_once = wish.traffic.at_once
        if held.value < at_once:
            yield (
                f"The card holds about {held.value:,.0f} requests of "
                f"{wish.traffic.tokens:,} tokens at once ({held.low:,.0f} to "
                f"{held.high:,.0f}), not {at_once:,}: the others wait, or are preempted."
            )
    for each in cautions(forecast, basis):
        if each.code not in _TAKEN_UP and each.severity != "info":
            yield each.text


def _left(forecast: Forecast) -> Iterator[Left]:
    plan = forecast.plan
    yield Left(
        UTILISATION,
        f"{plan.utilisation:g}",
        "the release's default; what it leaves outside is all that the first requests "
        "have beside the reserve, and nobody has measured them yet",
    )
    yield Left(
        "buckets",
        None,
        "the release's own rules make them; which shapes come, only traffic tells",
    )
