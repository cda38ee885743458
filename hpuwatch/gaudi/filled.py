"""The bucket lists of plugin-0.10 and fork-1.22.

Contexts appear only where the engine caches prefixes.  The token budget counts the
context too, and where no bucket keeps to it, it is ignored.
"""

from __future__ import annotations

import math

from hpuwatch.gaudi.grammar import FilledDialect
from hpuwatch.gaudi.model import HANG, Bucket, BucketError, BucketSettings
from hpuwatch.gaudi.plugin import without_unsliceable
from hpuwatch.gaudi.ranges import Axis, check_size, filled, linear, log2_up
from hpuwatch.gaudi.variables import read_axis

# The runtime compares each bucket with each: lists of 36,000 took longer than 90 seconds.
TOO_MANY = 30_000


def prompt_buckets(s: BucketSettings, d: FilledDialect) -> list[Bucket]:
    """Return the prompt list, sorted.

    Raises:
        BucketError: a variable or range is wrong.
    """
    if s.strategy == "exp":
        candidates = _exp_prompts(s, d)
        kept = [b for b in candidates if _within_budget(s, b)]
        buckets = sorted(kept or candidates)
    else:
        buckets = sorted(_lin_prompts(s))
    if len(buckets) > TOO_MANY:
        raise BucketError(
            f"These settings make {len(buckets)} prompt buckets, and this release needs "
            "minutes only to list them; raise VLLM_PROMPT_SEQ_BUCKET_STEP or lower "
            "max_num_batched_tokens.",
            HANG,
        )
    if d.slices:
        return without_unsliceable(s.env, buckets, any_context=True)
    return buckets


def decode_buckets(s: BucketSettings, _d: FilledDialect) -> list[Bucket]:
    """Return the decode list, sorted.

    Raises:
        BucketError: a variable or range is wrong.
    """
    return sorted(_exp_decodes(s) if s.strategy == "exp" else lin_decodes(s))


def _within_budget(s: BucketSettings, bucket: Bucket) -> bool:
    batch, query, context = bucket
    if query > s.max_model_len:
        return False
    return batch * (query + context * s.block_size) <= s.max_num_batched_tokens


def _exp_prompts(s: BucketSettings, d: FilledDialect) -> list[Bucket]:
    prefills, length, block = s.max_num_prefill_seqs, s.max_model_len, s.block_size
    exact = s.contiguous_pa
    batches = filled(Axis(1, 2, prefills), log2_up(prefills) + 1, exact_end=exact)
    queries = filled(
        Axis(block, block, length),
        log2_up(length) + 1,
        exact_end=exact,
        long=length >= d.long_from,
    )
    return [
        Bucket(b, q, c) for b in batches for q in queries for c in _exp_contexts(s, q)
    ]


def _exp_contexts(s: BucketSettings, query: int) -> list[int]:
    deepest = (s.max_model_len - query) // s.block_size
    if not s.prefix_caching or deepest <= 0:
        return [0]
    count = log2_up(deepest) + 1
    # Two exponents may give one value; the runtime keeps both buckets.
    grown = [math.ceil(math.pow(deepest, (1 / count) * i)) for i in range(1, count + 1)]
    return [0, *grown]


def merged_axes(s: BucketSettings, batch: Axis, length: Axis) -> tuple[Axis, Axis]:
    """Return the prompt ranges of lin when several prompts run as one row."""
    if not s.merged_prefill:
        return batch, length
    longest = min(batch.maximum * length.maximum, s.max_num_batched_tokens)
    return Axis(1, 1, 1), length._replace(maximum=longest)


def _lin_prompts(s: BucketSettings) -> list[Bucket]:
    block = s.block_size
    batch, length = merged_axes(
        s,
        read_axis(s.env, "PROMPT_BS", Axis(1, 32, s.max_num_prefill_seqs)),
        read_axis(s.env, "PROMPT_SEQ", Axis(block, block, s.max_model_len)),
    )
    batches = linear(batch, zero_ends=False)
    queries = linear(length, zero_ends=False)
    rows = [_lin_contexts(s, length.maximum, q) for q in queries]
    check_size(len(batches), sum(rows))
    kept = [
        Bucket(b, query, context)
        for b in batches
        for query, row in zip(queries, rows, strict=True)
        for context in range(min(row, _in_budget(s, b, query)))
    ]
    return kept or [
        Bucket(b, query, context)
        for b in batches
        for query, row in zip(queries, rows, strict=True)
        for context in range(row)
    ]


def _in_budget(s: BucketSettings, batch: int, query: int) -> int:
    """Return how many contexts, from 0 on, keep a prompt within the token budget."""
    return (s.max_num_batched_tokens // batch - query) // s.block_size + 1


def _lin_contexts(s: BucketSettings, longest: int, query: int) -> int:
    if not s.prefix_caching:
        return 1
    return (longest - query) // s.block_size + 2


def _exp_decodes(s: BucketSettings) -> list[Bucket]:
    seqs, block, pool = s.max_num_seqs, s.block_size, s.num_blocks
    batches = filled(Axis(1, 2, seqs), log2_up(seqs) + 1, exact_end=s.contiguous_pa)
    contexts = filled(
        Axis(block, block, pool), log2_up(pool) + 1, exact_end=s.contiguous_pa
    )
    return [Bucket(b, 1, c) for b in batches for c in contexts]


def lin_decodes(s: BucketSettings) -> list[Bucket]:
    """Return the linear decode buckets, where the pool's size ends each row."""
    block, pool = s.block_size, s.num_blocks
    batch = read_axis(s.env, "DECODE_BS", Axis(1, 32, s.max_num_seqs))
    blocks = read_axis(s.env, "DECODE_BLOCK", Axis(block, block, pool))
    batches = linear(batch, zero_ends=False)
    contexts = linear(blocks, zero_ends=False)
    if s.contiguous_pa and "VLLM_DECODE_BLOCK_BUCKET_MAX" not in s.env:
        contexts.append(pool)
    return [
        Bucket(b, 1, c)
        for b in batches
        for c in ended_with(pool, [c for c in contexts if b <= c])
    ]


def ended_with(pool: int, contexts: list[int]) -> list[int]:
    """Cut the contexts at the first that reaches the pool, which takes its place."""
    below: list[int] = []
    for context in contexts:
        if context >= pool:
            return [*below, pool]
        below.append(context)
    return below
