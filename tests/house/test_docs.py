"""Generated documentation is up to date, and what pages name exists."""

from __future__ import annotations

import importlib.util
import re
import shlex
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import typer.main

from hpuwatch.cli.main import build

pytestmark = pytest.mark.unit


@pytest.fixture
def generator(checkout: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "docs_generator", checkout / "tests/docs.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_generated_pages_are_up_to_date(generator: ModuleType) -> None:
    for path, text in generator.pages().items():
        assert path.read_text(encoding="utf-8") == text, f"{path.name}: run `make docs`"
    assert not generator.strays(), "run `make docs`"


@pytest.mark.parametrize("verb", [[], ["attach"], ["buckets", "list"], ["tune"]])
def test_the_page_shows_the_help_that_a_terminal_shows(
    checkout: Path, verb: list[str]
) -> None:
    said = subprocess.run(
        [sys.executable, "-m", "hpuwatch", *verb, "-h"],
        env={"COLUMNS": "80"},
        capture_output=True,
        text=True,
        check=True,
    )
    usage = said.stdout.strip().replace("python -m hpuwatch", "hpuwatch")
    page = (checkout / "docs/cli.md").read_text("utf-8")
    assert f"```text\n{usage}\n```\n" in page


def test_no_verb_is_cut_in_a_list_of_commands() -> None:
    groups: list[Any] = [typer.main.get_command(build())]
    for group in groups:
        for name, command in group.commands.items():
            if not command.hidden:
                told = command.get_short_help_str(limit=61)
                assert told.endswith("."), (name, told)
                assert not told.endswith("..."), (name, told)
                assert len(told) <= 60, (name, told)
        groups += [
            each for each in group.commands.values() if hasattr(each, "commands")
        ]


def _pages(checkout: Path) -> list[Path]:
    return [*sorted(checkout.glob("*.md")), *sorted((checkout / "docs").rglob("*.md"))]


def test_links_between_pages_lead_somewhere(checkout: Path) -> None:
    for page in _pages(checkout):
        for target in re.findall(
            r"\]\(([^)#]+)[^)]*\)", page.read_text(encoding="utf-8")
        ):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_no_cell_of_a_table_is_cut_by_its_own_words(checkout: Path) -> None:
    for page in _pages(checkout):
        rows = page.read_text(encoding="utf-8").splitlines()
        for row in (row for row in rows if row.startswith("| ")):
            codes = re.findall(r"`[^`]*`", row)
            cut = [code for code in codes if re.search(r"(?<!\\)\|", code)]
            assert not cut, f"{page.name}: {cut}"


def test_every_schema_stands_in_the_contracts(checkout: Path) -> None:
    schema = re.compile(r"hpuwatch\.[a-z-]+/\d+")
    sources = (checkout / "hpuwatch").rglob("*.py")
    written = {
        name
        for path in sources
        for name in schema.findall(path.read_text(encoding="utf-8"))
    }
    told = (checkout / "docs/contracts.md").read_text(encoding="utf-8")
    assert written - set(schema.findall(told)) == set()


def _known(words: list[str]) -> bool:
    """Say whether the verb and every long option of a typed command exist."""
    command: Any = typer.main.get_command(build())
    options: set[str] = {"--help", "--version"}
    for word in words:
        if word == "--":
            break
        verbs = getattr(command, "commands", {})
        if verbs and not word.startswith("-"):
            if word not in verbs:
                return False
            command = verbs[word]
            options |= {name for param in command.params for name in param.opts}
            options |= {
                name for param in command.params for name in param.secondary_opts
            }
        elif word.startswith("--") and word.partition("=")[0] not in options:
            return bool(
                command.name == "sim"
            )  # the simulated server takes vLLM's own flags
    return True


def test_every_command_that_a_page_types_exists(checkout: Path) -> None:
    typed = 0
    for page in _pages(checkout):
        for block in re.findall(
            r"```(?:sh|console|bash)\n(.*?)```", page.read_text("utf-8"), re.DOTALL
        ):
            joined = block.replace("\\\n", " ")
            for line in joined.splitlines():
                for call in re.findall(r"(?:^|[$|;] ?|&& )hpuwatch ([^|;>&]+)", line):
                    words = shlex.split(call, comments=True)
                    assert _known(words), f"{page.name}: hpuwatch {call}"
                    typed += 1
    assert typed > 10


def test_the_report_in_the_readme_is_what_suggest_prints(checkout: Path) -> None:
    """As far as the sample goes: a line ``…`` cuts it."""
    command = [sys.executable, "-m", "hpuwatch", "suggest"]
    log = "tests/data/logs/llama8b-gaudi2.log"
    said = subprocess.run(
        [*command, log], cwd=checkout, capture_output=True, text=True, check=True
    )
    readme = (checkout / "README.md").read_text(encoding="utf-8")
    (sample,) = re.findall(
        rf"```text\n({re.escape(log)}.*?)\n…\n```", readme, re.DOTALL
    )
    assert said.stdout.startswith(f"{sample}\n")
    assert "To go back" in sample
