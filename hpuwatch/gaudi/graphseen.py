"""What starts have printed of their graphs' memory, as observations for a law.

An *observation* is some buckets and what their graphs took together.  A captured total is
one of many buckets; the free memory that each line of warm-up shows gives one per bucket.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from hpuwatch.gaudi.model import Bucket
from hpuwatch.units import Amount, rounding_bytes

EVERY = "every"
"""The phase of an observation that holds the graphs of all phases ("allocated")."""


@dataclass(frozen=True, slots=True)
class Observation:
    """Some graphs of one start and what they took together.

    Attributes:
        phase: ``prompt``, ``decode`` or :data:`EVERY`.
        buckets: the buckets that were captured.
        used_bytes: what they took; a step may come out negative.
        rounding_bytes: how far the print may be off.
        repeats: the sum of other observations of the same start, which tells nothing new
            of other buckets.
    """

    phase: str
    buckets: tuple[Bucket, ...]
    used_bytes: int
    rounding_bytes: float = 0.0
    repeats: bool = False

    @property
    def tokens(self) -> int:
        """Return the tokens of all buckets, batch x query."""
        return tokens_of(self.buckets)


def tokens_of(buckets: Iterable[Bucket]) -> int:
    """Return the tokens that the buckets hold together; a decode holds its batch."""
    return sum(bucket.batch * bucket.query for bucket in buckets)


def observe(phase: str, buckets: Iterable[Bucket], used: Amount) -> Observation:
    """Return the observation of a total as it was printed."""
    return Observation(phase, tuple(buckets), used.bytes, rounding_bytes(used))


def steps(
    phase: str, printed: Sequence[tuple[Bucket, Amount]], used: Amount | None = None
) -> tuple[Observation, ...]:
    """Return one observation for each bucket of a row of ``free_mem`` lines.

    A line comes before the work on its bucket, so the next line shows what it took.  The
    last bucket is told by ``used``, the total of all of them, and left out without it.
    The total itself comes as one more observation.
    """
    found = []
    for (bucket, before), (_, after) in pairwise(printed):
        off = rounding_bytes(before) + rounding_bytes(after)
        found.append(Observation(phase, (bucket,), before.bytes - after.bytes, off))
    if used is not None and printed:
        left = used.bytes - sum(each.used_bytes for each in found)
        off = rounding_bytes(used) + sum(map(rounding_bytes, _ends(printed)))
        found.append(Observation(phase, (printed[-1][0],), left, off))
        buckets = (bucket for bucket, _ in printed)
        found.append(replace(observe(phase, buckets, used), repeats=True))
    return tuple(found)


def _ends(printed: Sequence[tuple[Bucket, Amount]]) -> tuple[Amount, Amount]:
    return printed[0][1], printed[-1][1]
