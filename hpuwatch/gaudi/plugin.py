"""The bucket lists of vllm-gaudi since 0.11.

Ranges of the axes → their product → filters → the sorted list.  Without contiguous
paged attention (PA) a decode bucket holds at least one block for each sequence and at
most what its sequences can reach.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from math import inf

from hpuwatch.gaudi.grammar import PluginDialect
from hpuwatch.gaudi.model import DECODE, PROMPT, Bucket, BucketError, BucketSettings
from hpuwatch.gaudi.ranges import (
    Axis,
    PaddedAxis,
    check_size,
    exponential,
    linear,
    log2_up,
    padded,
)
from hpuwatch.gaudi.variables import (
    integer,
    is_true,
    read_axis,
    read_padded,
)

LONG = 8192
FIRST_QUERY = "VLLM_PROMPT_QUERY_BUCKET_MIN"
_CHECKED = {
    PROMPT: ("PROMPT_BS", "PROMPT_SEQ"),
    DECODE: ("DECODE_BS", "DECODE_BLOCK"),
}


def prompt_buckets(s: BucketSettings, d: PluginDialect) -> list[Bucket]:
    """Return the prompt list, sorted.

    Raises:
        BucketError: a variable or range is wrong, or nothing survives the filters.
    """
    batches, queries, contexts = _PROMPT_RANGES[s.strategy](s, d)
    check_size(len(batches), len(queries), len(contexts))
    deepest = max(contexts, default=0)
    queries = _rounded_to_chunk(s, d, sorted(queries))
    ends = _ends_of_contexts(s, d, queries, deepest)
    rows = {
        query: sorted({end if c == deepest else c for c in contexts})
        for query, end in ends.items()
    }
    # All in order, so that a long list needs neither a set nor a sort.
    kept = [
        Bucket(b, query, context)
        for b in sorted(set(batches))
        for query, row in rows.items()
        for context in row[: bisect_right(row, deepest_prompt(s, d, b, query))]
    ]
    return _sliceable(s, kept)


def decode_seeds(s: BucketSettings, d: PluginDialect) -> list[Bucket]:
    """Return the decode list before it grows for speculative tokens."""
    batches, contexts = _DECODE_RANGES[s.strategy](s, d)
    check_size(len(batches), len(contexts))
    if s.contiguous_pa and max(contexts, default=s.num_blocks) < s.num_blocks:
        contexts = [*contexts, s.num_blocks]
    kept = []
    for b in sorted(set(batches)):
        reach = _reach(s, d, b)
        row = {int(min(c, reach)) for c in contexts if s.contiguous_pa or b <= c}
        kept += [Bucket(b, 1, c) for c in sorted(row)]
    return _some(kept, DECODE)


def finished_prompts(
    s: BucketSettings, d: PluginDialect, candidates: Iterable[Bucket]
) -> list[Bucket]:
    """Filter and sort prompt candidates."""
    return _sliceable(s, sorted({b for b in candidates if prompt_fits(s, d, b)}))


def _sliceable(s: BucketSettings, kept: list[Bucket]) -> list[Bucket]:
    return without_unsliceable(s.env, _some(kept, PROMPT), any_context=False)


def finished_decodes(
    s: BucketSettings, d: PluginDialect, candidates: Iterable[Bucket]
) -> list[Bucket]:
    """Filter, cap and sort decode candidates."""
    kept = {capped(s, d, b) for b in candidates if decode_fits(s, b)}
    return _some(sorted(kept), DECODE)


def speculative(s: BucketSettings, seeds: Sequence[Bucket]) -> list[Bucket]:
    """Return the decode list grown for ``num_speculative_tokens`` of a draft.

    Every sequence then brings ``k`` rows, so each bucket has a sibling with ``k`` times
    the batch, and one with ``k`` times the context too.
    """
    k = 1 + s.num_speculative_tokens
    grown = set(seeds)
    for batch, _, context in seeds:
        top = batch * k * s.blocks_per_sequence
        wider = [context] if batch * k <= context else []
        for c in (*wider, context * k):
            capped = c if s.contiguous_pa else min(c, top)
            grown.add(Bucket(batch * k, 1, capped))
    return sorted(grown)


def without_unsliceable(
    env: Mapping[str, str], buckets: list[Bucket], *, any_context: bool
) -> list[Bucket]:
    """Drop the long prompts that sliced attention can't cut into whole slices."""
    if not slices(env):
        return buckets
    threshold, piece = slice_limits(env)
    return [
        b
        for b in buckets
        if b.query < threshold
        or b.query % piece == 0
        or not (any_context or b.context == 0)
    ]


def slices(env: Mapping[str, str]) -> bool:
    """Tell whether attention works on slices of a long query."""
    return is_true(env.get("PT_HPU_SDPA_QKV_SLICE_MODE_FWD", ""))


def slice_limits(env: Mapping[str, str]) -> tuple[int, int]:
    """Return from which query length slices are used, and the length of one.

    Raises:
        BucketError: a slice has no length.
    """
    piece = integer(env, "PT_HPU_SDPA_BC_FACTOR", 1024)
    if piece < 1:
        raise BucketError(
            f"PT_HPU_SDPA_BC_FACTOR={piece} is no length of a slice; set 1 or more.",
            "ZeroDivisionError",
            "integer modulo by zero",
        )
    return integer(env, "VLLM_FUSEDSDPA_SLIDE_THLD", 8192), piece


def _some(buckets: list[Bucket], phase: str) -> list[Bucket]:
    if not buckets:
        raise BucketError(
            f"These settings make no {phase} bucket at all; widen the ranges, or raise "
            "max_num_batched_tokens or max_model_len.",
            "RuntimeError",
        )
    return buckets


def _check_unused(s: BucketSettings, d: PluginDialect, phase: str) -> None:
    """Exp ignores nearly all of these variables, but refuses what is no integer."""
    axes = _CHECKED[phase]
    names = [f"VLLM_{a}_BUCKET_{part}" for a in axes for part in ("MIN", "STEP", "MAX")]
    if phase == PROMPT and d.query_min_one:
        names.append(FIRST_QUERY)
    try:
        for name in names:
            integer(s.env, name, 0)
    except BucketError as error:
        raise BucketError(str(error), "RuntimeError") from None


def _exponential(
    s: BucketSettings, d: PluginDialect, axis: Axis, count: int
) -> list[int]:
    return exponential(
        axis,
        count,
        exact_end=s.contiguous_pa,
        kept=d.kept,
        clipped=d.clipped,
    )


def starts_at_one(s: BucketSettings, d: PluginDialect) -> bool:
    """Tell whether exp begins with queries of one token: the only minimum it heeds."""
    try:
        return d.query_min_one and integer(s.env, FIRST_QUERY, 0) == 1
    except BucketError:
        return False


_Prompts = tuple[list[int], list[int], list[int]]


def _exp_prompts(s: BucketSettings, d: PluginDialect) -> _Prompts:
    _check_unused(s, d, PROMPT)
    block, prefills = s.block_size, s.max_num_prefill_seqs
    budget, length = s.max_num_batched_tokens, s.max_model_len
    first = block
    if starts_at_one(s, d):
        first = 1
    rest = length - first
    if d.long_context and length >= LONG:
        rest = length - budget
    deepest = max(1, rest // block)
    count = 2 if deepest == 1 else log2_up(deepest) + 1
    step, context_step = block, 1
    batches = _exponential(s, d, Axis(1, 2, prefills), log2_up(prefills) + 1)
    if s.merged_prefill:
        batches, step, context_step = [1], 4 * block, 4
        deepest *= prefills
    queries = _exponential(s, d, Axis(first, step, budget), log2_up(budget))
    return batches, queries, _exponential(s, d, Axis(0, context_step, deepest), count)


def _lin_prompts(s: BucketSettings, _d: PluginDialect) -> _Prompts:
    block, prefills = s.block_size, s.max_num_prefill_seqs
    batch = read_axis(s.env, "PROMPT_BS", Axis(1, 1, prefills))
    query = read_axis(
        s.env, "PROMPT_QUERY", Axis(block, block, s.max_num_batched_tokens)
    )
    deepest = (s.max_model_len - query.minimum) // block
    context = read_axis(s.env, "PROMPT_CTX", Axis(0, 1, deepest))
    if s.merged_prefill:
        batch = Axis(1, 1, 1)
        query = Axis(query.minimum, query.step * 4, s.max_num_batched_tokens)
        deepest = context.maximum * prefills
        context = read_axis(s.env, "PROMPT_CTX", Axis(0, 4, deepest))
    return linear(batch), linear(query), linear(context)


def _pad_prompts(s: BucketSettings, _d: PluginDialect) -> _Prompts:
    block, prefills = s.block_size, s.max_num_prefill_seqs
    budget = s.max_num_batched_tokens
    quarter = -(-prefills // 4)
    batch = read_padded(s.env, "PROMPT_BS", PaddedAxis(1, 1, prefills, quarter, 25))
    query = read_padded(
        s.env, "PROMPT_QUERY", PaddedAxis(block, block, budget, -(-budget // 4), 25)
    )
    deepest = -(-(s.max_model_len - query.minimum) // block)
    gap = -(-budget // block)
    context = read_padded(s.env, "PROMPT_CTX", PaddedAxis(0, 2, deepest, gap, 25))
    if s.merged_prefill:
        batch = PaddedAxis(1, 1, 1, 1, 25)
        query = query._replace(step=query.step * 4, maximum=budget)
        deepest = context.maximum * prefills
        context = read_padded(s.env, "PROMPT_CTX", PaddedAxis(0, 4, deepest, gap, 25))
    return padded(batch), padded(query), padded(context)


_PROMPT_RANGES = {"exp": _exp_prompts, "lin": _lin_prompts, "pad": _pad_prompts}

_Decodes = tuple[list[int], list[int]]


def _exp_decodes(s: BucketSettings, d: PluginDialect) -> _Decodes:
    _check_unused(s, d, DECODE)
    seqs = s.max_num_seqs
    top = d.decode_top(s)
    return (
        _exponential(s, d, Axis(1, 2, seqs), log2_up(seqs) + 1),
        _exponential(s, d, Axis(1, seqs, top), d.decode_count(s, top)),
    )


def _lin_decodes(s: BucketSettings, d: PluginDialect) -> _Decodes:
    block = s.block_size
    batch = read_axis(s.env, "DECODE_BS", Axis(1, 32, s.max_num_seqs))
    top = max(s.max_model_len * s.max_num_seqs // block, block)
    low, step, high = read_axis(
        s.env, "DECODE_BLOCK", Axis(1, block, s.num_blocks if s.contiguous_pa else top)
    )
    bounded = high > s.num_blocks and (s.contiguous_pa or d.pool_bounds_lin)
    if bounded:
        high = s.num_blocks
    if low > high and (bounded or not d.pool_bounds_lin):
        low = max(1, high - step)
    return linear(batch), linear(Axis(low, step, high))


def _pad_decodes(s: BucketSettings, _d: PluginDialect) -> _Decodes:
    block, seqs = s.block_size, s.max_num_seqs
    quarter = -(-seqs // 4)
    batch = read_padded(s.env, "DECODE_BS", PaddedAxis(1, 2, seqs, quarter, 25))
    top = max(-(-s.max_model_len * seqs // block), block)
    if s.contiguous_pa:
        top = s.num_blocks
    context = read_padded(
        s.env, "DECODE_BLOCK", PaddedAxis(block, block, top, -(-top // 4), 25)
    )
    if s.contiguous_pa:
        context = context._replace(maximum=min(context.maximum, s.num_blocks))
    if context.minimum > s.num_blocks:
        context = context._replace(minimum=max(1, s.num_blocks - context.step))
    return padded(batch), padded(context)


_DECODE_RANGES = {"exp": _exp_decodes, "lin": _lin_decodes, "pad": _pad_decodes}


def _rounded_to_chunk(
    s: BucketSettings, d: PluginDialect, queries: list[int]
) -> list[int]:
    """Round queries up to whole Mamba chunks, where the release does."""
    chunk = s.mamba_chunk_size
    rounds = d.mamba_rounding == "always" or (
        d.mamba_rounding == "explicit" and s.mamba_chunk_is_explicit
    )
    if chunk <= 0 or not rounds:
        return queries
    return sorted({-(-q // chunk) * chunk for q in queries})


def _ends_of_contexts(
    s: BucketSettings, d: PluginDialect, queries: list[int], deepest: int
) -> dict[int, int]:
    """Return, for each query, what stands for the largest context.

    Of a long model it is what is left beside the query.  Where that is refused, the
    context of the next shorter query that was accepted stands.
    """
    end = deepest
    if not (d.long_context and s.max_model_len >= LONG):
        return dict.fromkeys(queries, end)
    name = "VLLM_PROMPT_CTX_BUCKET_MAX"
    limit = None
    if d.long_context_heeds_env and name in s.env:
        limit = integer(s.env, name, 0)
    ends = {}
    for query in queries:
        left = (s.max_model_len - query) // s.block_size
        if left >= 0 and (limit is None or left < limit):
            end = left
        ends[query] = end
    return ends


def prompt_fits(s: BucketSettings, d: PluginDialect, bucket: Bucket) -> bool:
    """Tell whether the filters let a prompt bucket through."""
    return bucket.context <= deepest_prompt(s, d, bucket.batch, bucket.query)


def deepest_prompt(
    s: BucketSettings, d: PluginDialect, batch: int, query: int
) -> float:
    """Return the largest context that the filters let through, -inf for none at all."""
    length, block = s.max_model_len, s.block_size
    if s.merged_prefill:
        prefills = s.max_num_prefill_seqs
        return prefills * ((length - query // prefills) // block)
    if batch * query > s.max_num_batched_tokens:
        return -inf
    if d.sum_filter:
        return (length - query) // block
    return -(-(length - 1) // block) if query <= length else -inf


def decode_fits(s: BucketSettings, bucket: Bucket) -> bool:
    """Tell whether a decode bucket holds a block for each sequence, where it must."""
    return s.contiguous_pa or bucket.batch <= bucket.context


def capped(s: BucketSettings, d: PluginDialect, bucket: Bucket) -> Bucket:
    """Cut the context of a decode bucket at what its sequences can reach."""
    reach = _reach(s, d, bucket.batch)
    return bucket if bucket.context <= reach else bucket._replace(context=int(reach))


def _reach(s: BucketSettings, d: PluginDialect, batch: int) -> float:
    """Return the blocks that so many sequences can reach, inf where nothing caps them."""
    reach = inf if s.contiguous_pa else batch * s.blocks_per_sequence
    if d.mamba_caps_decode and s.mamba_chunk_size > 0:
        return min(reach, batch * (s.max_model_len // s.block_size))
    return reach
