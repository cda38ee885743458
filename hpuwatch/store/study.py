"""Studies and their trials in SQLite: durable before effect.

Each step of a trial is one transaction, written before the step is taken: a trial is
``planned`` before its server is touched, ``running`` before it starts, and it gets its
outcome in one write.  So a study that was killed at any moment tells exactly what was
going on.

The files are readable by their owner only, since a command line says a lot even masked.

The schema's number is ``user_version``.  Older files are migrated forward, step by step,
after a copy was made beside them; a file of a newer hpuwatch is refused.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from hpuwatch.errors import StudyBroken
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


class StudyStore:
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

        A reader (``read_only``) changes nothing, not even an old schema.

        Raises:
            StudyBroken: it is no study, or one of another hpuwatch.
        """
        self.path = path
        where = f"{path.absolute().as_uri()}?mode={'ro' if read_only else 'rwc'}"
        if not read_only:
            _make_private(path)
        try:
            self._db = sqlite3.connect(where, uri=True, isolation_level=None)
        except sqlite3.Error as error:
            raise self._unusable(error) from error
        try:
            self._db.row_factory = sqlite3.Row
            self._check(len(migrations), read_only=read_only)
            self._migrate(migrations)
        except sqlite3.Error as error:
            self.close()
            raise self._unusable(error) from error
        except StudyBroken:
            self.close()
            raise

    def _unusable(self, error: sqlite3.Error) -> StudyBroken:
        return StudyBroken(
            f"{self.path} can't be used as a study ({error}): move it away to begin anew"
        )

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    @property
    def _version(self) -> int:
        return int(self._db.execute("PRAGMA user_version").fetchone()[0])

    def _check(self, newest: int, *, read_only: bool) -> None:
        version = self._version
        if version > newest:
            raise StudyBroken(
                f"{self.path} was written by a newer hpuwatch (schema {version}, this one "
                f"knows {newest}): use that one, or move the file away"
            )
        if read_only and version < newest:
            raise StudyBroken(
                f"{self.path} has the older schema {version}: hpuwatch tune --resume "
                "brings it up to date"
            )

    def _migrate(self, migrations: Sequence[str]) -> None:
        version = self._version
        if 0 < version < len(migrations):
            beside = self.path.with_name(f"{self.path.name}.v{version}")
            _make_private(beside)
            copy = sqlite3.connect(beside)
            self._db.backup(copy)
            copy.close()
        for number, script in enumerate(migrations[version:], start=version + 1):
            self._db.executescript(
                f"BEGIN IMMEDIATE; {script}; PRAGMA user_version = {number}; COMMIT;"
            )

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield self._db
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")

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
        rows = self._db.execute("SELECT * FROM studies ORDER BY id").fetchall()
        return [self._study(row) for row in rows]

    def study(self, study: int) -> Study:
        """Return one study.

        Raises:
            StudyBroken: there is none of that number.
        """
        row = self._db.execute(
            "SELECT * FROM studies WHERE id = ?", (study,)
        ).fetchone()
        if row is None:
            raise StudyBroken(
                f"{self.path} holds no study {study}: hpuwatch study list"
            )
        return self._study(row)

    def trials(self, study: int) -> list[Trial]:
        """Return the trials of a study in order."""
        rows = self._db.execute(
            "SELECT * FROM trials WHERE study = ? ORDER BY number", (study,)
        ).fetchall()
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
            return Study(
                id=row["id"],
                created_at=row["created_at"],
                fingerprint=row["fingerprint"],
                command=tuple(json.loads(row["command"])),
                knobs=tuple(json.loads(row["knobs"])),
                seed=row["seed"],
                trials=row["trials"],
                load=_LOAD.validate_json(row["load"]),
                url=row["url"],
                ended_at=row["ended_at"],
                reason=row["reason"],
                parts=json.loads(row["parts"]),
            )

    def _trial(self, row: sqlite3.Row) -> Trial:
        with self._readable(f"trial {row['number']} of study {row['study']}"):
            return Trial(
                number=row["number"],
                settings=json.loads(row["settings"]),
                origin=row["origin"],
                state=TrialState(row["state"]),
                planned_at=row["planned_at"],
                started_at=row["started_at"],
                ended_at=row["ended_at"],
                outcome=row["outcome"] and _OUTCOME.validate_json(row["outcome"]),
            )

    @contextmanager
    def _readable(self, what: str) -> Iterator[None]:
        try:
            yield
        except (ValueError, ValidationError) as error:
            raise StudyBroken(
                f"{self.path}: {what} can't be read ({type(error).__name__}): "
                "move the file away to begin anew"
            ) from error


def _make_private(path: Path) -> None:
    """Make a file that only its owner can read; what is there already becomes one.

    What can't be done is told by the opening that follows.
    """
    with suppress(OSError):
        path.touch(mode=0o600)
        path.chmod(0o600)
