"""How fast bucket lists are made and looked up, in CPU seconds of this process.

The largest realistic cases: linear lists of a model of 128k tokens, and a million shapes at
random.  Each row is the median of some rounds, beside the bound that it should keep to.
"""

from __future__ import annotations

import random

from hpuwatch.gaudi.buckets import DECODE, PROMPT, Bucket, forget, generate
from hpuwatch.gaudi.lookup import prepare
from hpuwatch.gaudi.lookuptable import look_up_all
from hpuwatch.gaudi.model import BucketSettings
from hpuwatch.gaudi.resolve import Flags, resolve
from tests.bench.row import row

_SHAPES = 1_000_000
_LONG = 131_072


def _settings(strategy: str) -> BucketSettings:
    flags = Flags(256, 2048, _LONG, 4107, strategy=strategy, contiguous_pa=False)
    return resolve("gaudi-plugin-head", flags, {})


def _made(settings: BucketSettings, phase: str) -> tuple[Bucket, ...]:
    forget()
    return generate(settings, phase)


def _shapes(phase: str, deepest: int) -> list[Bucket]:
    chance = random.Random(7)  # noqa: S311  any shapes will do
    if phase == PROMPT:
        return [
            Bucket(1, chance.randint(1, 2048), chance.randint(0, deepest))
            for _ in range(_SHAPES)
        ]
    return [
        Bucket(chance.randint(1, 256), 1, chance.randint(1, deepest))
        for _ in range(_SHAPES)
    ]


def bucket_rows() -> None:
    """Print a row for each list, and for a million look-ups in it."""
    for strategy in ("lin", "exp"):
        settings = _settings(strategy)
        prepared = prepare(settings)
        for phase, deepest in ((PROMPT, 1024), (DECODE, 4107)):
            count = len(prepared.of(phase))
            row(
                f"{strategy} {phase}: {count:,} buckets",
                lambda settings=settings, phase=phase: _made(settings, phase),  # type: ignore[misc]  # bound at once
                0.1,
            )
            wanted = _shapes(phase, deepest)
            row(
                f"{strategy} {phase}: 1,000,000 look-ups",
                lambda prepared=prepared, phase=phase, wanted=wanted: look_up_all(  # type: ignore[misc]  # likewise
                    prepared, phase, wanted
                ),
                1.0,
            )


if __name__ == "__main__":
    bucket_rows()
