"""From flags and environment to the settings that decide the buckets.

The runtime looks at its variables in ways that changed with almost every release; the
fields of ``Dialect`` say how.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hpuwatch.gaudi.dialects import dialect_of
from hpuwatch.gaudi.grammar import Dialect, PluginDialect
from hpuwatch.gaudi.kvcache import HPU_BLOCK_SIZE
from hpuwatch.gaudi.model import UNKNOWN, BucketError, BucketSettings
from hpuwatch.gaudi.variables import integer, is_true

FILE_VARIABLE = "VLLM_BUCKETING_FROM_FILE"
STRATEGY = "VLLM_BUCKETING_STRATEGY"
EXPONENTIAL = "VLLM_EXPONENTIAL_BUCKETING"
"""The older name of the choice; where both are set it wins."""
MAX_NUM_SEQS = 256
"""vLLM's default of ``--max-num-seqs``."""

_AXES = ("PROMPT_BS", "PROMPT_SEQ", "DECODE_BS", "DECODE_BLOCK")


@dataclass(frozen=True, slots=True)
class Flags:
    """What the command line of a server says about shapes, and what its log adds.

    ``None`` means not given.  ``num_blocks``, the Mamba chunk, the clamp and the attention
    block of a hybrid model are known only to the running server, and are read off its log.
    ``strategy`` and ``contiguous_pa``, where given, stand in for the variables that choose
    them.
    """

    max_num_seqs: int
    max_num_batched_tokens: int
    max_model_len: int
    num_blocks: int
    block_size: int = HPU_BLOCK_SIZE
    max_num_prefill_seqs: int | None = None
    prefix_caching: bool | None = None
    num_speculative_tokens: int = 0
    mamba_chunk_size: int = 0
    mamba_chunk_is_explicit: bool = False
    skip_decode_block_clamp: bool = False
    attn_block_size: int | None = None
    bucket_file: str | None = None
    strategy: str | None = None
    contiguous_pa: bool | None = None


def default_sizes(dialect: Dialect, max_model_len: int) -> dict[str, int]:
    """Return the sizes of a server that is told none of them, by their names in Flags.

    The fork takes the model's length for its token budget.
    """
    whole = not dialect.name.startswith("gaudi-plugin")
    return {
        "max_num_seqs": MAX_NUM_SEQS,
        "max_num_batched_tokens": max(max_model_len, 2048) if whole else 2048,
        "block_size": HPU_BLOCK_SIZE,
    }


def resolve(dialect_name: str, flags: Flags, env: Mapping[str, str]) -> BucketSettings:
    """Return the settings that the runtime would arrive at.

    Raises:
        BucketError: the server would stop at a variable or flag; says which.
    """
    dialect = dialect_of(dialect_name)
    _check(dialect, flags, env)
    caching = _caching(dialect, flags)
    if flags.contiguous_pa is None:
        paged = _contiguous(dialect, env, caching=caching)
    else:
        paged = flags.contiguous_pa
    attention = _attention_block(dialect, flags)
    merged = dialect.merges and is_true(env.get("VLLM_MERGED_PREFILL", ""))
    return BucketSettings(
        max_num_seqs=flags.max_num_seqs,
        max_num_batched_tokens=flags.max_num_batched_tokens,
        max_model_len=flags.max_model_len,
        num_blocks=flags.num_blocks,
        block_size=flags.block_size,
        contiguous_pa=paged and not (dialect.paged_rule == "literal" and caching),
        max_num_prefill_seqs=_prefills(dialect, flags, env, merged=merged),
        dialect=dialect.name,
        strategy=strategy_of(dialect, flags, env),
        env=dict(env),
        prefix_caching=caching,
        merged_prefill=merged,
        prompt_contiguous_pa=paged if dialect.paged_rule == "literal" else None,
        num_speculative_tokens=flags.num_speculative_tokens,
        mamba_chunk_size=flags.mamba_chunk_size,
        mamba_chunk_is_explicit=flags.mamba_chunk_is_explicit,
        skip_decode_block_clamp=flags.skip_decode_block_clamp or attention is not None,
        attn_block_size=attention,
        bucket_file=flags.bucket_file,
    )


def _attention_block(dialect: Dialect, flags: Flags) -> int | None:
    """Return the size of an attention block where decode counts in other blocks."""
    size = flags.attn_block_size
    counts = isinstance(dialect, PluginDialect) and dialect.attention_blocks
    return size if counts and size not in {None, flags.block_size} else None


def _caching(dialect: Dialect, flags: Flags) -> bool:
    """Tell whether prefixes are cached; where only contiguous attention is given, from it.

    The two exclude each other in the releases where it matters.
    """
    if flags.prefix_caching is not None:
        return flags.prefix_caching
    if dialect.paged_rule == "caching" and flags.contiguous_pa is not None:
        return not flags.contiguous_pa
    return dialect.caches_prefixes


def strategy_of(dialect: Dialect, flags: Flags, env: Mapping[str, str]) -> str:
    """Return the strategy that the runtime chooses.

    Raises:
        BucketError: VLLM_BUCKETING_STRATEGY names none.
    """
    if flags.bucket_file is not None and "file" in dialect.strategies:
        return "file"
    if flags.strategy is not None:
        return flags.strategy
    if dialect.strategy_rule == "fixed":
        return dialect.strategies[0]
    legacy = env.get(EXPONENTIAL)
    if dialect.strategy_rule == "literal":
        return "exp" if (legacy or "").lower() == "true" else "lin"
    named = _named(dialect, env) if dialect.strategy_rule == "named" else "exp"
    if legacy is None:
        return named
    return "exp" if is_true(legacy) else "lin"


def _named(dialect: Dialect, env: Mapping[str, str]) -> str:
    named = env.get(STRATEGY, "exp")
    allowed = [strategy for strategy in dialect.strategies if strategy != "file"]
    if named not in allowed:
        raise BucketError(
            f"VLLM_BUCKETING_STRATEGY={named!r} is not a strategy of this release; "
            f"set one of {', '.join(allowed)}.",
            "RuntimeError",
        )
    return named


def _check(dialect: Dialect, flags: Flags, env: Mapping[str, str]) -> None:
    """Raise what the runtime raises before it makes any list."""
    _check_counts(flags)
    named = env.get(STRATEGY)
    if named is not None and dialect.old_names and named not in dialect.old_names:
        raise BucketError(
            f"This release does not start with VLLM_BUCKETING_STRATEGY={named!r}; "
            "unset it, and set VLLM_EXPONENTIAL_BUCKETING to true or false.",
            "RuntimeError",
        )
    if dialect.eager_error:
        for axis in _AXES:
            for part in ("MIN", "STEP", "MAX"):
                _check_integer(env, f"VLLM_{axis}_BUCKET_{part}", dialect.eager_error)
    if isinstance(dialect, PluginDialect):
        _check_plugin(dialect, flags, env)


def _check_counts(flags: Flags) -> None:
    for name in (
        "max_num_seqs",
        "max_num_batched_tokens",
        "max_model_len",
        "num_blocks",
        "block_size",
    ):
        if getattr(flags, name) < 1:
            raise BucketError(f"{name} is {getattr(flags, name)}; set 1 or more.")


def _check_integer(env: Mapping[str, str], name: str, raised: str) -> None:
    try:
        integer(env, name, 0)
    except BucketError as error:
        words = error.words if raised == error.raised else ""
        raise BucketError(str(error), raised, words) from None


def _check_plugin(dialect: PluginDialect, flags: Flags, env: Mapping[str, str]) -> None:
    chunk, budget = flags.mamba_chunk_size, flags.max_num_batched_tokens
    if dialect.mamba_divides and chunk > 0 and budget % chunk:
        raise BucketError(
            f"max_num_batched_tokens ({budget}) is no multiple of the Mamba chunk "
            f"({chunk}); set {budget // chunk * chunk or chunk}.",
            words=f"max_num_batched_tokens ({budget}) must be divisible by"
            f" mamba_chunk_size ({chunk})",
        )
    if dialect.unified and is_true(env.get("VLLM_UNIFIED_ATTN", "")):
        raise BucketError(
            "The buckets of unified attention (VLLM_UNIFIED_ATTN) are not known to "
            "hpuwatch; it was experimental and is gone since plugin-0.18.",
            UNKNOWN,
        )


def _prefills(
    dialect: Dialect, flags: Flags, env: Mapping[str, str], *, merged: bool
) -> int:
    if dialect.prefill_rule == "one":
        return 1
    if dialect.prefill_rule == "flag":
        return flags.max_num_prefill_seqs or flags.max_num_seqs
    if merged:
        return flags.max_num_seqs
    return integer(env, "VLLM_PROMPT_BS_BUCKET_MAX", 1)


def _contiguous(dialect: Dialect, env: Mapping[str, str], *, caching: bool) -> bool:
    value = env.get("VLLM_CONTIGUOUS_PA")
    match dialect.paged_rule:
        case "variable":
            return is_true(value or "")
        case "caching":
            return is_true(value) if value is not None else not caching
        case "literal":
            return value is None or value.lower() == "true"
        case "none":
            return False
