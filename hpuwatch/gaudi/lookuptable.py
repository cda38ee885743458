"""Look-ups of very many shapes at once.

The list of a phase is spread out as a table over the ranks of batch, query and context, so
that each look-up is three steps into it.  What no bucket holds falls back number by number,
and each number is worked out once.  The answers are those of ``lookup.look_up`` on the list
as it was prepared: what one look-up adds is not there for the next.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence

from hpuwatch.gaudi.dialects import dialect_of
from hpuwatch.gaudi.grammar import PairDialect
from hpuwatch.gaudi.lookup import Prepared, fall_back, look_up, requested
from hpuwatch.gaudi.model import Bucket

_MOST_CELLS = 2_000_000  # of a table; lists that need more are looked up one by one

_Row = list[Bucket | None]


def look_up_all(
    prepared: Prepared, phase: str, shapes: Iterable[Bucket]
) -> list[Bucket]:
    """Return the bucket of each shape, in order."""
    wanted = list(shapes)

    def asked(want: Bucket) -> Bucket:
        return requested(prepared, phase, want)

    if isinstance(dialect_of(prepared.settings.dialect), PairDialect):
        return _by_axes(wanted, lambda want: look_up(prepared, phase, want).bucket)
    known = prepared.of(phase)
    batches = sorted({b for b, _, _ in known})
    queries = sorted({q for _, q, _ in known})
    contexts = sorted({c for _, _, c in known})
    if len(batches) * len(queries) * len(contexts) > _MOST_CELLS:
        return [look_up(prepared, phase, want).bucket for want in wanted]
    table = _table(known, batches, queries, contexts)
    rows = {n: table[bisect_left(batches, n)] for n in {b for b, _, _ in wanted}}
    columns = {n: bisect_left(queries, n) for n in {q for _, q, _ in wanted}}
    depths = {
        n: bisect_left(contexts, asked(Bucket(1, 1, n)).context)
        for n in {c for _, _, c in wanted}
    }
    found = [rows[b][columns[q]][depths[c]] for b, q, c in wanted]
    missed = [place for place, bucket in enumerate(found) if bucket is None]
    made_up = _by_axes(
        [wanted[place] for place in missed],
        lambda want: fall_back(prepared, phase, asked(want)),
    )
    for place, bucket in zip(missed, made_up, strict=True):
        found[place] = bucket
    return found  # type: ignore[return-value]  # no None is left


def _by_axes(wanted: Sequence[Bucket], pad: Callable[[Bucket], Bucket]) -> list[Bucket]:
    """Do what ``pad`` does, which treats each axis by itself: each number only once."""
    batches = {n: pad(Bucket(n, 1, 1)).batch for n in {b for b, _, _ in wanted}}
    queries = {n: pad(Bucket(1, n, 1)).query for n in {q for _, q, _ in wanted}}
    contexts = {n: pad(Bucket(1, 1, n)).context for n in {c for _, _, c in wanted}}
    buckets = {
        each: Bucket(*each)
        for each in {(batches[b], queries[q], contexts[c]) for b, q, c in wanted}
    }
    return [buckets[batches[b], queries[q], contexts[c]] for b, q, c in wanted]


def _table(
    known: Sequence[Bucket],
    batches: Sequence[int],
    queries: Sequence[int],
    contexts: Sequence[int],
) -> list[list[_Row]]:
    """Return, by ranks, the first bucket in order that is large enough on all axes.

    The last rank of each axis stands for what is above every bucket.
    """
    nothing: _Row = [None] * (len(contexts) + 1)
    own: dict[tuple[int, int], list[Bucket]] = {}
    for bucket in known:
        own.setdefault(bucket[:2], []).append(bucket)
    table = [[nothing] * (len(queries) + 1)]
    for batch in reversed(batches):
        above = table[-1]
        of_batch: list[_Row] = [nothing]
        for query in reversed(queries):
            here = own.get((batch, query))
            row = of_batch[-1] if here is None else _row(here, contexts, of_batch[-1])
            of_batch.append(row)
        of_batch.reverse()
        table.append([_first(*pair) for pair in zip(of_batch, above, strict=True)])
    table.reverse()
    return table


def _row(here: list[Bucket], contexts: Sequence[int], longer: _Row) -> _Row:
    """Put the buckets of one batch and query before those of its longer queries."""
    deeper: Bucket | None = None
    by_context = {bucket.context: bucket for bucket in here}
    row: _Row = [None]
    for context, otherwise in zip(
        reversed(contexts), reversed(longer[:-1]), strict=True
    ):
        deeper = by_context.get(context, deeper)
        row.append(deeper or otherwise)
    row.reverse()
    return row


def _first(mine: _Row, larger: _Row) -> _Row:
    """Put the buckets of one batch before those of larger batches."""
    if not any(mine):
        return larger
    return [a or b for a, b in zip(mine, larger, strict=True)]
