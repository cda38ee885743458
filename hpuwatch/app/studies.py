"""Reading the studies that ``tune`` stored; nothing here changes one."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from hpuwatch.errors import MissingFileError
from hpuwatch.store.study import FILE_NAME, StudyStore
from hpuwatch.tune.objective import Doubt, Verdict, judge
from hpuwatch.tune.report import is_simulated
from hpuwatch.tune.study import Study
from hpuwatch.tune.trial import Trial

_COLUMNS = (
    "number",
    "origin",
    "state",
    "settings",
    "tokens_per_second",
    "plus_minus",
    "spread",
    "errors",
    "preemptions",
    "bucket_misses",
    "reserve_ratio",
    "kv_blocks",
    "warmup_seconds",
    "ready_seconds",
    "simulated",
    "cause",
)


@dataclass(frozen=True, slots=True)
class StoredStudy:
    """A study, its trials, and the name that it was made under."""

    name: str
    study: Study
    trials: tuple[Trial, ...]

    @property
    def verdict(self) -> Verdict | None:
        """Return how the best trial compares with the baseline."""
        return judge(self.trials)


class VerdictDocument(BaseModel):
    """The outcome of a study."""

    model_config = ConfigDict(frozen=True)

    best: int
    gain: float
    within_noise: bool
    doubt: Doubt | None = None
    doubted: int | None = None


class StudyDocument(BaseModel):
    """The document ``hpuwatch.study/1``."""

    model_config = ConfigDict(frozen=True, populate_by_name=True)

    schema_: str = Field("hpuwatch.study/1", alias="schema")
    name: str
    origin: str
    study: Study
    trials: tuple[Trial, ...]
    verdict: VerdictDocument | None


def all_studies(root: Path, name: str | None = None) -> list[StoredStudy]:
    """Return the stored studies of one name or of all, oldest first within a name.

    Raises:
        StudyBroken: a file can't be read.
    """
    found: list[StoredStudy] = []
    for path in sorted(root.glob(f"{name or '*'}/{FILE_NAME}")):
        with _opened(path) as store:
            found += [
                StoredStudy(path.parent.name, study, tuple(store.trials(study.id)))
                for study in store.studies()
            ]
    return found


def one_study(root: Path, name: str, number: int | None) -> StoredStudy:
    """Return a study of a name; the newest one where no number is given.

    Raises:
        MissingFileError: there is none.
        StudyBroken: the file can't be read.
    """
    found = all_studies(root, name)
    chosen = [one for one in found if number in (None, one.study.id)]
    if not chosen:
        which = "no study" if number is None else f"no study {number}"
        raise MissingFileError(
            f"there is {which} under the name {name!r}: hpuwatch study list"
        )
    return chosen[-1]


@contextmanager
def _opened(path: Path) -> Iterator[StudyStore]:
    store = StudyStore(path, read_only=True)
    try:
        yield store
    finally:
        store.close()


def document_of(stored: StoredStudy) -> StudyDocument:
    """Return a study as ``hpuwatch.study/1``."""
    verdict = stored.verdict
    return StudyDocument(
        name=stored.name,
        origin=_origin(stored),
        study=replace(stored.study, parts={}),
        trials=stored.trials,
        verdict=verdict
        and VerdictDocument(
            best=verdict.best.number,
            gain=verdict.gain,
            within_noise=verdict.within_noise,
            doubt=verdict.doubt,
            doubted=verdict.doubted and verdict.doubted.number,
        ),
    )


class TrialDocument(BaseModel):
    """A line of ``hpuwatch.trial/1``."""

    model_config = ConfigDict(frozen=True, populate_by_name=True)

    schema_: str = Field("hpuwatch.trial/1", alias="schema")
    name: str
    study: int
    origin: str
    trial: Trial
    tokens_per_second: float | None
    plus_minus: float | None


def trial_lines(stored: StoredStudy) -> str:
    """Return a study's trials as ``hpuwatch.trial/1``, one JSON object a line."""
    return "".join(
        TrialDocument(
            name=stored.name,
            study=stored.study.id,
            origin=_origin(stored),
            trial=trial,
            tokens_per_second=found and found.tokens_per_second,
            plus_minus=found and found.spread / 2,
        ).model_dump_json(by_alias=True)
        + "\n"
        for trial, found in ((trial, trial.measurement) for trial in stored.trials)
    )


def _origin(stored: StoredStudy) -> str:
    return "simulated" if is_simulated(stored.trials) else "measured"


def csv_of(stored: StoredStudy) -> str:
    """Return a study's trials as CSV, one row each."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(_COLUMNS)
    for trial in stored.trials:
        writer.writerow(_row(trial))
    return out.getvalue()


def _row(trial: Trial) -> Sequence[object]:
    found, facts, outcome = trial.measurement, trial.facts, trial.outcome
    return (
        trial.number,
        trial.origin,
        trial.state.value,
        " ".join(f"{name}={value}" for name, value in trial.settings.items()),
        found and round(found.tokens_per_second, 3),
        found and round(found.spread / 2, 3),
        found and round(found.spread, 3),
        found and found.errors,
        found and found.preemptions,
        found and found.bucket_misses,
        facts.reserve_ratio,
        facts.kv_blocks,
        facts.warmup_seconds,
        outcome and outcome.ready_seconds and round(outcome.ready_seconds, 3),
        facts.simulated,
        outcome.cause if outcome else "",
    )
