"""The answer of ``hpuwatch predict``: what a plan comes to, beside the server as it runs.

Files are read here; what follows from them is computed by ``hpuwatch.gaudi``.  With logs
the newest start of the last one is the running server, and all starts teach what its graphs
cost.  Without one, a model's ``config.json`` and a card stand in, labelled so.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from hpuwatch.advise.baseline import Baseline, baseline_of
from hpuwatch.advise.figures import ACTIVATION_SHARE
from hpuwatch.errors import InputError, MissingFileError, UsageError
from hpuwatch.gaudi.basis import Basis, Device, Printed
from hpuwatch.gaudi.buckets import Bucket, find
from hpuwatch.gaudi.cards import card_called
from hpuwatch.gaudi.caution import cautions
from hpuwatch.gaudi.dialects import dialect_of
from hpuwatch.gaudi.estimate import Estimate
from hpuwatch.gaudi.graphlaw import prior
from hpuwatch.gaudi.modelshape import ModelShape, read_model
from hpuwatch.gaudi.planning import Change, Plan, applied
from hpuwatch.gaudi.predict import Forecast, predict
from hpuwatch.gaudi.refusal import Remark, refusals
from hpuwatch.gaudi.releases import NEWEST
from hpuwatch.gaudi.repair import repair
from hpuwatch.gaudi.resolve import FILE_VARIABLE, Flags
from hpuwatch.state.model import Start

_UNKNOWN = 0
_WEIGHTS_MORE = 1.05
"""Printed weights were up to so many times the estimate (see docs/memory.md)."""


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
    """

    logs: Sequence[str] = ()
    changes: Sequence[Change] = ()
    current: Sequence[Change] = ()
    release: str | None = None
    model: str | None = None
    card: str | None = None
    num_blocks: int | None = None
    length_tokens: int | None = None


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
        length_tokens: the usual length, and ``length_from``: ``given`` or ``traffic``.
        assumed: sizes that the log doesn't print.
        starts: how many starts taught the laws.
        simulated: the log says that its server is.
        broke: what broke the running server, None where nothing did.
    """

    basis: Basis
    source: str | None = None
    model: str | None = None
    card: str | None = None
    current: Side | None = None
    proposed: Side | None = None
    repaired: Side | None = None
    repairs: tuple[Change, ...] | None = None
    length_tokens: int | None = None
    length_from: str | None = None
    assumed: tuple[str, ...] = ()
    starts: int = 0
    simulated: bool = False
    broke: str | None = None

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
        ConfigError: a setting or the release is unknown, or nothing can be predicted.
    """
    if order.logs:
        if order.model is not None or order.num_blocks is not None:
            raise UsageError(
                "--model and --num-blocks stand in for a log: give one or the other"
            )
        return _beside_a_log(order)
    return _with_repair(_from_nothing(order), ())


def _beside_a_log(order: Order) -> Prediction:
    starts = _starts(order.logs)
    newest = starts[-1]
    found = baseline_of(starts, order.current)
    if found is None:
        raise InputError(
            f"{order.logs[-1]} doesn't tell a version, the model's length and KV blocks: "
            "give a log from the server's start on, or --model and --card"
        )
    if order.release is not None:
        found = _under(found, order.release)
    server, changes = newest.server, order.changes
    proposed = _with_file(applied(found.plan, changes)) if changes else None
    given = order.length_tokens
    told = Prediction(
        found.basis,
        source=order.logs[-1],
        model=server.model.value if server.model else None,
        card=server.card.value if server.card else None,
        current=_side(predict(found.plan, found.basis), found.basis, found.misses),
        proposed=_side(predict(proposed, found.basis), found.basis, found.misses)
        if proposed
        else None,
        length_tokens=given or found.observed_tokens,
        length_from="given" if given else "traffic" if found.observed_tokens else None,
        assumed=found.assumed,
        starts=found.starts,
        simulated=server.simulated,
        broke=found.broke,
    )
    return _with_repair(told, found.misses)


def _under(found: Baseline, release: str) -> Baseline:
    plan = replace(found.plan, release_text=release)
    printed = found.basis.printed
    again: Printed | None = replace(printed, plan=plan) if printed else None
    return replace(found, plan=plan, basis=replace(found.basis, printed=again))


def _starts(paths: Sequence[str]) -> list[Start]:
    from hpuwatch.app.report import state_of
    from hpuwatch.app.rules import shipped_rules

    rules = shipped_rules()
    starts = [start for path in paths for start in state_of(path, rules).starts]
    if not starts:
        raise InputError(f"{paths[-1]} holds no start of a server")
    return starts


def _from_nothing(order: Order) -> Prediction:
    """Predict without a log: from a model and a card, or from a number of blocks."""
    if order.current:
        raise UsageError("--current tells more of a running server: give its log")
    model = None if order.model is None else read_model(_config(order.model))
    plan = applied(
        Plan(order.release or NEWEST, Flags(256, _UNKNOWN, _UNKNOWN, _UNKNOWN)),
        order.changes,
    )
    if plan.flags.max_model_len == _UNKNOWN:
        if model is None:
            raise UsageError("nothing tells --max-model-len: give it, a log or --model")
        plan = applied(plan, (Change("--max-model-len", str(model.max_position)),))
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
    return Prediction(
        basis,
        model=model.name if model else None,
        card=order.card,
        proposed=_side(predict(_with_file(plan), basis), basis, ()),
        length_tokens=order.length_tokens,
        length_from="given" if order.length_tokens else None,
    )


def _config(path: str) -> Mapping[str, object]:
    file = Path(path)
    if file.is_dir():
        file /= "config.json"
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise MissingFileError(f"--model {file} can't be read ({error})") from None
    except ValueError as error:
        raise InputError(f"--model {file} is no JSON ({error})") from None
    if not isinstance(document, dict):
        raise InputError(f"--model {file} is no config.json of a model")
    return document


def _device(model: ModelShape | None, card: str | None, tp: int) -> Device | None:
    """Return what a card has beside the weights, by estimate; None without both."""
    if card is None:
        return None
    total = card_called(card).total_bytes
    if model is None:
        raise UsageError("--card tells nothing without --model")
    weights = model.weight_bytes(tp)
    free = total - weights
    allowance = round(ACTIVATION_SHARE * max(0, free))
    low = total - weights * _WEIGHTS_MORE - allowance  # a profile run may take as much
    return Device(Estimate(free, low, free, "prior"), allowance, model)


def _with_file(plan: Plan) -> Plan:
    """Read the bucket file that the plan names, where its release reads one."""
    from hpuwatch.app.bucket_sources import read_bucket_file

    path = plan.env.get(FILE_VARIABLE)
    reads = "file" in dialect_of(plan.release.dialect).strategies
    if not path or not reads or plan.flags.bucket_file is not None:
        return plan
    return replace(plan, flags=replace(plan.flags, bucket_file=read_bucket_file(path)))


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
    found = repair(told.asked.forecast, told.basis)
    if found is None:
        return told
    side = _side(found.forecast, told.basis, misses)
    return replace(told, repaired=side, repairs=found.changes)
