"""What no bucket covers: shapes that requests may bring, up to the limits of the server.

Such a shape gets a bucket made up on the spot, whose graph compiles while a user waits.  A
*hole* is a stretch of queries (prompts) or batches (decodes) together with the contexts,
in blocks, that lie above every bucket wide enough for them.

Prompts of the plugin come in chunks of at most the token budget, and what was computed
before is context; where prefixes aren't cached and no prompt exceeds the budget there is
none.  A decode of some sequences holds at most the blocks of as many full sequences, and
with contiguous attention, which counts up to the last block in use, any of the pool.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from hpuwatch.gaudi.dialects import dialect_of
from hpuwatch.gaudi.grammar import PairDialect, PluginDialect
from hpuwatch.gaudi.lookup import Prepared
from hpuwatch.gaudi.model import DECODE, PROMPT, BucketSettings


@dataclass(frozen=True, slots=True)
class Hole:
    """Shapes without a bucket.

    Attributes:
        phase: ``prompt`` or ``decode``.
        first: the shortest query or smallest batch.
        last: the longest or largest one.
        above: contexts of so many blocks still have a bucket; -1 where none has.
        up_to: contexts of so many blocks may come.
    """

    phase: str
    first: int
    last: int
    above: int
    up_to: int


def holes(prepared: Prepared) -> tuple[Hole, ...]:
    """Return the stretches that the lists leave open, prompts first."""
    return (*_merged(_open(prepared, PROMPT)), *_merged(_open(prepared, DECODE)))


def _open(prepared: Prepared, phase: str) -> Iterator[Hole]:
    s, listed = prepared.settings, prepared.of(phase)
    rows = [(b.query if phase == PROMPT else b.batch, b.context) for b in listed]
    for first, last, deepest in _stretches(rows, widest(s, phase)):
        # A short query leaves the most context, and a large batch holds the most.
        up_to = reach(s, phase, first if phase == PROMPT else last)
        if up_to > deepest:
            yield Hole(phase, first, last, deepest, up_to)


def widest(s: BucketSettings, phase: str) -> int:
    """Return the longest query of a prompt, or the largest batch of a decode."""
    if phase == DECODE:
        return s.max_num_seqs
    if isinstance(dialect_of(s.dialect), PluginDialect):
        return min(s.max_model_len, s.max_num_batched_tokens)
    return s.max_model_len


def reach(s: BucketSettings, phase: str, size: int) -> int:
    """Return the most context, in blocks, that may come with a query or batch of ``size``."""
    if phase == PROMPT:
        return _prompt_reach(s, size)
    return s.num_blocks if s.contiguous_pa else min(own_blocks(s, size), s.num_blocks)


def own_blocks(s: BucketSettings, batch: int) -> int:
    """Return the blocks of so many sequences of the model's length."""
    return batch * s.for_decode.blocks_per_sequence


def left_blocks(s: BucketSettings, query: int) -> int:
    """Return the blocks of context that the model's length leaves beside a query."""
    return -(-(s.max_model_len - query) // s.block_size)


def _prompt_reach(s: BucketSettings, query: int) -> int:
    dialect = dialect_of(s.dialect)
    if isinstance(dialect, PairDialect):
        return 0
    caches = s.prefix_caching and not s.contiguous_pa
    in_chunks = (
        isinstance(dialect, PluginDialect)
        and s.max_model_len > s.max_num_batched_tokens
    )
    return left_blocks(s, query) if caches or in_chunks else 0


def _stretches(
    rows: Sequence[tuple[int, int]], longest: int
) -> Iterator[tuple[int, int, int]]:
    """Yield (first, last, deepest context) for sizes 1 to ``longest``.

    Between two sizes of buckets the same buckets are wide enough.
    """
    deepest: dict[int, int] = {}
    for size, context in rows:
        deepest[size] = max(context, deepest.get(size, -1))
    sizes = sorted(deepest)
    wide = list(accumulate((deepest[size] for size in reversed(sizes)), max))[::-1]
    first = 1
    for size, context in zip(sizes, wide, strict=True):
        last = min(size, longest)
        if first <= last:
            yield first, last, context
            first = last + 1
    if first <= longest:
        yield first, longest, -1


def _merged(found: Iterator[Hole]) -> Iterator[Hole]:
    """Join neighbours whose contexts begin alike."""
    before: Hole | None = None
    for hole in found:
        if before and before.above == hole.above and before.last + 1 == hole.first:
            up_to = max(before.up_to, hole.up_to)
            before = Hole(hole.phase, before.first, hole.last, hole.above, up_to)
            continue
        if before:
            yield before
        before = hole
    if before:
        yield before
