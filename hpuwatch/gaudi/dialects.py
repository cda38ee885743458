"""The dialects of bucketing as one table: what differs between releases is data.

Each row says what differs from the next newer one; ``gaudi.grammar`` says what the
fields mean.
"""

from __future__ import annotations

from dataclasses import replace

from hpuwatch.gaudi.grammar import Dialect, FilledDialect, PairDialect, PluginDialect
from hpuwatch.gaudi.model import BucketError, BucketSettings
from hpuwatch.gaudi.ranges import log2_up


def _prompt_batches_capped(s: BucketSettings) -> tuple[int, int, int]:
    return 1, min(32, s.max_num_seqs), min(64, s.max_num_seqs)


def _decode_batches_capped(s: BucketSettings) -> tuple[int, int, int]:
    step = min(32, s.max_num_seqs)
    return step, step, s.max_num_seqs


def _prompt_batches(s: BucketSettings) -> tuple[int, int, int]:
    return 1, 32, s.max_num_prefill_seqs


def _decode_batches(s: BucketSettings) -> tuple[int, int, int]:
    return 1, 32, s.max_num_seqs


def _worst(s: BucketSettings) -> int:
    """Blocks that all sequences need at full length, each rounded up."""
    return s.blocks_per_sequence * s.max_num_seqs


def _worst_down(s: BucketSettings) -> int:
    return s.max_model_len // s.block_size * s.max_num_seqs


def _top_within_pool(s: BucketSettings) -> int:
    return s.num_blocks if s.contiguous_pa else min(_worst_down(s), s.num_blocks)


def _top_quarter(s: BucketSettings) -> int:
    if s.contiguous_pa:
        return s.num_blocks
    return min(_worst_down(s), s.num_blocks * s.max_num_seqs // 4)


def _top_three_pools(s: BucketSettings) -> int:
    return s.num_blocks if s.contiguous_pa else 3 * s.num_blocks


def _top_third(s: BucketSettings) -> int:
    if s.contiguous_pa:
        return s.num_blocks
    shared = min(_worst(s), s.num_blocks * s.max_num_seqs // 3)
    return max(shared, 3 * s.num_blocks)


def _top_worst(s: BucketSettings) -> int:
    return min(s.num_blocks, _worst(s)) if s.contiguous_pa else _worst(s)


def _top_worst_within_pools(s: BucketSettings) -> int:
    if s.contiguous_pa or s.skip_decode_block_clamp:
        return _top_worst(s)
    return min(_worst(s), 3 * s.num_blocks)


def _count_by_pool(s: BucketSettings, _top: int) -> int:
    return log2_up(s.num_blocks) + 1


def _count_by_top(_s: BucketSettings, top: int) -> int:
    return log2_up(top) + 1


def _count_beyond_pools(s: BucketSettings, top: int) -> int:
    """Try more values where the top lies beyond three pools."""
    count = log2_up(top) + 1
    pools = 3 * s.num_blocks
    if s.contiguous_pa or top <= pools:
        return count
    return count + log2_up(top / pools) + 1


_HEAD = PluginDialect(
    name="gaudi-plugin-head",
    strategies=("exp", "lin", "pad", "file"),
    strategy_rule="named",
    old_names=(),
    paged_rule="variable",
    prefill_rule="variable",
    eager_error="",
    caches_prefixes=True,
    merges=True,
    kept=(0, 1),
    clipped=True,
    query_min_one=True,
    long_context=True,
    long_context_heeds_env=True,
    sum_filter=False,
    mamba_rounding="explicit",
    mamba_divides=True,
    mamba_caps_decode=False,
    speculates=True,
    decode_top=_top_worst_within_pools,
    decode_count=_count_beyond_pools,
    attention_blocks=True,
    unified=False,
    pool_bounds_lin=False,
    file_evaluates=False,
    file_warns=True,
    context_alone=True,
    batch_capped=True,
    context_cap="length",
    chunk_step=True,
    request_capped=True,
)
_P26 = replace(_HEAD, name="gaudi-plugin-0.26", decode_top=_top_worst)
_P21 = replace(_P26, name="gaudi-plugin-0.21", decode_count=_count_by_top)
_P20 = replace(
    _P21,
    name="gaudi-plugin-0.20",
    decode_top=_top_three_pools,
    attention_blocks=False,
    pool_bounds_lin=True,
)
_P19 = replace(
    _P20,
    name="gaudi-plugin-0.19",
    strategies=("exp", "lin", "file"),
    strategy_rule="legacy",
    decode_top=_top_third,
    file_warns=False,
)
_P18 = replace(
    _P19,
    name="gaudi-plugin-0.18",
    sum_filter=True,
    mamba_caps_decode=True,
    decode_top=_top_three_pools,
    context_cap="largest",
    request_capped=False,
)
_P17 = replace(
    _P18,
    name="gaudi-plugin-0.17",
    mamba_rounding="always",
    unified=True,
)
_P16 = replace(
    _P17,
    name="gaudi-plugin-0.16",
    mamba_divides=False,
    decode_top=_top_quarter,
    decode_count=_count_by_pool,
    file_evaluates=True,
    context_cap="pool",
    chunk_step=False,
)
_P14 = replace(_P16, name="gaudi-plugin-0.14", long_context_heeds_env=False)
_P13 = replace(
    _P14,
    name="gaudi-plugin-0.13",
    clipped=False,
    long_context=False,
    mamba_rounding="never",
    mamba_caps_decode=False,
    decode_top=_top_within_pool,
    context_alone=False,
    batch_capped=False,
)
_P11 = replace(
    _P13,
    name="gaudi-plugin-0.11",
    kept=(0,),
    query_min_one=False,
    speculates=False,
)
_F22 = FilledDialect(
    name="fork-1.22",
    strategies=("exp", "lin"),
    strategy_rule="legacy",
    old_names=("exponential_bucketing", "linear_bucketing"),
    paged_rule="caching",
    prefill_rule="flag",
    eager_error="RuntimeError",
    caches_prefixes=False,
    merges=True,
    long_from=8192,
    slices=True,
)
_P10 = replace(
    _F22,
    name="gaudi-plugin-0.10",
    prefill_rule="one",
    caches_prefixes=True,
    long_from=0,
    slices=False,
)

_F21 = PairDialect(
    name="fork-1.21",
    strategies=("lin", "exp"),
    strategy_rule="literal",
    old_names=(),
    paged_rule="literal",
    prefill_rule="flag",
    eager_error="",
    caches_prefixes=False,
    merges=True,
    prompt_batches=_prompt_batches,
    prompt_length=None,
    decode_batches=_decode_batches,
    decode_length=None,
    block_unit=None,
    batch_within_context=True,
    ends_with_pool=True,
    pool_replaces_top=True,
    axis_rule="ramp",
)
_F20 = replace(
    _F21,
    name="fork-1.20",
    strategies=("lin",),
    strategy_rule="fixed",
    paged_rule="none",
    merges=False,
    prompt_length=1024,
    decode_length=2048,
    batch_within_context=False,
    pool_replaces_top=False,
    axis_rule="either",
)
_F18 = replace(
    _F20,
    name="fork-1.18",
    eager_error="ValueError",
    prompt_batches=_prompt_batches_capped,
    decode_batches=_decode_batches_capped,
    block_unit=128,
    batch_within_context=True,
    ends_with_pool=False,
    axis_rule="either above",
)

DIALECTS: dict[str, Dialect] = {
    dialect.name: dialect
    for dialect in (
        *(_HEAD, _P26, _P21, _P20, _P19, _P18, _P17, _P16, _P14, _P13, _P11, _P10),
        *(_F22, _F21, _F20, _F18),
    )
}


def dialect_of(name: str) -> Dialect:
    """Return the rules called ``name``.

    Raises:
        BucketError: no dialect has this name.
    """
    if name not in DIALECTS:
        raise BucketError(
            f"No dialect is called {name!r}; those known are {', '.join(DIALECTS)}."
        )
    return DIALECTS[name]
