"""A SQLite file of ours: private, migrated step by step, its troubles told in sentences.

The schema's number is ``user_version``.  Older files are migrated forward after a copy was
made beside them; a file of a newer hpuwatch is refused.  The files are readable by their
owner only, since a command line says a lot even masked.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from hpuwatch.errors import BusyError, HpuwatchError, ResourceError

_TROUBLES: tuple[tuple[str, type[HpuwatchError], str], ...] = (
    ("locked", BusyError, "somebody else works on it: wait for its end"),
    ("full", ResourceError, "free some room there, then {go_on}"),
    ("I/O error", ResourceError, "see to its disk, then {go_on}"),
    ("readonly", ResourceError, "allow writing it, or choose another --state-dir"),
    ("unable to open", ResourceError, "choose another --state-dir"),
)
"""What SQLite says where nothing is wrong with what is stored, and what helps.

Its error codes would be surer, but Python 3.10 doesn't tell them.
"""


@dataclass(frozen=True, slots=True)
class Words:
    """How the troubles of one kind of file are told.

    Attributes:
        is_a: what the file is, as ``a study``.
        go_on: what to do once the disk is well again.
        broken: raised where the file itself is wrong.
    """

    is_a: str
    go_on: str
    broken: type[HpuwatchError]


class Database:
    """One file.

    Attributes:
        path: the SQLite file; it is made where there is none.
    """

    def __init__(
        self,
        path: Path,
        migrations: Sequence[str],
        words: Words,
        *,
        read_only: bool = False,
        patience_seconds: float = 5.0,
    ) -> None:
        """Open the file and bring its schema up to date.

        A reader (``read_only``) changes nothing: of an old schema it reads a copy in
        memory.

        Raises:
            HpuwatchError: ``words.broken``: it is no such file, or a newer hpuwatch's.
            BusyError: somebody else works on it, for longer than we wait.
            ResourceError: it can't be read or written.
        """
        self.path = path
        self._words = words
        where = f"{path.absolute().as_uri()}?mode={'ro' if read_only else 'rwc'}"
        if not read_only:
            make_private(path)
        with self._told():
            self._db = sqlite3.connect(
                where, uri=True, isolation_level=None, timeout=patience_seconds
            )
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
                    helps = remedy.format(go_on=self._words.go_on)
                    raise kind(
                        f"{self.path} can't be used just now ({error}): {helps}"
                    ) from error
            raise self._words.broken(
                f"{self.path} can't be used as {self._words.is_a} ({error}): move it "
                "away to begin anew"
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
            raise self._words.broken(
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
            make_private(beside)
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

    def _rows(self, query: str, *values: int | str) -> list[sqlite3.Row]:
        with self._told():
            return self._db.execute(query, values).fetchall()

    @contextmanager
    def _readable(self, what: str) -> Iterator[None]:
        try:
            yield
        except (ValueError, TypeError) as error:  # pydantic's is a ValueError
            raise self._words.broken(
                f"{self.path}: {what} can't be read ({type(error).__name__}): "
                "move the file away to begin anew"
            ) from error


def make_private(path: Path) -> None:
    """Make a file that only its owner can read; what is there already becomes one.

    What can't be done is told by the opening that follows.
    """
    with suppress(OSError):
        path.touch(mode=0o600)
        path.chmod(0o600)
