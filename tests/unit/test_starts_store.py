"""The store of starts: once each, private, bounded, and told in a sentence if broken."""

from __future__ import annotations

import sqlite3
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from hpuwatch.advise.account.outcome import Suggestion
from hpuwatch.advise.account.record import StartRecord
from hpuwatch.advise.account.score import Scored
from hpuwatch.advise.document import FigurePart
from hpuwatch.errors import ResourceError, StoreBroken
from hpuwatch.store import starts as module
from hpuwatch.store.starts import FILE_NAME, MIGRATIONS, StartStore
from hpuwatch.testing.kept import kept_of_text, record_of_text
from hpuwatch.testing.lives import Told

pytestmark = pytest.mark.unit

SMALLER = Suggestion(
    env={"VLLM_GRAPH_RESERVED_MEM": "0.05"},
    figures={
        "kv_blocks": FigurePart(value=4300, low=4299, high=4301, origin="predicted")
    },
)
CAME = Scored("kv_blocks", 4300, 4299, 4301, 4310)


@pytest.fixture(scope="module")
def ready() -> tuple[dict[str, str], StartRecord]:
    return kept_of_text(Told().text())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / FILE_NAME


def test_a_start_comes_back_as_it_was_stored(
    path: Path, ready: tuple[dict[str, str], StartRecord]
) -> None:
    store = StartStore(path)
    number = store.keep(*ready, 5.0)
    store.close()
    again = StartStore(path, read_only=True)
    (only,) = again.starts()
    assert (only.id, only.stored_at, only.record) == (number, 5.0, ready[1])
    assert only.record.plan is not None
    assert again.start(number) == only
    assert again.start(99) is None
    again.close()


def test_a_log_that_is_read_twice_is_one_start_and_a_longer_one_replaces_it(
    path: Path, ready: tuple[dict[str, str], StartRecord]
) -> None:
    early = kept_of_text(Told(stops_in="decode", stops_after=3).text())
    store = StartStore(path)
    first = store.keep(*early, 1.0)
    assert store.keep(*early, 2.0) == first
    assert store.keep(*ready, 3.0) == first
    assert store.keep(*early, 4.0) == first  # the shorter reading takes nothing away
    (only,) = store.starts()
    assert only.record == ready[1]
    assert (only.stored_at, only.read_at) == (1.0, 3.0)
    store.close()


def test_equal_first_lines_alone_make_no_equal_starts(
    path: Path, ready: tuple[dict[str, str], StartRecord]
) -> None:
    store = StartStore(path)
    first = store.keep(*ready, 1.0)
    assert store.keep(*kept_of_text(Told(free=70.0).text()), 2.0) != first
    assert len(store.starts()) == 2
    store.close()


def test_only_the_owner_can_read_it_and_no_line_of_the_log_is_in_it(
    path: Path, ready: tuple[dict[str, str], StartRecord]
) -> None:
    store = StartStore(path)
    store.keep(*ready, 1.0)
    store.close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert b"non-default args" not in path.read_bytes()


def test_the_newest_suggestion_replaces_one_that_nobody_tried(
    path: Path, ready: tuple[dict[str, str], StartRecord]
) -> None:
    store = StartStore(path)
    number = store.keep(*ready, 1.0)
    store.suggest(number, SMALLER, 1.0)
    other = SMALLER.model_copy(update={"env": {"VLLM_GRAPH_RESERVED_MEM": "0.07"}})
    store.suggest(number, other, 2.0)
    assert [each.suggestion for each in store.suggestions()] == [other]
    store.suggest(number, None, 3.0)
    assert store.suggestions() == []
    store.close()


def test_what_was_tried_stays_and_is_scored_once(
    path: Path, ready: tuple[dict[str, str], StartRecord]
) -> None:
    store = StartStore(path)
    one = store.keep(*ready, 1.0)
    later, last = (
        store.keep(*kept_of_text(Told(reserve=ratio).text()), 2.0)
        for ratio in (0.05, 0.06)
    )
    store.suggest(one, SMALLER, 2.0)
    (made,) = store.suggestions()
    store.try_out(made.id, later, [CAME], 3.0)
    store.try_out(made.id, last, [replace(CAME, observed=1.0)], 4.0)
    assert store.outcomes("measured") == [(made.id, CAME)]
    assert store.outcomes("simulated") == []
    further = replace(CAME, observed=4311.0)
    store.try_out(made.id, later, [further], 5.0)  # the same start, read further
    assert store.outcomes("measured") == [(made.id, further)]
    store.suggest(one, SMALLER, 6.0)  # its log was read again
    (again,) = store.suggestions()
    assert (again.id, again.tried_by) == (made.id, later)
    store.close()


def test_the_oldest_go_but_not_those_of_the_score(
    path: Path,
    ready: tuple[dict[str, str], StartRecord],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MOST_STARTS", 3)
    store = StartStore(path)
    numbers = []
    for place in range(4):
        proof = {**ready[0], "first": f"{place}"}
        numbers.append(store.keep(proof, ready[1], float(place)))
        store.suggest(numbers[-1], SMALLER, float(place))
        if place == 1:
            first = store.suggestions()[0]
            store.try_out(first.id, numbers[1], [CAME], 2.0)
    assert [each.id for each in store.starts()] == numbers
    for place in range(4, 6):
        proof = {**ready[0], "first": f"{place}"}
        numbers.append(store.keep(proof, ready[1], float(place)))
    # The first two make a score; of the others the newest three are kept.
    assert [each.id for each in store.starts()] == numbers[:2] + numbers[3:]
    assert {each.start for each in store.suggestions()} <= set(
        numbers[:2] + numbers[3:]
    )
    store.close()


def test_a_good_start_outlives_a_server_that_fails_again_and_again(
    path: Path,
    ready: tuple[dict[str, str], StartRecord],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MOST_STARTS", 3)
    store = StartStore(path)
    good = store.keep(*ready, 0.0)
    bad = record_of_text(Told(version="0.25.0", stops_in="decode").dies("KeyError: 0"))
    last = good
    for place in range(5):
        last = store.keep({**ready[0], "first": f"{place}"}, bad, 1.0 + place)
    assert len(store.starts()) == 4
    found = store.last_served(last, bad)
    assert found is not None
    assert found.id == good
    assert store.last_served(good, bad) is None
    other = bad.model_copy(update={"server": bad.server.model_copy(update={"tp": 8})})
    assert store.last_served(last, other) is None
    store.close()


def test_a_newer_files_schema_is_refused(path: Path) -> None:
    StartStore(path, (*MIGRATIONS, "SELECT 1")).close()
    with pytest.raises(StoreBroken, match="was written by a newer hpuwatch"):
        StartStore(path)


def test_what_is_no_store_is_told(path: Path) -> None:
    path.write_text("not a database at all, but long enough to be looked at\n" * 40)
    with pytest.raises(StoreBroken, match="can't be used as a store of starts"):
        StartStore(path)


def test_a_record_that_cannot_be_read_is_told(
    path: Path, ready: tuple[dict[str, str], StartRecord]
) -> None:
    store = StartStore(path)
    number = store.keep(*ready, 1.0)
    store.close()
    db = sqlite3.connect(path)
    with db:
        db.execute("UPDATE starts SET record = '{}'")
    db.close()
    store = StartStore(path)
    with pytest.raises(StoreBroken, match=f"start {number} can't be read"):
        store.starts()
    store.close()


def test_a_folder_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(ResourceError, match="choose another --state-dir"):
        StartStore(tmp_path / "gone" / FILE_NAME)
