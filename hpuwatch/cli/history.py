"""``hpuwatch history``: the starts that were remembered, and what predictions were worth."""

from __future__ import annotations

import sys

import typer

from hpuwatch.cli.options import JSON_OR_TEXT, Format, check_choice


def history(
    predictions: bool = typer.Option(
        False, "--predictions", help="Each prediction beside what came, and the score."
    ),
    name: str | None = typer.Option(
        None, "--name", help="Only of this instance; suggest is of logs given by hand."
    ),
    state_dir: str | None = typer.Option(
        None, "--state-dir", help="Where starts are kept."
    ),
    form: Format = "text",
) -> None:
    """List the starts that run, attach and suggest have remembered, the newest first."""
    from hpuwatch.app.history import (
        history_of,
        history_text,
        kept_under,
        predictions_of,
        predictions_text,
    )
    from hpuwatch.settings import load_settings

    check_choice("--format", form, JSON_OR_TEXT)
    settings = load_settings(name=name, state_dir=state_dir)
    kept = kept_under(settings.state_root(), name)
    if predictions:
        scored = predictions_of(kept)
        text = predictions_text(scored) if form == "text" else None
        sys.stdout.write(text or scored.model_dump_json(by_alias=True, indent=2) + "\n")
        return
    found = history_of(kept)
    text = history_text(found) if form == "text" else None
    sys.stdout.write(text or found.model_dump_json(by_alias=True, indent=2) + "\n")
