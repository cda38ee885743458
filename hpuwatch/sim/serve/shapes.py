"""Which graph a step runs: traffic's shapes padded to buckets, by the release's own rules.

Since plugin-0.10 and fork-1.22 a shape that no bucket covers gets a *fallback* bucket, whose
sides are rounded up by the cube-root rule and which then stays in the list; older releases
pad each side by itself and ask no list.  A bucket can be in the list and yet be cold: the
warm-up of a prompt bucket that is longer than the model allows runs a shorter shape instead,
and one of several prompts with context runs them one by one.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from hpuwatch.gaudi.buckets import DECODE, PROMPT, Bucket, BucketSettings
from hpuwatch.gaudi.dialects import dialect_of
from hpuwatch.gaudi.grammar import FilledDialect, PairDialect, PluginDialect
from hpuwatch.gaudi.pairs import axes

_TRUE = frozenset({"true", "t", "1", "yes", "y", "on"})
_MERGED_CONTEXT_STEP = 32  # merged prefill pads the sum of the contexts to this


@dataclass(frozen=True, slots=True)
class Padded:
    """What a step really runs.

    Attributes:
        bucket: the padded shape.
        added: (what was asked for, the bucket that was added for it), where none covered it.
        capped: (context of such a bucket, what it was cut to), where it was too deep.
    """

    bucket: Bucket
    added: tuple[tuple[Bucket, Bucket], ...] = ()
    capped: tuple[tuple[int, int], ...] = ()


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
        self._rules = dialect_of(settings.dialect)
        self._deepest = max((b.context for b in self.buckets[DECODE]), default=0)
        self._found: dict[tuple[str, Bucket], Bucket] = {}
        for found in self.buckets.values():
            if not isinstance(self._rules, PairDialect):
                found.sort()

    @property
    def merges_context(self) -> bool:
        """Tell whether prompts with context run together with others."""
        rules = self._rules
        alone = isinstance(rules, PluginDialect) and rules.context_alone
        return not alone or self.settings.merged_prefill

    @property
    def counts_references(self) -> bool:
        """Tell whether contiguous attention reads no fewer blocks than sequences refer to."""
        rules = self._rules
        return not isinstance(rules, PluginDialect) or not rules.context_alone

    def warm_shape(self, phase: str, bucket: Bucket) -> Bucket:
        """Return the shape that warm-up runs for a bucket of the list."""
        s, rules = self.settings, self._rules
        if phase == DECODE or not isinstance(rules, PluginDialect):
            return bucket
        left = s.max_model_len - bucket.query
        if not rules.sum_filter and bucket.context * s.block_size > left:
            want = Bucket(1, bucket.query, max(0, left // s.block_size))
        elif bucket.batch > 1 and bucket.context > 0 and not self.merges_context:
            want = Bucket(1, bucket.query, bucket.context)
        else:
            return bucket
        return self._listed(phase, want) or bucket

    def prompt(self, batch: int, query: int, context: int) -> Padded:
        """Pad a prefill of ``batch`` prompts of ``query`` new tokens after context blocks."""
        return self._look_up(PROMPT, Bucket(batch, query, context))

    def merged_prompt(self, query: int, context: int) -> Padded:
        """Pad a merged prefill: all prompts in one row of so many tokens and blocks."""
        padded = self._look_up(PROMPT, Bucket(1, query, context))
        step = _MERGED_CONTEXT_STEP
        exact = padded.bucket._replace(context=-(-context // step) * step)
        return replace(padded, bucket=exact)

    def decode(self, batch: int, blocks: int) -> Padded:
        """Pad a decode step of ``batch`` sequences that reads ``blocks`` KV blocks.

        The batch is looked up first, then the context at that batch, so that the shape may
        take its batch from one bucket and its context from another.
        """
        first = self._look_up(DECODE, Bucket(batch, 1, blocks))
        second = self._look_up(DECODE, Bucket(first.bucket.batch, 1, blocks))
        context = second.bucket.context
        if context < blocks and not isinstance(self._rules, PairDialect):
            context = self._beyond(context, blocks)
        bucket = Bucket(first.bucket.batch, 1, context)
        return Padded(bucket, first.added + second.added, first.capped + second.capped)

    def padded_tokens(self, batch: int, query: int) -> int:
        """Return the tokens of a prefill of fresh prompts, padding included."""
        want = Bucket(batch, query, 0)
        bucket = self._listed(PROMPT, want) or want
        return bucket.batch * bucket.query

    def _beyond(self, context: int, blocks: int) -> int:
        """Return how far a decode reads that is deeper than the bucket it was given."""
        s, rules = self.settings, self._rules
        if not isinstance(rules, PluginDialect) or not rules.request_capped:
            return context
        if rules.attention_blocks:
            return blocks if s.contiguous_pa else context
        rounded = round_up(blocks, 32)
        return min(rounded, s.num_blocks) if s.contiguous_pa else rounded

    def _listed(self, phase: str, want: Bucket) -> Bucket | None:
        """Return the first bucket, in order, that is large enough on every side."""
        known = self.buckets[phase]
        for place in range(bisect_left(known, want), len(known)):
            bucket = known[place]
            if bucket.query >= want.query and bucket.context >= want.context:
                return bucket
        return None

    def _look_up(self, phase: str, want: Bucket) -> Padded:
        rules = self._rules
        if isinstance(rules, PairDialect):
            return Padded(self._padded_sides(rules, phase, want))
        cuts = isinstance(rules, PluginDialect) and rules.request_capped
        if phase == DECODE and cuts and self._deepest:
            want = want._replace(context=min(want.context, self._deepest))
        known = self._found.get((phase, want))
        if known is not None:
            return Padded(known)
        bucket = self._listed(phase, want)
        added: tuple[tuple[Bucket, Bucket], ...] = ()
        capped: tuple[tuple[int, int], ...] = ()
        if bucket is None:
            bucket = self._fallback(phase, want)
            context = round_up(want.context, 32)
            if context > bucket.context:
                capped = ((context, bucket.context),)
            if bucket not in self.buckets[phase]:
                insort(self.buckets[phase], bucket)
                added = ((want, bucket),)
                self._found.clear()
        self._found[phase, want] = bucket
        return Padded(bucket, added, capped)

    def _fallback(self, phase: str, want: Bucket) -> Bucket:
        s, rules = self.settings, self._rules
        batch = round_up(want.batch, 2)
        if isinstance(rules, PluginDialect) and rules.batch_capped:
            batch = min(batch, s.max_num_seqs)
        context = min(round_up(want.context, 32), self._most_context(phase))
        if phase == DECODE:
            return Bucket(batch, 1, context)
        return Bucket(batch, self._fallback_query(want.query), context)

    def _fallback_query(self, query: int) -> int:
        s, rules = self.settings, self._rules
        if not isinstance(rules, FilledDialect) or rules.slices:
            begin, piece = _slices(s.env)
            if query >= begin:
                return -(-query // piece) * piece
        step = 32
        if isinstance(rules, PluginDialect) and rules.chunk_step:
            step = max(step, s.mamba_chunk_size)
        return min(round_up(query, step), s.max_num_batched_tokens)

    def _most_context(self, phase: str) -> int:
        s, rules = self.settings, self._rules
        if not isinstance(rules, PluginDialect) or rules.context_cap == "pool":
            return s.num_blocks
        if rules.context_cap == "length" and phase == PROMPT:
            return -(-(s.max_model_len - 1) // s.block_size)
        return self._deepest or s.num_blocks

    def _padded_sides(self, rules: PairDialect, phase: str, want: Bucket) -> Bucket:
        s = self.settings
        length = want.query if phase == PROMPT else want.context
        if s.strategy == "exp":
            listed = self.buckets[phase]
            batch = _least((b.batch for b in listed), want.batch)
            sides = (b.query if phase == PROMPT else b.context for b in listed)
            length = _least(sides, length)
        else:
            first, second = axes(s, rules, phase)
            batch = _side(rules, first, want.batch)
            length = _side(rules, second, length)
        if phase == PROMPT:
            return Bucket(batch, length, 0)
        if rules.ends_with_pool:
            length = min(length, s.num_blocks)
        return Bucket(batch, 1, length)


def round_up(value: int, step: int) -> int:
    """Round up to a multiple of ``step`` times the cube root of the value, rounded up."""
    if value <= 1:
        return value
    root = math.ceil(math.pow(value, 1 / 3))
    multiple = root * step
    return -(-value // multiple) * multiple


def _least(sides: Iterable[int], value: int) -> int:
    """Return the least listed side that holds a value, else the value itself."""
    return min((side for side in sides if side >= value), default=value)


def _side(rules: PairDialect, axis: Sequence[int], value: int) -> int:
    """Pad one side of a shape as fork-1.18 to fork-1.21 do, without an upper end."""
    least, step, _ = axis
    if rules.axis_rule != "either above" and value <= least:
        return least
    stepped = -(-value // step) * step
    if rules.axis_rule == "ramp":
        doubled = least
        while doubled < value:
            doubled *= 2
        return doubled if doubled <= step else stepped
    doubled = least << math.ceil(math.log2(max(1, value)))
    return max(least, min(stepped, doubled))


def _slices(env: Mapping[str, str]) -> tuple[float, int]:
    """Return from which query on attention works on slices, and the tokens of a slice."""
    if env.get("PT_HPU_SDPA_QKV_SLICE_MODE_FWD", "").lower() not in _TRUE:
        return math.inf, 1
    piece = int(env.get("PT_HPU_SDPA_BC_FACTOR", "1024"))
    return int(env.get("VLLM_FUSEDSDPA_SLIDE_THLD", "8192")), max(1, piece)


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
