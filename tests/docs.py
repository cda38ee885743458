"""Write the generated pages and parts of docs/ anew.

Each thing is declared once in the code.  The documentation is made from there, and
``tests/house/test_docs.py`` fails where somebody forgot.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import typer.main

from hpuwatch.advise.lint.kinds import documentation as lint_documentation
from hpuwatch.app.catalogue import shipped_findings
from hpuwatch.cli.main import build
from hpuwatch.gaudi.knobpage import knob_pages
from hpuwatch.life.diagram import mermaid
from hpuwatch.metrics.document import markdown
from tests import fidelity

_DOCS = Path(__file__).resolve().parent.parent / "docs"
_TABLE = r"(\| code \|.*?\|\n)(?!\|)"
_FAMILIES = r"<!-- families -->\n(.*?)\n<!-- end of families -->"
_FIDELITY = r"<!-- begin: measured -->\n\n(.*?)\n<!-- end: measured -->"
_WIDTH = 78  # what a terminal of 80 columns shows


def _verbs(command: Any, name: str, above: Any = None) -> list[str]:
    """Return the help of a command and of all below it, as Markdown sections.

    Typer brings a click of its own in newer versions, so nothing here names its classes.
    """
    context = command.make_context(
        name, [], parent=above, resilient_parsing=True, terminal_width=_WIDTH
    )
    told = command.get_help(context).strip()
    section = f"## {context.command_path}\n\n```text\n{told}\n```\n"
    below: list[str] = []
    for word, child in sorted(getattr(command, "commands", {}).items()):
        if not child.hidden:
            below += _verbs(child, word, context)
    return [section, *below]


def _command_line() -> str:
    sections = _verbs(typer.main.get_command(build()), "hpuwatch")
    note = "<!-- Made from the program's help by `make docs`. -->"
    return "\n".join(["# The command line", "", note, "", *sections])


def _with(page: str, pattern: str, part: str) -> str:
    """Return *page* with what *pattern*'s group matches replaced."""
    found = re.search(pattern, page, re.DOTALL)
    if found is None:
        raise SystemExit(f"no place for a generated part: {pattern}")
    return page[: found.start(1)] + part + page[found.end(1) :]


_PAGES: dict[str, Callable[[str], str]] = {
    "explanation/simulator.md": lambda page: _with(page, _FIDELITY, fidelity.tables()),
    "cli.md": lambda _: _command_line(),
    "findings.md": lambda page: _with(
        page, _FAMILIES, shipped_findings().documentation()
    ),
    "linting.md": lambda page: _with(page, _TABLE, lint_documentation()),
    "metrics.md": lambda _: markdown(),
    "states.md": lambda page: _with(page, r"```mermaid\n(.*?)```", mermaid()),
}


def pages() -> dict[Path, str]:
    """Return what each generated page should hold."""
    made = {_DOCS / name: text for name, text in knob_pages().items()}
    for name, make in _PAGES.items():
        path = _DOCS / name
        made[path] = make(path.read_text(encoding="utf-8") if path.is_file() else "")
    return made


def strays() -> set[Path]:
    """Return the pages of knobs that the table doesn't know any more."""
    return set((_DOCS / "knobs").glob("*.md")) - set(pages())


def main() -> None:
    """Write every page that is not up to date, and name it; remove those of no knob."""
    (_DOCS / "knobs").mkdir(exist_ok=True)
    for path in strays():
        path.unlink()
    for path, text in pages().items():
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            print(f"wrote {path.relative_to(_DOCS.parent)}")


if __name__ == "__main__":
    main()
