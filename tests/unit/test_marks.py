"""The spool read again gives the same chunks with the same times."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpuwatch.runtime import spool as module
from hpuwatch.runtime.spool import Chunk, Marks, Spool
from hpuwatch.testing.clock import FakeClock

pytestmark = pytest.mark.unit

MIB = 1024**2


@pytest.fixture
def path(tmp_path: Path) -> Path:
    spool = tmp_path / "spool"
    spool.write_bytes(b"")
    return spool


@pytest.fixture
def opened(path: Path) -> Iterator[Spool]:
    spool = Spool(str(path), Marks(path.with_name("marks")), FakeClock().now)
    yield spool
    spool.close()


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def read_all(path: Path, clock: FakeClock) -> list[Chunk]:
    marks = Marks(path.with_name("marks"))
    spool = Spool(str(path), marks, clock.now)
    chunks = []
    while (chunk := spool.read()) is not None:
        chunks.append(chunk)
    spool.close()
    return chunks


@given(
    st.lists(st.tuples(st.binary(min_size=1, max_size=9), st.floats(0.001, 90))),
    st.integers(0, 20),
)
def test_a_watcher_that_takes_over_sees_what_the_last_one_saw(
    pieces: list[tuple[bytes, float]], killed_after: int
) -> None:
    """Whatever was read by then; the rest is new, and of the new one's time."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "spool"
        path.write_bytes(b"")
        clock = FakeClock()
        spool = Spool(str(path), Marks(path.with_name("marks")), clock.now)
        seen = []
        for number, (data, seconds) in enumerate(pieces):
            clock.wait(seconds)
            append(path, data)
            if number < killed_after:
                chunk = spool.read()
                assert chunk is not None
                seen.append(chunk)
        spool.close()
        clock.wait(1000)
        again = read_all(path, clock)
        assert again[: len(seen)] == seen
        rest = b"".join(data for data, _ in pieces[killed_after:])
        assert b"".join(chunk.data for chunk in again[len(seen) :]) == rest
        assert read_all(path, FakeClock(1.0)) == again


def test_a_torn_mark_and_a_strange_one_are_passed_over(path: Path) -> None:
    append(path, b"abcdef")
    path.with_name("marks").write_text("2 10.5\nnonsense\n1 3.0\n4 11.5\n6 ")
    assert read_all(path, FakeClock(99.0)) == [
        Chunk(b"ab", 10.5),
        Chunk(b"cd", 11.5),
        Chunk(b"ef", 99.0),
    ]


def test_after_start_up_there_is_one_mark_a_second(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "STARTUP_BYTES", 3)
    clock = FakeClock()
    spool = Spool(str(path), Marks(path.with_name("marks")), clock.now)
    for _ in range(23):
        append(path, b"x")
        spool.read()
        clock.wait(0.1)
    spool.close()
    ends = [
        int(ln.split()[0]) for ln in path.with_name("marks").read_text().splitlines()
    ]
    assert ends == [1, 2, 3, 13, 23]
    assert b"".join(chunk.data for chunk in read_all(path, clock)) == b"x" * 23


def test_marks_that_cannot_be_written_cost_the_marks_only(path: Path) -> None:
    append(path, b"line\n")
    spool = Spool(str(path), Marks(Path("/proc/no/marks")), FakeClock(5.0).now)
    assert spool.read() == Chunk(b"line\n", 5.0)
    spool.close()


def test_the_end_moves_on(path: Path, opened: Spool) -> None:
    assert opened.read() is None
    append(path, b"one")
    assert opened.end() == 3
    assert opened.read() is not None
    assert opened.position == 3


def test_a_nul_that_was_printed_is_no_hole(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "STARTUP_BYTES", 0)
    append(path, b"\0\0 printed\n")
    assert read_all(path, FakeClock()) == [Chunk(b"\0\0 printed\n", 1_800_000_000.0)]
