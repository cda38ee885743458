"""Which change explains which difference, and how much of it: by arithmetic, not by feeling.

A figure that follows from others by a formula is *walked*: beginning with the values of A,
one input after the other gets its value of B, and what the figure does at that step is what
this input explains.  The steps add up to what the formula gives for the two, so whatever is
left of the real difference is unexplained.  The order is that in which a server settles the
inputs, as each of them divides what the ones before it left::

    free      = card - elsewhere - weights - profile run
    usable    = utilisation * free
    reserve   = ratio * usable
    KV cache  = usable - reserve - dummy block
    KV blocks = KV cache / bytes of a block
    warm-up   = buckets * seconds per bucket, by phase, + the rest of it

*Elsewhere* is what a log doesn't explain: the card less what was loaded, measured and free.
How many buckets there are is asked of the releases' own rules, one changed setting after
the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from hpuwatch.advise.account.record import StartRecord
from hpuwatch.errors import ConfigError
from hpuwatch.gaudi.lookup import prepare
from hpuwatch.gaudi.memory import split
from hpuwatch.gaudi.model import DECODE, PROMPT
from hpuwatch.gaudi.planning import Change, Plan, applied

Inputs = Mapping[str, float]
Formula = Callable[[Inputs], float]

RELEASE = "release"
KV_BLOCKS = "kv_blocks"

_BITS = {
    "fp8": 8,
    "inc": 8,
    "compressed-tensors": 8,
    "modelopt": 8,
    "awq": 4,
    "awq_hpu": 4,
    "gptq": 4,
    "gptq_hpu": 4,
}
_PLAIN_BITS = 16
"""Bits of a weight: by ``--quantization``, and of a model that isn't quantised."""


@dataclass(frozen=True, slots=True)
class Share:
    """What one input explains of a difference.

    Attributes:
        by: the input, as ``reserve_ratio``.
        amount: in the figure's unit; negative where it makes the figure smaller.
    """

    by: str
    amount: float


def walked(
    formula: Formula, before: Inputs, after: Inputs, order: Sequence[str]
) -> tuple[Share, ...]:
    """Return what each input explains, in the order of the walk; zeros are left out."""
    values, shares = dict(before), []
    last = formula(values)
    for name in order:
        if values[name] == after[name]:
            continue
        values[name] = after[name]
        now = formula(values)
        if now != last:
            shares.append(Share(name, now - last))
        last = now
    return tuple(shares)


LEDGER = (
    "total",
    "elsewhere",
    "weights",
    "profile_run",
    "utilisation",
    "reserve_ratio",
    "dummy_block",
    "block_bytes",
)
"""The inputs of the memory split, in the order in which a server settles them."""


def ledger_of(record: StartRecord) -> dict[str, float] | None:
    """Return the inputs of a start's memory split, None where its log lacks some.

    Where the card's memory isn't printed, what was there before the weights stands for it,
    so that the elsewhere of such a start is 0.
    """
    memory = record.memory
    if memory.free is None or memory.weights is None or memory.utilisation is None:
        return None
    profile = memory.profile_run or 0
    loaded = memory.free + memory.weights + profile
    total = loaded if memory.total is None else memory.total
    blocks, cache = record.kv.blocks, memory.kv_cache
    block = cache / blocks if blocks and cache and cache > 0 else memory.dummy_block
    return {
        "total": total,
        "elsewhere": total - loaded,
        "weights": memory.weights,
        "profile_run": profile,
        "utilisation": memory.utilisation,
        "reserve_ratio": memory.reserve_ratio or 0.0,
        "dummy_block": memory.dummy_block or 0,
        "block_bytes": block or 0,
    }


def free_bytes(values: Inputs) -> float:
    """Return what is free when the split is made."""
    taken = values["elsewhere"] + values["weights"] + values["profile_run"]
    return values["total"] - taken


def _split(values: Inputs, part: str) -> float:
    parts = split(
        round(free_bytes(values)),
        values["utilisation"],
        values["reserve_ratio"],
        round(values["dummy_block"]),
    )
    return float(getattr(parts, part))


def usable_bytes(values: Inputs) -> float:
    """Return the share that vLLM divides."""
    return _split(values, "usable_bytes")


def reserve_bytes(values: Inputs) -> float:
    """Return what is set aside for graphs."""
    return _split(values, "reserve_bytes")


def kv_cache_bytes(values: Inputs) -> float:
    """Return what is left for the KV cache."""
    return _split(values, "kv_cache_bytes")


def kv_blocks(values: Inputs) -> float:
    """Return the blocks of the KV cache."""
    block = values["block_bytes"]
    return kv_cache_bytes(values) / block if block else 0.0


def weights_expected(before: StartRecord, after: StartRecord) -> tuple[Share, ...]:
    """Return what other cards and another quantisation explain of the weights' bytes.

    Cards divide them; the bits of a quantisation bound what it explains, since some layers
    keep their sixteen: it explains at most down to that share, and at most all.
    """
    one, other = before.memory.weights, after.memory.weights
    if one is None or other is None or before.server.model != after.server.model:
        return ()
    shares = []
    cards = (before.server.tp or 1) / (after.server.tp or 1)
    divided = one * cards
    if cards != 1:
        shares.append(Share("cards", divided - one))
    bits = _bits(after) / _bits(before)
    if bits != 1:
        ends = sorted((divided, divided * bits))
        shares.append(
            Share("quantization", min(max(other, ends[0]), ends[1]) - divided)
        )
    return tuple(shares)


def _bits(record: StartRecord) -> int:
    name = record.settings.get("--quantization", "").lower()
    return _BITS.get(name, _PLAIN_BITS)


def buckets_walked(
    before: StartRecord, after: StartRecord, names: Sequence[str], phase: str
) -> tuple[Share, ...] | None:
    """Return what release, settings and KV blocks explain of a phase's buckets.

    Args:
        before: with a plan whose rules give the list that its log prints.
        after: likewise.
        names: the settings that differ.
        phase: prompt or decode.

    Returns:
        None where the rules don't give the printed list, or a plan is unknown.
    """
    old, new = before.plan, after.plan
    first, last = before.kv.blocks, after.kv.blocks
    if old is None or new is None or first is None or last is None:
        return None
    count = _count(old, first, phase)
    if count is None or count != before.lists[phase].count:
        return None
    plans = list(_plans(replace(old, release_text=new.release_text), after, names))
    stops = [(name, plan, first) for name, plan in plans]
    stops.append((KV_BLOCKS, plans[-1][1], last))
    shares: list[Share] = []
    for name, plan, number in stops:
        now = _count(plan, number, phase)
        if now is None:
            return None
        if now != count:
            shares.append(Share(name, now - count))
        count = now
    return tuple(shares)


def _plans(
    plan: Plan, after: StartRecord, names: Sequence[str]
) -> Iterator[tuple[str, Plan]]:
    """Yield what changes, the release first, and the plan from then on."""
    yield RELEASE, plan
    for name in names:
        value = after.settings.get(name)
        if value is None and name.startswith("--"):
            continue  # a log that doesn't print a flag doesn't say that it isn't given
        try:
            plan = applied(plan, [Change(name, value)])
        except ConfigError:
            continue  # it decides neither shapes nor memory
        yield name, plan


def _count(plan: Plan, blocks: int, phase: str) -> int | None:
    try:
        return len(prepare(plan.shapes(blocks)).of(phase))
    except ConfigError:
        return None


WARMUP = (
    *(f"{phase}_buckets" for phase in (PROMPT, DECODE)),
    *(f"{phase}_bucket_seconds" for phase in (PROMPT, DECODE)),
    "rest_seconds",
)
"""The inputs of a warm-up's seconds, in the order of the walk."""


def warmup_inputs(record: StartRecord) -> dict[str, float] | None:
    """Return what a warm-up's seconds are made of, None where its log tells too little."""
    found: dict[str, float] = {}
    for phase in (PROMPT, DECODE):
        if phase not in record.lists or phase not in record.bucket_seconds:
            return None
        found[f"{phase}_buckets"] = record.lists[phase].count
        found[f"{phase}_bucket_seconds"] = record.bucket_seconds[phase]
    found["rest_seconds"] = 0.0
    if record.warmup.seconds is not None:
        found["rest_seconds"] = record.warmup.seconds - warmup_seconds(found)
    return found


def warmup_seconds(values: Inputs) -> float:
    """Return the seconds of a warm-up."""
    phases = sum(
        values[f"{phase}_buckets"] * values[f"{phase}_bucket_seconds"]
        for phase in (PROMPT, DECODE)
    )
    return phases + values["rest_seconds"]
