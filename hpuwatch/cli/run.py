"""``hpuwatch run -- CMD``: own a server."""

from __future__ import annotations

from pathlib import Path

import typer

from hpuwatch.cli.options import OWN_RULES

SETTINGS = {"allow_interspersed_args": False}
"""The first word that isn't an option of ours begins the server's command."""


def run(
    command: list[str] = typer.Argument(
        ..., metavar="-- CMD...", help="The server's command line, as it was."
    ),
    name: str | None = typer.Option(
        None, "--name", help="The instance (default: default)."
    ),
    listen: str | None = typer.Option(
        None, "--listen", metavar="HOST:PORT", help="Where metrics and probes answer."
    ),
    state_dir: str | None = typer.Option(
        None, "--state-dir", help="Where the output and our records are kept."
    ),
    rules: Path | None = OWN_RULES,
    stop_wait: float | None = typer.Option(
        None,
        "--stop-wait",
        metavar="SECONDS",
        help="How long to wait after asking the server to stop (default: 120).",
    ),
    no_echo: bool = typer.Option(
        False, "--no-echo", help="Don't pass the server's output on."
    ),
) -> None:
    """Start a server, keep its output, answer metrics and probes, stop it gracefully.

    The server gets exactly this command line and environment, plus PYTHONUNBUFFERED and
    HPUWATCH_RUN_ID. Ends with the server's exit code, 128 + signal, or 70 where it ended
    with 0 though nobody asked.
    """
    from hpuwatch.app.run import run as become_keeper
    from hpuwatch.clock import SystemClock
    from hpuwatch.settings import load_settings

    settings = load_settings(
        name=name,
        listen=listen,
        state_dir=state_dir,
        stop_wait_seconds=stop_wait,
        echo=False if no_echo else None,
    )
    become_keeper(settings, command, SystemClock(), rules)
