"""The bucket lists of fork-1.18 to fork-1.21, which know a batch and one length.

Prompt buckets are (batch, length), decode buckets (batch, blocks).  Both are given as
:class:`Bucket` with a context of 0 and a query of 1.  The lists keep the runtime's own
order, by the product of the two numbers.
"""

from __future__ import annotations

from hpuwatch.gaudi.filled import ended_with, merged_axes
from hpuwatch.gaudi.grammar import PairDialect
from hpuwatch.gaudi.model import Bucket, BucketSettings
from hpuwatch.gaudi.ranges import Axis, check_size, filled, linear, log2_up
from hpuwatch.gaudi.variables import integer, read_axis


def prompt_buckets(s: BucketSettings, d: PairDialect) -> list[Bucket]:
    """Return the prompt list in the runtime's order.

    Raises:
        BucketError: a variable or range is wrong.
    """
    exponential = s.strategy == "exp"
    batches, lengths = _exp_prompts(s) if exponential else _lin_prompts(s, d)
    check_size(len(batches), len(lengths))
    pairs = [(b, q) for b in batches for q in lengths]
    kept = [
        (b, q)
        for b, q in pairs
        if b * q <= s.max_num_batched_tokens
        and not (exponential and q > s.max_model_len)
    ]
    return [Bucket(b, q, 0) for b, q in _ordered(kept or pairs)]


def decode_buckets(s: BucketSettings, d: PairDialect) -> list[Bucket]:
    """Return the decode list in the runtime's order.

    Raises:
        BucketError: a variable or range is wrong.
    """
    pairs = _exp_decodes(s) if s.strategy == "exp" else _lin_decodes(s, d)
    return [Bucket(b, 1, c) for b, c in _ordered(pairs)]


def axes(s: BucketSettings, d: PairDialect, phase: str) -> tuple[Axis, Axis]:
    """Return the two linear ranges of ``phase``: of the batch and of the other axis."""
    if phase == "prompt":
        block = s.block_size
        longest = s.max_model_len if d.prompt_length is None else d.prompt_length
        return merged_axes(
            s,
            read_axis(s.env, "PROMPT_BS", Axis(*d.prompt_batches(s))),
            read_axis(s.env, "PROMPT_SEQ", Axis(block, block, longest)),
        )
    unit = d.block_unit or s.block_size
    blocks = Axis(unit, unit, max(unit, _decode_top(s, d)))
    return (
        read_axis(s.env, "DECODE_BS", Axis(*d.decode_batches(s))),
        read_axis(s.env, "DECODE_BLOCK", blocks),
    )


def _decode_top(s: BucketSettings, d: PairDialect) -> int:
    length = s.max_model_len if d.decode_length is None else d.decode_length
    return s.max_num_seqs * length // s.block_size


def _ordered(pairs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    return [(b, x) for _, x, b in sorted({(b * x, x, b) for b, x in pairs})]


def _lin_prompts(s: BucketSettings, d: PairDialect) -> tuple[list[int], list[int]]:
    axes(s, d, "decode")  # the runtime reads all its variables first
    batch, length = axes(s, d, "prompt")
    return linear(batch, zero_ends=False), linear(length, zero_ends=False)


def _exp_prompts(s: BucketSettings) -> tuple[list[int], list[int]]:
    exact = s.contiguous_pa
    if s.prompt_contiguous_pa is not None:
        exact = s.prompt_contiguous_pa
    block, length = s.block_size, s.max_model_len
    return (
        _batches(s, "PROMPT", s.max_num_prefill_seqs, exact=exact),
        filled(
            Axis(block, block, length),
            _limit(s, "PROMPT_SEQ", length),
            exact_end=exact,
        ),
    )


def _batches(s: BucketSettings, phase: str, top: int, *, exact: bool) -> list[int]:
    return filled(Axis(1, 1, top), _limit(s, f"{phase}_BS", top), exact_end=exact)


def _limit(s: BucketSettings, axis: str, top: int) -> int:
    return integer(s.env, f"VLLM_{axis}_BUCKET_LIMIT", log2_up(top) + 1)


def _exp_decodes(s: BucketSettings) -> list[tuple[int, int]]:
    exact, block = s.contiguous_pa, s.block_size
    top = max(block, s.max_num_seqs * s.max_model_len // block)
    limit = _limit(s, "DECODE_BLOCK", top)
    batches = _batches(s, "DECODE", s.max_num_seqs, exact=exact)
    contexts = filled(Axis(block, block, s.num_blocks), limit, exact_end=exact)
    return [(b, c) for b in batches for c in contexts]


def _lin_decodes(s: BucketSettings, d: PairDialect) -> list[tuple[int, int]]:
    batch, blocks = axes(s, d, "decode")
    pool = s.num_blocks
    unset = "VLLM_DECODE_BLOCK_BUCKET_MAX" not in s.env
    if d.pool_replaces_top and s.contiguous_pa and unset:
        contexts = [*linear(blocks._replace(maximum=pool), zero_ends=False), pool]
    else:
        contexts = linear(blocks, zero_ends=False)
    ceiling = -(-pool // blocks.step) * blocks.step
    batches = linear(batch, zero_ends=False)
    check_size(len(batches), len(contexts))
    pairs = []
    for b in batches:
        row = [c for c in contexts if b <= c or not d.batch_within_context]
        if d.ends_with_pool:
            row = ended_with(pool, row)
        pairs += [(b, c) for c in row if c <= ceiling]
    return pairs
