"""The answers of ``hpuwatch buckets``: what a configuration warms up, and what a shape finds.

Everything is computed by ``hpuwatch.gaudi``, of what ``app.bucket_sources`` has read; here
the answer becomes a document (``hpuwatch.buckets/1``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hpuwatch.app.bucket_sources import SCHEMA, Told, with_file
from hpuwatch.errors import UsageError
from hpuwatch.gaudi.buckets import DECODE, PROMPT, Bucket, BucketSettings, generate
from hpuwatch.gaudi.caution import UNBUCKETED, UNWARMED, cold, vain
from hpuwatch.gaudi.coverage import left_blocks, own_blocks
from hpuwatch.gaudi.dialects import dialect_of
from hpuwatch.gaudi.fingerprint import fingerprint
from hpuwatch.gaudi.grammar import PairDialect
from hpuwatch.gaudi.lookup import (
    Prepared,
    decode_shape,
    look_up,
    prepare,
    warmed_prompts,
)
from hpuwatch.gaudi.predict import buckets_on
from hpuwatch.gaudi.refusal import bad_values
from hpuwatch.gaudi.releases import Release
from hpuwatch.gaudi.resolve import Flags
from hpuwatch.gaudi.warmuptime import skips_warmup


@dataclass(frozen=True, slots=True)
class Answer:
    """What a configuration makes.

    Attributes:
        warmed: prompt shapes that warm-up really compiles; none when it is skipped.
        printed: the phases whose list was printed; the others are by the rules.
        notes: what an operator should know, a sentence each.
    """

    release: Release
    prepared: Prepared
    warmed: frozenset[Bucket]
    printed: frozenset[str]
    notes: tuple[str, ...]

    @property
    def settings(self) -> BucketSettings:
        """What decided the lists."""
        return self.prepared.settings

    def origin(self, phase: str) -> str:
        """Return where a list is from: ``printed`` or ``predicted``."""
        return "printed" if phase in self.printed else "predicted"


def answer(told: Told) -> Answer:
    """Return what the configuration makes; printed lists beat the rules.

    Raises:
        UsageError: the length or the KV blocks are not known.
        ConfigError: the release is unknown, or the server would stop; says why.
        MissingFileError: the bucket file can't be read.
    """
    plan, blocks = told.plan, told.blocks()
    if set(told.lists) != {PROMPT, DECODE}:
        plan = with_file(plan)
    settings = plan.shapes(blocks)
    prepared = _prepared(settings, told.lists)
    warmed = frozenset(() if skips_warmup(settings) else warmed_prompts(prepared))
    ends = (remark.text for remark in bad_values(plan))
    notes = (*told.notes, *ends, *_notes(plan.release, plan.flags, prepared, warmed))
    return Answer(plan.release, prepared, warmed, frozenset(told.lists), notes)


def _prepared(
    settings: BucketSettings, lists: Mapping[str, tuple[Bucket, ...]]
) -> Prepared:
    if not lists:
        return prepare(settings)
    prompt = lists.get(PROMPT) or generate(settings, PROMPT)
    decode = lists.get(DECODE) or generate(settings, DECODE)
    # The list before speculation is never printed; where there is none, it is this one.
    deepest = max((bucket.context for bucket in decode), default=0)
    return Prepared(settings, prompt, decode, decode, deepest)


def _notes(
    release: Release, flags: Flags, prepared: Prepared, warmed: frozenset[Bucket]
) -> list[str]:
    settings = prepared.settings
    left_cold = len(set(prepared.prompt) - warmed) if warmed else 0
    clauses = (
        release.assumption,
        vain(settings),
        None if buckets_on(settings) else UNBUCKETED,
        UNWARMED if skips_warmup(settings) else None,
        cold(settings, left_cold),
    )
    notes = [clause for clause in clauses if clause]
    dialect = dialect_of(settings.dialect)
    if dialect.paged_rule == "caching" and flags.prefix_caching is None:
        with_or_without = "with" if settings.prefix_caching else "without"
        notes.append(
            f"taken {with_or_without} prefix caching, which decides here; say "
            "--enable-prefix-caching or --no-enable-prefix-caching to be sure"
        )
    if flags.max_num_prefill_seqs is not None and dialect.prefill_rule != "flag":
        notes.append(
            f"{release.name} has no --max-num-prefill-seqs; the batch of a prefill is "
            f"{settings.max_num_prefill_seqs}"
        )
    return notes


def counts(found: Answer) -> dict[str, object]:
    """Return the document of ``count``."""
    settings = found.settings
    return {
        "schema": SCHEMA,
        "release": found.release.name,
        "dialect": settings.dialect,
        "assumed_like": found.release.assumed_like,
        "strategy": settings.strategy,
        "contiguous_pa": settings.contiguous_pa,
        "prefix_caching": _caching_that_decides(settings),
        "max_num_seqs": settings.max_num_seqs,
        "max_num_prefill_seqs": settings.max_num_prefill_seqs,
        "max_num_batched_tokens": settings.max_num_batched_tokens,
        "max_model_len": settings.max_model_len,
        "block_size": settings.block_size,
        "num_blocks": settings.num_blocks,
        "prompt": len(found.prepared.prompt),
        "decode": len(found.prepared.decode),
        "origin": {phase: found.origin(phase) for phase in (PROMPT, DECODE)},
        "prompt_shapes_warmed": len(found.warmed),
        "prompt_sha256": fingerprint(found.prepared.prompt),
        "decode_sha256": fingerprint(found.prepared.decode),
        "notes": list(found.notes),
    }


def _caching_that_decides(settings: BucketSettings) -> bool | None:
    """Return whether prefixes are cached, or None where it doesn't touch the buckets."""
    rule = dialect_of(settings.dialect).paged_rule
    return settings.prefix_caching if rule in {"caching", "literal"} else None


def lists(found: Answer) -> dict[str, object]:
    """Return the document of ``list``: the counts and the buckets themselves."""
    buckets = {phase: found.prepared.of(phase) for phase in (PROMPT, DECODE)}
    return {**counts(found), "buckets": buckets}


def holds(bucket: Bucket, shape: Bucket) -> bool:
    """Tell whether a bucket is at least as large as a shape on each axis."""
    return all(has >= wants for has, wants in zip(bucket, shape, strict=True))


def padding(phase: str, shape: Bucket, bucket: Bucket) -> float | None:
    """Return the share of a shape's bucket that holds nothing: rows times blocks or tokens.

    None where the bucket doesn't hold the shape.
    """
    if not holds(bucket, shape):
        return None
    if phase == DECODE:
        wide, used = bucket.context, shape.context
    else:
        wide, used = bucket.batch * bucket.query, shape.batch * shape.query
    return max(0.0, 1 - used / wide) if wide else 0.0


@dataclass(frozen=True, slots=True)
class Explained:
    """What becomes of one shape.

    Attributes:
        prepared: the bucket stands in warm-up's list.
        warm: … and warm-up has compiled it.
        exceeds: the limits of the server that the shape is above, with their values; no
            step of such a shape comes, and the bucket may be smaller than it.
    """

    phase: str
    wanted: Bucket
    bucket: Bucket
    prepared: bool
    warm: bool
    exceeds: Mapping[str, int]

    @property
    def holds(self) -> bool:
        """Whether the bucket is at least as large as the shape on each axis."""
        return holds(self.bucket, self.wanted)

    @property
    def padding(self) -> float | None:
        """The share of the bucket that holds nothing, see :func:`padding`."""
        return padding(self.phase, self.wanted, self.bucket)

    def document(self) -> dict[str, object]:
        """Return it as the value of ``shape`` in the document of ``explain``."""
        return {
            "phase": self.phase,
            "wanted": self.wanted,
            "bucket": self.bucket,
            "prepared": self.prepared,
            "warm": self.warm,
            "holds": self.holds,
            "exceeds": dict(self.exceeds),
            "padding": None if self.padding is None else round(self.padding, 4),
        }


def read_shape(text: str) -> tuple[str, Bucket]:
    """Read ``[prompt:|decode:]BATCH,QUERY,CONTEXT``; a query of 1 means decode.

    Raises:
        UsageError: it is something else.
    """
    phase, sign, numbers = text.rpartition(":")
    parts = numbers.strip("() ").split(",")
    if phase not in {"", PROMPT, DECODE} or len(parts) != 3 or (sign and not phase):
        raise UsageError(_not_a_shape(text))
    try:
        shape = Bucket(*(int(part) for part in parts))
    except ValueError:
        raise UsageError(_not_a_shape(text)) from None
    if min(shape) < 0 or shape.batch < 1 or shape.query < 1:
        raise UsageError(_not_a_shape(text))
    return phase or (DECODE if shape.query == 1 else PROMPT), shape


def _not_a_shape(text: str) -> str:
    return (
        f"{text!r} is not a shape like 1,300,2 or decode:8,1,100 "
        "(batch, new tokens of each sequence, blocks of context)"
    )


def explain(found: Answer, phase: str, wanted: Bucket) -> Explained:
    """Return what becomes of a shape."""
    prepared = found.prepared
    if isinstance(dialect_of(found.settings.dialect), PairDialect):
        wanted = _without_third(phase, wanted)
    if phase == DECODE:
        bucket = decode_shape(prepared, wanted.batch, wanted.context)
        listed = bucket in prepared.decode
        warm = listed and not skips_warmup(found.settings)
    else:
        result = look_up(prepared, phase, wanted)
        bucket, listed = result.bucket, result.prepared
        warm = bucket in found.warmed
    limits = _exceeded(found.settings, phase, wanted, bucket)
    return Explained(phase, wanted, bucket, listed, warm, limits)


def _exceeded(
    settings: BucketSettings, phase: str, wanted: Bucket, bucket: Bucket
) -> dict[str, int]:
    """Return the limits that a shape is above.

    A decode's blocks may be more than there are, since sequences share them: the pool is a
    limit only where the bucket ends at it.  Contiguous attention counts up to the last
    block in use, whoever has those before it.
    """
    if phase == DECODE:
        own = own_blocks(settings, wanted.batch)
        too_long = not settings.contiguous_pa and wanted.context > own
    else:
        too_long = (
            wanted.query > settings.max_model_len
            or wanted.context > left_blocks(settings, wanted.query)
        )
    beyond = {
        "max_num_seqs": wanted.batch > settings.max_num_seqs,
        "max_num_batched_tokens": wanted.query > settings.max_num_batched_tokens,
        "max_model_len": too_long,
        "num_blocks": wanted.context > bucket.context and not too_long,
    }
    return {name: getattr(settings, name) for name, is_so in beyond.items() if is_so}


def _without_third(phase: str, wanted: Bucket) -> Bucket:
    """Drop what a release with two numbers doesn't look at."""
    if phase == PROMPT:
        return wanted._replace(context=0)
    return wanted._replace(query=1)
