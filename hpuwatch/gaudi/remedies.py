"""What may mend a plan that is refused, nearest first, for each kind of refusal.

Each remedy is a change or two of the knob that acts under the release and the strategy at
hand.  Memory has two sides: graphs want a larger reserve and the KV cache a smaller one.
So a reserve is only proposed between the least that holds the graphs and the most that
leaves one request of the model's length; where these cross, something else has to give.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from math import ceil

from hpuwatch.errors import ConfigError
from hpuwatch.gaudi.basis import Basis, block_bytes
from hpuwatch.gaudi.heeded import heeded
from hpuwatch.gaudi.knobs import KNOBS
from hpuwatch.gaudi.memory import ratio_holding, ratio_leaving
from hpuwatch.gaudi.planning import (
    DEFAULT_UTILISATION,
    READY_TIMEOUT,
    RESERVE,
    Change,
    Plan,
    applied,
)
from hpuwatch.gaudi.predict import Forecast, predict
from hpuwatch.gaudi.refusal import Remark, deepest_allowed, ready_after, refusals
from hpuwatch.gaudi.resolve import FILE_VARIABLE

MAX_SEQS, MAX_LEN, TOKENS = (
    "--max-num-seqs",
    "--max-model-len",
    "--max-num-batched-tokens",
)
DECODE_TOP = "VLLM_DECODE_BLOCK_BUCKET_MAX"
_LARGEST_RATIO = 0.9
_DEFAULT_RATIO = 0.1
_TIMEOUT_STEP_SECONDS = 300
MANY_BUCKETS = 30_000
"""So many take long to list, and no server warms them: trying out sizes is no way."""

Remedy = tuple[Change, ...]


def _bucket_variables(plan: Plan) -> list[str]:
    return sorted(
        name
        for name in plan.env
        if "_BUCKET_" in name or name in (FILE_VARIABLE, *_SELECTORS)
    )


def _unset_all(names: Iterable[str]) -> Remedy:
    return tuple(Change(name, None) for name in names)


_AXES = (
    "VLLM_PROMPT_BS_",
    ("VLLM_PROMPT_QUERY_", "VLLM_PROMPT_SEQ_"),  # one stands in for the other
    "VLLM_PROMPT_CTX_",
    "VLLM_DECODE_BS_",
    "VLLM_DECODE_BLOCK_",
)
_SELECTORS = ("VLLM_BUCKETING_STRATEGY", "VLLM_EXPONENTIAL_BUCKETING")
_ODD_BUCKETS = ("VLLM_MERGED_PREFILL", "VLLM_UNIFIED_ATTN", "PT_HPU_SDPA_BC_FACTOR")


def _shorter(plan: Plan, tokens: int) -> Change:
    """Return the change to a length of whole blocks, at least one."""
    size = plan.flags.block_size
    return Change(MAX_LEN, str(max(size, tokens // size * size)))


def _fitting(forecast: Forecast) -> Change:
    """Return the change to the longest request that the blocks hold."""
    plan = forecast.plan
    whole = (
        -(-plan.flags.max_model_len // plan.flags.block_size) * plan.flags.block_size
    )
    return _shorter(plan, forecast.num_blocks * whole // forecast.blocks_per_sequence)


def _unset(_f: Forecast, _b: Basis, remark: Remark) -> Iterator[Remedy]:
    yield (Change(remark.name, None),)


def _to_model(_f: Forecast, _b: Basis, remark: Remark) -> Iterator[Remedy]:
    yield (Change(MAX_LEN, f"{remark.numbers['max_position']:.0f}"),)


def _more_tokens(forecast: Forecast, _b: Basis, remark: Remark) -> Iterator[Remedy]:
    plan = forecast.plan
    least = int(max(remark.numbers["max_num_seqs"], plan.flags.block_size))
    if "max_model_len" in remark.numbers:
        least = max(least, int(remark.numbers["max_model_len"]))
    unit = max(plan.flags.mamba_chunk_size, plan.flags.block_size)
    yield (Change(TOKENS, str(ceil(least / unit) * unit)),)


def _mended_lists(forecast: Forecast, _b: Basis, _r: Remark) -> Iterator[Remedy]:
    """Unset what the buckets break at: first what is named, then one by one, then all."""
    plan, said = forecast.plan, str(forecast.broken)
    odd = [name for name in _ODD_BUCKETS if name in plan.env]
    everything = [*_bucket_variables(plan), *odd]
    axes = [name for name in everything if "_BUCKET_" in name]
    for name in sorted(axes, key=lambda name: name not in said):
        yield (Change(name, None),)
    for axis in _AXES:
        if group := [name for name in axes if name.startswith(axis)]:
            yield _unset_all(group)
    for name in everything:
        yield (Change(name, None),)
    yield _unset_all(axes)
    if plan.flags.strategy is not None:
        yield (Change("--strategy", None),)
    yield _unset_all(everything)
    unit = plan.flags.mamba_chunk_size or plan.flags.block_size
    wanted = max(unit, plan.tokens // unit * unit)
    yield (Change(TOKENS, str(wanted)),)
    yield (*_unset_all(everything), Change(TOKENS, str(wanted)))


def _memory(forecast: Forecast, basis: Basis, _r: Remark) -> Iterator[Remedy]:
    """Move the reserve, then raise the utilisation, then shorten requests, then fewer."""
    plan, blocks = forecast.plan, forecast.num_blocks
    if plan.blocks_override is not None:
        yield (Change("--num-gpu-blocks-override", None),)
    bounds = _reserve_bounds(forecast, basis)
    if bounds is not None and bounds[0] <= bounds[1]:
        least, most = bounds
        wanted = plan.reserve_ratio
        if wanted > most:
            wanted = _DEFAULT_RATIO  # lowered anyhow, so as far as the runtime's own
        yield (_reserve(min(max(wanted, least), most)),)
    if plan.utilisation < DEFAULT_UTILISATION:
        yield (Change("--gpu-memory-utilization", str(DEFAULT_UTILISATION)),)
    if 0 < blocks < forecast.blocks_per_sequence:
        yield (_fitting(forecast),)
    yield from coarser(plan)
    if bounds is not None and bounds[0] <= _LARGEST_RATIO:
        yield (_reserve(bounds[0]), *_length_left(forecast, basis, bounds[0]))
    yield from _less(forecast, basis)


def coarser(plan: Plan) -> Iterator[Remedy]:
    """Go back to the release's own buckets, where the plan has others."""
    back = _unset_all(_bucket_variables(plan))
    if plan.flags.strategy is not None:
        back = (*back, Change("--strategy", None))
    if back:
        yield back


def _reserve(ratio: float) -> Change:
    return Change(RESERVE, f"{ratio:.3f}".rstrip("0").rstrip(".") or "0")


def _reserve_bounds(forecast: Forecast, basis: Basis) -> tuple[float, float] | None:
    """Return the least reserve that holds the graphs and the most that the cache leaves."""
    parts, device, room = forecast.split, basis.device, forecast.room
    if (
        parts is None
        or device is None
        or parts.usable_bytes <= 0
        or forecast.plan.eager
    ):
        return None
    least = 0.01
    if room is not None:
        need = room.need.low if room.need.origin == "prior" else room.need.value
        least = max(least, ratio_holding(need - parts.margin_bytes, parts.usable_bytes))
    block = block_bytes(forecast.plan, device)
    try:
        most = ratio_leaving(
            (forecast.blocks_per_sequence + 1) * block,
            round(device.free.value),
            forecast.plan.utilisation,
            round(block) if device.has_dummy else 0,
        )
    except ConfigError:
        return least, -1.0
    return least, min(most, _LARGEST_RATIO)


def _length_left(forecast: Forecast, basis: Basis, ratio: float) -> Remedy:
    """Return the length that a reserve leaves room for, where that is shorter."""
    then = predict(applied(forecast.plan, (_reserve(ratio),)), basis)
    if then.num_blocks >= then.blocks_per_sequence or then.num_blocks < 1:
        return ()
    return (_fitting(then),)


def _less(forecast: Forecast, basis: Basis) -> Iterator[Remedy]:
    """Offer shorter steps, fewer sequences, shorter requests: as little less as helps."""
    if sum(map(len, forecast.lists.values())) > MANY_BUCKETS:
        return  # trying it out would take too long, so the plan shrinks at once
    plan, flags = forecast.plan, forecast.plan.flags
    block = flags.block_size
    # The V0 engine computes a prompt in one piece.
    whole = flags.max_model_len if plan.at.family != "plugin" else 0
    tokens = max(flags.max_num_seqs, block, whole)
    for axis in (
        _Axis(TOKENS, plan.tokens, tokens, flags.mamba_chunk_size or block),
        _Axis(MAX_SEQS, flags.max_num_seqs, 1, 1),
        _Axis(MAX_LEN, flags.max_model_len, block, block),
    ):
        found = axis.largest(partial(_helps, forecast, basis))
        if found is not None:
            yield (found,)


def _helps(forecast: Forecast, basis: Basis, change: Change) -> bool:
    then = predict(applied(forecast.plan, (change,)), basis)
    return reached(refusals(then, basis)) > reached(refusals(forecast, basis))


@dataclass(frozen=True, slots=True)
class _Axis:
    """A flag that may be lowered: its size now, the least, and the unit of its sizes."""

    name: str
    now: int
    least: int
    unit: int

    def largest(self, helps: Callable[[Change], bool]) -> Change | None:
        """Return about the largest size below now that helps, found by halving."""
        bad, good = self.now, 0
        while not good and bad // 2 >= self.least:
            bad, good = (bad, bad // 2) if helps(self._to(bad // 2)) else (bad // 2, 0)
        while good and bad - good > max(1, good // 8):
            middle = (bad + good) // 2
            bad, good = (bad, middle) if helps(self._to(middle)) else (middle, good)
        return self._to(good) if good else None

    def _to(self, size: int) -> Change:
        return Change(self.name, str(max(self.least, size // self.unit * self.unit)))


def _as_many_as_blocks(f: Forecast, _b: Basis, _r: Remark) -> Iterator[Remedy]:
    yield (Change(MAX_SEQS, str(f.num_blocks)),)


def _shallower(forecast: Forecast, basis: Basis, _r: Remark) -> Iterator[Remedy]:
    """Cap the decode blocks where the strategy heeds that, else have fewer sequences."""
    plan, settings = forecast.plan, forecast.prepared and forecast.prepared.settings
    if settings and DECODE_TOP in heeded(settings):
        cap = Change(DECODE_TOP, str(forecast.num_blocks))
        least = Change("VLLM_DECODE_BLOCK_BUCKET_MIN", None)
        yield (cap,)
        yield (cap, least)
    if FILE_VARIABLE in plan.env or plan.flags.bucket_file is not None:
        yield (Change(FILE_VARIABLE, None),)
    bounds = _reserve_bounds(forecast, basis)
    own = forecast.blocks_per_sequence
    seqs = deepest_allowed(forecast, basis) // own
    if 1 <= seqs < plan.flags.max_num_seqs:
        yield (Change(MAX_SEQS, str(seqs)),)
    if bounds is not None and bounds[0] < plan.reserve_ratio:
        yield (_reserve(bounds[0]),)
    yield from _less(forecast, basis)


def _patient(forecast: Forecast, basis: Basis, _r: Remark) -> Iterator[Remedy]:
    """Let the front end wait longer where it can be told to, else warm fewer buckets."""
    plan = forecast.plan
    if KNOBS[READY_TIMEOUT].acts(plan.at):
        wanted = 2 * ready_after(forecast).value
        steps = max(1, ceil(wanted / _TIMEOUT_STEP_SECONDS))
        yield (Change(READY_TIMEOUT, str(steps * _TIMEOUT_STEP_SECONDS)),)
    yield from coarser(plan)
    yield from _less(forecast, basis)


REMEDIES: dict[str, Callable[[Forecast, Basis, Remark], Iterator[Remedy]]] = {
    "bad-value": _unset,
    "beyond-model": _to_model,
    "tokens-below-seqs": _more_tokens,
    "tokens-below-length": _more_tokens,
    "kv-none": _memory,
    "kv-short": _memory,
    "no-buckets": _mended_lists,
    "seqs-above-blocks": _as_many_as_blocks,
    "decode-above-cache": _shallower,
    "graphs-above-reserve": _memory,
    "start-timeout": _patient,
}
"""In the order in which a start meets them."""


def reached(left: Sequence[Remark]) -> tuple[int, int]:
    """Return how far a start gets: to which kind of refusal, and how few there are."""
    order = list(REMEDIES)
    first = min((order.index(each.code) for each in left), default=len(order))
    return first, -len(left)


def smaller(plan: Plan) -> Remedy | None:
    """Return a step towards the smallest plan, None at its end."""
    flags, block = plan.flags, plan.flags.block_size
    for back in coarser(plan):
        return back
    if flags.max_num_seqs > 1:
        return (Change(MAX_SEQS, str(flags.max_num_seqs // 2)),)
    if flags.max_model_len > block:
        return (Change(TOKENS, None), _shorter(plan, flags.max_model_len // 2))
    return None
