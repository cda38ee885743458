"""A first configuration as ``report/1``: every figure a prior, and labelled as one."""

from __future__ import annotations

from hpuwatch.advise.document import (
    BucketsPart,
    GraphsPart,
    Headline,
    KvPart,
    MemoryPart,
    ServerPart,
    SettingPart,
    SourcePart,
    StartReport,
    TrafficPart,
    WarmupPart,
)
from hpuwatch.advise.lint.words import MODEL
from hpuwatch.advise.plan.first import FirstPlan
from hpuwatch.advise.plan.parts import left_parts, proposal_part
from hpuwatch.advise.plan.wish import Wish
from hpuwatch.gaudi.memory import tokens_of
from hpuwatch.gaudi.releases import release_of
from hpuwatch.units import format_bytes, in_a_row

NOT_STARTED = "not started yet"


def first_report(wish: Wish, plan: FirstPlan, source: str) -> StartReport:
    """Return the document of a first configuration.

    Args:
        wish: what the server is to be.
        plan: what came of it.
        source: where the model's shape is from.
    """
    # A shape without a path has the name of its kind, and no server takes that.
    is_named = "/" in wish.model.name
    settings = [SettingPart(name=MODEL, value=wish.model.name)] if is_named else []
    # Nothing is set yet that the proposal could come on top of.
    part = proposal_part(plan.proposal, (), ())
    return StartReport(
        source=SourcePart(file=source, start=0),
        origin="predicted",
        headline=_headline(wish, plan),
        server=_server(wish, plan),
        memory=_memory(wish, plan),
        kv=_kv(plan),
        buckets=BucketsPart(
            prompt=plan.forecast.counts.get("prompt"),
            decode=plan.forecast.counts.get("decode"),
            shapes={
                phase: list(listed)
                for phase, listed in plan.forecast.lists.items()
                if listed
            },
        ),
        graphs=GraphsPart(),
        warmup=WarmupPart(),
        traffic=TrafficPart(),
        faults=[],
        findings=[],
        proposal=part,
        settings=settings,
        left=left_parts(plan.left),
    )


def _headline(wish: Wish, plan: FirstPlan) -> Headline:
    count = wish.tensor_parallel
    cards = f"{count} x {wish.card.name}" if count > 1 else wish.card.name
    if plan.proposal is not None:
        typed = in_a_row([str(change) for change in plan.proposal.changes])
        return Headline(
            do=f"Start with {typed}, then give hpuwatch the log of that start.",
            why=f"This is a first configuration of {wish.model.name} on {cards}. Nothing of "
            "it was measured: each figure is a prior, as wide as other people's servers "
            "differ.",
        )
    why = plan.refused.text if plan.refused else "No setting makes it fit."
    if plan.cards_needed is None:
        return Headline(
            do="Take more cards, or FP8 weights, or another model.", why=why
        )
    return Headline(
        do=f"Take {plan.cards_needed} cards: vLLM's --tensor-parallel-size "
        f"{plan.cards_needed}, here --tp {plan.cards_needed}.",
        why=why,
    )


def _server(wish: Wish, plan: FirstPlan) -> ServerPart:
    release = release_of(wish.release)
    return ServerPart(
        release=release.name,
        assumed_like=release.assumed_like,
        model=wish.model.name,
        card=wish.card.name,
        tp=wish.tensor_parallel,
        max_model_len=plan.forecast.plan.flags.max_model_len,
        phase=NOT_STARTED,
    )


def _memory(wish: Wish, plan: FirstPlan) -> MemoryPart:
    """Return the ledger by the best guesses; free memory holds no profile run yet."""
    amounts = {
        "total": wish.card.total_bytes,
        "weights": round(plan.weights.value),
        "free": round(plan.device.free.value),
    }
    parts = plan.forecast.split
    if parts is not None:
        amounts |= {
            "usable": parts.usable_bytes,
            "reserve": parts.reserve_bytes,
            "kv_cache": parts.kv_cache_bytes,
        }
    return MemoryPart(
        rank=0,
        ranks=wish.tensor_parallel,
        utilisation=plan.forecast.plan.utilisation,
        reserve_ratio=plan.forecast.plan.reserve_ratio,
        printed={name: format_bytes(amount) for name, amount in amounts.items()},
        **amounts,
    )


def _kv(plan: FirstPlan) -> KvPart:
    blocks, size = plan.forecast.num_blocks, plan.forecast.plan.flags.block_size
    if blocks <= 0:
        return KvPart()
    return KvPart(
        blocks=blocks,
        tokens=tokens_of(blocks, size),
        block_size=size,
        block_size_assumed=True,
        block_size_from="assumed",
    )
