"""``hpuwatch _watch``: the watcher's process, started by the keeper, not by people."""

from __future__ import annotations

from pathlib import Path

import typer


def watch(
    name: str = typer.Option(..., "--name"),
    listen: str = typer.Option(..., "--listen"),
    spool: str = typer.Option(..., "--spool"),
    facts: str = typer.Option(..., "--facts"),
    folder: Path | None = typer.Option(None, "--folder"),
    rules: Path | None = typer.Option(None, "--rules"),
    no_echo: bool = typer.Option(False, "--no-echo"),
) -> None:
    """Watch a server that a keeper owns."""
    from hpuwatch.app.reload import LiveRules
    from hpuwatch.app.watch import Task, Watcher
    from hpuwatch.clock import SystemClock
    from hpuwatch.runtime.announce import say
    from hpuwatch.runtime.instance import Files

    task = Task(name, listen, Files(spool, facts, folder), echo=not no_echo)
    code = Watcher(task, LiveRules(rules, say), SystemClock()).run()
    raise typer.Exit(code)
