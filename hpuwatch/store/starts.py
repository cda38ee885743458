"""Starts of servers, what was suggested for them, and what came of it, in SQLite.

A start is stored once, however often its log is read: its *key* is its first line, and its
*proof* what a later reading must repeat (times of its steps, its memory ledger).  A log that
was read further replaces what was known of its start.

Of each start the newest suggestion is kept, unless somebody has tried it: then it stays,
with what was observed, since it counts in the score.  The oldest starts go when there are
too many; a start whose predictions are in the score stays as long as they do.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter

from hpuwatch.advise.account.outcome import Suggestion
from hpuwatch.advise.account.record import KEY, StartRecord, is_further
from hpuwatch.advise.account.score import Scored
from hpuwatch.advise.baseline import Lesson
from hpuwatch.advise.compare.said import served
from hpuwatch.errors import StoreBroken
from hpuwatch.store.database import Database, Words

FILE_NAME = "starts.sqlite"
MOST_STARTS = 1000
"""Starts that are kept of one name: some megabytes."""
MOST_LESSONS = 20
"""Starts whose logs aren't at hand that teach one that is."""
_NO_ID = 2**62
MOST_SUGGESTIONS = 50
"""Suggestions that a start is looked for in, the newest of its like."""

MIGRATIONS: tuple[str, ...] = (
    """
    CREATE TABLE starts (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        key TEXT NOT NULL,
        proof TEXT NOT NULL,
        stored_at REAL NOT NULL,
        read_at REAL NOT NULL,
        origin TEXT NOT NULL,
        identity TEXT NOT NULL,
        server TEXT NOT NULL,
        served INTEGER NOT NULL,
        record TEXT NOT NULL
    );
    CREATE INDEX starts_by_key ON starts (key);
    CREATE INDEX starts_by_identity ON starts (identity);
    CREATE INDEX starts_by_server ON starts (server);
    CREATE TABLE suggestions (
        id INTEGER PRIMARY KEY,
        start INTEGER NOT NULL REFERENCES starts (id),
        made_at REAL NOT NULL,
        suggestion TEXT NOT NULL,
        tried_by INTEGER REFERENCES starts (id),
        tried_at REAL
    );
    CREATE INDEX suggestions_by_start ON suggestions (start);
    CREATE TABLE outcomes (
        suggestion INTEGER NOT NULL REFERENCES suggestions (id),
        figure TEXT NOT NULL,
        value REAL NOT NULL,
        low REAL NOT NULL,
        high REAL NOT NULL,
        factor REAL NOT NULL,
        observed REAL,
        PRIMARY KEY (suggestion, figure)
    );
    """,
)

_WORDS = Words("a store of starts", "try again", StoreBroken)
_PROOF = TypeAdapter(dict[str, str])


@dataclass(frozen=True, slots=True)
class StoredStart:
    """A start as it lies in the store.

    Attributes:
        id: its number under its name; numbers are never used again.
        stored_at: when it was first read, seconds since the epoch.
        read_at: when it was last read.
        record: what is kept of it.
    """

    id: int
    stored_at: float
    read_at: float
    record: StartRecord


@dataclass(frozen=True, slots=True)
class StoredSuggestion:
    """A suggestion as it lies in the store.

    Attributes:
        id: its number.
        start: the start that it was made for.
        made_at: seconds since the epoch.
        suggestion: what was proposed and predicted.
        tried_by: the start that ran with it first, None until one does.
    """

    id: int
    start: int
    made_at: float
    suggestion: Suggestion
    tried_by: int | None = None


class StartStore(Database):
    """The starts of one name."""

    def __init__(
        self,
        path: Path,
        migrations: Sequence[str] = MIGRATIONS,
        *,
        read_only: bool = False,
        patience_seconds: float = 5.0,
    ) -> None:
        """Open the file and bring its schema up to date.

        A reader (``read_only``) changes nothing.  An empty file holds no start.

        Raises:
            StoreBroken: it is no store of starts, or one of a newer hpuwatch.
            BusyError: somebody else works on it.
            ResourceError: it can't be read or written.
        """
        super().__init__(
            path,
            migrations,
            _WORDS,
            read_only=read_only,
            patience_seconds=patience_seconds,
        )

    def keep(self, proof: Mapping[str, str], record: StartRecord, at: float) -> int:
        """Store a start, or what a later reading added to it; return its number."""
        with self._transaction() as db:
            known = self._known(proof)
            if known is None:
                db.execute(
                    "INSERT INTO starts (key, proof, stored_at, read_at, origin, "
                    "identity, server, served, record) "
                    "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                    (proof[KEY], json.dumps(dict(proof)), at, at, *_columns(record)),
                )
                number = int(db.execute("SELECT last_insert_rowid()").fetchone()[0])
                self._prune(db)
                return number
            number, before = known
            if before.keys() <= proof.keys():  # else it was read further already
                record = self._with_given(db, number, record)
                db.execute(
                    "UPDATE starts SET proof = ?, read_at = ?, origin = ?, identity = ?, "
                    "server = ?, served = ?, record = ? WHERE id = ?",
                    (json.dumps(dict(proof)), at, *_columns(record), number),
                )
            return number

    def _with_given(
        self, db: sqlite3.Connection, number: int, record: StartRecord
    ) -> StartRecord:
        """Keep the settings that a run's own process told, which its log alone doesn't."""
        if record.settings_given:
            return record
        row = db.execute("SELECT * FROM starts WHERE id = ?", (number,)).fetchone()
        before = self._start(row).record
        if not before.settings_given:
            return record
        settings = {**before.settings, **record.settings}
        return record.model_copy(update={"settings": settings, "settings_given": True})

    def _known(self, proof: Mapping[str, str]) -> tuple[int, Mapping[str, str]] | None:
        query = "SELECT id, proof FROM starts WHERE key = ? ORDER BY id DESC"
        for row in self._rows(query, proof[KEY]):
            with self._readable(f"start {row['id']}"):
                before = _PROOF.validate_json(row["proof"])
            if is_further(before, proof):
                return row["id"], before
        return None

    @staticmethod
    def _prune(db: sqlite3.Connection) -> None:
        """Forget the oldest starts beyond ``MOST_STARTS``.

        Those of the score stay, and the newest one of each server that became ready: it
        is what a server that fails again and again has to be compared with.
        """
        db.execute(
            "CREATE TEMP TABLE IF NOT EXISTS going (id INTEGER PRIMARY KEY)",
        )
        db.execute("DELETE FROM going")
        db.execute(
            "INSERT INTO going SELECT id FROM starts WHERE id NOT IN "
            "(SELECT id FROM starts ORDER BY id DESC LIMIT ?) AND id NOT IN "
            "(SELECT start FROM suggestions WHERE tried_by IS NOT NULL) AND id NOT IN "
            "(SELECT tried_by FROM suggestions WHERE tried_by IS NOT NULL) AND id NOT IN "
            "(SELECT max(id) FROM starts WHERE served GROUP BY server)",
            (MOST_STARTS,),
        )
        db.execute("DELETE FROM suggestions WHERE start IN (SELECT id FROM going)")
        db.execute("DELETE FROM starts WHERE id IN (SELECT id FROM going)")

    def starts(self) -> list[StoredStart]:
        """Return all starts, in the order in which they were first read."""
        return [
            self._start(row) for row in self._rows("SELECT * FROM starts ORDER BY id")
        ]

    def start(self, number: int) -> StoredStart | None:
        """Return one start, None where there is none of that number."""
        rows = self._rows("SELECT * FROM starts WHERE id = ?", number)
        return self._start(rows[0]) if rows else None

    def suggest(self, start: int, suggestion: Suggestion | None, at: float) -> None:
        """Store what is suggested for a start now; None where nothing is.

        It takes the place of what was suggested before, unless that was tried; what was
        tried and is suggested again stays as it was.
        """
        with self._transaction() as db:
            rows = db.execute(
                "SELECT id, suggestion, tried_by FROM suggestions WHERE start = ?",
                (start,),
            ).fetchall()
            for row in rows:
                if row["tried_by"] is None:
                    db.execute("DELETE FROM suggestions WHERE id = ?", (row["id"],))
                elif suggestion is not None:
                    with self._readable(f"suggestion {row['id']}"):
                        tried = Suggestion.model_validate_json(row["suggestion"])
                    if tried.changes == suggestion.changes:
                        suggestion = None
            if suggestion is not None:
                db.execute(
                    "INSERT INTO suggestions (start, made_at, suggestion) "
                    "VALUES (?, ?, ?)",
                    (start, at, suggestion.model_dump_json()),
                )

    def suggestions(self) -> list[StoredSuggestion]:
        """Return all suggestions, oldest first."""
        rows = self._rows("SELECT * FROM suggestions ORDER BY made_at, id")
        return [self._suggestion(row) for row in rows]

    def suggested_before(
        self, number: int, record: StartRecord
    ) -> Iterator[tuple[StoredSuggestion, StartRecord]]:
        """Yield suggestions for earlier starts of the same server, the newest first.

        Args:
            number: of the start that may have tried one.
            record: the same start's.
        """
        rows = self._rows(
            "SELECT suggestions.* FROM suggestions "
            "JOIN starts ON starts.id = suggestions.start "
            "WHERE starts.id < ? AND starts.identity = ? "
            "ORDER BY made_at DESC, suggestions.id DESC LIMIT ?",
            number,
            _identity(record),
            MOST_SUGGESTIONS,
        )
        for row in rows:
            before = self.start(row["start"])
            if before is not None:
                yield self._suggestion(row), before.record

    def last_served(self, number: int, record: StartRecord) -> StoredStart | None:
        """Return the newest earlier start of the same server that became ready.

        Its release and its settings may be others; model and cards are the same.  One that
        died and was read first is compared with one that was read after it.

        Args:
            number: of the start that came after it.
            record: the same start's.
        """
        rows = self._rows(
            "SELECT * FROM starts WHERE (id < ? OR ?) AND id != ? AND server = ? AND served "
            "ORDER BY id < ? DESC, id DESC LIMIT 1",
            *(number, int(record.died is not None), number, _server(record), number),
        )
        return self._start(rows[0]) if rows else None

    def lessons(
        self, server: Sequence[object], proofs: Sequence[Mapping[str, str]]
    ) -> list[Lesson]:
        """Return what the newest starts of a server teach, oldest first.

        Args:
            server: its model, card, cards and origin, as a record's identity has them.
            proofs: of starts that are at hand and teach by themselves; what was first read
                after one of them is left out.
        """
        known = [self._known(each) for each in proofs]
        before = min((each[0] for each in known if each is not None), default=_NO_ID)
        rows = self._rows(
            "SELECT * FROM starts WHERE id < ? AND server = ? ORDER BY id DESC LIMIT ?",
            *(before, json.dumps(server), MOST_LESSONS),
        )
        found = (self._start(row).record.lesson for row in reversed(rows))
        return [each for each in found if each is not None]

    def try_out(
        self, suggestion: int, start: int, seen: Sequence[Scored], at: float
    ) -> None:
        """Note the outcomes of a suggestion that a start has tried.

        The first start that tries it makes the score; the same one may come again, once
        its log was read further.
        """
        with self._transaction() as db:
            done = db.execute(
                "UPDATE suggestions SET tried_by = ?, tried_at = ? "
                "WHERE id = ? AND (tried_by IS NULL OR tried_by = ?)",
                (start, at, suggestion, start),
            )
            if done.rowcount != 1:
                return
            db.execute("DELETE FROM outcomes WHERE suggestion = ?", (suggestion,))
            db.executemany(
                "INSERT INTO outcomes VALUES (?, ?, ?, ?, ?, ?, ?)",
                [
                    (
                        *(suggestion, each.figure, each.value, each.low, each.high),
                        *(each.factor, each.observed),
                    )
                    for each in seen
                ],
            )

    def outcomes(self, origin: str) -> list[tuple[int, Scored]]:
        """Return every prediction of which something came, with its suggestion's number.

        They come in the order in which they were tried.

        Args:
            origin: measured or simulated: the two make no score together.
        """
        rows = self._rows(
            "SELECT outcomes.* FROM outcomes "
            "JOIN suggestions ON suggestions.id = outcomes.suggestion "
            "JOIN starts ON starts.id = suggestions.tried_by WHERE starts.origin = ? "
            "ORDER BY tried_by, suggestion, figure",
            origin,
        )
        return [(row["suggestion"], _scored(row)) for row in rows]

    def _start(self, row: sqlite3.Row) -> StoredStart:
        with self._readable(f"start {row['id']}"):
            record = StartRecord.model_validate_json(row["record"])
        return StoredStart(row["id"], row["stored_at"], row["read_at"], record)

    def _suggestion(self, row: sqlite3.Row) -> StoredSuggestion:
        with self._readable(f"suggestion {row['id']}"):
            made = Suggestion.model_validate_json(row["suggestion"])
        return StoredSuggestion(
            row["id"], row["start"], row["made_at"], made, row["tried_by"]
        )


def _columns(record: StartRecord) -> tuple[str | int, ...]:
    """Return the columns that a record fills, the whole of it last."""
    text = record.model_dump_json(by_alias=True)
    known = (record.origin, _identity(record), _server(record))
    return (*known, int(served(record)), text)


def _identity(record: StartRecord) -> str:
    return json.dumps(record.identity)


def _server(record: StartRecord) -> str:
    """Return the identity without the release."""
    return json.dumps(record.identity[1:])


def _scored(row: sqlite3.Row) -> Scored:
    return Scored(
        row["figure"],
        row["value"],
        row["low"],
        row["high"],
        row["observed"],
        row["factor"],
    )
