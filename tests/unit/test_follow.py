"""Following a file, by what rotation does to it; and pipes."""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpuwatch.errors import InputError, MissingFileError
from hpuwatch.source.follow import Follower, Pipe, Renames, open_stream

pytestmark = pytest.mark.unit


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "log"
    path.write_bytes(b"")
    return path


@pytest.fixture
def follower(log: Path) -> Iterator[Follower]:
    follower = Follower(log)
    yield follower
    follower.close()


def append(log: Path, data: bytes) -> None:
    with log.open("ab") as file:
        file.write(data)


def rotate(log: Path) -> None:
    number = len(list(log.parent.iterdir()))
    log.rename(log.with_name(f"log.{number}"))
    log.write_bytes(b"")


def everything(follower: Follower) -> bytes:
    data = b""
    while piece := follower.read():
        data += piece
    return data


def test_only_what_is_new(log: Path, follower: Follower) -> None:
    append(log, b"one\ntw")
    assert follower.read() == b"one\ntw"
    assert follower.read() == b""
    append(log, b"o\n")
    assert follower.read() == b"o\n"


def test_the_old_file_is_read_to_its_end_first(log: Path, follower: Follower) -> None:
    append(log, b"one\n")
    old = log.open("ab", buffering=0)
    rotate(log)
    assert everything(follower) == b"one\n"
    old.write(b"late\n")
    assert everything(follower) == b"late\n"
    append(log, b"new\n")
    old.write(b"last\n")
    assert everything(follower) == b"last\nnew\n"
    old.close()


def test_a_generation_that_stays_empty_is_passed(log: Path, follower: Follower) -> None:
    append(log, b"one\n")
    rotate(log)
    follower.look()
    rotate(log)
    follower.look()
    append(log, b"three\n")
    assert everything(follower) == b"one\nthree\n"


def test_a_removed_file_is_read_on_until_another_comes(
    log: Path, follower: Follower
) -> None:
    with log.open("ab", buffering=0) as old:
        log.unlink()
        old.write(b"still\n")
        assert everything(follower) == b"still\n"
    assert follower.read() == b""
    append(log, b"again\n")
    assert everything(follower) == b"again\n"


def test_copy_and_truncate(log: Path, follower: Follower) -> None:
    append(log, b"a long line of before\n")
    everything(follower)
    os.truncate(log, 0)
    assert follower.read() == b""
    append(log, b"new\n")
    assert everything(follower) == b"new\n"


def test_truncated_and_grown_past_our_place_between_two_polls(
    log: Path, follower: Follower
) -> None:
    append(log, b"before\n")
    everything(follower)
    os.truncate(log, 0)
    append(log, b"much longer than before\n")
    assert everything(follower) == b"much longer than before\n"


def test_a_writer_without_append_leaves_a_hole(log: Path, follower: Follower) -> None:
    """``server > log`` and copy-truncate: the file begins with a hole of NULs."""
    with log.open("r+b", buffering=0) as writer:
        writer.write(b"x" * 100_000 + b"\n")
        everything(follower)
        os.truncate(log, 0)
        writer.write(b"new\n")
        assert everything(follower) == b"new\n"
        writer.write(b"newer\n")
        assert everything(follower) == b"newer\n"


@given(
    st.lists(
        st.one_of(
            st.binary(min_size=1, max_size=30), st.sampled_from(["rotate", "read"])
        ),
        max_size=25,
    )
)
def test_rotation_by_rename_loses_nothing(steps: list[bytes | str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        log.write_bytes(b"")
        follower = Follower(log)
        read, written = b"", b""
        for step in steps:
            if isinstance(step, bytes):
                append(log, step)
                written += step
            elif step == "rotate":
                rotate(log)
                follower.look()  # what watchdog calls
            else:
                read += follower.read()
        read += everything(follower)
        # Every switch to a further generation takes one more read.
        while piece := everything(follower):
            read += piece
        follower.close()
        assert read == written


def test_a_missing_file_and_a_folder(tmp_path: Path) -> None:
    with pytest.raises(MissingFileError, match="can't be opened"):
        Follower(tmp_path / "none")
    with pytest.raises(InputError, match="is a folder"):
        open_stream(str(tmp_path))


def test_a_pipe_says_when_it_has_ended() -> None:
    read, write = os.pipe()
    pipe = Pipe(read)
    assert pipe.read() == b""
    assert not pipe.ended
    os.write(write, b"line\n")
    assert pipe.read() == b"line\n"
    os.close(write)
    assert pipe.read() == b""
    assert pipe.ended
    assert pipe.read() == b""
    os.close(read)


def test_a_fifo_is_a_pipe(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    writer = threading.Thread(target=fifo.write_bytes, args=(b"line\n",))
    writer.start()
    stream = open_stream(str(fifo))
    assert isinstance(stream, Pipe)
    data = b""
    while not stream.ended:
        data += stream.read()
    writer.join()
    assert data == b"line\n"


def test_renames_are_announced_and_writes_are_not(log: Path) -> None:
    told = threading.Event()
    with Renames(log, told.set):
        append(log, b"a line\n")
        (log.parent / "another").write_bytes(b"")
        assert not told.is_set()
        rotate(log)
        assert told.wait(30)


def test_a_folder_that_cannot_be_watched_is_polled_only(tmp_path: Path) -> None:
    with Renames(tmp_path / "no folder" / "log", threading.Event().set):
        pass
