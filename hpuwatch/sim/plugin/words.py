"""The numbers that the plugin prints about its bucket ranges, before it lists the buckets.

These are the ranges' parameters only (minimum, step, maximum …); the lists themselves come
from ``gaudi``, and so does what the dialects of the releases differ in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from hpuwatch.gaudi.buckets import DECODE, PROMPT, BucketSettings
from hpuwatch.gaudi.dialects import dialect_of
from hpuwatch.gaudi.grammar import PluginDialect

Numbers = Sequence[int]
"""An axis: minimum, step, maximum, and what the strategy adds to them."""
Spoken = tuple[str, Mapping[str, object]]
"""A line by its name, with its values."""

_LONG = 8192
_PARTS = ("MIN", "STEP", "MAX", "PAD_MAX", "PAD_PERCENT")
_CHECKED_BY_EXP = {
    PROMPT: ("PROMPT_BS", "PROMPT_SEQ"),
    DECODE: ("DECODE_BS", "DECODE_BLOCK"),
}


class Ranges(NamedTuple):
    """The axes of one phase with the numbers that hold; a decode has no query range."""

    batch: Numbers
    query: Numbers
    blocks: Numbers


def ranges(s: BucketSettings, phase: str) -> Ranges:
    """Return the axes of a phase, before prefills are merged."""
    rows = {name: _read(s, name, given) for name, given in _defaults(s, phase)}
    if phase == DECODE:
        return Ranges(rows["DECODE_BS"], [], _bounded(s, rows["DECODE_BLOCK"]))
    return Ranges(rows["PROMPT_BS"], rows["PROMPT_QUERY"], rows["PROMPT_CTX"])


def merged(s: BucketSettings) -> Ranges:
    """Return the prompt axes once prefills are merged into one row."""
    batch, query, blocks = ranges(s, PROMPT)
    deepest = blocks[2] * s.max_num_prefill_seqs
    wide = [blocks[0], 4, deepest, *blocks[3:]]
    return Ranges(
        [1, 1, 1, *([1] if s.strategy == "exp" else batch[3:])],
        [query[0], query[1] * 4, s.max_num_batched_tokens, *query[3:]],
        _read(s, "PROMPT_CTX", wide),
    )


def told(s: BucketSettings, phase: str) -> list[Spoken]:
    """Return the lines about single variables, in the order of the real ones.

    Exp warns of what it ignores; it looks at SEQ, never at QUERY.  Lin and pad echo each
    setting, tell where the older SEQ stands in for QUERY, and where the cache bounds them.
    """
    if s.strategy == "exp":
        return _ignored(s.env, phase)
    lines: list[Spoken] = []
    for axis, given in _defaults(s, phase):
        values = _read(s, axis, given)
        for part, value, default in zip(_PARTS, values, given, strict=False):
            name = f"VLLM_{axis}_BUCKET_{part}"
            older = name.replace("QUERY", "SEQ")
            if name not in s.env and older in s.env and part in _PARTS[:3]:
                words = {"query": name, "seq": older, "value": s.env[older]}
                lines.append(("seq_for_query", words))
            lines.append(
                ("setting_echo", {"name": name, "value": value, "default": default})
            )
    return lines + _overruled(s, phase)


def _ignored(env: Mapping[str, str], phase: str) -> list[Spoken]:
    names = [
        f"VLLM_{axis}_BUCKET_{part}"
        for axis in _CHECKED_BY_EXP[phase]
        for part in _PARTS[:3]
    ]
    return [
        line
        for name in names
        if name in env
        for line in (
            ("stars", {}),
            ("exp_ignores", {"name": name, "value": env[name]}),
            ("stars", {}),
        )
    ]


def _overruled(s: BucketSettings, phase: str) -> list[Spoken]:
    """Return what is said where decode blocks are asked for that the cache lacks."""
    if phase == PROMPT:
        return []
    asked = dict(_defaults(s, phase))["DECODE_BLOCK"]
    low, _, high, *_ = _read(s, "DECODE_BLOCK", asked)
    bounded = _bounded(s, _read(s, "DECODE_BLOCK", asked))
    blocks = s.num_blocks
    lines: list[Spoken] = []
    if bounded[2] != high:
        lines.append(("block_max_overruled", {"value": high, "blocks": blocks}))
    if bounded[0] != low:
        words = {"value": low, "blocks": blocks, "new_value": bounded[0]}
        lines.append(("block_min_overruled", words))
    return lines


def _defaults(s: BucketSettings, phase: str) -> tuple[tuple[str, Numbers], ...]:
    return _STRATEGIES[s.strategy, phase](s)


def _dialect(s: BucketSettings) -> PluginDialect:
    dialect = dialect_of(s.dialect)
    assert isinstance(dialect, PluginDialect)  # noqa: S101  the fork has its own words
    return dialect


def _read(s: BucketSettings, axis: str, given: Numbers) -> Numbers:
    """Return an axis as the environment has it; exp reads none of it."""
    if s.strategy == "exp":
        return given
    return [
        int(_variable(s.env, axis, part) or default)
        for part, default in zip(_PARTS, given, strict=False)
    ]


def _variable(env: Mapping[str, str], axis: str, part: str) -> str | None:
    value = env.get(f"VLLM_{axis}_BUCKET_{part}")
    if value is None and axis == "PROMPT_QUERY" and part in _PARTS[:3]:
        return env.get(f"VLLM_PROMPT_SEQ_BUCKET_{part}")
    return value


def _bounded(s: BucketSettings, numbers: Numbers) -> Numbers:
    """Bound decode blocks by the cache's, each strategy and release in its own way."""
    low, step, high, *rest = numbers
    pool = s.num_blocks
    if s.strategy == "lin":
        within = s.contiguous_pa or _dialect(s).pool_bounds_lin
        top = min(high, pool) if within else high
        if low > top and (top < high or not _dialect(s).pool_bounds_lin):
            low = max(1, top - step)
        return [low, step, top]
    if s.strategy == "pad":
        top = min(high, pool) if s.contiguous_pa else high
        return [low if low <= pool else max(1, pool - step), step, top, *rest]
    return numbers


def _log2_up(value: int) -> int:
    return max(0, value - 1).bit_length()


def _exp_prompt(s: BucketSettings) -> tuple[tuple[str, Numbers], ...]:
    dialect, prefills, budget = (
        _dialect(s),
        s.max_num_prefill_seqs,
        s.max_num_batched_tokens,
    )
    from_one = s.env.get("VLLM_PROMPT_QUERY_BUCKET_MIN", "").strip() == "1"
    first = 1 if from_one and dialect.query_min_one else s.block_size
    is_long = dialect.long_context and s.max_model_len >= _LONG
    deepest = max(1, (s.max_model_len - (budget if is_long else first)) // s.block_size)
    count = 2 if deepest == 1 else _log2_up(deepest) + 1
    return (
        ("PROMPT_BS", [1, 2, prefills, _log2_up(prefills) + 1]),
        ("PROMPT_QUERY", [first, s.block_size, budget, _log2_up(budget)]),
        ("PROMPT_CTX", [0, 1, deepest, count]),
    )


def _exp_decode(s: BucketSettings) -> tuple[tuple[str, Numbers], ...]:
    top, seqs = _dialect(s).decode_top(s), s.max_num_seqs
    return (
        ("DECODE_BS", [1, 2, seqs, _log2_up(seqs) + 1]),
        ("DECODE_BLOCK", [1, seqs, top, _dialect(s).decode_count(s, top)]),
    )


def _first_query(s: BucketSettings) -> int:
    return int(_variable(s.env, "PROMPT_QUERY", "MIN") or s.block_size)


def _lin_prompt(s: BucketSettings) -> tuple[tuple[str, Numbers], ...]:
    block = s.block_size
    return (
        ("PROMPT_BS", [1, 1, s.max_num_prefill_seqs]),
        ("PROMPT_QUERY", [block, block, s.max_num_batched_tokens]),
        ("PROMPT_CTX", [0, 1, (s.max_model_len - _first_query(s)) // block]),
    )


def _lin_decode(s: BucketSettings) -> tuple[tuple[str, Numbers], ...]:
    block = s.block_size
    top = max(s.max_model_len * s.max_num_seqs // block, block)
    return (
        ("DECODE_BS", [1, 32, s.max_num_seqs]),
        ("DECODE_BLOCK", [1, block, s.num_blocks if s.contiguous_pa else top]),
    )


def _quarter(value: int) -> int:
    return -(-value // 4)


def _pad_prompt(s: BucketSettings) -> tuple[tuple[str, Numbers], ...]:
    block, prefills = s.block_size, s.max_num_prefill_seqs
    budget = s.max_num_batched_tokens
    deepest = -(-(s.max_model_len - _first_query(s)) // block)
    return (
        ("PROMPT_BS", [1, 1, prefills, _quarter(prefills), 25]),
        ("PROMPT_QUERY", [block, block, budget, _quarter(budget), 25]),
        ("PROMPT_CTX", [0, 2, deepest, -(-budget // block), 25]),
    )


def _pad_decode(s: BucketSettings) -> tuple[tuple[str, Numbers], ...]:
    block, seqs = s.block_size, s.max_num_seqs
    top = max(-(-s.max_model_len * seqs // block), block)
    if s.contiguous_pa:
        top = s.num_blocks
    return (
        ("DECODE_BS", [1, 2, seqs, _quarter(seqs), 25]),
        ("DECODE_BLOCK", [block, block, top, _quarter(top), 25]),
    )


_STRATEGIES: Mapping[
    tuple[str, str], Callable[[BucketSettings], tuple[tuple[str, Numbers], ...]]
] = {
    ("exp", PROMPT): _exp_prompt,
    ("exp", DECODE): _exp_decode,
    ("lin", PROMPT): _lin_prompt,
    ("lin", DECODE): _lin_decode,
    ("pad", PROMPT): _pad_prompt,
    ("pad", DECODE): _pad_decode,
}
