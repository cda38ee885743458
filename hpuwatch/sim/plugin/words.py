"""The numbers that the plugin prints about its bucket ranges, before it lists the buckets.

These are the ranges' parameters only (minimum, step, maximum …); the lists themselves come
from ``gaudi``.
"""

from __future__ import annotations

from collections.abc import Mapping

from hpuwatch.gaudi.buckets import DECODE, PROMPT, BucketSettings

Axis = tuple[str, list[int]]
"""An axis's variable name, as ``DECODE_BLOCK``, and its numbers."""

_LONG = 8192
_PARTS = ("MIN", "STEP", "MAX", "PAD_MAX", "PAD_PERCENT")


def axes(s: BucketSettings, phase: str) -> tuple[Axis, ...]:
    """Return the axes of a phase with the numbers that hold, in printing order."""
    if s.strategy == "exp":
        return _EXP[phase](s)
    rows = ((name, _read(s.env, name, numbers)) for name, numbers in _read_by(s, phase))
    return tuple((name, _within_cache(s, name, numbers)) for name, numbers in rows)


def echoes(s: BucketSettings, phase: str) -> tuple[tuple[str, int, int], ...]:
    """Return (variable, value, default) of each setting that lin and pad echo."""
    if s.strategy == "exp":
        return ()
    return tuple(
        (f"VLLM_{name}_BUCKET_{part}", value, default)
        for name, numbers in _read_by(s, phase)
        for part, value, default in zip(
            _PARTS, _read(s.env, name, numbers), numbers, strict=False
        )
    )


def overruled_block_max(s: BucketSettings) -> int | None:
    """Return the greatest block count asked for where the cache has fewer, else None."""
    if s.strategy == "exp" or not s.contiguous_pa:
        return None
    asked = int(s.env.get("VLLM_DECODE_BLOCK_BUCKET_MAX", s.num_blocks))
    return asked if asked > s.num_blocks else None


def seq_for_query(s: BucketSettings) -> tuple[tuple[str, str, str], ...]:
    """Return (query variable, seq variable, value) where the older name is used."""
    if s.strategy == "exp":
        return ()
    pairs = [
        (f"VLLM_PROMPT_QUERY_BUCKET_{part}", f"VLLM_PROMPT_SEQ_BUCKET_{part}")
        for part in _PARTS[:3]
    ]
    return tuple(
        (query, seq, s.env[seq])
        for query, seq in pairs
        if query not in s.env and seq in s.env
    )


def ignored_by_exp(env: Mapping[str, str], phase: str) -> tuple[tuple[str, str], ...]:
    """Return the variables that exp warns about; it looks at SEQ, never at QUERY."""
    names = {
        PROMPT: ("PROMPT_BS", "PROMPT_SEQ"),
        DECODE: ("DECODE_BS", "DECODE_BLOCK"),
    }[phase]
    wanted = [
        f"VLLM_{name}_BUCKET_{part}"
        for name in names
        for part in ("MIN", "STEP", "MAX")
    ]
    return tuple((name, env[name]) for name in wanted if name in env)


def _read_by(s: BucketSettings, phase: str) -> tuple[Axis, ...]:
    return (_LIN if s.strategy == "lin" else _PAD)[phase](s)


def _read(env: Mapping[str, str], axis: str, defaults: list[int]) -> list[int]:
    return [
        int(_variable(env, axis, part) or default)
        for part, default in zip(_PARTS, defaults, strict=False)
    ]


def _variable(env: Mapping[str, str], axis: str, part: str) -> str | None:
    value = env.get(f"VLLM_{axis}_BUCKET_{part}")
    if value is None and axis == "PROMPT_QUERY":
        return env.get(f"VLLM_PROMPT_SEQ_BUCKET_{part}")
    return value


def _within_cache(s: BucketSettings, axis: str, numbers: list[int]) -> list[int]:
    """Cap the decode blocks at the cache's; only contiguous attention does so."""
    if axis != "DECODE_BLOCK" or not s.contiguous_pa:
        return numbers
    low, step, high, *rest = numbers
    high = min(high, s.num_blocks)
    return [low if low <= high else max(1, high - step), step, high, *rest]


def _log2_up(value: int) -> int:
    return max(0, value - 1).bit_length()


def _deepest_prompt(s: BucketSettings) -> int:
    rest = s.max_model_len - s.block_size
    if s.max_model_len >= _LONG:
        rest = s.max_model_len - s.max_num_batched_tokens
    return max(1, rest // s.block_size)


def _exp_prompt(s: BucketSettings) -> tuple[Axis, ...]:
    prefills, budget = s.max_num_prefill_seqs, s.max_num_batched_tokens
    first = 1 if s.env.get("VLLM_PROMPT_QUERY_BUCKET_MIN") == "1" else s.block_size
    deepest = _deepest_prompt(s)
    count = 2 if deepest == 1 else _log2_up(deepest) + 1
    return (
        ("PROMPT_BS", [1, 2, prefills, _log2_up(prefills) + 1]),
        ("PROMPT_QUERY", [first, s.block_size, budget, _log2_up(budget)]),
        ("PROMPT_CTX", [0, 1, deepest, count]),
    )


def _exp_decode(s: BucketSettings) -> tuple[Axis, ...]:
    top = s.blocks_per_sequence * s.max_num_seqs
    if s.contiguous_pa:
        top = min(top, s.num_blocks)
    count = _log2_up(top) + 1
    pools = 3 * s.num_blocks
    if not s.contiguous_pa and top > pools:
        count += _log2_up(-(-top // pools)) + 1
    seqs = s.max_num_seqs
    return (
        ("DECODE_BS", [1, 2, seqs, _log2_up(seqs) + 1]),
        ("DECODE_BLOCK", [1, seqs, top, count]),
    )


def _lin_prompt(s: BucketSettings) -> tuple[Axis, ...]:
    block = s.block_size
    first = int(_variable(s.env, "PROMPT_QUERY", "MIN") or block)
    return (
        ("PROMPT_BS", [1, 1, s.max_num_prefill_seqs]),
        ("PROMPT_QUERY", [block, block, s.max_num_batched_tokens]),
        ("PROMPT_CTX", [0, 1, (s.max_model_len - first) // block]),
    )


def _lin_decode(s: BucketSettings) -> tuple[Axis, ...]:
    block = s.block_size
    top = max(s.max_model_len * s.max_num_seqs // block, block)
    return (
        ("DECODE_BS", [1, 32, s.max_num_seqs]),
        ("DECODE_BLOCK", [1, block, s.num_blocks if s.contiguous_pa else top]),
    )


def _quarter(value: int) -> int:
    return -(-value // 4)


def _pad_prompt(s: BucketSettings) -> tuple[Axis, ...]:
    block, prefills, budget = (
        s.block_size,
        s.max_num_prefill_seqs,
        s.max_num_batched_tokens,
    )
    first = int(_variable(s.env, "PROMPT_QUERY", "MIN") or block)
    deepest = -(-(s.max_model_len - first) // block)
    return (
        ("PROMPT_BS", [1, 1, prefills, _quarter(prefills), 25]),
        ("PROMPT_QUERY", [block, block, budget, _quarter(budget), 25]),
        ("PROMPT_CTX", [0, 2, deepest, -(-budget // block), 25]),
    )


def _pad_decode(s: BucketSettings) -> tuple[Axis, ...]:
    block, seqs = s.block_size, s.max_num_seqs
    top = (
        s.num_blocks
        if s.contiguous_pa
        else max(-(-s.max_model_len * seqs // block), block)
    )
    return (
        ("DECODE_BS", [1, 2, seqs, _quarter(seqs), 25]),
        ("DECODE_BLOCK", [block, block, top, _quarter(top), 25]),
    )


_EXP = {PROMPT: _exp_prompt, DECODE: _exp_decode}
_LIN = {PROMPT: _lin_prompt, DECODE: _lin_decode}
_PAD = {PROMPT: _pad_prompt, DECODE: _pad_decode}
