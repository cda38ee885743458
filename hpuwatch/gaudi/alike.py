"""Which releases' rules make a list that a log printed.

A build may run other code than its version says; then its list is often that of another
release.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from hpuwatch.gaudi.buckets import generate
from hpuwatch.gaudi.dialects import DIALECTS
from hpuwatch.gaudi.model import Bucket, BucketError
from hpuwatch.gaudi.resolve import Flags, resolve


def dialects_making(
    listed: frozenset[Bucket], phase: str, flags: Flags, env: Mapping[str, str]
) -> tuple[str, ...]:
    """Return the dialects whose rules give exactly ``listed``."""
    return _making(listed, phase, flags, tuple(sorted(env.items())))


@lru_cache(maxsize=4)  # whoever tries out plans asks for the same server again
def _making(
    listed: frozenset[Bucket],
    phase: str,
    flags: Flags,
    env: tuple[tuple[str, str], ...],
) -> tuple[str, ...]:
    return tuple(
        name for name in DIALECTS if _makes(name, flags, dict(env), phase) == listed
    )


def _makes(
    dialect: str, flags: Flags, env: Mapping[str, str], phase: str
) -> frozenset[Bucket] | None:
    try:
        return frozenset(generate(resolve(dialect, flags, env), phase))
    except BucketError:
        return None
