"""``hpuwatch run`` where standard streams were closed before it began."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from hpuwatch.testing.programs import OURS


@pytest.mark.parametrize(
    ("closed", "passed_on"),
    [
        ("<&-", True),
        ("2>&-", True),
        (">&-", False),
        (">&- 2>&-", False),
        ("<&- >&- 2>&-", False),
    ],
)
@pytest.mark.timeout(60)
def test_closed_streams_cost_the_server_nothing(
    tmp_path: Path, closed: str, *, passed_on: bool
) -> None:
    ours = [*OURS, "run", "--listen", "127.0.0.1:0", "--state-dir", str(tmp_path), "--"]
    server = ["sh", "-c", "echo hello; echo trouble >&2; exit 3"]
    done = subprocess.run(
        ["sh", "-c", f'"$@" {closed}', "sh", *ours, *server],
        capture_output=True,
        check=False,
    )
    assert done.returncode == 3, done.stderr
    assert (tmp_path / "default" / "spool").read_text() == "hello\ntrouble\n"
    assert (b"hello" in done.stdout) is passed_on
