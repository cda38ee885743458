"""Two configurations side by side, and a bucket file under a release, as documents."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace

from hpuwatch.app.bucket_sources import Told, read_bucket_file
from hpuwatch.app.buckets import Answer, answer, counts
from hpuwatch.gaudi.bucketcheck import FileCheck, check_file, check_lines
from hpuwatch.gaudi.buckets import DECODE, PROMPT, Bucket
from hpuwatch.gaudi.releases import Release


@dataclass(frozen=True, slots=True)
class Change:
    """What became of one phase, each list sorted."""

    added: tuple[Bucket, ...]
    removed: tuple[Bucket, ...]
    kept: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two answers and what differs, by phase."""

    before: Answer
    after: Answer
    changes: Mapping[str, Change]

    def document(self) -> dict[str, object]:
        """Return it as ``hpuwatch.bucketdiff/1``."""
        return {
            "schema": "hpuwatch.bucketdiff/1",
            "before": counts(self.before),
            "after": counts(self.after),
            **{phase: asdict(change) for phase, change in self.changes.items()},
        }


def compare(before: Told, after: Told) -> Comparison:
    """Return what is added and removed from one configuration to the other.

    Raises:
        ConfigError: one of them would stop the server; says why.
    """
    one, other = answer(before), answer(after)
    changes = {}
    for phase in (PROMPT, DECODE):
        was, now = set(one.prepared.of(phase)), set(other.prepared.of(phase))
        changes[phase] = Change(
            tuple(sorted(now - was)), tuple(sorted(was - now)), len(was & now)
        )
    return Comparison(one, other, changes)


@dataclass(frozen=True, slots=True)
class Checked:
    """A bucket file, under a release."""

    path: str
    release: Release
    check: FileCheck

    def document(self) -> dict[str, object]:
        """Return it as ``hpuwatch.bucketcheck/1``."""
        return {
            "schema": "hpuwatch.bucketcheck/1",
            "file": self.path,
            "release": self.release.name,
            "dialect": self.release.dialect,
            "assumed_like": self.release.assumed_like,
            "starts": self.check.starts,
            "prompt": self.check.prompt,
            "decode": self.check.decode,
            "remarks": [asdict(remark) for remark in self.check.remarks],
            "holes": [asdict(hole) for hole in self.check.holes],
        }


def check_path(path: str, told: Told) -> Checked:
    """Return what the release makes of a bucket file; without sizes, only of its lines.

    Raises:
        MissingFileError: it can't be read.
        ConfigError: the server would stop at another setting; says which.
    """
    text, plan = read_bucket_file(path), told.plan
    if not told.sized:
        return Checked(path, plan.release, check_lines(text, plan.release.dialect))
    flags = replace(plan.flags, bucket_file=text)
    settings = replace(plan, flags=flags).shapes(told.blocks())
    return Checked(path, plan.release, check_file(settings))
