"""The numbers that the forks print about their bucket ranges, before they list the buckets.

These are the ranges' parameters only (minimum, step, maximum and for exp how many values);
the lists themselves come from ``gaudi``, and so does what the dialects of the releases
differ in.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from hpuwatch.gaudi.buckets import DECODE, PROMPT, BucketSettings
from hpuwatch.gaudi.dialects import dialect_of
from hpuwatch.gaudi.grammar import PairDialect

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
    batch, length = _defaults(s, phase)
    return _read(s, f"{phase.upper()}_BS", batch), _read(s, _LENGTHS[phase], length)


def _defaults(s: BucketSettings, phase: str) -> tuple[Sequence[int], Sequence[int]]:
    """Return the linear ranges where the environment sets none."""
    rules, block, longest = dialect_of(s.dialect), s.block_size, s.max_model_len
    if not isinstance(rules, PairDialect):
        if phase == PROMPT:
            return [1, 32, s.max_num_prefill_seqs], [block, block, longest]
        return [1, 32, s.max_num_seqs], [block, block, s.num_blocks]
    if phase == PROMPT:
        batches = rules.prompt_batches(s)
        return [*batches], [block, block, rules.prompt_length or longest]
    unit = rules.block_unit or block
    deepest = s.max_num_seqs * (rules.decode_length or longest) // block
    return [*rules.decode_batches(s)], [unit, unit, max(unit, deepest)]


def _read(s: BucketSettings, name: str, defaults: Sequence[int]) -> Axis:
    numbers = [
        int(s.env.get(f"VLLM_{name}_BUCKET_{part}", default))
        for part, default in zip(_PARTS, defaults, strict=True)
    ]
    return Axis(name, numbers, defaults)


def _exponential(s: BucketSettings, phase: str) -> tuple[Axis, Axis]:
    """Return ranges of which the environment decides nothing but a limit, before 1.22."""
    (_, _, widest), length = _defaults(s, phase)
    step = 1 if _has_limits(s) else 2
    return (
        _counted(s, f"{phase.upper()}_BS", [1, step, widest]),
        _counted(s, _LENGTHS[phase], length),
    )


def _counted(s: BucketSettings, name: str, numbers: Sequence[int]) -> Axis:
    count = math.ceil(math.log2(max(1, numbers[2]))) + 1
    limit = count
    if _has_limits(s):
        limit = int(s.env.get(f"VLLM_{name}_BUCKET_LIMIT", count))
    return Axis(name, [*numbers, limit], [*numbers, count])


def _has_limits(s: BucketSettings) -> bool:
    """Tell whether the environment may limit how many values a range has."""
    return isinstance(dialect_of(s.dialect), PairDialect)
