"""Shapes that no bucket covers, and buckets that no shape finds.

Both follow from the printed lists and the limits of the server (``gaudi.coverage``,
``gaudi.lookup``): the first compile while a user waits, the second cost warm-up for nothing.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence

from hpuwatch.advise.bucketing import Axis, wider
from hpuwatch.advise.checks.buckets_made import Made, made_of, speculates
from hpuwatch.advise.finding import WARNING, Case, Sighting
from hpuwatch.gaudi.coverage import Hole, holes, reach, widest
from hpuwatch.gaudi.estimate import Estimate
from hpuwatch.gaudi.lookup import first_of, warmed_prompts
from hpuwatch.gaudi.model import DECODE, PROMPT, Bucket
from hpuwatch.state.configured import bucket_of
from hpuwatch.state.model import Miss, Start

_SHOWN = 3
_MOST_LOOKED_AT = 1_000
"""Buckets of a phase beyond which nobody looks for those that are never found: each asks for
several look-ups, and a list as long has other troubles."""


def left_open(case: Case) -> Sighting | None:
    """Look for shapes within the server's limits that no bucket covers."""
    start, made = case.start, made_of(case.start)
    if made is None or start.warmup.skipped is not None:
        return None
    found = [
        hole
        for hole in holes(made.prepared)
        if made.knows(hole.phase) and _counts(hole, case)
    ]
    if not found:
        return None
    hit = [miss for miss in start.misses if miss.count and _is_in(miss, found)]
    cure, words = wider(start, list(dict.fromkeys(map(_axis, found))))
    shown = "; ".join(map(_said, found[:_SHOWN]))
    more = f"; and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return Sighting(
        why=("why", "why_hit" if hit else "why_not_hit"),
        cure=cure if hit else ("cure_limit",),
        numbers={
            "holes": len(found),
            "hits": sum(miss.count for miss in hit),
            **_numbers(found),
        },
        words={**words, "open": shown + more, "lengths": _reached(made)},
        lines=(
            *(start.buckets[phase].line for phase in _phases(found)),
            *(miss.line for miss in hit[:_SHOWN]),
        ),
    )


def _phases(found: Iterable[Hole]) -> list[str]:
    return list(dict.fromkeys(hole.phase for hole in found))


def _counts(hole: Hole, case: Case) -> bool:
    """Tell whether a hole is more than the odd block at the end of a range."""
    if hole.above < 0:
        return True
    gap = hole.up_to - hole.above
    limits = case.limits
    return gap >= limits["blocks"] and gap >= limits["share"] * hole.up_to


def _axis(hole: Hole) -> Axis:
    if hole.above >= 0:
        return hole.phase, 2
    return hole.phase, 1 if hole.phase == PROMPT else 0


def _is_in(miss: Miss, found: Sequence[Hole]) -> bool:
    """Tell whether one of the holes has a missed shape in it."""
    shape = bucket_of(miss.phase, miss.shape)
    if shape is None:
        return False
    size = shape.query if miss.phase == PROMPT else shape.batch
    return any(
        hole.phase == miss.phase
        and hole.first <= size <= hole.last
        and shape.context > hole.above
        for hole in found
    )


def _said(hole: Hole) -> str:
    if hole.phase == PROMPT:
        sizes = f"prompts of {hole.first:,} to {hole.last:,} tokens"
        behind = f" behind {hole.above + 1:,} to {hole.up_to:,} blocks of context"
    else:
        sizes = f"decodes of {hole.first:,} to {hole.last:,} requests"
        if hole.last == 1:
            sizes = "decodes of 1 request"
        behind = f" with {hole.above + 1:,} to {hole.up_to:,} blocks"
    return sizes if hole.above < 0 else sizes + behind


def _numbers(found: Sequence[Hole]) -> dict[str, float]:
    """Return the ends of the widest hole of each phase."""
    numbers: dict[str, float] = {}
    for phase in _phases(found):
        hole = max(
            (each for each in found if each.phase == phase),
            key=lambda each: (each.above < 0, each.last - each.first),
        )
        unit = "tokens" if phase == PROMPT else "requests"
        numbers |= {
            f"{phase}_open_from_{unit}": hole.first,
            f"{phase}_open_to_{unit}": hole.last,
        }
        if hole.above >= 0:
            numbers |= {
                f"{phase}_open_above_blocks": hole.above,
                f"{phase}_open_to_blocks": hole.up_to,
            }
    return numbers


def _reached(made: Made) -> str:
    queries = max(each.query for each in made.prepared.prompt)
    batches = max(each.batch for each in made.prepared.decode)
    return f"{queries:,} tokens and {batches:,} requests"


def unreachable(case: Case) -> Sighting | None:
    """Look for buckets that no request within the server's limits is padded to."""
    start, made = case.start, made_of(case.start)
    if made is None or made.is_of_pairs:
        return None
    found = {
        phase: [
            each for each in _warmed(made, phase) if not _is_found(made, phase, each)
        ]
        for phase in (PROMPT, DECODE)
        if _can_tell(start, made, phase)
    }
    found = {phase: each for phase, each in found.items() if each}
    count = sum(map(len, found.values()))
    listed = sum(len(made.prepared.of(phase)) for phase in (PROMPT, DECODE))
    if count < max(1, case.limits["share"] * listed):
        return None
    return Sighting(
        numbers={"buckets": listed, "unreachable_percent": round(100 * count / listed)},
        figures={"unreachable_buckets": Estimate(count, 0, count, "predicted")},
        words={
            "some": "; ".join(
                f"{len(each):,} of {phase}, as {_some(each)}"
                for phase, each in found.items()
            )
        },
        lines=tuple(start.buckets[phase].line for phase in found),
    )


def _warmed(made: Made, phase: str) -> Sequence[Bucket]:
    """Return the buckets of the list that warm-up runs as they stand there."""
    if phase == DECODE:
        return made.prepared.decode
    runs = set(warmed_prompts(made.prepared))
    return [each for each in made.prepared.prompt if each in runs]


def _can_tell(start: Start, made: Made, phase: str) -> bool:
    """Tell whether what a phase may ask for is known, and traffic kept to it.

    A prompt with context where none should come shows that the server works otherwise.
    """
    if not made.knows(phase) or len(made.prepared.of(phase)) > _MOST_LOOKED_AT:
        return False
    if phase == DECODE and speculates(start):
        return False  # how many rows a batch has no line tells
    for miss in start.misses:
        shape = bucket_of(miss.phase, miss.shape)
        if miss.phase != phase or not miss.count or shape is None:
            continue
        if phase == PROMPT and shape.context > reach(made.settings, PROMPT, 1):
            return False
    return True


def _some(buckets: Sequence[Bucket]) -> str:
    return ", ".join(str(tuple(each)) for each in buckets[-2:])


def _is_found(made: Made, phase: str, bucket: Bucket) -> bool:
    """Tell whether some request finds a bucket, by those at the corners of what it holds.

    A request as large as the bucket always finds it, where the server allows for one.  Else
    the limits cut it: then those just above the next smaller sizes are tried, which leave the
    most room on the other axes.
    """
    known = made.prepared.of(phase)
    s = made.settings
    sizes = sorted({each.query if phase == PROMPT else each.batch for each in known})
    own = bucket.query if phase == PROMPT else bucket.batch
    starts = [1, *(size + 1 for size in sizes[: bisect_left(sizes, own)]), own]
    for size in reversed(starts):  # the bucket's own first
        if size > widest(s, phase):
            continue
        if phase == PROMPT:
            most = min(bucket.context, reach(s, PROMPT, size))
            want = Bucket(min(bucket.batch, s.max_num_prefill_seqs), size, most)
            fits = want.batch * want.query <= s.max_num_batched_tokens
        else:
            # Requests may share prefixes, so any number of blocks may come; contiguous
            # attention counts up to the last block of the pool, and never beyond.
            most = (
                min(bucket.context, s.num_blocks) if s.contiguous_pa else bucket.context
            )
            want = Bucket(size, 1, most)
            fits = most >= size
        if fits and first_of(known, want) == bucket:
            return True
    return False


def cold(case: Case) -> Sighting | None:
    """Look for buckets that stand in the list and that warm-up doesn't prepare."""
    start = case.start
    if start.warmup.skipped is not None:
        return None
    return _left_out(start) or _run_as_others(start, case.limits)


def _left_out(start: Start) -> Sighting | None:
    """Compare how many buckets are listed with how many warm-up went over."""
    for phase in (PROMPT, DECODE):
        listed, progress = start.buckets.get(phase), start.warmup.progress.get(phase)
        if listed is None or progress is None or start.warmup.seconds is None:
            continue
        if progress.total and progress.total < listed.value.count:
            lines = [listed.line, *([progress.free.line] if progress.free else [])]
            return Sighting(
                title="title_left_out",
                why=("why_left_out",),
                numbers={
                    "listed_buckets": listed.value.count,
                    "warmed_buckets": progress.total,
                    "cold_buckets": listed.value.count - progress.total,
                },
                words={"phase": phase},
                lines=tuple(lines),
                severity=WARNING,
            )
    return None


def _run_as_others(start: Start, limits: Mapping[str, float]) -> Sighting | None:
    """See prompts that warm-up runs with less context or one by one, as other buckets."""
    made = made_of(start)
    if made is None or made.is_of_pairs or not _can_tell(start, made, PROMPT):
        return None
    listed = frozenset(made.prepared.prompt)
    cold = listed - set(warmed_prompts(made.prepared))
    gone = sorted(each for each in cold if _is_found(made, PROMPT, each))
    if len(gone) < max(limits["buckets"], limits["share"] * len(listed)):
        return None
    return Sighting(
        numbers={"listed_buckets": len(listed)},
        figures={"cold_buckets": Estimate(len(gone), 0, len(gone), "predicted")},
        words={"phase": PROMPT, "some": _some(gone)},
        lines=(start.buckets[PROMPT].line,),
    )
