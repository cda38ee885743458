"""``hpuwatch study``: list, show, export and plot what ``tune`` has found."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import typer

from hpuwatch.cli.options import check_choice

if TYPE_CHECKING:
    from hpuwatch.app.studies import StoredStudy
    from hpuwatch.tune.objective import Verdict

program = typer.Typer(
    help="List, show, export and plot studies of tune.", no_args_is_help=True
)

_NAME = typer.Option(None, "--name", help="The instance.")
_STATE_DIR = typer.Option(None, "--state-dir", help="Where studies are kept.")
_NUMBER = typer.Argument(
    None, metavar="[STUDY]", help="Its number; the newest if none."
)


@program.command("list")
def list_studies(
    name: str | None = typer.Option(None, "--name", help="Only of this instance."),
    state_dir: str | None = _STATE_DIR,
    form: str = typer.Option("text", "--format", help="text or json"),
) -> None:
    """List all studies."""
    from hpuwatch.app.studies import all_studies
    from hpuwatch.settings import load_settings
    from hpuwatch.tune.report import align

    check_choice("--format", form, ("text", "json"))
    found = all_studies(load_settings(state_dir=state_dir).state_root(), name)
    if form == "json":
        rows = [_summary(stored) for stored in found]
        print(json.dumps({"schema": "hpuwatch.studies/1", "studies": rows}, indent=2))
        return
    if not found:
        print("There are no studies yet: hpuwatch tune -- vllm serve MODEL ...")
        return
    table: list[tuple[str, ...]] = [
        ("name", "study", "trials", "state", "best", "command")
    ]
    table += [_line(stored) for stored in found]
    print(align(table))


@program.command("show")
def show(
    number: int | None = _NUMBER,
    name: str | None = _NAME,
    state_dir: str | None = _STATE_DIR,
    form: str = typer.Option("text", "--format", help="text or json"),
) -> None:
    """Show a study: its trials, before and after."""
    check_choice("--format", form, ("text", "json"))
    sys.stdout.write(_rendered(_stored(name, state_dir, number), form))


@program.command("export")
def export(
    number: int | None = _NUMBER,
    name: str | None = _NAME,
    state_dir: str | None = _STATE_DIR,
    form: str = typer.Option("json", "--format", help="json, jsonl, csv or text"),
) -> None:
    """Write a study to stdout, for other programs."""
    check_choice("--format", form, ("json", "jsonl", "csv", "text"))
    sys.stdout.write(_rendered(_stored(name, state_dir, number), form))


@program.command("plot")
def plot(
    number: int | None = _NUMBER,
    out: str = typer.Option(
        ..., "--out", metavar="FILE", help="The picture: FILE.png or FILE.svg."
    ),
    name: str | None = _NAME,
    state_dir: str | None = _STATE_DIR,
) -> None:
    """Draw a study: output tokens/s by trial and by graph reserve."""
    from pathlib import Path

    from hpuwatch.app.study_plot import plot_study

    plot_study(_stored(name, state_dir, number), Path(out))
    print(f"Drawn: {out}")


def _stored(name: str | None, state_dir: str | None, number: int | None) -> StoredStudy:
    from hpuwatch.app.studies import one_study
    from hpuwatch.settings import load_settings

    settings = load_settings(name=name, state_dir=state_dir)
    return one_study(settings.state_root(), settings.name, number)


def _rendered(stored: StoredStudy, form: str) -> str:
    from hpuwatch.app.studies import csv_of, document_of, trial_lines
    from hpuwatch.tune.report import study_text

    if form == "csv":
        return csv_of(stored)
    if form == "jsonl":
        return trial_lines(stored)
    if form == "json":
        return document_of(stored).model_dump_json(by_alias=True, indent=2) + "\n"
    return study_text(stored.study, stored.trials, _reason(stored)) + "\n"


def _reason(stored: StoredStudy) -> str:
    study = stored.study
    if study.ended_at is not None:
        return study.reason
    return f"{study.reason} It is unfinished: hpuwatch tune --resume goes on.".strip()


def _summary(stored: StoredStudy) -> dict[str, object]:
    verdict = stored.verdict
    return {
        "name": stored.name,
        "study": stored.study.id,
        "trials": sum(trial.state.judged for trial in stored.trials),
        "ended": stored.study.ended_at is not None,
        "reason": stored.study.reason,
        "best": verdict.best.number if verdict else None,
        "gain": verdict.gain if verdict else None,
        "command": " ".join(stored.study.command),
    }


def _line(stored: StoredStudy) -> tuple[str, ...]:
    row = _summary(stored)
    return (
        str(row["name"]),
        str(row["study"]),
        f"{row['trials']} of {stored.study.trials}",
        "ended" if row["ended"] else "unfinished",
        _best(stored.verdict),
        str(row["command"]),
    )


def _best(verdict: Verdict | None) -> str:
    if verdict is None:
        return "nothing compared"
    if verdict.doubted is not None:
        return "nothing proven"
    if verdict.best.is_baseline:
        return "the original"
    return f"trial {verdict.best.number} ({verdict.gain * 100:+.1f} %)"
