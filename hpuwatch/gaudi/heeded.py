"""Which bucket variables act: the others are set in vain, mostly without a word.

The table of section "environment" in ``docs/buckets.md``, as a function.
"""

from __future__ import annotations

import re

from hpuwatch.gaudi.dialects import dialect_of
from hpuwatch.gaudi.grammar import Dialect, PairDialect, PluginDialect
from hpuwatch.gaudi.model import BucketSettings
from hpuwatch.gaudi.plugin import LONG

_BUCKET = re.compile(r"VLLM_(PROMPT|DECODE)_\w+_BUCKET_\w+")
_SELECTORS = ("VLLM_BUCKETING_STRATEGY", "VLLM_EXPONENTIAL_BUCKETING")
_PLUGIN_AXES = (
    "PROMPT_BS",
    "PROMPT_QUERY",
    "PROMPT_SEQ",
    "PROMPT_CTX",
    "DECODE_BS",
    "DECODE_BLOCK",
)
_FORK_AXES = ("PROMPT_BS", "PROMPT_SEQ", "DECODE_BS", "DECODE_BLOCK")
_BOUNDS = ("MIN", "STEP", "MAX")
_PADS = ("PAD_MAX", "PAD_PERCENT")


def unheeded(settings: BucketSettings) -> tuple[str, ...]:
    """Return the variables of ``settings.env`` that this release does not act upon."""
    acting = heeded(settings)
    return tuple(
        sorted(
            name
            for name in settings.env
            if (_BUCKET.fullmatch(name) or name in _SELECTORS) and name not in acting
        )
    )


def heeded(settings: BucketSettings) -> frozenset[str]:
    """Return the bucket variables that act under the dialect and the strategy."""
    dialect = dialect_of(settings.dialect)
    return _selectors(dialect) | _bounds(settings, dialect)


def _selectors(dialect: Dialect) -> frozenset[str]:
    match dialect.strategy_rule:
        case "named":
            return frozenset(_SELECTORS)
        case "legacy" | "literal":
            return frozenset({"VLLM_EXPONENTIAL_BUCKETING"})
        case "fixed":
            return frozenset()


def _bounds(settings: BucketSettings, dialect: Dialect) -> frozenset[str]:
    strategy = settings.strategy
    if isinstance(dialect, PluginDialect):
        return _of_plugin(settings, dialect)
    if strategy == "lin":
        return _names(_FORK_AXES, _BOUNDS)
    if isinstance(dialect, PairDialect):
        return _names(_FORK_AXES, ("LIMIT",))
    return frozenset()


def _of_plugin(settings: BucketSettings, dialect: PluginDialect) -> frozenset[str]:
    # The batch of a prefill comes from this one, whatever the strategy.
    batch = frozenset({"VLLM_PROMPT_BS_BUCKET_MAX"})
    if settings.strategy == "lin":
        return _names(_PLUGIN_AXES, _BOUNDS)
    if settings.strategy == "pad":
        return _names(_PLUGIN_AXES, _BOUNDS + _PADS)
    if settings.strategy == "file":
        return batch
    acting = set(batch)
    first = "VLLM_PROMPT_QUERY_BUCKET_MIN"
    if dialect.query_min_one and settings.env.get(first, "").strip() == "1":
        acting.add(first)
    if dialect.long_context_heeds_env and settings.max_model_len >= LONG:
        acting.add("VLLM_PROMPT_CTX_BUCKET_MAX")
    return frozenset(acting)


def _names(axes: tuple[str, ...], parts: tuple[str, ...]) -> frozenset[str]:
    return frozenset(f"VLLM_{axis}_BUCKET_{part}" for axis in axes for part in parts)
