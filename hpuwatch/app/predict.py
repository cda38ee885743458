"""The answer of ``hpuwatch predict``: what a plan comes to, beside the server as it runs.

Files are read here; what follows from them is computed by ``hpuwatch.gaudi``.  With logs
the newest start of the last one is the running server, and all starts teach what its graphs
cost.  Without one, a model's ``config.json`` and a card stand in, labelled so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from hpuwatch.advise.baseline import Baseline, baseline_of
from hpuwatch.advise.envheader import EnvHeader
from hpuwatch.advise.figures import tightest
from hpuwatch.advise.graphmemory import warmup_use_of
from hpuwatch.advise.lint.origin import disagreements
from hpuwatch.advise.plan.wish import device_of, weights_of
from hpuwatch.app.bucket_sources import UNKNOWN, Told, with_file
from hpuwatch.app.first import config_of_model
from hpuwatch.errors import ConfigError, InputError, UsageError
from hpuwatch.gaudi.basis import Basis, Device, Printed
from hpuwatch.gaudi.buckets import Bucket, find
from hpuwatch.gaudi.cards import card_called
from hpuwatch.gaudi.caution import cautions
from hpuwatch.gaudi.estimate import Estimate, exactly
from hpuwatch.gaudi.graphlaw import WarmupUse, prior
from hpuwatch.gaudi.modelshape import ModelShape, read_model
from hpuwatch.gaudi.planning import Change, Plan, applied
from hpuwatch.gaudi.predict import Forecast, predict
from hpuwatch.gaudi.refusal import Remark, refusals
from hpuwatch.gaudi.repair import repair
from hpuwatch.gaudi.search import SearchCutError
from hpuwatch.state.model import Start, value_of


@dataclass(frozen=True, slots=True)
class Order:
    """What is asked.

    Attributes:
        logs: paths, the running server's last.
        changes: what is proposed; without a log, the whole configuration.
        current: what is known of the running server beyond its log.
        release: stands in for what the log says, or for the newest.
        model: path of a ``config.json``, or of its folder.
        card: ``gaudi2`` or ``gaudi3``.
        num_blocks: KV blocks, where neither a log nor a model tells them.
        length_tokens: the length of a usual request.
        header: for which server the env files were made, None where they don't say.
    """

    logs: Sequence[str] = ()
    changes: Sequence[Change] = ()
    current: Sequence[Change] = ()
    release: str | None = None
    model: str | None = None
    card: str | None = None
    num_blocks: int | None = None
    length_tokens: int | None = None
    header: EnvHeader | None = None


@dataclass(frozen=True, slots=True)
class Side:
    """One plan and all that is said of it.

    Attributes:
        misses: shapes that traffic asked for in vain, and that still have no bucket.
    """

    forecast: Forecast
    refusals: tuple[Remark, ...]
    cautions: tuple[Remark, ...]
    misses: tuple[tuple[str, Bucket], ...] = ()


@dataclass(frozen=True, slots=True)
class Prediction:
    """What is answered.

    Attributes:
        source: the log of the running server, None without.
        current: the server as it runs; None without a log.
        proposed: None where a log was given and no change.
        repaired: the nearest plan that works, where the one asked about doesn't.
        repairs: what it changes; None where no setting helps, or none is needed.
        cut: why the search for it came to no end, None where it did.
        length_tokens: the usual length, and ``length_from``: ``given`` or ``traffic``.
        assumed: sizes that the log doesn't print.
        starts: how many starts taught the laws.
        weights: bytes of the weights on one card, None where nothing tells.
        passed_over: how many starts of the logs were of another model or card.
        simulated: the log says that its server is.
        broke: what broke the running server, None where nothing did.
        warmup_use: what the running server's warm-up took, where its log tells.
    """

    basis: Basis
    source: str | None = None
    model: str | None = None
    card: str | None = None
    current: Side | None = None
    proposed: Side | None = None
    repaired: Side | None = None
    repairs: tuple[Change, ...] | None = None
    cut: str | None = None
    length_tokens: int | None = None
    length_from: str | None = None
    assumed: tuple[str, ...] = ()
    starts: int = 0
    weights: Estimate | None = None
    passed_over: int = 0
    simulated: bool = False
    broke: str | None = None
    warmup_use: WarmupUse | None = None

    @property
    def asked(self) -> Side:
        """Return the plan that the question was about."""
        side = self.proposed or self.current
        if side is None:
            raise ValueError("a prediction is about a plan")
        return side


def answer(order: Order) -> Prediction:
    """Return what the order asks for.

    Raises:
        UsageError: nothing tells the model's length or the KV blocks.
        InputError: a log tells too little, or the model's file is no JSON.
        MissingFileError: a file can't be read.
        ConfigError: a setting or the release is unknown, nothing can be predicted, or an
            env file was made for another server.
    """
    if order.logs:
        if (order.model, order.card, order.num_blocks) != (None, None, None):
            raise UsageError(
                "--model, --card and --num-blocks stand in for a log: give one or the other"
            )
        return _beside_a_log(order)
    return _with_repair(_from_nothing(order), ())


def _beside_a_log(order: Order) -> Prediction:
    from hpuwatch.app.report import starts_of

    starts = [start for path in order.logs for start in starts_of(path)]
    newest = starts[-1]
    found = baseline_of(starts, order.current)
    if found is None:
        raise InputError(
            f"{order.logs[-1]} doesn't tell a version, the model's length and KV blocks: "
            "give a log from the server's start on, or --model and --card"
        )
    plan = found.plan
    if order.release is not None:
        plan = replace(plan, release_text=order.release)
    found = _under(found, with_file(plan))
    server, changes = newest.server, order.changes
    _check_origin(
        order.header,
        EnvHeader(
            release=plan.release_text,
            card=value_of(server.card),
            model=value_of(server.model),
            tp=str(plan.tensor_parallel),
        ),
    )
    proposed = with_file(applied(found.plan, changes)) if changes else None
    given = order.length_tokens
    told = Prediction(
        found.basis,
        source=order.logs[-1],
        model=value_of(server.model),
        card=value_of(server.card),
        current=_side(predict(found.plan, found.basis), found.basis, found.misses),
        proposed=_side(predict(proposed, found.basis), found.basis, found.misses)
        if proposed
        else None,
        length_tokens=given or found.observed_tokens,
        length_from="given" if given else "traffic" if found.observed_tokens else None,
        assumed=found.assumed,
        starts=found.starts,
        weights=_printed_weights(newest),
        passed_over=len(starts) - found.starts,
        simulated=server.simulated,
        broke=found.broke,
        warmup_use=warmup_use_of(newest),
    )
    return _with_repair(told, found.misses)


def _under(found: Baseline, plan: Plan) -> Baseline:
    printed = found.basis.printed
    again: Printed | None = replace(printed, plan=plan) if printed else None
    return replace(found, plan=plan, basis=replace(found.basis, printed=again))


def _from_nothing(order: Order) -> Prediction:
    """Predict without a log: from a model and a card, or from a number of blocks."""
    if order.current:
        raise UsageError("--current tells more of a running server: give its log")
    model = None if order.model is None else read_model(config_of_model(order.model))
    bare = Told().plan
    named = replace(bare, release_text=order.release or bare.release_text)
    plan = applied(named, order.changes)
    if plan.flags.max_model_len == UNKNOWN:
        if model is None:
            raise UsageError("nothing tells --max-model-len: give it, a log or --model")
        plan = applied(plan, (Change("--max-model-len", str(model.max_position)),))
    _check_origin(
        order.header,
        EnvHeader(
            release=plan.release_text, card=order.card, tp=str(plan.tensor_parallel)
        ),
    )
    basis = Basis(
        device=_device(model, order.card, plan.tensor_parallel),
        blocks=order.num_blocks,
        graphs=prior() if model is None else prior(model.hidden_size),
    )
    if order.num_blocks is not None:
        override = Change("--num-gpu-blocks-override", str(order.num_blocks))
        plan = applied(plan, (override,)) if basis.device else plan
    elif basis.device is None and plan.blocks_override is None:
        raise UsageError(
            "nothing tells the KV blocks: give a log, --model and --card, or --num-blocks"
        )
    weights = weights_of(model, plan.tensor_parallel) if model else None
    return Prediction(
        basis,
        model=model.name if model else None,
        weights=weights,
        card=order.card,
        proposed=_side(predict(with_file(plan), basis), basis, ()),
        length_tokens=order.length_tokens,
        length_from="given" if order.length_tokens else None,
    )


def _check_origin(header: EnvHeader | None, server: EnvHeader) -> None:
    """Refuse env files that were made for another server, as far as both are known.

    Raises:
        ConfigError: they were.
    """
    wrong = () if header is None else disagreements(header, server)
    told = " ".join(said for _, _, said in wrong)
    if told:
        raise ConfigError(f"{told} Don't use this env file here: tune on this server.")


def _device(model: ModelShape | None, card: str | None, tp: int) -> Device | None:
    """Return what a card has beside the weights, by estimate; None without both."""
    if card is None:
        return None
    known = card_called(card)
    if model is None:
        raise UsageError("--card tells nothing without --model")
    return device_of(model, known, tp)


def _printed_weights(start: Start) -> Estimate | None:
    found = tightest(start)
    weights = found[1].weights if found else None
    return exactly(weights.value.bytes) if weights else None


def _side(
    forecast: Forecast, basis: Basis, misses: Sequence[tuple[str, Bucket]]
) -> Side:
    return Side(
        forecast,
        refusals(forecast, basis),
        cautions(forecast, basis),
        tuple(
            (phase, shape)
            for phase, shape in misses
            if find(forecast.lists.get(phase, ()), shape) is None
        ),
    )


def _with_repair(told: Prediction, misses: Sequence[tuple[str, Bucket]]) -> Prediction:
    if not told.asked.refusals:
        return told
    try:
        found = repair(told.asked.forecast, told.basis)
    except SearchCutError as error:
        return replace(told, cut=str(error))
    if found is None:
        return told
    side = _side(found.forecast, told.basis, misses)
    return replace(told, repaired=side, repairs=found.changes)
