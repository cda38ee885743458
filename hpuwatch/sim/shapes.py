"""Which graph a step runs: traffic's shapes padded to buckets, by the release's own rules.

The rules are those of ``gaudi.lookup``.  Since plugin-0.10 and fork-1.22 a shape that no
bucket covers gets a *fallback* bucket, whose sides are rounded up by the cube-root rule and
which then stays in the list; older releases pad each side by itself and ask no list.  A
bucket can be in the list and yet be cold: the warm-up of a prompt bucket that is longer than
the model allows runs a shorter shape instead, and one of several prompts with context runs
them one by one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from hpuwatch.gaudi import lookup
from hpuwatch.gaudi.buckets import DECODE, PROMPT, Bucket, BucketSettings
from hpuwatch.gaudi.dialects import dialect_of
from hpuwatch.gaudi.grammar import PairDialect, PluginDialect

_CONTEXT_STEP = 32  # of a fallback, times a cube root
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
        self._rules = dialect_of(settings.dialect)
        prompt, decode = tuple(buckets[PROMPT]), tuple(buckets[DECODE])
        deepest = max((bucket.context for bucket in decode), default=0)
        self._lists = lookup.Prepared(settings, prompt, decode, decode, deepest)
        self._found: dict[tuple[str, Bucket], Bucket] = {}

    @property
    def buckets(self) -> Mapping[str, tuple[Bucket, ...]]:
        """The lists by phase, as they are now."""
        return {phase: self._lists.of(phase) for phase in (PROMPT, DECODE)}

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
        if phase == DECODE or not isinstance(self._rules, PluginDialect):
            return bucket
        want = lookup.warmed_as(self.settings, self._rules, bucket)
        return lookup.first_of(self._lists.prompt, want) or bucket

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
        if context < blocks:
            context = self._beyond(context, blocks)
        bucket = Bucket(first.bucket.batch, 1, context)
        return Padded(bucket, first.added + second.added, first.capped + second.capped)

    def padded_tokens(self, batch: int, query: int) -> int:
        """Return the tokens of a prefill of fresh prompts, padding included."""
        want = Bucket(batch, query, 0)
        bucket = lookup.first_of(self._lists.prompt, want) or want
        return bucket.batch * bucket.query

    def _beyond(self, context: int, blocks: int) -> int:
        """Return how far a decode reads that is deeper than the bucket it was given."""
        s, rules = self.settings, self._rules
        if not isinstance(rules, PluginDialect) or not rules.request_capped:
            return context
        if rules.attention_blocks:
            return blocks if s.contiguous_pa else context
        rounded = lookup.fall_back_value(blocks, _CONTEXT_STEP)
        return min(rounded, s.num_blocks) if s.contiguous_pa else rounded

    def _look_up(self, phase: str, want: Bucket) -> Padded:
        """Find a bucket; what no bucket holds gets one that stays."""
        lists = self._lists
        if isinstance(self._rules, PairDialect):
            return Padded(lookup.look_up(lists, phase, want).bucket)
        want = lookup.requested(lists, phase, want)
        known = self._found.get((phase, want)) or lookup.first_of(lists.of(phase), want)
        if known is not None:
            self._found[phase, want] = known
            return Padded(known)
        bucket = lookup.fall_back(lists, phase, want)
        added: tuple[tuple[Bucket, Bucket], ...] = ()
        if bucket not in lists.of(phase):
            self._lists = lookup.with_bucket(lists, phase, bucket)
            self._found.clear()
            added = ((want, bucket),)
        self._found[phase, want] = bucket
        context = lookup.fall_back_value(want.context, _CONTEXT_STEP)
        capped = ((context, bucket.context),) if context > bucket.context else ()
        return Padded(bucket, added, capped)


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
