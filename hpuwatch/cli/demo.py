"""``hpuwatch demo``: see it work, without hardware."""

from __future__ import annotations

import sys

import typer

_LINE_WIDTH = 220


def demo(
    trials: int = typer.Option(
        8, "--trials", min=1, max=50, help="Trials of the tuning step."
    ),
    seed: int = typer.Option(
        7, "--seed", help="Of the simulated server and of the search."
    ),
    keep: str | None = typer.Option(
        None, "--keep", metavar="DIR", help="Keep the state here."
    ),
) -> None:
    """Run, watch, advise and tune a simulated server, in under two minutes."""
    import tempfile
    from pathlib import Path

    from hpuwatch.app.demo import run_demo
    from hpuwatch.clock import SystemClock
    from hpuwatch.errors import UsageError

    screen = sys.stdout.isatty()

    def say(text: str) -> None:
        sys.stdout.write(_fitting(text) if screen else text)
        sys.stdout.flush()

    if keep is not None:
        folder = Path(keep).absolute()
        if folder.exists() and any(folder.iterdir()):
            raise UsageError(f"--keep {keep}: the folder is not empty")
        folder.mkdir(parents=True, exist_ok=True)
        run_demo(say, SystemClock(), folder, trials=trials, seed=seed)
        return
    with tempfile.TemporaryDirectory(prefix="hpuwatch-demo-") as scratch:
        run_demo(say, SystemClock(), Path(scratch), trials=trials, seed=seed)


def _fitting(text: str) -> str:
    """Return text whose lines a screen holds: quoted ones list hundreds of buckets."""
    return "".join(
        line if len(line) <= _LINE_WIDTH else f"{line[:_LINE_WIDTH]} …\n"
        for line in text.splitlines(keepends=True)
    )
