"""What the rules of a dialect may say; the table of the rules is ``gaudi.dialects``.

Three families share their code and differ by the fields of their rules:

* :class:`PluginDialect`, vllm-gaudi since 0.11: three numbers; exp, lin, pad and file;
* :class:`FilledDialect`, plugin-0.10 and fork-1.22: three numbers, ranges that fill
  themselves;
* :class:`PairDialect`, fork-1.18 to fork-1.21: two numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from hpuwatch.gaudi.model import BucketSettings

StrategyRule = Literal["named", "legacy", "literal", "fixed"]
PagedRule = Literal["variable", "caching", "literal", "none"]
PrefillRule = Literal["variable", "one", "flag"]


@dataclass(frozen=True, slots=True)
class Dialect:
    """What every dialect says of itself.

    Attributes:
        name: as our reports spell it.
        strategies: what may be chosen, the default first.
        strategy_rule: ``named``: VLLM_BUCKETING_STRATEGY, then the older
            VLLM_EXPONENTIAL_BUCKETING, which wins; ``legacy``: only the older one;
            ``literal``: only the literal "true" of it; ``fixed``: no choice.
        old_names: values of VLLM_BUCKETING_STRATEGY without which the server refuses to
            start, although they choose nothing; empty where it isn't looked at.
        paged_rule: contiguous paged attention is ``variable``: off unless
            VLLM_CONTIGUOUS_PA says so; ``caching``: on unless prefixes are cached;
            ``literal``: on unless it is not literally "true"; ``none``: no matter.
        prefill_rule: the batch of a prefill is ``variable``: VLLM_PROMPT_BS_BUCKET_MAX;
            ``one``; or ``flag``: --max-num-prefill-seqs, else max_num_seqs.
        eager_error: what a bucket variable that is no integer raises at the very start,
            even where it isn't used; empty where it is read later.
        caches_prefixes: whether the engine caches prefixes unless told otherwise.
        merges: VLLM_MERGED_PREFILL is heeded.
    """

    name: str
    strategies: tuple[str, ...]
    strategy_rule: StrategyRule
    old_names: tuple[str, ...]
    paged_rule: PagedRule
    prefill_rule: PrefillRule
    eager_error: str
    caches_prefixes: bool
    merges: bool


@dataclass(frozen=True, slots=True)
class PluginDialect(Dialect):
    """The rules of vllm-gaudi since 0.11.

    Attributes:
        kept: minima that an exponential range keeps as values of their own.
        clipped: an exponential range never exceeds its maximum.
        query_min_one: exp heeds VLLM_PROMPT_QUERY_BUCKET_MIN=1.
        long_context: from 8192 tokens on, contexts end where the model does.
        long_context_heeds_env: … as far as VLLM_PROMPT_CTX_BUCKET_MAX allows.
        sum_filter: query and context of a prompt bucket must fit the model together,
            else each by itself.
        mamba_rounding: when queries are rounded up to a Mamba chunk.
        mamba_divides: the token budget must be a multiple of the chunk.
        mamba_caps_decode: a Mamba model caps decode contexts too.
        speculates: decode lists grow for speculative tokens.
        decode_top: greatest decode context of exp, in blocks.
        decode_count: how many values exp tries up to it.
        attention_blocks: decode buckets of hybrid models count attention blocks.
        unified: unified attention may be chosen, whose buckets we don't know.
        pool_bounds_lin: lin never exceeds the pool, contiguous attention or not.
        file_evaluates: a bucket file's line is evaluated; later it is only read.
        file_warns: the log names the buckets of a file that the filters drop.
        context_alone: a prompt with context runs by itself, so that buckets of several
            such prompts are never used, and warm-up runs single ones for them.
        batch_capped: the batch of a fall-back bucket never exceeds max_num_seqs.
        context_cap: what bounds the context of a fall-back bucket: the ``pool``, the
            ``largest`` prepared decode context, or the ``length`` of the model.
        chunk_step: fall-back queries step by the Mamba chunk where it is greater.
        request_capped: a decode's request is cut at the largest prepared context.
    """

    kept: tuple[int, ...]
    clipped: bool
    query_min_one: bool
    long_context: bool
    long_context_heeds_env: bool
    sum_filter: bool
    mamba_rounding: Literal["never", "always", "explicit"]
    mamba_divides: bool
    mamba_caps_decode: bool
    speculates: bool
    decode_top: Callable[[BucketSettings], int]
    decode_count: Callable[[BucketSettings, int], int]
    attention_blocks: bool
    unified: bool
    pool_bounds_lin: bool
    file_evaluates: bool
    file_warns: bool
    context_alone: bool
    batch_capped: bool
    context_cap: Literal["pool", "largest", "length"]
    chunk_step: bool
    request_capped: bool


@dataclass(frozen=True, slots=True)
class FilledDialect(Dialect):
    """The rules of plugin-0.10 and fork-1.22.

    Attributes:
        long_from: model length from which queries are spaced evenly in their upper half.
        slices: prompt buckets that attention can't slice are dropped.
    """

    long_from: int
    slices: bool


@dataclass(frozen=True, slots=True)
class PairDialect(Dialect):
    """The rules of fork-1.18 to fork-1.21.

    Attributes:
        prompt_batches: range of the prompt batch, of the settings.
        prompt_length: longest prompt unless set, None for the model's length.
        decode_batches: range of the decode batch, of the settings.
        decode_length: tokens of a sequence that decode is prepared for unless set, None
            for the model's length.
        block_unit: least decode context and its step, None for the block size.
        batch_within_context: a decode bucket holds a block for each of its sequences.
        ends_with_pool: the pool's size itself ends each row of decode contexts, and
            ``pool_replaces_top`` with contiguous attention it is the range's end too.
        axis_rule: how a request is padded on one axis.
    """

    prompt_batches: Callable[[BucketSettings], tuple[int, int, int]]
    prompt_length: int | None
    decode_batches: Callable[[BucketSettings], tuple[int, int, int]]
    decode_length: int | None
    block_unit: int | None
    batch_within_context: bool
    ends_with_pool: bool
    pool_replaces_top: bool
    axis_rule: Literal["ramp", "either", "either above"]
