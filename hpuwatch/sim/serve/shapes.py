"""Which graph a step runs: traffic's shapes padded to buckets, as the plugin pads them.

A shape that no bucket covers gets a *fallback* bucket, rounded up by the cube-root rule,
which then stays in the list.  A bucket can be in the list and yet be cold: the warm-up of a
prompt bucket that is longer than the model allows runs a shorter shape instead.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hpuwatch.gaudi.buckets import DECODE, PROMPT, Bucket, BucketSettings, find


@dataclass(frozen=True, slots=True)
class Padded:
    """What a step really runs.

    Attributes:
        bucket: the padded shape.
        wanted: the shape that was asked for, where no bucket covered it, else None.
    """

    bucket: Bucket
    wanted: Bucket | None = None


WarmShapes = set[tuple[str, Bucket]]
"""The shapes that have a graph, each with its phase."""


class Shapes:
    """The bucket lists of one server, and what traffic made of them."""

    def __init__(
        self, settings: BucketSettings, buckets: Mapping[str, Sequence[Bucket]]
    ) -> None:
        """Start with the generated lists, by phase."""
        self.settings = settings
        self.buckets = {phase: list(found) for phase, found in buckets.items()}
        self._found: dict[tuple[str, Bucket], Bucket] = {}

    def warm_shape(self, phase: str, bucket: Bucket) -> Bucket:
        """Return the shape that warm-up runs for a bucket of the list."""
        s = self.settings
        too_long = bucket.query + bucket.context * s.block_size > s.max_model_len
        if phase == DECODE or not too_long:
            return bucket
        context = max(0, (s.max_model_len - bucket.query) // s.block_size)
        shorter = find(self.buckets[phase], Bucket(bucket.batch, bucket.query, context))
        return shorter or bucket

    def prompt(self, batch: int, query: int, context: int) -> Padded:
        """Pad a prefill of ``batch`` prompts of ``query`` new tokens."""
        return self._look_up(PROMPT, Bucket(batch, query, context))

    def decode(self, batch: int, blocks: int) -> Padded:
        """Pad a decode step of ``batch`` sequences that hold ``blocks`` KV blocks.

        The batch is looked up first, then the context at that batch, so that the shape may
        take its batch from one bucket and its context from another.
        """
        asked = min(blocks, self._deepest())
        first = self._look_up(DECODE, Bucket(batch, 1, asked))
        if first.wanted is not None:
            return first
        second = self._look_up(DECODE, Bucket(first.bucket.batch, 1, asked))
        bucket = first.bucket._replace(context=second.bucket.context)
        return Padded(bucket, second.wanted)

    def _deepest(self) -> int:
        return max(bucket.context for bucket in self.buckets[DECODE])

    def _look_up(self, phase: str, want: Bucket) -> Padded:
        known = self._found.get((phase, want))
        if known is not None:
            return Padded(known)
        bucket = find(self.buckets[phase], want)
        wanted = None
        if bucket is None:
            bucket, wanted = self._fallback(phase, want), want
            self.buckets[phase] = sorted({*self.buckets[phase], bucket})
            self._found.clear()
        self._found[phase, want] = bucket
        return Padded(bucket, wanted)

    def _fallback(self, phase: str, want: Bucket) -> Bucket:
        s = self.settings
        batch = min(round_up(want.batch, 2), s.max_num_seqs)
        if phase == DECODE:
            return Bucket(batch, 1, min(round_up(want.context, 32), self._deepest()))
        deepest = -(-(s.max_model_len - 1) // s.block_size)
        return Bucket(
            batch,
            min(round_up(want.query, 32), s.max_num_batched_tokens),
            min(round_up(want.context, 32), deepest),
        )


def round_up(value: int, step: int) -> int:
    """Round up to a multiple of ``step`` times the cube root of the value, rounded up."""
    if value <= 1:
        return value
    root = math.ceil(math.pow(value, 1 / 3))
    multiple = root * step
    return -(-value // multiple) * multiple


@dataclass(frozen=True, slots=True)
class Warmed:
    """What a start leaves to the engine.

    Attributes:
        blocks: usable KV blocks.
        shapes: the bucket lists.
        warm: the shapes that have a graph.
    """

    blocks: int
    shapes: Shapes
    warm: WarmShapes
