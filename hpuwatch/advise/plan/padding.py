"""How much of its buckets a server computes in vain: the share that is padding.

A prompt is padded to the query of the next bucket, a decode to its batch.  Without traffic
nobody knows which sizes come, so the share is told for sizes that are all equally likely,
between 0 and the worst size there is: one more than a bucket holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from hpuwatch.gaudi.estimate import Estimate
from hpuwatch.gaudi.model import PROMPT, Bucket


def padding_percent(buckets: Sequence[Bucket], phase: str) -> Estimate | None:
    """Return the share of padding in percent, None without buckets.

    For a bucket of size b after one of size a, the sizes a+1 to b waste 1 - size / b each;
    the best guess is the mean over all sizes up to the largest bucket.
    """
    sizes = sorted({each.query if phase == PROMPT else each.batch for each in buckets})
    if not sizes or sizes[0] < 1:
        return None
    wasted, worst = 0.0, 0.0
    for below, size in pairwise((0, *sizes)):
        count = size - below
        wasted += count - (size * (size + 1) - below * (below + 1)) / (2 * size)
        worst = max(worst, 1 - (below + 1) / size)
    return Estimate(
        round(100 * wasted / sizes[-1], 1), 0.0, round(100 * worst, 1), "prior"
    )
