"""What may mend a plan that is refused, nearest first, for each kind of refusal.

Each remedy is a change or two of the knob that acts under the release and the strategy at
hand.  Memory has two sides: graphs want a larger reserve and the KV cache a smaller one.
So a reserve is only proposed between the least that holds the graphs and the most that
leaves one request of the model's length; where these cross, something else has to give.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import ceil

from hpuwatch.errors import ConfigError
from hpuwatch.gaudi.basis import block_bytes
from hpuwatch.gaudi.heeded import SELECTORS, heeded
from hpuwatch.gaudi.kvcache import HPU_BLOCK_SIZE
from hpuwatch.gaudi.memory import ratio_holding, ratio_leaving
from hpuwatch.gaudi.model import TOO_MANY
from hpuwatch.gaudi.planning import (
    RESERVE,
    UTILISATION,
    Change,
    Plan,
    applied,
    default_utilisation,
    ratio_of,
)
from hpuwatch.gaudi.predict import Forecast
from hpuwatch.gaudi.refusal import Remark, deepest_allowed, refusals
from hpuwatch.gaudi.resolve import EXPONENTIAL, FILE_VARIABLE
from hpuwatch.gaudi.search import Search

MAX_SEQS, MAX_LEN, TOKENS = (
    "--max-num-seqs",
    "--max-model-len",
    "--max-num-batched-tokens",
)
DECODE_TOP = "VLLM_DECODE_BLOCK_BUCKET_MAX"
_LARGEST_RATIO = 0.9
_MANY_BUCKETS = 30_000

Remedy = tuple[Change, ...]


def makes_many(forecast: Forecast) -> bool:
    """Tell whether lists are so long that no server warms them, and each try takes long."""
    broken = forecast.broken
    if broken is not None:
        return broken.raised == TOO_MANY or broken.made > _MANY_BUCKETS
    return sum(map(len, forecast.lists.values())) > _MANY_BUCKETS


def _bucket_variables(plan: Plan) -> list[str]:
    return sorted(
        name
        for name in plan.env
        if "_BUCKET_" in name or name in (FILE_VARIABLE, *SELECTORS)
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
_ODD_BUCKETS = ("VLLM_MERGED_PREFILL", "PT_HPU_SDPA_BC_FACTOR")
_LEAST_BLOCK = 16
_DECODE_BLOCK = "VLLM_DECODE_BLOCK_BUCKET_"
_ONLY_POOL = {f"{_DECODE_BLOCK}{part}": "{blocks}" for part in ("MAX", "STEP", "MIN")}
_OTHER_WAYS: tuple[Mapping[str, str], ...] = (
    {"VLLM_CONTIGUOUS_PA": "false"},
    {EXPONENTIAL: "true"},
    {f"{_DECODE_BLOCK}MIN": "{half}"},
    {f"{_DECODE_BLOCK}MIN": "1"},
    _ONLY_POOL,
    {"--block-size": "{block}"},
    {"--block-size": str(HPU_BLOCK_SIZE)},
    {"VLLM_PROMPT_QUERY_BUCKET_MIN": "1"},
    {"--block-size": "{block}", **_ONLY_POOL},
)
"""What makes other lists where the default ones can't be, in words of the sizes."""


def _other_ways(forecast: Forecast) -> Iterator[Remedy]:
    """Offer other kinds of lists, for a pool or a length below the usual steps."""
    plan, blocks = forecast.plan, max(1, forecast.num_blocks)
    length, block = plan.flags.max_model_len, plan.flags.block_size
    sizes = {
        "blocks": blocks,
        "half": max(1, blocks // 2),
        "block": min(block, max(_LEAST_BLOCK, 1 << (length.bit_length() - 1))),
    }
    for way in _OTHER_WAYS:
        yield tuple(Change(name, text.format(**sizes)) for name, text in way.items())


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


def _unset(_f: Forecast, _s: Search, remark: Remark) -> Iterator[Remedy]:
    yield (Change(remark.name, None),)


def _to_model(_f: Forecast, _s: Search, remark: Remark) -> Iterator[Remedy]:
    yield (Change(MAX_LEN, f"{remark.numbers['max_position']:.0f}"),)


def _more_tokens(
    forecast: Forecast, search: Search, remark: Remark
) -> Iterator[Remedy]:
    """Raise the tokens of a step, or have fewer sequences where that is all it takes."""
    plan = forecast.plan
    least = int(max(remark.numbers["max_num_seqs"], plan.flags.block_size))
    if "max_model_len" in remark.numbers:
        least = max(least, int(remark.numbers["max_model_len"]))
    unit = max(plan.flags.mamba_chunk_size, plan.flags.block_size)
    more = (Change(TOKENS, str(ceil(least / unit) * unit)),)
    fewer = (Change(MAX_SEQS, str(plan.tokens)),)
    in_time = not makes_many(forecast)
    if in_time and _works(plan, search, fewer) and not _works(plan, search, more):
        yield fewer
    yield more


def _works(plan: Plan, search: Search, remedy: Remedy) -> bool:
    return not refusals(search.predict(applied(plan, remedy)), search.basis)


def _mended_lists(forecast: Forecast, _s: Search, _r: Remark) -> Iterator[Remedy]:
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
    yield from _other_ways(forecast)
    unit = plan.flags.mamba_chunk_size or plan.flags.block_size
    wanted = max(unit, plan.tokens // unit * unit)
    yield (Change(TOKENS, str(wanted)),)
    yield (*_unset_all(everything), Change(TOKENS, str(wanted)))


def _memory(forecast: Forecast, search: Search, remark: Remark) -> Iterator[Remedy]:
    """Move the reserve, then raise the utilisation, then shorten requests, then fewer."""
    plan, blocks = forecast.plan, forecast.num_blocks
    if plan.blocks_override is not None:
        yield (Change("--num-gpu-blocks-override", None),)
    short = remark.code == "graphs-above-reserve"
    bounds = _reserve_bounds(forecast, search, holds_best_guess=short)
    if bounds is not None and bounds[0] <= bounds[1]:
        least, most = bounds
        wanted = plan.reserve_ratio
        if wanted > most:
            wanted = ratio_of(None, plan.at)  # lowered anyhow, so to the runtime's own
        yield (_reserve(min(max(wanted, least), most)),)
    usual = default_utilisation(plan.at)
    if plan.utilisation < usual:
        yield (Change(UTILISATION, str(usual)),)
    if 0 < blocks < forecast.blocks_per_sequence:
        yield (_fitting(forecast),)
    yield from coarser(plan)
    if bounds is not None and bounds[0] <= _LARGEST_RATIO:
        yield (_reserve(bounds[0]), *_length_left(forecast, search, bounds[0]))
    yield from _less(forecast, search)


def coarser(plan: Plan) -> Iterator[Remedy]:
    """Go back to the release's own buckets, where the plan has others."""
    back = _unset_all(_bucket_variables(plan))
    if plan.flags.strategy is not None:
        back = (*back, Change("--strategy", None))
    if back:
        yield back


def _reserve(ratio: float) -> Change:
    return Change(RESERVE, f"{ratio:.3f}".rstrip("0").rstrip(".") or "0")


def _reserve_bounds(
    forecast: Forecast, search: Search, *, holds_best_guess: bool = False
) -> tuple[float, float] | None:
    """Return the least reserve that holds the graphs and the most that the cache leaves.

    Of public figures the lower end does, unless the best guess is to be held: then as far
    as the cache leaves that.
    """
    parts, device, room = forecast.split, search.basis.device, forecast.room
    if (
        parts is None
        or device is None
        or parts.usable_bytes <= 0
        or forecast.plan.eager
    ):
        return None
    least = wanted = 0.01
    if room is not None:
        guess = room.need.value
        low = room.need.low if room.need.origin == "prior" else guess
        least, wanted = (
            max(least, ratio_holding(need - parts.margin_bytes, parts.usable_bytes))
            for need in (low, guess)
        )
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
    most = min(most, _LARGEST_RATIO)
    return max(least, min(wanted, most)) if holds_best_guess else least, most


def _length_left(forecast: Forecast, search: Search, ratio: float) -> Remedy:
    """Return the length that a reserve leaves room for, where that is shorter."""
    then = search.predict(applied(forecast.plan, (_reserve(ratio),)))
    if then.num_blocks >= then.blocks_per_sequence or then.num_blocks < 1:
        return ()
    return (_fitting(then),)


def _less(forecast: Forecast, search: Search) -> Iterator[Remedy]:
    """Offer shorter steps, fewer sequences, shorter requests: as little less as helps."""
    if makes_many(forecast):
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
        found = axis.largest(partial(_helps, forecast, search))
        if found is not None:
            yield (found,)


def _helps(forecast: Forecast, search: Search, change: Change) -> bool:
    basis, then = search.basis, search.predict(applied(forecast.plan, (change,)))
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


def _as_many_as_blocks(f: Forecast, _s: Search, _r: Remark) -> Iterator[Remedy]:
    yield (Change(MAX_SEQS, str(f.num_blocks)),)


def _shallower(forecast: Forecast, search: Search, _r: Remark) -> Iterator[Remedy]:
    """Cap the decode blocks where the strategy heeds that, else have fewer sequences."""
    plan, settings = forecast.plan, forecast.prepared and forecast.prepared.settings
    if settings and DECODE_TOP in heeded(settings):
        cap = Change(DECODE_TOP, str(forecast.num_blocks))
        least = Change("VLLM_DECODE_BLOCK_BUCKET_MIN", None)
        yield (cap,)
        yield (cap, least)
    if FILE_VARIABLE in plan.env or plan.flags.bucket_file is not None:
        yield (Change(FILE_VARIABLE, None),)
    bounds = _reserve_bounds(forecast, search)
    own = forecast.blocks_per_sequence
    seqs = deepest_allowed(forecast, search.basis) // own
    if 1 <= seqs < plan.flags.max_num_seqs:
        yield (Change(MAX_SEQS, str(seqs)),)
    if bounds is not None and bounds[0] < plan.reserve_ratio:
        yield (_reserve(bounds[0]),)
    yield from _less(forecast, search)
    yield from _other_ways(forecast)


REMEDIES: dict[str, Callable[[Forecast, Search, Remark], Iterator[Remedy]]] = {
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
