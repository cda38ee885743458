"""``hpuwatch attach --log FILE|-``: follow somebody else's server, read-only."""

from __future__ import annotations

from pathlib import Path

import typer

from hpuwatch.cli.options import OWN_RULES


def attach(
    log: str = typer.Option(
        ..., "--log", metavar="FILE|-", help="The server's log; - is standard input."
    ),
    name: str | None = typer.Option(
        None, "--name", help="The instance (default: default)."
    ),
    rules: Path | None = OWN_RULES,
    listen: str | None = typer.Option(
        None, "--listen", metavar="HOST:PORT", help="Where metrics and probes answer."
    ),
) -> None:
    """Follow a log and answer metrics and probes from it; change nothing of the server.

    Docker and CRI log files are unwrapped, rotation is followed. Ends with 0 when the pipe
    ends, or when asked to.
    """
    from hpuwatch.app.attach import Attachment
    from hpuwatch.app.reload import LiveRules
    from hpuwatch.app.remember import LiveStarts, Memory
    from hpuwatch.clock import SystemClock
    from hpuwatch.runtime.announce import say
    from hpuwatch.settings import load_settings

    settings = load_settings(name=name, listen=listen)
    live = LiveRules(rules, say)
    clock, root = SystemClock(), settings.state_root()
    starts = LiveStarts(log, Memory(root, clock, say, root / settings.name))
    attachment = Attachment(settings.name, log, live, clock, starts)
    attachment.run(settings.listen)
