"""Logs are read from files, compressed files and standard input, or refused in a sentence."""

from __future__ import annotations

import gzip
import io
import os
import sys
from pathlib import Path

import pytest

from hpuwatch.errors import InputError, MissingFileError
from hpuwatch.source.files import read_lines

pytestmark = pytest.mark.unit

LOG = "INFO 08-02 17:38:43 runner.py:1] one\nINFO:     two\rthree\n"
TEXTS = ["INFO 08-02 17:38:43 runner.py:1] one", "INFO:     two", "three"]


def texts(path: str) -> list[str]:
    return [line.text for line in read_lines(path)]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "server.log"


def test_plain_file(log: Path) -> None:
    log.write_text(LOG)
    assert texts(str(log)) == TEXTS


def test_gzip_is_told_by_its_first_bytes(log: Path) -> None:
    log.write_bytes(gzip.compress(LOG.encode()))
    assert texts(str(log)) == TEXTS


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(LOG.encode())))
    assert texts("-") == TEXTS


def test_a_truncated_log_that_begins_with_nuls_is_a_log(log: Path) -> None:
    log.write_bytes(b"\0" * 300_000 + LOG.encode())
    assert texts(str(log))[-1] == "three"


def test_a_log_in_an_old_encoding_is_a_log(log: Path) -> None:
    log.write_bytes(b"INFO: Gr\xfc\xdfe from the server, quite a long line of text\n")
    assert len(texts(str(log))) == 1


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(MissingFileError, match=r"nothing\.log can't be opened"):
        texts(str(tmp_path / "nothing.log"))


@pytest.mark.parametrize("data", [b"", b"\n \n", b"\0\0\0"])
def test_empty_log(log: Path, data: bytes) -> None:
    log.write_bytes(data)
    with pytest.raises(InputError, match="is empty"):
        texts(str(log))


def test_folder(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is a folder"):
        texts(str(tmp_path))


@pytest.mark.parametrize("data", [bytes(range(256)) * 50, Path(sys.executable)])
def test_binary(log: Path, data: bytes | Path) -> None:
    log.write_bytes(data if isinstance(data, bytes) else data.read_bytes()[:500_000])
    with pytest.raises(InputError, match="is binary"):
        texts(str(log))


def test_random_bytes(log: Path) -> None:
    log.write_bytes(b"x" + os.urandom(5000))
    with pytest.raises(InputError, match="is binary"):
        texts(str(log))


def test_binary_behind_nuls(log: Path) -> None:
    log.write_bytes(b"\0" * 100_000 + bytes(range(128, 256)) * 99)
    with pytest.raises(InputError, match="is binary"):
        texts(str(log))


def test_cut_gzip(log: Path) -> None:
    log.write_bytes(gzip.compress(LOG.encode() * 9)[:-12])
    with pytest.raises(InputError, match="broken gzip"):
        texts(str(log))


@pytest.mark.parametrize("junk", [b"x", b"junk behind it", b"\0" * 512])
def test_what_stands_behind_a_gzip_file_is_left(log: Path, junk: bytes) -> None:
    log.write_bytes(gzip.compress(LOG.encode()) + junk)
    assert texts(str(log)) == TEXTS


def test_a_gzip_file_of_several_members(log: Path) -> None:
    log.write_bytes(b"".join(gzip.compress(part.encode()) for part in LOG))
    assert texts(str(log)) == TEXTS


def test_a_damaged_gzip_file(log: Path) -> None:
    packed = bytearray(gzip.compress(LOG.encode() * 99))
    packed[-6] ^= 1
    log.write_bytes(packed)
    with pytest.raises(InputError, match="broken gzip"):
        texts(str(log))


def test_nuls_in_a_small_gzip_file_are_read_in_their_own_time(log: Path) -> None:
    log.write_bytes(gzip.compress(b"\0" * 100_000_000 + LOG.encode()))
    assert texts(str(log))[-1] == "three"


def test_nuls_and_blank_lines_from_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    flood = b"\0" * 50_000_000 + b"\n" * 50_000_000 + b" " * 20_000_000
    given = io.BytesIO(flood + LOG.encode())
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(given))
    assert texts("-")[-1] == "three"


def test_a_character_cut_by_the_end_of_a_chunk_is_text(log: Path) -> None:
    log.write_bytes(b"\n" * (256 * 1024 - 1) + "█ 3%\n".encode())
    assert texts(str(log))[-1] == "█ 3%"


def test_a_file_that_fails_while_it_is_read() -> None:
    with pytest.raises(InputError, match="can't be read"):
        texts("/proc/self/mem")


def test_a_hole_in_a_spool_is_jumped_over(tmp_path: Path) -> None:
    spool = tmp_path / "spool"
    with spool.open("wb") as out:
        out.write(b"INFO first\n")
        out.seek(1 << 40)  # a terabyte of nothing would take minutes to read
        out.write(b"INFO last\n")
    texts = [line.text.strip("\0") for line in read_lines(str(spool))]
    assert [text for text in texts if text] == ["INFO first", "INFO last"]


def test_a_file_that_ends_in_a_hole_ends(tmp_path: Path) -> None:
    spool = tmp_path / "spool"
    spool.write_bytes(b"INFO only\n")
    os.truncate(spool, 1 << 21)
    texts = [line.text.strip("\0") for line in read_lines(str(spool))]
    assert [text for text in texts if text] == ["INFO only"]
