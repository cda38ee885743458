"""What a server will get: files that are read, and words that are logs or a command."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hpuwatch.advise.lint.configuration import Setting
from hpuwatch.app import server_inputs
from hpuwatch.app.server_inputs import (
    View,
    bucket_file_of,
    logs_and_command,
    read_text,
    recipe_cache_trouble,
)
from hpuwatch.errors import InputError, MissingFileError
from hpuwatch.gaudi.resolve import FILE_VARIABLE
from hpuwatch.gaudi.warmuptime import RECIPES

pytestmark = pytest.mark.unit


def test_a_regular_file_is_read(tmp_path: Path) -> None:
    file = tmp_path / "a.env"
    file.write_bytes("\ufeffA=1\n".encode())
    assert read_text(file) == "\ufeffA=1\n"
    assert read_text(file, "utf-8-sig") == "A=1\n"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"\x80\x81", r"is no text in UTF-8 \(byte 1"),
        ("(1, 128, 0)".encode("utf-16"), r"is no text in UTF-8 \(UTF-16\)"),
        (b"12345", "is larger than 4 B"),
    ],
)
def test_a_file_that_is_none_of_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes, said: str
) -> None:
    file = tmp_path / "file"
    file.write_bytes(content)
    if len(content) == 5:
        monkeypatch.setattr(server_inputs, "_MOST_BYTES", 4)
    with pytest.raises(InputError, match=said):
        read_text(file)


def test_what_is_no_file_is_neither_waited_for_nor_read(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (pipe, Path("/dev/zero")):
        with pytest.raises(InputError, match="is no regular file"):
            read_text(path)
        setting = {FILE_VARIABLE: Setting(FILE_VARIABLE, str(path), "--env")}
        found = bucket_file_of(setting, View())
        assert found is not None
        assert (found.text, found.trouble) == (None, "it is no regular file")
    with pytest.raises(InputError, match="is a folder"):
        read_text(tmp_path)
    with pytest.raises(MissingFileError, match="can't be read"):
        read_text(tmp_path / "missing")


def test_a_name_that_is_too_long_for_a_folder_is_told() -> None:
    settings = {RECIPES: Setting(RECIPES, "1" * 6000, "--env")}
    assert "can't be a folder" in recipe_cache_trouble(settings, View())


@pytest.mark.parametrize(
    ("words", "logs"),
    [
        (["missing"], 1),
        (["missing", "neither"], 2),
        (["m" * 6000], 1),
        (["/dev/null"], 1),
        (["/"], 1),
        (["a.log", "b.log.gz", "-"], 3),
        (["a.log", "vllm", "serve", "some/model"], 1),
        (["vllm", "serve", "some/model"], 0),
        (["sh", "start.sh"], 0),
        (["./start", "--max-num-seqs", "8"], 0),
        ([], 0),
    ],
)
def test_logs_stand_before_a_command(words: list[str], logs: int) -> None:
    assert logs_and_command(words) == (words[:logs], words[logs:])
