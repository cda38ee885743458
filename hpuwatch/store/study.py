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

from pydantic import TypeAdapter

from hpuwatch.errors import (
    BusyError,
    HpuwatchError,
    ResourceError,
    StudyBroken,
)
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

_TROUBLES: tuple[tuple[str, type[HpuwatchError], str], ...] = (
    ("locked", BusyError, "somebody else works on it: wait for its end"),
    ("full", ResourceError, "free some room there, then go on with --resume"),
    ("I/O error", ResourceError, "see to its disk, then go on with --resume"),
    ("readonly", ResourceError, "allow writing it, or choose another --state-dir"),
    ("unable to open", ResourceError, "choose another --state-dir"),
)
"""What SQLite says where nothing is wrong with the study itself, and what helps.

Its error codes would be surer, but Python 3.10 doesn't tell them.
"""


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

        A reader (``read_only``) changes nothing: of an old schema it reads a copy in
        memory.  An empty file holds no study.

        Raises:
            StudyBroken: it is no study, or one of a newer hpuwatch.
            BusyError: somebody else works on it.
            ResourceError: it can't be read or written.
        """
        self.path = path
        where = f"{path.absolute().as_uri()}?mode={'ro' if read_only else 'rwc'}"
        if not read_only:
            _make_private(path)
        with self._told():
            self._db = sqlite3.connect(where, uri=True, isolation_level=None)
        try:
            with self._told():
                self._db.row_factory = sqlite3.Row
                self._check(len(migrations))
                if read_only:
                    self._leave_alone(len(migrations))
                self._migrate(migrations)
        except HpuwatchError:
            self.close()
            raise

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Turn what SQLite says into a sentence; a broken rule is a fault of ours."""
        try:
            yield
        except sqlite3.IntegrityError:
            raise
        except sqlite3.Error as error:
            for words, kind, remedy in _TROUBLES:
                if words in str(error):
                    raise kind(
                        f"{self.path} can't be used just now ({error}): {remedy}"
                    ) from error
            raise StudyBroken(
                f"{self.path} can't be used as a study ({error}): move it away to begin "
                "anew"
            ) from error

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    @property
    def _version(self) -> int:
        return int(self._db.execute("PRAGMA user_version").fetchone()[0])

    def _check(self, newest: int) -> None:
        version = self._version
        if version > newest:
            raise StudyBroken(
                f"{self.path} was written by a newer hpuwatch (schema {version}, this one "
                f"knows {newest}): use that one, or move the file away"
            )

    def _leave_alone(self, newest: int) -> None:
        """Go on with a copy in memory, where the file would have to be migrated."""
        if self._version < newest:
            copy = sqlite3.connect(":memory:", isolation_level=None)
            copy.row_factory = sqlite3.Row
            self._db.backup(copy)
            self._db.close()
            self._db = copy

    def _migrate(self, migrations: Sequence[str]) -> None:
        version = self._version
        on_disk = self._db.execute("PRAGMA database_list").fetchone()["file"]
        if on_disk and 0 < version < len(migrations):
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
        with self._told():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:  # SQLite took back what met a full disk
                    self._db.execute("ROLLBACK")
                raise

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

    def _rows(self, query: str, *values: int) -> list[sqlite3.Row]:
        with self._told():
            return self._db.execute(query, values).fetchall()

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

    @contextmanager
    def _readable(self, what: str) -> Iterator[None]:
        try:
            yield
        except (ValueError, TypeError) as error:  # pydantic's is a ValueError
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
