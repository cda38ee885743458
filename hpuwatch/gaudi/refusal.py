"""Why a plan can't work: the server would not come up with it.

Where only the figures of other servers stand in (``prior``), the best guess is
no reason to refuse: then even the lower end must be too much.

A decode bucket may hold more blocks than there are, since requests share prefixes.  The
newest runtime allows three times the cache, and that is the limit here too; a warm-up that
captured a deeper one has proven that it can, whatever the cache then held.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from hpuwatch.gaudi.basis import Basis
from hpuwatch.gaudi.checks import Outcome
from hpuwatch.gaudi.dialects import dialect_of
from hpuwatch.gaudi.grammar import PairDialect
from hpuwatch.gaudi.heeded import unread
from hpuwatch.gaudi.knobs import KNOBS
from hpuwatch.gaudi.planning import Plan
from hpuwatch.gaudi.predict import Forecast
from hpuwatch.gaudi.severity import Severity
from hpuwatch.gaudi.slices import SLICE_SIZE, counts, oversized
from hpuwatch.gaudi.variables import is_true
from hpuwatch.units import format_bytes

POOLS = 3
"""Times the cache that the newest runtime lets a decode bucket hold."""


@dataclass(frozen=True, slots=True)
class Remark:
    """A refusal, or a caution (see ``gaudi.caution``).

    Attributes:
        code: stable, as ``kv-short``.
        text: one or two sentences with the numbers.
        numbers: the same for programs.
        name: the variable or flag that it is about, where it is one.
        severity: ``error`` of a refusal; ``warning`` or ``info`` of a caution.
    """

    code: str
    text: str
    numbers: Mapping[str, float] = field(default_factory=dict)
    name: str = ""
    severity: Severity = "error"


UNMENDED = frozenset({"heads-uneven", "weights-too-large"})
"""Want another number of cards; what such cards have free, a basis of these can't tell."""


def refusals(forecast: Forecast, basis: Basis) -> tuple[Remark, ...]:
    """Return why the plan can't work, what comes first in a start first."""
    return tuple(remark for check in _REFUSALS for remark in check(forecast, basis))


def bad_values(plan: Plan) -> Iterator[Remark]:
    """See values that end the start."""
    dialect = dialect_of(plan.release.dialect)
    for name, value in sorted(plan.env.items()):
        knob = KNOBS.get(name)
        found = knob.judge(value, plan.at) if knob and knob.acts(plan.at) else None
        if unread(name, dialect, plan.flags, plan.env):
            continue
        if found is None or not counts(found, dialect, plan.flags, plan.env):
            continue
        if found.outcome is Outcome.DIES:
            yield Remark("bad-value", f"{name}: {found.text}.", name=name)
    if KNOBS[SLICE_SIZE].acts(plan.at):
        why = oversized(dialect, plan.flags, plan.env, plan.tokens)
        if why is not None:
            yield Remark("bad-value", f"{why}.", name=SLICE_SIZE)
    if not 0 < plan.utilisation <= 1:
        name = "--gpu-memory-utilization"
        yield Remark(
            "bad-value",
            f"{name} {plan.utilisation:g} is no share above 0 and at most 1.",
            {"utilisation": plan.utilisation},
            name,
        )


def _values(forecast: Forecast, _basis: Basis) -> Iterator[Remark]:
    return bad_values(forecast.plan)


def _heads(forecast: Forecast, basis: Basis) -> Iterator[Remark]:
    """See heads that no card gets a whole number of.

    vLLM checks it at the start, for every model (general knowledge: no log shows it).
    """
    model, tp = basis.device and basis.device.model, forecast.plan.tensor_parallel
    heads = model.heads if model else 0
    if heads % tp:
        yield Remark(
            "heads-uneven",
            f"{heads:,} attention heads can't be divided among {tp:,} cards "
            "(--tensor-parallel-size), and the server does not start: choose a number that "
            "divides them.",
            {"heads": heads, "tensor_parallel_size": tp},
        )


def _too_long(forecast: Forecast, basis: Basis) -> Iterator[Remark]:
    plan, model = forecast.plan, basis.device.model if basis.device else None
    longest = plan.flags.max_model_len
    if model is None or longest <= model.max_position:
        return
    if is_true(plan.env.get("VLLM_ALLOW_LONG_MAX_MODEL_LEN", "")):
        return
    yield Remark(
        "beyond-model",
        f"--max-model-len {longest:,} exceeds the {model.max_position:,} tokens that the "
        "model was made for, and the server does not start.",
        {"max_model_len": longest, "max_position": model.max_position},
    )


def _budget(forecast: Forecast, _basis: Basis) -> Iterator[Remark]:
    plan = forecast.plan
    seqs, longest, tokens = (
        plan.flags.max_num_seqs,
        plan.flags.max_model_len,
        plan.tokens,
    )
    numbers = {"max_num_batched_tokens": tokens, "max_num_seqs": seqs}
    if tokens < seqs:
        yield Remark(
            "tokens-below-seqs",
            f"--max-num-batched-tokens {tokens:,} is less than --max-num-seqs {seqs:,}: a "
            "step can't hold one token of each sequence, and the server does not start.",
            numbers,
        )
    engine_v1 = is_true(plan.env.get("VLLM_USE_V1", ""))
    if tokens < longest and plan.at.family != "plugin" and not engine_v1:
        yield Remark(
            "tokens-below-length",
            f"--max-num-batched-tokens {tokens:,} is less than --max-model-len "
            f"{longest:,}: the V0 engine computes a prompt in one piece, and does not start.",
            numbers | {"max_model_len": longest},
        )


def _memory(forecast: Forecast, basis: Basis) -> Iterator[Remark]:
    parts, own, blocks = (
        forecast.split,
        forecast.blocks_per_sequence,
        forecast.num_blocks,
    )
    free = basis.device.free.value if basis.device else 1.0
    if free <= 0:
        yield Remark(
            "weights-too-large",
            f"Weights and profile run need {format_bytes(-free)} more than a card has: the "
            "model needs more cards (--tensor-parallel-size).",
            {"free_bytes": free},
        )
        return
    if blocks >= own:
        return
    longest = forecast.plan.flags.max_model_len
    cache = "" if parts is None else f" ({format_bytes(parts.kv_cache_bytes)})"
    there = f"holds {blocks:,}" if blocks > 0 else "holds none at all"
    yield Remark(
        "kv-short" if blocks > 0 else "kv-none",
        f"One request of {longest:,} tokens (--max-model-len) needs {own:,} KV blocks, and "
        f"the cache{cache} {there}: the server does not start.",
        {"blocks_needed": own, "kv_blocks": blocks},
    )


def _no_lists(forecast: Forecast, _basis: Basis) -> Iterator[Remark]:
    error = forecast.broken
    if error is not None and not forecast.is_open:
        yield Remark("no-buckets", f"{error} The server {error.end}.")


def _sequences(forecast: Forecast, _basis: Basis) -> Iterator[Remark]:
    seqs, blocks = forecast.plan.flags.max_num_seqs, forecast.num_blocks
    if seqs > blocks >= forecast.blocks_per_sequence:
        yield Remark(
            "seqs-above-blocks",
            f"--max-num-seqs {seqs:,} sequences need a KV block each, and the card holds "
            f"{blocks:,}.",
            {"max_num_seqs": seqs, "kv_blocks": blocks},
        )


def deepest_allowed(forecast: Forecast, basis: Basis) -> int:
    """Return how many blocks a decode bucket may hold."""
    proven = basis.printed.captured_blocks if basis.printed else 0
    tokens = 1 + forecast.plan.flags.num_speculative_tokens
    return max(forecast.num_blocks * POOLS * tokens, proven)


def _too_deep(forecast: Forecast, basis: Basis) -> Iterator[Remark]:
    deepest, blocks = forecast.deepest, forecast.num_blocks
    if (
        forecast.warms
        and deepest > deepest_allowed(forecast, basis)
        and blocks >= forecast.blocks_per_sequence
    ):
        yield Remark(
            "decode-above-cache",
            f"The top decode bucket needs {deepest:,} blocks, and the card holds "
            f"{blocks:,}: some releases run out of memory at their first decode then.",
            {"largest_bucket_blocks": deepest, "kv_blocks": blocks},
        )


def has_budget(plan: Plan) -> bool:
    """Tell whether graphs are captured while a budget lasts (up to fork 1.21)."""
    return isinstance(dialect_of(plan.release.dialect), PairDialect)


def _graphs(forecast: Forecast, basis: Basis) -> Iterator[Remark]:
    room = forecast.room
    if room is None or has_budget(forecast.plan) or not forecast.warms:
        return
    if basis.device is None or basis.device.free.value <= 0:
        return  # that is another refusal
    if not (room.is_hopeless if room.need.origin == "prior" else room.is_short):
        return
    need, there = format_bytes(room.need.value), format_bytes(room.room_bytes)
    yield Remark(
        "graphs-above-reserve",
        f"Graphs need about {need}, and reserve and margin hold {there}: this release has "
        "no budget for graphs, so warm-up runs out of memory.",
        {"graph_bytes": room.need.value, "room_bytes": room.room_bytes},
    )


_REFUSALS = (
    _values,
    _heads,
    _too_long,
    _budget,
    _memory,
    _no_lists,
    _sequences,
    _too_deep,
    _graphs,
)
