"""Which bucket variables act: the others are set in vain, mostly without a word.

The table of section "environment" in ``docs/buckets.md``, as a function.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from hpuwatch.gaudi.dialects import dialect_of
from hpuwatch.gaudi.grammar import Dialect, PairDialect, PluginDialect
from hpuwatch.gaudi.model import BucketSettings
from hpuwatch.gaudi.plugin import FIRST_QUERY, LONG, starts_at_one
from hpuwatch.gaudi.resolve import EXPONENTIAL, STRATEGY, Flags, strategy_of

_BUCKET = re.compile(r"VLLM_(PROMPT|DECODE)_\w+_BUCKET_\w+")
SELECTORS = (STRATEGY, EXPONENTIAL)
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
            if (_BUCKET.fullmatch(name) or name in SELECTORS) and name not in acting
        )
    )


def unread(name: str, dialect: Dialect, flags: Flags, env: Mapping[str, str]) -> bool:
    """Tell whether no value of a bucket variable can stop the server: nothing reads it.

    That is up to fork-1.21 alone: later releases read each of them at the start.
    """
    if not isinstance(dialect, PairDialect) or dialect.eager_error:
        return False
    read = _of_fork(dialect, strategy_of(dialect, flags, env))
    return _BUCKET.fullmatch(name) is not None and name not in read


def heeded(settings: BucketSettings) -> frozenset[str]:
    """Return the bucket variables that act under the dialect and the strategy."""
    dialect = dialect_of(settings.dialect)
    return _selectors(dialect) | _bounds(settings, dialect)


def _selectors(dialect: Dialect) -> frozenset[str]:
    match dialect.strategy_rule:
        case "named":
            return frozenset(SELECTORS)
        case "legacy" | "literal":
            return frozenset({EXPONENTIAL})
        case "fixed":
            return frozenset()


def _bounds(settings: BucketSettings, dialect: Dialect) -> frozenset[str]:
    if isinstance(dialect, PluginDialect):
        return _of_plugin(settings, dialect)
    return _of_fork(dialect, settings.strategy)


def _of_fork(dialect: Dialect, strategy: str) -> frozenset[str]:
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
    if starts_at_one(settings, dialect):
        acting.add(FIRST_QUERY)
    if dialect.long_context_heeds_env and settings.max_model_len >= LONG:
        acting.add("VLLM_PROMPT_CTX_BUCKET_MAX")
    return frozenset(acting)


def _names(axes: tuple[str, ...], parts: tuple[str, ...]) -> frozenset[str]:
    return frozenset(f"VLLM_{axis}_BUCKET_{part}" for axis in axes for part in parts)
