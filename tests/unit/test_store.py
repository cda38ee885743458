"""The study's file: every step durable, old files migrated, strange ones refused."""

from __future__ import annotations

import signal
import sqlite3
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from hpuwatch.errors import BusyError, ResourceError, StudyBroken
from hpuwatch.store.study import FILE_NAME, MIGRATIONS, StudyStore
from hpuwatch.testing.trials import measured
from hpuwatch.tune.facts import RESERVE
from hpuwatch.tune.study import Study
from hpuwatch.tune.trial import LoadPlan, Outcome, Trial, TrialState

pytestmark = pytest.mark.unit

STUDY = Study(
    fingerprint="0123456789abcdef",
    command=("vllm", "serve", "a-model"),
    knobs=("reserve", "buckets"),
    seed=7,
    trials=8,
    load=LoadPlan(concurrency=5),
    url="http://127.0.0.1:8000",
    created_at=1000.0,
    parts={"command": "0123", RESERVE: "0.4"},
)


OLD = f".v{len(MIGRATIONS)}"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / FILE_NAME


def test_a_study_comes_back_as_it_was_stored(path: Path) -> None:
    store = StudyStore(path)
    stored = store.create(STUDY)
    store.close()
    again = StudyStore(path)
    assert again.studies() == [stored]
    assert replace(stored, id=0) == STUDY
    again.close()


def test_a_trial_goes_from_planned_to_done(path: Path) -> None:
    store = StudyStore(path)
    study = store.create(STUDY).id
    trial = Trial(0, {RESERVE: "0.05"}, "designer", planned_at=1.0)
    store.plan(study, trial)
    assert store.trials(study) == [trial]
    store.start(study, 0, 2.0)
    (running,) = store.trials(study)
    assert (running.state, running.started_at) == (TrialState.RUNNING, 2.0)
    outcome = measured(0, trial.settings, 100, 101).outcome
    assert outcome is not None
    store.finish(study, 0, outcome, 3.0)
    (done,) = store.trials(study)
    assert done == replace(
        trial, state=TrialState.OK, started_at=2.0, ended_at=3.0, outcome=outcome
    )
    store.close()


def test_a_study_ends_and_can_be_extended(path: Path) -> None:
    store = StudyStore(path)
    study = store.create(STUDY).id
    store.end(study, 5.0, "All 8 were used.")
    ended = store.study(study)
    assert (ended.ended_at, ended.reason) == (5.0, "All 8 were used.")
    store.extend(study, 12)
    again = store.study(study)
    assert (again.trials, again.ended_at, again.reason) == (12, None, "")
    store.end(study, None, "It was interrupted.")
    paused = store.study(study)
    assert (paused.ended_at, paused.reason) == (None, "It was interrupted.")
    store.close()


def test_a_first_file_is_brought_up_to_date(path: Path) -> None:
    first = StudyStore(path, MIGRATIONS[:1])
    first.close()
    db = sqlite3.connect(path)
    with db:
        db.execute(
            "INSERT INTO studies VALUES (1, 0, 'f', '[\"cmd\"]', '[\"reserve\"]', 7, 8, "
            "'{}', 'http://h:1', NULL)"
        )
    db.close()
    store = StudyStore(path)
    (study,) = store.studies()
    assert (study.command, study.reason, study.parts) == (("cmd",), "", {})
    store.close()


@pytest.mark.parametrize("mode", [None, 0o644])
def test_only_the_owner_can_read_the_file_and_its_copies(
    path: Path, mode: int | None
) -> None:
    if mode is not None:
        path.touch()
        path.chmod(mode)
    StudyStore(path).close()
    StudyStore(path, (*MIGRATIONS, "SELECT 1")).close()
    for file in (path, path.with_name(FILE_NAME + OLD)):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_what_is_not_there_is_said(path: Path) -> None:
    store = StudyStore(path)
    with pytest.raises(StudyBroken, match="holds no study 3"):
        store.study(3)
    study = store.create(STUDY).id
    with pytest.raises(StudyBroken, match="has no trial 9"):
        store.start(study, 9, 1.0)
    store.close()


def test_a_number_is_planned_once(path: Path) -> None:
    store = StudyStore(path)
    study = store.create(STUDY).id
    store.plan(study, Trial(0, {}, "baseline"))
    with pytest.raises(sqlite3.IntegrityError):
        store.plan(study, Trial(0, {}, "baseline"))
    # The failed transaction was taken back, so that the next one works.
    store.plan(study, Trial(1, {}, "baseline"))
    assert [trial.number for trial in store.trials(study)] == [0, 1]
    store.close()


def test_what_a_killed_process_wrote_is_there(path: Path) -> None:
    code = f"""
import os, signal
from pathlib import Path
from hpuwatch.store.study import StudyStore
from hpuwatch.tune.trial import Trial
store = StudyStore(Path({str(path)!r}))
store.plan(1, Trial(0, {{}}, "baseline"))
store.start(1, 0, 2.0)
os.kill(os.getpid(), signal.SIGKILL)
"""
    first = StudyStore(path)
    first.create(STUDY)
    first.close()
    done = subprocess.run([sys.executable, "-c", code], check=False)
    assert done.returncode == -signal.SIGKILL
    store = StudyStore(path)
    (trial,) = store.trials(1)
    assert trial.state is TrialState.RUNNING
    store.close()


def test_an_older_file_is_migrated_after_a_copy_was_made(path: Path) -> None:
    old = StudyStore(path)
    old.create(STUDY)
    old.close()
    wider = (*MIGRATIONS, "ALTER TABLE trials ADD COLUMN node TEXT")
    store = StudyStore(path, wider)
    assert len(store.studies()) == 1
    store.close()
    assert _columns(path, "trials") == {
        *_columns(path.with_name(FILE_NAME + OLD), "trials"),
        "node",
    }
    assert _version(path) == len(wider)
    assert _version(path.with_name(FILE_NAME + OLD)) == len(MIGRATIONS)


def test_a_migration_that_fails_changes_nothing(path: Path) -> None:
    StudyStore(path).close()
    broken = (
        *MIGRATIONS,
        "ALTER TABLE trials ADD COLUMN node TEXT; ALTER TABLE nothing ADD x",
    )
    with pytest.raises(StudyBroken):
        StudyStore(path, broken)
    assert _version(path) == len(MIGRATIONS)
    assert "node" not in _columns(path, "trials")


def test_a_file_of_a_newer_hpuwatch_is_refused(path: Path) -> None:
    StudyStore(path, (*MIGRATIONS, "SELECT 1")).close()
    with pytest.raises(
        StudyBroken, match=r"newer hpuwatch \(schema 3, this one knows 2\)"
    ):
        StudyStore(path)


def test_a_reader_changes_nothing(path: Path) -> None:
    StudyStore(path).close()
    reader = StudyStore(path, read_only=True)
    with pytest.raises(ResourceError, match="readonly"):
        reader.create(STUDY)
    reader.close()


def test_a_reader_reads_what_is_older_and_leaves_it_so(path: Path) -> None:
    first = StudyStore(path)
    stored = first.create(STUDY)
    first.close()
    before = path.read_bytes()
    wider = (*MIGRATIONS, "ALTER TABLE trials ADD COLUMN node TEXT")
    reader = StudyStore(path, wider, read_only=True)
    assert reader.studies() == [stored]
    reader.close()
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == [FILE_NAME]


def test_an_empty_file_holds_no_study(path: Path) -> None:
    path.touch()
    reader = StudyStore(path, read_only=True)
    assert reader.studies() == []
    reader.close()
    assert path.read_bytes() == b""


def test_a_file_that_somebody_works_on_is_busy(path: Path) -> None:
    store = StudyStore(path)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    store._db.execute("PRAGMA busy_timeout = 0")
    with pytest.raises(BusyError, match="somebody else works on it"):
        store.studies()
    with pytest.raises(BusyError, match="somebody else works on it"):
        store.create(STUDY)
    other.close()
    assert store.studies() == []
    store.close()


def test_a_full_disk_is_said_to_be_full_and_nothing_is_lost(path: Path) -> None:
    store = StudyStore(path)
    study = store.create(STUDY).id
    (pages,) = store._db.execute("PRAGMA page_count").fetchone()
    store._db.execute(f"PRAGMA max_page_count = {pages}")
    large = Trial(0, {RESERVE: "0" * 100_000}, "designer")
    with pytest.raises(ResourceError, match=r"is full.*free some room"):
        store.plan(study, large)
    assert store.trials(study) == []
    store._db.execute(f"PRAGMA max_page_count = {pages + 99}")
    store.plan(study, large)
    assert len(store.trials(study)) == 1
    store.close()


def test_a_file_that_was_half_overwritten_is_refused(path: Path) -> None:
    store = StudyStore(path)
    study = store.create(STUDY).id
    store.plan(study, Trial(0, {RESERVE: "0" * 50_000}, "designer"))
    store.close()
    whole = path.read_bytes()
    path.write_bytes(whole[:4096] + b"\xa5" * (len(whole) - 4096))
    store = StudyStore(path)  # its head is well
    with pytest.raises(StudyBroken, match="can't be used as a study"):
        store.studies()
    with pytest.raises(StudyBroken, match="can't be used as a study"):
        store.trials(study)
    store.close()


@pytest.mark.parametrize("settings", ["[1]", '{"a": {}}', "7", "", "{"])
def test_settings_that_are_none_are_refused(path: Path, settings: str) -> None:
    store = StudyStore(path)
    study = store.create(STUDY).id
    store.plan(study, Trial(0, {}, "baseline"))
    other = sqlite3.connect(path)
    with other:
        other.execute("UPDATE trials SET settings = ?", (settings,))
    other.close()
    with pytest.raises(StudyBroken, match="trial 0 of study 1 can't be read"):
        store.trials(study)
    store.close()


@pytest.mark.parametrize("junk", [b"not a database, and long enough to tell" * 9])
def test_a_file_that_is_no_study_is_refused(path: Path, junk: bytes) -> None:
    path.write_bytes(junk)
    with pytest.raises(StudyBroken, match="can't be used as a study"):
        StudyStore(path)
    assert path.read_bytes() == junk


@pytest.mark.parametrize("outcome", ["{", '{"state": "lost"}', "[]"])
def test_a_row_that_cannot_be_read_is_said_to_be(path: Path, outcome: str) -> None:
    store = StudyStore(path)
    study = store.create(STUDY).id
    store.plan(study, Trial(0, {}, "baseline"))
    store.finish(study, 0, Outcome(TrialState.OK), 1.0)
    other = sqlite3.connect(path)
    with other:
        other.execute("UPDATE trials SET outcome = ?", (outcome,))
    other.close()
    with pytest.raises(StudyBroken, match="trial 0 of study 1 can't be read"):
        store.trials(study)
    store.close()


def test_a_later_version_s_extra_figures_are_left_out(path: Path) -> None:
    store = StudyStore(path)
    study = store.create(STUDY).id
    store.plan(study, Trial(0, {}, "baseline"))
    store.finish(study, 0, Outcome(TrialState.OK), 1.0)
    other = sqlite3.connect(path)
    with other:
        other.execute("""UPDATE trials SET outcome = '{"state": "ok", "mood": 3}'""")
    other.close()
    assert store.trials(study)[0].outcome == Outcome(TrialState.OK)
    store.close()


def _columns(path: Path, table: str) -> set[str]:
    db = sqlite3.connect(path)
    rows = db.execute(f"PRAGMA table_info({table})").fetchall()
    db.close()
    return {row[1] for row in rows}


def _version(path: Path) -> int:
    db = sqlite3.connect(path)
    (version,) = db.execute("PRAGMA user_version").fetchone()
    db.close()
    assert isinstance(version, int)
    return version
