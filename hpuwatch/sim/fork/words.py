"""The numbers that the forks print about their bucket ranges, before they list the buckets.

These are the ranges' parameters only (minimum, step, maximum and for exp how many values);
the lists themselves come from ``gaudi``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from hpuwatch.gaudi.buckets import DECODE, PROMPT, BucketSettings

_FIXED_LENGTHS = {"fork-1.18", "fork-1.20"}
"""Dialects whose default ranges don't ask how long the model's context is."""
_PROMPT_TOKENS, _DECODE_TOKENS = 1024, 2048

_PARTS = ("MIN", "STEP", "MAX")
_LENGTHS = {PROMPT: "PROMPT_SEQ", DECODE: "DECODE_BLOCK"}


class Axis(NamedTuple):
    """One range: its variable's name, as ``DECODE_BLOCK``, what holds, and the defaults."""

    name: str
    numbers: Sequence[int]
    defaults: Sequence[int]


class Echo(NamedTuple):
    """A setting as the log repeats it."""

    name: str
    value: int
    default: int


def axes(s: BucketSettings, phase: str) -> tuple[Axis, Axis]:
    """Return the ranges of a phase: of the batch, then of tokens (decode: blocks).

    Raises:
        ValueError: a variable is no integer.
    """
    find = _exponential if s.strategy == "exp" else _linear
    batch, length = find(s, phase)
    return batch, length


def echoes(rows: Sequence[Axis]) -> tuple[Echo, ...]:
    """Return what the log repeats of linear ranges."""
    return tuple(
        Echo(f"VLLM_{axis.name}_BUCKET_{part}", value, default)
        for axis in rows
        for part, value, default in zip(
            _PARTS, axis.numbers, axis.defaults, strict=True
        )
    )


def ignored(env: Mapping[str, str], phase: str) -> tuple[tuple[str, str], ...]:
    """Return the variables of a phase, with their values, that exp says it overwrites."""
    names = [
        f"VLLM_{axis}_BUCKET_{part}"
        for axis in (f"{phase.upper()}_BS", _LENGTHS[phase])
        for part in _PARTS
    ]
    return tuple((name, env[name]) for name in names if name in env)


def merged(s: BucketSettings, rows: tuple[Axis, Axis]) -> tuple[Axis, Axis]:
    """Return the prompt ranges when all prompts of a step run as one row.

    They print as tuples from then on.
    """
    batch, length = rows
    longest = min(batch.numbers[2] * length.numbers[2], s.max_num_batched_tokens)
    least, step, _, *count = length.numbers
    return (
        batch._replace(numbers=(1, 1, 1, *batch.numbers[3:])),
        length._replace(numbers=(least, step, longest, *count)),
    )


def _linear(s: BucketSettings, phase: str) -> tuple[Axis, Axis]:
    if phase == PROMPT:
        return (
            _read(s, "PROMPT_BS", _prompt_batches(s)),
            _read(s, "PROMPT_SEQ", [s.block_size, s.block_size, _longest_prompt(s)]),
        )
    unit = 128 if s.dialect == "fork-1.18" else s.block_size
    top = s.num_blocks if _knows_cache(s) else max(unit, _deepest_decode(s))
    return (
        _read(s, "DECODE_BS", _decode_batches(s)),
        _read(s, "DECODE_BLOCK", [unit, unit, top]),
    )


def _read(s: BucketSettings, name: str, defaults: list[int]) -> Axis:
    numbers = [
        int(s.env.get(f"VLLM_{name}_BUCKET_{part}", default))
        for part, default in zip(_PARTS, defaults, strict=True)
    ]
    return Axis(name, numbers, defaults)


def _exponential(s: BucketSettings, phase: str) -> tuple[Axis, Axis]:
    """Return ranges of which the environment decides nothing but a limit, before 1.22."""
    block, step = s.block_size, 2 if _knows_cache(s) else 1
    if phase == PROMPT:
        return (
            _counted(s, "PROMPT_BS", [1, step, s.max_num_prefill_seqs]),
            _counted(s, "PROMPT_SEQ", [block, block, s.max_model_len]),
        )
    top = s.num_blocks if _knows_cache(s) else max(block, _deepest_decode(s))
    return (
        _counted(s, "DECODE_BS", [1, step, s.max_num_seqs]),
        _counted(s, "DECODE_BLOCK", [block, block, top]),
    )


def _counted(s: BucketSettings, name: str, numbers: list[int]) -> Axis:
    count = math.ceil(math.log2(max(1, numbers[2]))) + 1
    limit = count
    if not _knows_cache(s):
        limit = int(s.env.get(f"VLLM_{name}_BUCKET_LIMIT", count))
    return Axis(name, [*numbers, limit], [*numbers, count])


def _knows_cache(s: BucketSettings) -> bool:
    """Tell whether ranges are made when the blocks of the cache are known already."""
    return s.dialect == "fork-1.22"


def _prompt_batches(s: BucketSettings) -> list[int]:
    if s.dialect == "fork-1.18":
        return [1, min(32, s.max_num_seqs), min(64, s.max_num_seqs)]
    return [1, 32, s.max_num_prefill_seqs]


def _decode_batches(s: BucketSettings) -> list[int]:
    if s.dialect == "fork-1.18":
        step = min(32, s.max_num_seqs)
        return [step, step, s.max_num_seqs]
    return [1, 32, s.max_num_seqs]


def _longest_prompt(s: BucketSettings) -> int:
    return _PROMPT_TOKENS if s.dialect in _FIXED_LENGTHS else s.max_model_len


def _deepest_decode(s: BucketSettings) -> int:
    """Return the blocks of all sequences together at their full length."""
    length = _DECODE_TOKENS if s.dialect in _FIXED_LENGTHS else s.max_model_len
    return s.max_num_seqs * length // s.block_size
