"""Buckets from a file: the strategy ``file``.

``gaudi.bucketlines`` reads the lines.  A query of 1 makes decode buckets, anything else
prompt buckets.  The filters of the other strategies apply too; their ranges don't.
"""

from __future__ import annotations

from collections.abc import Iterable

from hpuwatch.gaudi import plugin
from hpuwatch.gaudi.bucketlines import file_lines
from hpuwatch.gaudi.grammar import PluginDialect
from hpuwatch.gaudi.model import DECODE, PROMPT, Bucket, BucketError, BucketSettings
from hpuwatch.gaudi.ranges import check_size


def file_buckets(s: BucketSettings, d: PluginDialect, phase: str) -> list[Bucket]:
    """Return the buckets of ``phase`` that the bucket file names, filtered and sorted.

    Raises:
        BucketError: a line stops the server, or nothing is left for the phase.
    """
    wanted = [b for b in read_file(s.bucket_file or "", d) if phase_of(b) == phase]
    if not wanted and d.long_context:
        # The long-context rule looks for the largest context of an empty list.
        raise BucketError(
            f"The bucket file has no line for {phase}; add one, such as "
            f"{'(1, 128, 0)' if phase == PROMPT else '(1, 1, 128)'}.",
            words="max() arg is an empty sequence",
        )
    if phase == PROMPT:
        return plugin.finished_prompts(s, d, wanted)
    return plugin.finished_decodes(s, d, wanted)


def phase_of(bucket: Bucket) -> str:
    """Return the phase that a bucket of a file belongs to."""
    return DECODE if bucket.query == 1 else PROMPT


def read_file(text: str, d: PluginDialect) -> list[Bucket]:
    """Return every bucket that the file names, in its order.

    Raises:
        BucketError: a line stops the server, or hpuwatch can't tell what becomes of it;
            says which and why.
    """
    buckets: list[Bucket] = []
    open_end: BucketError | None = None
    for line in file_lines(text, d):
        told = f"Line {line.number} of the bucket file ({line.text}) {line.why}."
        if line.fate == "stops":
            raise BucketError(told, line.raised, line.words)
        if line.fate == "unknown" and open_end is None:
            open_end = BucketError(told, line.raised)
        buckets += line.buckets
        check_size(len(buckets))
    if open_end is not None:
        raise open_end
    return buckets


def as_file(*lists: Iterable[Bucket]) -> str:
    """Return lists as the text of a bucket file, which gives them again."""
    return "\n".join(str(tuple(each)) for listed in lists for each in listed)
