"""``hpuwatch suggest LOG…``: what a server's log says, and what to change."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from hpuwatch.cli.options import OWN_RULES, SHARE, check_choice, fail_at

if TYPE_CHECKING:
    from hpuwatch.advise.document import Report

_FORMATS = ("text", "markdown", "json", "env")
_BOLD, _PLAIN = "\x1b[1m", "\x1b[0m"


def suggest(
    logs: list[str] = typer.Argument(
        None,
        metavar="[LOG]...",
        help="Server logs, plain or .gz; - is standard input.",
        show_default=False,
    ),
    form: str = typer.Option("text", "--format", help=f"One of {', '.join(_FORMATS)}."),
    fail_on: str | None = typer.Option(
        None,
        "--fail-on",
        help="Exit 1 at this severity or worse: info, warning, error.",
    ),
    rules: Path | None = OWN_RULES,
    share: bool = SHARE,
) -> None:
    """Say what a Gaudi server's log means: memory, warm-up, troubles, and what to change."""
    from hpuwatch.advise.finding import SEVERITIES
    from hpuwatch.advise.share import without_site
    from hpuwatch.app.otherlogs import with_other_logs
    from hpuwatch.app.report import report_of
    from hpuwatch.clock import SystemClock

    check_choice("--format", form, _FORMATS)
    check_choice("--fail-on", fail_on, SEVERITIES)
    report = report_of(_paths(logs or []), rules)
    report = with_other_logs(report, SystemClock())
    if share:
        report = without_site(report)
    sys.stdout.write(_rendered(report, form))
    findings = (each for start in report.reports for each in start.findings)
    fail_at(fail_on, (each.severity for each in findings))


def _paths(logs: Sequence[str]) -> list[str]:
    from hpuwatch.errors import UsageError

    if logs.count("-") > 1:
        raise UsageError("standard input can be read only once: give - a single time")
    if logs:
        return list(logs)
    if sys.stdin.isatty():
        raise UsageError(
            "name a log, or pipe one in: docker logs NAME 2>&1 | hpuwatch suggest -"
        )
    return ["-"]


def _rendered(report: Report, form: str) -> str:
    from hpuwatch.advise.text import render_env, render_markdown, render_text

    if form == "json":
        return report.model_dump_json(by_alias=True, indent=2) + "\n"
    if form == "markdown":
        return render_markdown(report)
    if form == "env":
        return render_env(report)
    if not sys.stdout.isatty():
        return render_text(report)
    width = shutil.get_terminal_size().columns
    if os.environ.get("NO_COLOR"):
        return render_text(report, width=width)
    return render_text(
        report, width=width, emphasis=lambda text: f"{_BOLD}{text}{_PLAIN}"
    )
