"""``hpuwatch compare A B``: how two starts differ, and which change explains which."""

from __future__ import annotations

import sys
from pathlib import Path

import typer

from hpuwatch.cli.options import OWN_RULES, SHARE, check_choice

_FORMATS = ("text", "markdown", "json")
_COLUMNS = 80
_WHICH = "A log, LOG@2 for its second start, or a remembered start: NAME, NAME@7 or 7."


def compare(
    a: str = typer.Argument(..., metavar="A", help=_WHICH, show_default=False),
    b: str = typer.Argument(..., metavar="B", help="The same.", show_default=False),
    form: str = typer.Option("text", "--format", help=f"One of {', '.join(_FORMATS)}."),
    name: str | None = typer.Option(None, "--name", help="Whose start a number is."),
    state_dir: str | None = typer.Option(
        None, "--state-dir", help="Where starts are kept."
    ),
    rules: Path | None = OWN_RULES,
    share: bool = SHARE,
) -> None:
    """Say what differs between two starts, and which change explains how much of it."""
    from hpuwatch.advise.compare.document import Comparison
    from hpuwatch.advise.compare.text import render_markdown, render_text
    from hpuwatch.advise.render.share import site_masked
    from hpuwatch.app.compare import comparison_of
    from hpuwatch.settings import load_settings

    check_choice("--format", form, _FORMATS)
    root = load_settings(name=name, state_dir=state_dir).state_root()
    found = comparison_of(a, b, root, name, rules)
    if share:
        names = {found.b.file: "log2", found.a.file: "log1"}
        plain = found.model_dump(mode="json", by_alias=True)
        for side, label in (("a", "log1"), ("b", "log2")):
            plain[side]["label"] = label
        found = Comparison.model_validate(site_masked(plain, names))
    if form == "json":
        sys.stdout.write(found.model_dump_json(by_alias=True, indent=2) + "\n")
    elif form == "markdown":
        sys.stdout.write(render_markdown(found))
    else:
        sys.stdout.write(render_text(found, wrap=_COLUMNS))
