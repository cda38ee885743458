"""The edge of the program: where its output goes, and what happens if it can't."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.unit

_OURS = f"{sys.executable} -m hpuwatch"


def shell(command: str, log: Path, *, cwd: Path) -> subprocess.CompletedProcess[bytes]:
    line = command.replace("HPUWATCH", _OURS).replace("LOG", str(log))
    return subprocess.run(
        ["/bin/bash", "-c", line], capture_output=True, cwd=cwd, check=False
    )


@pytest.fixture
def log(checkout: Path) -> Path:
    return checkout / "tests/data/logs/llama8b-gaudi2.log"


def test_a_reader_that_leaves_early_is_no_failure(log: Path, checkout: Path) -> None:
    line = "HPUWATCH parse LOG | head -1 > /dev/null; exit ${PIPESTATUS[0]}"
    answer = shell(line, log, cwd=checkout)
    assert (answer.returncode, answer.stderr) == (0, b"")


@pytest.mark.parametrize("verb", ["suggest", "parse"])
def test_a_full_disk_is_a_sentence_and_69(verb: str, log: Path, checkout: Path) -> None:
    answer = shell(f"HPUWATCH {verb} LOG > /dev/full", log, cwd=checkout)
    assert answer.returncode == 69
    assert b"No space left" in answer.stderr
    assert answer.stderr.count(b"\n") == 1


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("HPUWATCH suggest LOG >&-", 0),
        ("HPUWATCH suggest LOG 2>&-", 0),
        ("HPUWATCH suggest - <&-", 65),
        ("HPUWATCH suggest none.log >&- 2>&-", 66),
    ],
)
def test_a_standard_stream_that_is_closed(
    line: str, code: int, log: Path, checkout: Path
) -> None:
    assert shell(line, log, cwd=checkout).returncode == code
