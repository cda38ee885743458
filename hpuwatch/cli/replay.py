"""``hpuwatch replay LOG``: a recorded log, played again for a dashboard."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import typer

from hpuwatch.cli.options import OWN_RULES


def replay(
    log: str = typer.Argument(
        ..., metavar="LOG", help="A log, plain or .gz, or - for standard input."
    ),
    speed: str = typer.Option(
        "1", "--speed", metavar="N|max", help="Times as fast as it was, or all at once."
    ),
    once: bool = typer.Option(
        False,
        "--once",
        help="End with the log, and print the metrics as they are then.",
    ),
    name: str | None = typer.Option(
        None, "--name", help="The instance (default: default)."
    ),
    rules: Path | None = OWN_RULES,
    listen: str | None = typer.Option(
        None, "--listen", metavar="HOST:PORT", help="Where metrics and probes answer."
    ),
) -> None:
    """Play a recorded log at its own pace, and answer metrics and probes from it.

    Goes on answering when the log is over, until it is asked to stop.
    """
    from hpuwatch.app.replay import Replay
    from hpuwatch.app.rules import shipped_rules
    from hpuwatch.clock import SystemClock
    from hpuwatch.settings import load_settings

    settings = load_settings(name=name, listen=listen)
    played = Replay(
        settings.name, log, shipped_rules(rules), SystemClock(), speed=_speed(speed)
    )
    metrics = played.run(settings.listen, once=once)
    if once:
        sys.stdout.write(metrics.decode())


def _speed(text: str) -> float:
    from hpuwatch.app.replay import AT_ONCE
    from hpuwatch.errors import UsageError

    if text == "max":
        return AT_ONCE
    try:
        speed = float(text.removesuffix("x"))
    except ValueError:
        speed = 0.0
    if speed > 0 and math.isfinite(speed):
        return speed
    raise UsageError(f"--speed {text!r} is neither a number above 0 nor max")
