"""Debian's Prometheus and promtool, found as a user would find them."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable

import pytest


@pytest.fixture(scope="session")
def program() -> Callable[[str], str]:
    """The path of a program; without it a test is skipped."""

    def find(name: str) -> str:
        found = shutil.which(name)
        if found is None:
            pytest.skip(f"{name} is not installed: apt-get install prometheus")
        return found

    return find


@pytest.fixture
def promtool(program: Callable[[str], str]) -> Callable[..., str]:
    """Run promtool, which must be content, and return what it says."""

    def run(*words: str, stdin: bytes = b"") -> str:
        done = subprocess.run(
            [program("promtool"), *words], input=stdin, capture_output=True, check=False
        )
        said = (done.stdout + done.stderr).decode()
        assert done.returncode == 0, said
        return said

    return run
