"""Studies and their trials in SQLite: durable before effect.

Each step of a trial is one transaction, written before the step is taken: a trial is
``planned`` before its server is touched, ``running`` before it starts, and it gets its
outcome in one write.  So a study that was killed at any moment tells exactly what was
going on.

How the file is opened, kept private and migrated stands in ``store.database``.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from hpuwatch.errors import StudyBroken
from hpuwatch.store.database import Database, Words
from hpuwatch.tune.study import Study
from hpuwatch.tune.trial import LoadPlan, Outcome, Trial, TrialState

FILE_NAME = "study.sqlite"

MIGRATIONS: tuple[str, ...] = (
    """
    CREATE TABLE studies (
        id INTEGER PRIMARY KEY,
        created_at REAL NOT NULL,
        fingerprint TEXT NOT NULL,
        command TEXT NOT NULL,
        knobs TEXT NOT NULL,
        seed INTEGER NOT NULL,
        trials INTEGER NOT NULL,
        load TEXT NOT NULL,
        url TEXT NOT NULL,
        ended_at REAL
    );
    CREATE TABLE trials (
        study INTEGER NOT NULL REFERENCES studies (id),
        number INTEGER NOT NULL,
        settings TEXT NOT NULL,
        origin TEXT NOT NULL,
        state TEXT NOT NULL,
        planned_at REAL NOT NULL,
        started_at REAL,
        ended_at REAL,
        outcome TEXT,
        PRIMARY KEY (study, number)
    );
    """,
    """
    ALTER TABLE studies ADD COLUMN reason TEXT NOT NULL DEFAULT '';
    ALTER TABLE studies ADD COLUMN parts TEXT NOT NULL DEFAULT '{}';
    """,
)

_OUTCOME = TypeAdapter(Outcome)
_LOAD = TypeAdapter(LoadPlan)
_STUDY_JSON, _TRIAL_JSON = (
    ("command", "knobs", "load", "parts"),
    ("settings", "outcome"),
)
_STUDY = TypeAdapter(Study)
_TRIAL = TypeAdapter(Trial)

_WORDS = Words("a study", "go on with --resume", StudyBroken)


class StudyStore(Database):
    """The studies of one instance.

    Attributes:
        path: the SQLite file; it is made where there is none.
    """

    def __init__(
        self,
        path: Path,
        migrations: Sequence[str] = MIGRATIONS,
        *,
        read_only: bool = False,
    ) -> None:
        """Open the file and bring its schema up to date.

        A reader (``read_only``) changes nothing.  An empty file holds no study.

        Raises:
            StudyBroken: it is no study, or one of a newer hpuwatch.
            BusyError: somebody else works on it.
            ResourceError: it can't be read or written.
        """
        super().__init__(path, migrations, _WORDS, read_only=read_only)

    def create(self, study: Study) -> Study:
        """Store a new study and return it with its id."""
        with self._transaction() as db:
            db.execute(
                "INSERT INTO studies (created_at, fingerprint, command, knobs, seed, "
                "trials, load, url, parts) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    study.created_at,
                    study.fingerprint,
                    json.dumps(study.command),
                    json.dumps(study.knobs),
                    study.seed,
                    study.trials,
                    _LOAD.dump_json(study.load).decode(),
                    study.url,
                    json.dumps(dict(study.parts)),
                ),
            )
            number = db.execute("SELECT last_insert_rowid()").fetchone()[0]
        return self.study(number)

    def extend(self, study: int, trials: int) -> None:
        """Allow a study more (or fewer) trials, and take it up again."""
        with self._transaction() as db:
            db.execute(
                "UPDATE studies SET trials = ?, ended_at = NULL, reason = '' "
                "WHERE id = ?",
                (trials, study),
            )

    def end(self, study: int, at: float | None, reason: str = "") -> None:
        """Note why a study has come to its end, or (``at`` None) was interrupted."""
        with self._transaction() as db:
            db.execute(
                "UPDATE studies SET ended_at = ?, reason = ? WHERE id = ?",
                (at, reason, study),
            )

    def studies(self) -> list[Study]:
        """Return all studies, oldest first."""
        rows = self._rows("SELECT * FROM studies ORDER BY id")
        return [self._study(row) for row in rows]

    def study(self, study: int) -> Study:
        """Return one study.

        Raises:
            StudyBroken: there is none of that number.
        """
        rows = self._rows("SELECT * FROM studies WHERE id = ?", study)
        if not rows:
            raise StudyBroken(
                f"{self.path} holds no study {study}: hpuwatch study list"
            )
        return self._study(rows[0])

    def trials(self, study: int) -> list[Trial]:
        """Return the trials of a study in order."""
        rows = self._rows("SELECT * FROM trials WHERE study = ? ORDER BY number", study)
        return [self._trial(row) for row in rows]

    def plan(self, study: int, trial: Trial) -> None:
        """Store a trial before anything is done for it."""
        with self._transaction() as db:
            db.execute(
                "INSERT INTO trials (study, number, settings, origin, state, planned_at) "
                "VALUES (?, ?, ?, ?, ?, ?)",
                (
                    study,
                    trial.number,
                    json.dumps(dict(trial.settings)),
                    trial.origin,
                    TrialState.PLANNED.value,
                    trial.planned_at,
                ),
            )

    def start(self, study: int, number: int, at: float) -> None:
        """Note that a trial's server is about to be started."""
        self._step(
            study,
            number,
            "state = ?, started_at = ?",
            (TrialState.RUNNING.value, at),
        )

    def finish(self, study: int, number: int, outcome: Outcome, at: float) -> None:
        """Store a trial's outcome."""
        self._step(
            study,
            number,
            "state = ?, ended_at = ?, outcome = ?",
            (outcome.state.value, at, _OUTCOME.dump_json(outcome).decode()),
        )

    def _step(
        self, study: int, number: int, change: str, values: tuple[Any, ...]
    ) -> None:
        with self._transaction() as db:
            done = db.execute(
                f"UPDATE trials SET {change} WHERE study = ? AND number = ?",  # noqa: S608  our own words
                (*values, study, number),
            )
            if done.rowcount != 1:
                raise StudyBroken(f"{self.path}: study {study} has no trial {number}")

    def _study(self, row: sqlite3.Row) -> Study:
        with self._readable(f"study {row['id']}"):
            stored = {key: json.loads(row[key]) for key in _STUDY_JSON}
            return _STUDY.validate_python({**dict(row), **stored})

    def _trial(self, row: sqlite3.Row) -> Trial:
        with self._readable(f"trial {row['number']} of study {row['study']}"):
            stored = {key: json.loads(row[key] or "null") for key in _TRIAL_JSON}
            return _TRIAL.validate_python({**dict(row), **stored})
