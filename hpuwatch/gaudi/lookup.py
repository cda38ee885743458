"""Which bucket a request is padded to, and what happens where none is prepared.

Since plugin-0.10 and fork-1.22 a request that no bucket holds gets a *fall-back* bucket,
computed on the spot and added to the list, so that later requests may find it.  Older
releases pad each axis by itself and ask no list.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass, replace

from hpuwatch.gaudi import pairs
from hpuwatch.gaudi.buckets import generate, seeds
from hpuwatch.gaudi.dialects import dialect_of
from hpuwatch.gaudi.grammar import Dialect, FilledDialect, PairDialect, PluginDialect
from hpuwatch.gaudi.model import DECODE, PROMPT, Bucket, BucketError, BucketSettings
from hpuwatch.gaudi.plugin import slice_limits, slices
from hpuwatch.gaudi.ranges import Axis, log2_up, up_to


@dataclass(frozen=True, slots=True)
class Prepared:
    """The lists of a server: those of warm-up and what fall-backs have added.

    Attributes:
        seeds: the decode list before it grew for speculative tokens.
        deepest: largest decode context of warm-up, in blocks.
    """

    settings: BucketSettings
    prompt: tuple[Bucket, ...]
    decode: tuple[Bucket, ...]
    seeds: tuple[Bucket, ...]
    deepest: int

    def of(self, phase: str) -> tuple[Bucket, ...]:
        """Return the list of ``phase``."""
        return self.prompt if phase == PROMPT else self.decode


@dataclass(frozen=True, slots=True)
class Found:
    """The outcome of a look-up.

    Attributes:
        bucket: the shape that runs.
        prepared: the bucket stood in the list before the look-up.
        after: the lists afterwards; a fall-back has been added.
    """

    bucket: Bucket
    prepared: bool
    after: Prepared


def prepare(settings: BucketSettings) -> Prepared:
    """Return the lists as they are after warm-up.

    Raises:
        BucketError: the runtime makes no lists of these settings.
    """
    prompt = generate(settings, PROMPT)  # first, as the runtime does
    try:
        decode = generate(settings, DECODE)
    except BucketError as error:
        error.made = len(prompt)
        raise
    return Prepared(
        settings,
        prompt,
        decode,
        seeds(settings, DECODE),
        max((b.context for b in decode), default=0),
    )


def look_up(prepared: Prepared, phase: str, want: Bucket) -> Found:
    """Find the bucket of a request; add a fall-back where none holds it."""
    dialect = dialect_of(prepared.settings.dialect)
    known = prepared.of(phase)
    if isinstance(dialect, PairDialect):
        bucket = _padded(prepared, dialect, phase, want)
        return Found(bucket, bucket in known, prepared)
    asked = requested(prepared, phase, want)
    listed = first_of(known, asked)
    if listed is not None:
        return Found(listed, prepared=True, after=prepared)
    made_up = fall_back(prepared, phase, asked)
    stood = made_up in known
    if stood and phase == DECODE and _capped(dialect):
        return Found(made_up, prepared=True, after=prepared)
    return Found(made_up, stood, with_bucket(prepared, phase, made_up))


def first_of(known: Sequence[Bucket], want: Bucket) -> Bucket | None:
    """Return the first bucket that holds a request, as ``buckets.find``, faster.

    ``known`` is sorted.
    """
    for place in range(bisect_left(known, want), len(known)):
        bucket = known[place]
        if bucket.query >= want.query and bucket.context >= want.context:
            return bucket
    return None


def look_up_seed(prepared: Prepared, want: Bucket) -> Found:
    """Find a decode first among the buckets before speculation, then among all.

    With speculative tokens this look-up fixes the batch, and :func:`look_up` with the
    batch times the tokens fixes the context.
    """
    asked = requested(prepared, DECODE, want)
    bucket = first_of(prepared.seeds, asked)
    if bucket is not None:
        return Found(bucket, prepared=True, after=prepared)
    return look_up(prepared, DECODE, want)


def decode_shape(prepared: Prepared, sequences: int, blocks: int) -> Bucket:
    """Return the shape that a decode of ``sequences`` with ``blocks`` in all runs in.

    It takes two look-ups: the first fixes the batch, the second, with that batch times
    the tokens of a draft, the context.
    """
    tokens = 1 + prepared.settings.num_speculative_tokens
    want = Bucket(sequences, 1, blocks)
    first = (
        look_up_seed(prepared, want) if tokens > 1 else look_up(prepared, DECODE, want)
    )
    rows = first.bucket.batch * tokens
    second = look_up(first.after, DECODE, Bucket(rows, 1, blocks))
    return Bucket(first.bucket.batch, 1, second.bucket.context)


def warmed_prompts(prepared: Prepared) -> tuple[Bucket, ...]:
    """Return the prompt shapes that warm-up really compiles, sorted.

    Since plugin-0.19 a bucket that exceeds the model as a whole stays in the list, but
    warm-up runs it with the context that is left; and since plugin-0.14 prompts with
    context run one by one.  Either is often another bucket.  Read from the runtime's
    source, never seen to run.
    """
    s = prepared.settings
    dialect = dialect_of(s.dialect)
    if not isinstance(dialect, PluginDialect):
        return tuple(sorted(set(prepared.prompt)))
    warmed, asked = [], set()  # many buckets ask for one and the same other
    for bucket in prepared.prompt:
        other = warmed_as(s, dialect, bucket)
        if other is bucket:
            warmed.append(bucket)
        else:
            asked.add(other)
    found = {look_up(prepared, PROMPT, each).bucket for each in asked}
    return tuple(sorted([*warmed, *found.difference(warmed)]))


def warmed_as(s: BucketSettings, dialect: PluginDialect, bucket: Bucket) -> Bucket:
    """Return what warm-up runs of a prompt bucket, before that is looked up."""
    left = s.max_model_len - bucket.query
    shrinks = not dialect.sum_filter and bucket.context * s.block_size > left
    if shrinks:
        return Bucket(1, bucket.query, max(0, left // s.block_size))
    several = bucket.batch > 1 and bucket.context > 0
    if several and dialect.context_alone and not s.merged_prefill:
        return Bucket(1, bucket.query, bucket.context)
    return bucket


def fall_back_value(value: int, base_step: int) -> int:
    """Round up to a multiple of ``base_step`` times the cube root of ``value``.

    So the steps widen with the value, and few shapes serve a wide axis.
    """
    if value <= 1:
        return value
    step = math.ceil(math.pow(value, 1 / 3)) * base_step
    return up_to(value, step)


def fall_back(prepared: Prepared, phase: str, want: Bucket) -> Bucket:
    """Return the bucket that the runtime makes up for ``want``."""
    s = prepared.settings
    dialect = dialect_of(s.dialect)
    batch = fall_back_value(want.batch, 2)
    if isinstance(dialect, PluginDialect) and dialect.batch_capped:
        batch = min(batch, s.max_num_seqs)
    context = fall_back_value(want.context, 32)
    limit = _context_limit(prepared, dialect, phase)
    if limit is not None:
        context = min(context, limit)
    return Bucket(batch, _query(s, dialect, want.query), context)


def _query(s: BucketSettings, dialect: Dialect, query: int) -> int:
    has_slices = not isinstance(dialect, FilledDialect) or dialect.slices
    if has_slices and slices(s.env):
        threshold, piece = slice_limits(s.env)
        if query >= threshold:
            return up_to(query, piece)
    step = 32
    if isinstance(dialect, PluginDialect) and dialect.chunk_step:
        step = max(step, s.mamba_chunk_size)
    return min(fall_back_value(query, step), s.max_num_batched_tokens)


def _context_limit(prepared: Prepared, dialect: Dialect, phase: str) -> int | None:
    s = prepared.settings
    if not isinstance(dialect, PluginDialect) or dialect.context_cap == "pool":
        return s.num_blocks
    if dialect.context_cap == "length" and phase == PROMPT:
        return -(-(s.max_model_len - 1) // s.block_size)
    return prepared.deepest or None


def _capped(dialect: Dialect) -> bool:
    return isinstance(dialect, PluginDialect) and dialect.request_capped


def requested(prepared: Prepared, phase: str, want: Bucket) -> Bucket:
    """Cut a decode's request at the deepest bucket, where the release does."""
    dialect = dialect_of(prepared.settings.dialect)
    if phase == DECODE and _capped(dialect) and prepared.deepest:
        return want._replace(context=min(want.context, prepared.deepest))
    return want


def with_bucket(prepared: Prepared, phase: str, bucket: Bucket) -> Prepared:
    """Return the lists with a fall-back bucket added."""
    buckets = list(prepared.of(phase))
    insort(buckets, bucket)
    if phase == PROMPT:
        return replace(prepared, prompt=tuple(buckets))
    return replace(prepared, decode=tuple(buckets))


def _padded(
    prepared: Prepared, dialect: PairDialect, phase: str, want: Bucket
) -> Bucket:
    """Pad the two axes of an older release, each by itself."""
    s = prepared.settings
    length = want.query if phase == PROMPT else want.context
    if s.strategy == "exp":
        listed = [
            (b.batch, b.query if phase == PROMPT else b.context)
            for b in prepared.of(phase)
        ]
        batch = min((b for b, _ in listed if b >= want.batch), default=want.batch)
        length = min((x for _, x in listed if x >= length), default=length)
    else:
        first, second = pairs.axes(s, dialect, phase)
        batch = pad_axis(dialect, first, want.batch)
        length = pad_axis(dialect, second, length)
    if phase == DECODE and dialect.ends_with_pool:
        length = min(length, s.num_blocks)
    return Bucket(batch, length, 0) if phase == PROMPT else Bucket(batch, 1, length)


def pad_axis(dialect: PairDialect, axis: Axis, value: int) -> int:
    """Pad ``value`` on one linear axis as fork-1.18 to fork-1.21 do.

    There is no maximum: beyond the range the value is rounded up to the step.
    """
    minimum, step, _ = axis
    if dialect.axis_rule != "either above" and value <= minimum:
        return minimum
    stepped = -(-value // step) * step
    if dialect.axis_rule == "ramp":
        ramp = minimum
        while ramp < value:
            ramp *= 2
        return ramp if ramp <= step else stepped
    doubled = minimum << log2_up(max(1, value))
    return max(minimum, min(stepped, doubled))
