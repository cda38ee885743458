"""Run the unit tests on the oldest and the newest Python that really run here.

A name on the PATH proves nothing (version managers put shims there that fail), so each
candidate is started and asked.  Interpreters of this run's own version are left out: the
full suite has just run on it.
"""

from __future__ import annotations

import glob
import os
import shutil
import subprocess
import sys
from pathlib import Path

_OLDEST, _NEWEST = (3, 10), (3, 13)
_ROOT = Path(__file__).resolve().parent.parent


def _candidates() -> list[str]:
    names = [f"python3.{minor}" for minor in range(_OLDEST[1], _NEWEST[1] + 1)]
    found = [path for name in names if (path := shutil.which(name))]
    managed = os.path.expanduser("~/.pyenv/versions/3.*/bin/python3")  # noqa: PTH111  a pattern
    return [*found, *glob.glob(managed)]  # noqa: PTH207  an absolute pattern


def _version(python: str) -> tuple[int, int] | None:
    code = "import sys, venv, ensurepip, ssl, sqlite3; print(*sys.version_info[:2])"
    try:
        said = subprocess.run(
            [python, "-c", code], capture_output=True, text=True, timeout=30, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    major, minor = map(int, said.stdout.split())
    return (major, minor)


def interpreters() -> dict[tuple[int, int], str]:
    """Return version → program for the oldest and newest other than our own."""
    found: dict[tuple[int, int], str] = {}
    for python in _candidates():
        version = _version(python)
        if version is not None and _OLDEST <= version <= _NEWEST:
            found.setdefault(version, python)
    ends = {min(found), max(found)} if found else set()
    return {v: found[v] for v in sorted(ends) if v != sys.version_info[:2]}


def _prepare(version: tuple[int, int], python: str) -> Path:
    folder = _ROOT / f".venv-{version[0]}.{version[1]}"
    requirements = _ROOT / "tests/requirements.txt"
    ready = folder / "ready"
    stamp = requirements.read_text(encoding="utf-8")
    if not ready.is_file() or ready.read_text(encoding="utf-8") != stamp:
        subprocess.run([python, "-m", "venv", "--clear", str(folder)], check=True)
        pip = [str(folder / "bin/pip"), "--disable-pip-version-check", "--quiet"]
        subprocess.run(
            [
                *pip,
                "install",
                "--require-hashes",
                "--only-binary",
                ":all:",
                "-r",
                str(requirements),
            ],
            check=True,
        )
        ready.write_text(stamp, encoding="utf-8")
    return folder / "bin/python"


def _started(version: tuple[int, int], python: str) -> subprocess.Popen[str]:
    """Start the unit tests; few cases and examples do, the full suite has had them all."""
    command = [str(_prepare(version, python)), "-m", "pytest", "-q", "-m", "unit"]
    command += ["--hypothesis-profile", "brief", "--few-cases"]
    command += ["-p", "no:cacheprovider", "tests/unit"]
    return subprocess.Popen(
        command,
        cwd=_ROOT,
        env={**os.environ, "PYTHONPATH": str(_ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def main() -> int:
    """Run them side by side; return 1 if any failed."""
    chosen = interpreters()
    if not chosen:
        print(
            "no other Python from 3.10 to 3.13 runs here: unit tests ran on one version only"
        )
    runs = {version: _started(version, python) for version, python in chosen.items()}
    for version, run in runs.items():
        said, _ = run.communicate()
        print(f"--- unit tests on Python {version[0]}.{version[1]}", said, sep="\n")
    return 1 if any(run.returncode for run in runs.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
