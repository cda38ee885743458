"""Fused attention in slices (plugin-0.21 and later), as far as it decides whether a start works.

Only the strategy pad slices, so what its variables hold ends no other start, unless it is no
number at all.  A size is rounded up to a multiple of 1024 first, and then must not exceed the
length from which on attention is sliced.
"""

from __future__ import annotations

from collections.abc import Mapping

from hpuwatch.gaudi.checks import SLICE_UNIT, Judgement
from hpuwatch.gaudi.grammar import Dialect
from hpuwatch.gaudi.model import BucketError
from hpuwatch.gaudi.resolve import Flags, strategy_of
from hpuwatch.gaudi.variables import is_true

SLICE_SIZE = "VLLM_HPU_FSDPA_SLICE_CHUNK_SIZE"
_SLICED_FROM = "VLLM_HPU_FSDPA_SLICE_SEQ_LEN_THLD"
_SWITCHES = ("VLLM_ENABLE_BUCKETING", "VLLM_HPU_FSDPA_SLICE_ENABLED")
"""What slices need to be on, as it is by default."""
_LONG = 8192


def counts(
    judged: Judgement, dialect: Dialect, flags: Flags, env: Mapping[str, str]
) -> bool:
    """Tell whether anything asks for a value that was judged."""
    if not judged.where:
        return True
    pads = _pads(dialect, flags, env)
    return pads and (judged.where == "pad" or _switched_on(env))


def oversized(
    dialect: Dialect, flags: Flags, env: Mapping[str, str], tokens: int
) -> str | None:
    """Say that slices exceed the length from which on there are any; None where they don't.

    Args:
        dialect: the rules of a release that slices.
        flags: what may choose the strategy.
        env: the variables that are set.
        tokens: ``--max-num-batched-tokens``.
    """
    if not (_pads(dialect, flags, env) and _switched_on(env)):
        return None
    try:
        size = int(env[SLICE_SIZE])
        threshold = int(env.get(_SLICED_FROM, min(tokens, _LONG)))
    except (KeyError, ValueError):
        return None  # what is no number is told of by itself
    up = -(-size // SLICE_UNIT) * SLICE_UNIT
    if threshold < SLICE_UNIT or up <= threshold:
        return None
    return (
        f"Slices of {up} tokens exceed the {threshold} from which on attention is sliced "
        f"({_SLICED_FROM}); the server does not start (AssertionError)"
    )


def _pads(dialect: Dialect, flags: Flags, env: Mapping[str, str]) -> bool:
    try:
        return strategy_of(dialect, flags, env) == "pad"
    except BucketError:
        return False  # its name ends the start first


def _switched_on(env: Mapping[str, str]) -> bool:
    return all(is_true(env.get(name, "true")) for name in _SWITCHES)
