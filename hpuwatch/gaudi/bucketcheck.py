"""What a release makes of a bucket file, before a start is spent on finding out.

Some lines stop the server, some buckets are dropped without a word, some are never used;
and shapes that the file leaves out compile while somebody waits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from hpuwatch.gaudi import plugin
from hpuwatch.gaudi.bucketlines import FileLine, file_lines
from hpuwatch.gaudi.buckets import generate
from hpuwatch.gaudi.coverage import Hole, holes
from hpuwatch.gaudi.dialects import dialect_of
from hpuwatch.gaudi.filestrategy import phase_of
from hpuwatch.gaudi.grammar import Dialect, PluginDialect
from hpuwatch.gaudi.lookup import prepare
from hpuwatch.gaudi.model import (
    DECODE,
    PROMPT,
    Bucket,
    BucketError,
    BucketSettings,
    end_of,
)
from hpuwatch.gaudi.releases import NEWEST
from hpuwatch.gaudi.severity import Severity

_SHOWN = 3  # buckets of a line that are named


@dataclass(frozen=True, slots=True)
class FileRemark:
    """One thing to know about a bucket file.

    Attributes:
        severity: ``error``: the server does not start; ``warning``: it works otherwise
            than the file says, or shapes are left out; ``info``: no harm.
        line: where in the file, None for the file as a whole.
        text: one sentence.
    """

    severity: Severity
    line: int | None
    text: str


@dataclass(frozen=True, slots=True)
class FileCheck:
    """What was found.

    The counts are what the server would prepare: 0 where it stops, None where hpuwatch
    can't tell.
    """

    remarks: tuple[FileRemark, ...]
    holes: tuple[Hole, ...] = ()
    prompt: int | None = 0
    decode: int | None = 0

    @property
    def starts(self) -> bool:
        """Whether the server survives the file, as far as hpuwatch can tell."""
        return all(remark.severity != "error" for remark in self.remarks)


def check_file(settings: BucketSettings) -> FileCheck:
    """Return what the settings' dialect makes of their bucket file."""
    dialect = dialect_of(settings.dialect)
    if not isinstance(dialect, PluginDialect):
        return FileCheck((_passed_over(dialect),))
    lines = tuple(file_lines(settings.bucket_file or "", dialect))
    remarks = [*_of_lines(lines), *_of_buckets(settings, dialect, lines)]
    if found := _without_counts(lines, remarks):
        return found
    refused = [
        each for each in map(partial(_refused, settings), (PROMPT, DECODE)) if each
    ]
    if refused:
        return FileCheck(_sorted([*remarks, *refused]))
    made = prepare(settings)
    remarks += _of_pairs(settings, made.decode)
    left_open = holes(made)
    remarks += [FileRemark("warning", None, _open(hole)) for hole in left_open]
    return FileCheck(_sorted(remarks), left_open, len(made.prompt), len(made.decode))


def check_lines(text: str, dialect_name: str) -> FileCheck:
    """Return what can be said of a bucket file where the server's sizes aren't known.

    The counts are those of the file, before any filter.
    """
    dialect = dialect_of(dialect_name)
    if not isinstance(dialect, PluginDialect):
        return FileCheck((_passed_over(dialect),))
    lines = tuple(file_lines(text, dialect))
    remarks = [*_of_lines(lines)]
    if found := _without_counts(lines, remarks):
        return found
    named = {bucket for line in lines for bucket in line.buckets}
    counts = [sum(phase_of(b) == phase for b in named) for phase in (PROMPT, DECODE)]
    for phase, count in zip((PROMPT, DECODE), counts, strict=True):
        if not count:
            told = f"No line names a bucket for {phase}: the server does not start."
            remarks.append(FileRemark("error", None, told))
    if any(remark.severity == "error" for remark in remarks):
        return FileCheck(_sorted(remarks))
    told = "Filters and holes hang on the server's sizes: give them, or its log."
    remarks.append(FileRemark("info", None, told))
    return FileCheck(_sorted(remarks), (), *counts)


def _without_counts(
    lines: Sequence[FileLine], remarks: Sequence[FileRemark]
) -> FileCheck | None:
    """Return the check of a file that has no counts, None of one that may have some."""
    fates = {line.fate for line in lines}
    if "stops" in fates:
        return FileCheck(_sorted(remarks))
    return FileCheck(_sorted(remarks), (), None, None) if "unknown" in fates else None


def _passed_over(dialect: Dialect) -> FileRemark:
    told = (
        f"{dialect.name} takes no buckets from a file, and passes over "
        f"VLLM_BUCKETING_FROM_FILE; {NEWEST} reads one."
    )
    return FileRemark("warning", None, told)


def _refused(settings: BucketSettings, phase: str) -> FileRemark | None:
    try:
        generate(settings, phase)
    except BucketError as error:
        return FileRemark("error", None, f"{error} The server {error.end}.")
    return None


def _sorted(remarks: Sequence[FileRemark]) -> tuple[FileRemark, ...]:
    last = max((remark.line or 0 for remark in remarks), default=0) + 1
    return tuple(sorted(remarks, key=lambda remark: remark.line or last))


def _of_lines(lines: Sequence[FileLine]) -> Iterator[FileRemark]:
    """See what is wrong with lines under any sizes."""
    first: dict[Bucket, int] = {}
    for line in lines:
        phases = {phase_of(bucket) for bucket in line.buckets}
        if line.fate == "stops":
            text = f"The line {line.why}: the server {end_of(line.raised)}."
            yield FileRemark("error", line.number, text)
        elif line.fate == "unknown":
            text = f"The line {line.why}; the server may start with it or not."
            yield FileRemark("warning", line.number, text)
        elif line.fate == "skipped":
            text = f"The line {line.why}: passed over."
            yield FileRemark("warning", line.number, text)
        elif not phases:
            yield FileRemark("warning", line.number, "A range is empty: no bucket.")
        elif len(phases) > 1:
            text = "A query of 1 makes decode buckets: the line names both phases."
            yield FileRemark("warning", line.number, text)
        if again := [b for b in dict.fromkeys(line.buckets) if b in first]:
            before = f"named by line {first[again[0]]} already"
            yield _told(line, again, before, "info")
        first |= {b: line.number for b in line.buckets if b not in first}


def _of_buckets(
    s: BucketSettings, d: PluginDialect, lines: Sequence[FileLine]
) -> Iterator[FileRemark]:
    """See buckets that are dropped, changed or never used under these sizes."""
    dropped = "dropped, with a warning" if d.file_warns else "dropped without a word"
    in_decode = s.for_decode
    for line in lines:
        prompts = [b for b in line.buckets if phase_of(b) == PROMPT]
        decodes = [b for b in line.buckets if phase_of(b) == DECODE]
        if lost := [b for b in prompts if not plugin.prompt_fits(s, d, b)]:
            yield _told(line, lost, f"{dropped}: {_prompt_rule(s, d)}")
        kept = [b for b in prompts if plugin.prompt_fits(s, d, b)]
        if idle := [b for b in kept if b.batch > s.max_num_prefill_seqs]:
            most = f"above the prefill batch ({s.max_num_prefill_seqs})"
            how = f"{most}, which VLLM_PROMPT_BS_BUCKET_MAX sets: never used"
            yield _told(line, idle, how)
        if lost := [b for b in decodes if not plugin.decode_fits(in_decode, b)]:
            rule = "a decode bucket needs a block for each of its sequences"
            yield _told(line, lost, f"{dropped}: {rule}")
        kept = [b for b in decodes if plugin.decode_fits(in_decode, b)]
        if cut := [b for b in kept if plugin.capped(in_decode, d, b) != b]:
            most = f"{in_decode.blocks_per_sequence} blocks a sequence"
            how = f"cut at what their sequences can reach, {most}"
            yield _told(line, cut, how, "info")
        if idle := [b for b in kept if b.batch > s.max_num_seqs]:
            yield _told(
                line, idle, f"above max_num_seqs ({s.max_num_seqs}): never used"
            )


def _told(
    line: FileLine, buckets: Sequence[Bucket], what: str, severity: Severity = "warning"
) -> FileRemark:
    named = ", ".join(str(tuple(bucket)) for bucket in buckets[:_SHOWN])
    more = f" and {len(buckets) - _SHOWN} more" if len(buckets) > _SHOWN else ""
    return FileRemark(severity, line.number, f"{named}{more}: {what}.")


def _prompt_rule(s: BucketSettings, d: PluginDialect) -> str:
    length = f"max_model_len ({s.max_model_len})"
    if s.merged_prefill:
        return f"with merged prefill the context must be within {length}"
    budget = f"max_num_batched_tokens ({s.max_num_batched_tokens})"
    if d.sum_filter:
        fits = f"query and context together within {length}"
    else:
        fits = f"query and context each within {length}"
    return f"batch times query must be within {budget}, {fits}"


def _of_pairs(s: BucketSettings, decode: Sequence[Bucket]) -> Iterator[FileRemark]:
    """See batches without a bucket of the whole pool, under contiguous attention.

    The batch then comes from one look-up and the context from another, so that a step may
    pair a batch with the context of a larger one.
    """
    if not s.contiguous_pa:
        return
    deepest = {b.batch: b.context for b in sorted(decode)}
    shallow = [batch for batch, top in deepest.items() if top < s.num_blocks]
    if shallow:
        named = ", ".join(map(str, shallow[:_SHOWN]))
        more = f" and {len(shallow) - _SHOWN} more" if len(shallow) > _SHOWN else ""
        yield FileRemark(
            "warning",
            None,
            f"Batch {named}{more} has no decode bucket of all {s.num_blocks} blocks: with "
            "contiguous attention a step may pair it with the context of a larger batch, "
            "which was not warmed up.",
        )


def _open(hole: Hole) -> str:
    size = "queries" if hole.phase == PROMPT else "batches"
    if hole.above < 0:
        which = f"of {size} {hole.first} to {hole.last}"
    else:
        which = (
            f"of {size} {hole.first} to {hole.last} with {hole.above + 1} to "
            f"{hole.up_to} blocks of context"
        )
    if hole.phase == DECODE:
        which = which.replace(" of context", "")
    return f"A {hole.phase} {which} has no bucket: its graph compiles while the request waits."
