"""What an operator should know of a plan that may work.

Cautions, unlike refusals, never ask for another plan: they tell what is uncertain, what is
set in vain, and which shapes stay without a bucket.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from hpuwatch.gaudi.basis import Basis
from hpuwatch.gaudi.coverage import holes
from hpuwatch.gaudi.estimate import Estimate
from hpuwatch.gaudi.heeded import unheeded
from hpuwatch.gaudi.memory import concurrency
from hpuwatch.gaudi.model import DECODE, PROMPT, BucketSettings
from hpuwatch.gaudi.planning import READY_LIMIT, READY_TIMEOUT, RESERVE
from hpuwatch.gaudi.predict import Forecast, made_like, rules_make, same
from hpuwatch.gaudi.refusal import Remark, deepest_allowed, has_budget
from hpuwatch.gaudi.severity import Severity
from hpuwatch.gaudi.warmuptime import total
from hpuwatch.units import counted, format_bytes


def cautions(forecast: Forecast, basis: Basis) -> tuple[Remark, ...]:
    """Return what an operator should know of a plan that may work."""
    return tuple(
        replace(remark, severity=severity)
        for check, severity in _CAUTIONS
        for remark in check(forecast, basis)
    )


def vain(settings: BucketSettings) -> str | None:
    """Say which variables are set in vain, as a clause; None where none is."""
    names = ", ".join(unheeded(settings))
    under = f"set without effect under the strategy {settings.strategy}"
    return f"{under}: {names}" if names else None


UNBUCKETED = "VLLM_ENABLE_BUCKETING is off: shapes run as they come"
UNWARMED = (
    "VLLM_SKIP_WARMUP is on: no bucket is warmed up, every shape compiles at its first use, "
    "and its graph takes memory then"
)


def cold(settings: BucketSettings, count: int) -> str | None:
    """Say why warm-up leaves so many prompt buckets out, as a clause; None for none."""
    if not count:
        return None
    said = (
        f"{counted(count, 'prompt bucket')} {'stays' if count == 1 else 'stay'} cold: query "
        "and context exceed the model's length, and warm-up runs less context"
    )
    if settings.max_num_prefill_seqs == 1:
        return said
    return f"{said}, or several prompts have context, and such prompts run one by one"


def _sentence(clause: str) -> str:
    return f"{clause[0].upper()}{clause[1:]}."


def _assumed(forecast: Forecast, _basis: Basis) -> Iterator[Remark]:
    assumption = forecast.plan.release.assumption
    if assumption:
        yield Remark("assumed", f"Buckets are {assumption}.")


def _vain(forecast: Forecast, _basis: Basis) -> Iterator[Remark]:
    clause = forecast.prepared and vain(forecast.prepared.settings)
    if clause:
        yield Remark("set-in-vain", _sentence(clause))


def _other_rules(_forecast: Forecast, basis: Basis) -> Iterator[Remark]:
    """See lists of a log that the rules don't make."""
    printed = basis.printed
    for phase, made in (rules_make(basis) or {}).items() if printed else ():
        count = printed.counts.get(phase) if printed else None
        listed = printed.lists.get(phase) if printed else None
        if count is None or (same(made, listed) if listed else len(made) == count):
            continue
        apart = f", {len(set(made) ^ set(listed)):,} of them apart" if listed else ""
        yield Remark(
            "rules-differ",
            f"The rules give the running server {len(made):,} {phase} buckets and its log "
            f"lists {count:,}{apart}: {_follows(basis, phase)}.",
            {f"{phase}_buckets": count, f"{phase}_buckets_by_rules": len(made)},
        )


def _follows(basis: Basis, phase: str) -> str:
    """Say by what the other lists of such a server are predicted."""
    if (like := made_like(basis, phase)) is not None:
        return (
            f"the rules of {like} give just that list, so other {phase} lists are "
            "predicted by those"
        )
    return f"other {phase} lists of this server are that uncertain"


def _warmup_off(forecast: Forecast, _basis: Basis) -> Iterator[Remark]:
    if forecast.prepared is None:
        if forecast.broken is None and forecast.holds:
            yield Remark("no-bucketing", _sentence(UNBUCKETED))
    elif not forecast.warms:
        yield Remark("warmup-skipped", _sentence(UNWARMED))


def _unpredicted(forecast: Forecast, _basis: Basis) -> Iterator[Remark]:
    if forecast.is_open:
        text = f"hpuwatch can't predict buckets, graphs and warm-up: {forecast.broken}"
        yield Remark("unpredicted", text)


def _shared_blocks(forecast: Forecast, basis: Basis) -> Iterator[Remark]:
    deepest, blocks = forecast.deepest, forecast.num_blocks
    if blocks < deepest <= deepest_allowed(forecast, basis):
        above = sum(each.context > blocks for each in forecast.lists[DECODE])
        yield Remark(
            "decode-above-pool",
            f"{above:,} decode buckets have more blocks (up to {deepest:,}) than the "
            f"{blocks:,} of the card, which only prompts that share a beginning can fill.",
            {"decode_buckets_above_kv": above, "largest_bucket_blocks": deepest},
        )


def _few_at_once(forecast: Forecast, _basis: Basis) -> Iterator[Remark]:
    seqs, own = forecast.plan.flags.max_num_seqs, forecast.blocks_per_sequence
    if forecast.num_blocks >= own and seqs * own > forecast.num_blocks:
        fit = concurrency(forecast.num_blocks, own)
        yield Remark(
            "seqs-times-length",
            f"At the model's length {fit:.1f} sequences fit at once, not "
            f"{seqs:,} (--max-num-seqs): more of them wait, or are preempted.",
            {"concurrency": round(fit, 2), "max_num_seqs": seqs},
        )


def _cold(forecast: Forecast, _basis: Basis) -> Iterator[Remark]:
    listed = set(forecast.lists.get(PROMPT, ()))
    count = len(listed - set(forecast.graphs.get(PROMPT, ())))
    clause = forecast.prepared and cold(forecast.prepared.settings, count)
    if clause:
        yield Remark("cold-prompts", _sentence(clause), {"cold_prompt_buckets": count})


def _open(forecast: Forecast, _basis: Basis) -> Iterator[Remark]:
    found = holes(forecast.prepared) if forecast.prepared else ()
    for phase, size in ((PROMPT, "queries"), (DECODE, "batches")):
        mine = [hole for hole in found if hole.phase == phase]
        if not mine:
            continue
        worst = max(mine, key=lambda hole: hole.up_to - hole.above)
        text = f"No {phase} bucket for {size} of {worst.first:,} to {worst.last:,}"
        if worst.above >= 0:
            text += f" with more than {worst.above:,} blocks (up to {worst.up_to:,} may come)"
        if len(mine) > 1:
            noun = "stretch" if len(mine) == 2 else "stretches"
            text += f", and {len(mine) - 1:,} more such {noun}"
        yield Remark(
            "not-covered",
            f"{text}.",
            {f"{phase}_holes": len(mine)},
        )


def _tight(forecast: Forecast, _basis: Basis) -> Iterator[Remark]:
    room, parts = forecast.room, forecast.split
    if room is None or parts is None or room.fits:
        return
    if has_budget(forecast.plan):
        text = "as many graphs are captured as fit"
    elif room.need.high < parts.usable_bytes:
        text = f"raise {RESERVE} for certainty, or look at the log of the start"
    else:
        text = "no reserve holds that, so only the log of a start tells"
    yield Remark(
        "graphs-uncertain",
        f"Graphs and activations may need up to {format_bytes(room.need.high)} "
        f"({room.need.origin}), reserve and margin hold {format_bytes(room.room_bytes)}: "
        f"{text}.",
        {"need_high_bytes": room.need.high, "room_bytes": room.room_bytes},
    )


def ready_after(forecast: Forecast) -> Estimate:
    """Return the seconds from the start of the engine until it answers."""
    return total(part for part in forecast.away if part.name in {"load", "warm-up"})


def _perhaps_late(forecast: Forecast, _basis: Basis) -> Iterator[Remark]:
    """See a start that a front end may give up, which a single API server doesn't."""
    waits, ready = forecast.plan.ready_seconds, ready_after(forecast)
    if waits is None or ready.high <= waits:
        return
    yield Remark(
        "timeout-uncertain",
        f"Loading and warm-up may take up to {ready.high:,.0f} s ({ready.origin}), and the "
        f"front end's limit is {waits:,} s ({READY_TIMEOUT}). {READY_LIMIT}",
        {"ready_high_seconds": ready.high, "timeout_seconds": waits},
    )


_CAUTIONS: tuple[
    tuple[Callable[[Forecast, Basis], Iterator[Remark]], Severity], ...
] = (
    (_assumed, "info"),
    (_other_rules, "warning"),
    (_vain, "warning"),
    (_warmup_off, "warning"),
    (_unpredicted, "warning"),
    (_shared_blocks, "info"),
    (_few_at_once, "info"),
    (_cold, "info"),
    (_open, "warning"),
    (_tight, "warning"),
    (_perhaps_late, "warning"),
)
