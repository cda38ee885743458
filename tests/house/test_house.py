"""The house itself: layers hold, no stray words, the wheel carries its data and runs."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
import venv
import zipfile
from dataclasses import fields
from pathlib import Path

import pytest

from hpuwatch.sim.config.knobs import Knobs
from hpuwatch.sim.config.options import Options


def _modules(checkout: Path) -> list[Path]:
    return sorted((checkout / "hpuwatch").rglob("*.py"))


def test_modules_and_functions_stay_small(checkout: Path) -> None:
    long, sizes = [], []
    for path in _modules(checkout):
        text = path.read_text(encoding="utf-8")
        if text.count("\n") > 400:
            long.append(f"{path}: {text.count(chr(10))} lines")
        for node in ast.walk(ast.parse(text)):
            if (
                isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
                and node.end_lineno
            ):
                size = node.end_lineno - node.lineno + 1
                sizes.append(size)
                if size > 60:
                    long.append(f"{path}:{node.lineno} {node.name}: {size} lines")
    assert not long
    assert sum(size <= 35 for size in sizes) / len(sizes) >= 0.9


def test_every_setting_of_the_simulated_server_has_a_reader(checkout: Path) -> None:
    """A field that nobody reads pretends that something simulated hangs on it."""
    simulator = checkout / "hpuwatch/sim"
    read: dict[str, set[str]] = {"knobs": set(), "options": set()}
    for path in simulator.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                owner = ast.unparse(node.value).rpartition(".")[2].lstrip("_")
                # Within its own class a setting is read of self.
                owner = path.stem if owner == "self" else owner
                read.setdefault(owner, set()).add(node.attr)
    for path in simulator.glob("lines/*.yaml"):  # the settings that a log lists
        dumped = path.read_text(encoding="utf-8").partition("\ndump:")[2]
        read["knobs"] |= set(re.findall(r"\{(\w+)\}", dumped))
    unread = {
        name: {field.name for field in fields(settings)} - read[name]
        for name, settings in (("knobs", Knobs), ("options", Options))
    }
    assert not any(unread.values()), unread


def test_the_keeper_stays_slim(checkout: Path) -> None:
    keeper = checkout / "hpuwatch/runtime/keeper.py"
    assert keeper.read_text(encoding="utf-8").count("\n") < 150
    code = "import runpy, sys; runpy.run_path(sys.argv[1], run_name='loaded'); print(*sys.modules)"
    said = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code, str(keeper)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert not {"hpuwatch", "pydantic", "yaml", "site"} & set(said.stdout.split())


def test_no_path_of_a_machine_and_no_index_address_in_the_project(
    checkout: Path,
) -> None:
    tracked = subprocess.run(
        ["git", "ls-files"], cwd=checkout, capture_output=True, text=True, check=True
    ).stdout.split()
    # Assembled, so that this file doesn't name what it looks for.
    forbidden = re.compile(
        "|".join(["/wo" + "rk/", r"index-" + "url", "pypi" + r"\.org"])
    )
    found = [
        name
        for name in tracked
        if (path := checkout / name).is_file()
        and forbidden.search(path.read_text(encoding="utf-8", errors="replace"))
    ]
    assert not found


@pytest.mark.timeout(300)
def test_the_wheel_runs_in_an_environment_of_its_own(
    checkout: Path, tmp_path: Path
) -> None:
    """Built from the sdist, installed without the checkout, it finds its rules."""
    source = tmp_path / "source"
    shutil.copytree(
        checkout,
        source,
        ignore=shutil.ignore_patterns(
            ".git", ".venv*", "dist", ".*_cache", ".hypothesis"
        ),
    )
    build = [
        sys.executable,
        "-m",
        "build",
        "--no-isolation",
        "--outdir",
        str(tmp_path / "dist"),
    ]
    subprocess.run([*build, str(source)], check=True, capture_output=True)
    wheel = next((tmp_path / "dist").glob("*.whl"))
    names = set(zipfile.ZipFile(wheel).namelist())
    assert any(name.startswith("hpuwatch/_data/rules/parse/") for name in names)
    assert "hpuwatch/_data/grafana/hpuwatch.json" in names
    assert any(name.startswith("hpuwatch/sim/lines/") for name in names)
    assert "hpuwatch/py.typed" in names
    home = tmp_path / "venv"
    venv.create(home, with_pip=False, symlinks=True)
    site = next(home.glob("lib/python3*/site-packages"))
    zipfile.ZipFile(wheel).extractall(site)
    # Its dependencies are those of this environment; the package itself must be the wheel's.
    ours = next(p for p in map(Path, sys.path) if p.name == "site-packages")
    (site / "dependencies.pth").write_text(f"{ours}\n", encoding="utf-8")
    said = subprocess.run(
        [str(home / "bin/python"), "-c", "import hpuwatch; print(hpuwatch.__file__)"],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
    )
    assert str(home) in said.stdout
    rules = subprocess.run(
        [str(home / "bin/python"), "-m", "hpuwatch", "rules", "list"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert rules.returncode == 0, rules.stderr
    assert "memory_split" in rules.stdout
