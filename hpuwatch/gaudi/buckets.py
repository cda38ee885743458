"""Which buckets a configuration makes, and which of them a request finds.

The public face of bucketing: :func:`generate` and :func:`find`, with the words of
``gaudi.model``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import lru_cache
from typing import Any

from hpuwatch.gaudi import filled, pairs, plugin
from hpuwatch.gaudi.dialects import dialect_of
from hpuwatch.gaudi.filestrategy import file_buckets
from hpuwatch.gaudi.grammar import Dialect, FilledDialect, PairDialect, PluginDialect
from hpuwatch.gaudi.model import DECODE, PROMPT, Bucket, BucketError, BucketSettings

__all__ = [
    "DECODE",
    "PROMPT",
    "Bucket",
    "BucketError",
    "BucketSettings",
    "find",
    "forget",
    "generate",
    "seeds",
]


def generate(settings: BucketSettings, phase: str) -> tuple[Bucket, ...]:
    """Return the buckets of ``phase`` (``prompt`` or ``decode``), in the runtime's order.

    Raises:
        BucketError: the runtime makes no list of these settings; says why.
    """
    made = seeds(settings, phase)
    dialect = dialect_of(settings.dialect)
    speculates = isinstance(dialect, PluginDialect) and dialect.speculates
    if phase == DECODE and speculates and settings.num_speculative_tokens:
        return tuple(plugin.speculative(settings.for_decode, made))
    return made


def seeds(settings: BucketSettings, phase: str) -> tuple[Bucket, ...]:
    """Return the buckets of ``phase`` before they grow for speculative tokens.

    Raises:
        BucketError: as :func:`generate`.
    """
    if phase == PROMPT:
        settings = replace(settings, num_blocks=1)  # decides decodes only
    made = _made(settings, phase)
    if isinstance(made, BucketError):
        raise BucketError(str(made), made.raised, made.words)
    return made


@lru_cache(maxsize=8)  # whoever tries out plans asks for the same lists again
def _made(settings: BucketSettings, phase: str) -> tuple[Bucket, ...] | BucketError:
    dialect = dialect_of(settings.dialect)
    if settings.strategy not in dialect.strategies:
        return BucketError(
            f"{dialect.name} has no bucketing strategy {settings.strategy!r}; "
            f"it has {', '.join(dialect.strategies)}.",
        )
    if phase == DECODE:
        settings = settings.for_decode
    try:
        if isinstance(dialect, PluginDialect) and settings.strategy == "file":
            return tuple(file_buckets(settings, dialect, phase))
        return tuple(_MAKERS[type(dialect), phase](settings, dialect))
    except BucketError as error:
        return error.with_traceback(None)
    except OverflowError as error:
        return BucketError(
            "A number of these settings is too large to reckon with; lower the MAX "
            "variables.",
            "OverflowError",
            str(error),
        )


_MAKERS: dict[
    tuple[type[Dialect], str], Callable[[BucketSettings, Any], list[Bucket]]
] = {
    (PluginDialect, PROMPT): plugin.prompt_buckets,
    (PluginDialect, DECODE): plugin.decode_seeds,
    (FilledDialect, PROMPT): filled.prompt_buckets,
    (FilledDialect, DECODE): filled.decode_buckets,
    (PairDialect, PROMPT): pairs.prompt_buckets,
    (PairDialect, DECODE): pairs.decode_buckets,
}


def forget() -> None:
    """Forget the lists that were made, as before a measurement of how long they take."""
    _made.cache_clear()


def find(buckets: Iterable[Bucket], want: Bucket) -> Bucket | None:
    """Return the bucket that the runtime pads ``want`` to, None where none is prepared.

    Of the buckets that are large enough on every axis it is the first in order: the
    smallest batch, then the smallest query, then the smallest context.
    """
    fitting = (
        bucket
        for bucket in buckets
        if bucket.batch >= want.batch
        and bucket.query >= want.query
        and bucket.context >= want.context
    )
    return min(fitting, default=None)
