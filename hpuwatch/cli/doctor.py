"""``hpuwatch doctor``: look at this machine and say what is missing."""

from __future__ import annotations

import json
import os

import typer

_MARKS = {"ok": "ok     ", "note": "note   ", "warning": "WARNING", "error": "ERROR  "}
_ORDER = ["ok", "note", "warning", "error"]


def doctor(
    server_python: str | None = typer.Option(
        None, "--server-python", metavar="PATH", help="The interpreter that runs vLLM."
    ),
    listen: str | None = typer.Option(
        None, "--listen", metavar="HOST:PORT", help="The port to try."
    ),
    server: str | None = typer.Option(
        None, "--server", metavar="HOST:PORT", help="Where the server would listen."
    ),
    state_dir: str | None = typer.Option(
        None, "--state-dir", help="The state directory to look at."
    ),
    form: str = typer.Option("text", "--format", help="text or json."),
    fail_on: str | None = typer.Option(
        None, "--fail-on", help="Exit 1 at this or worse: warning, error."
    ),
) -> None:
    """Look at interpreter, runtime, cards, recipe cache, ports and state directory."""
    from hpuwatch.app.doctor import VLLM_ADDRESS, examine
    from hpuwatch.errors import ConfigError, UsageError
    from hpuwatch.listen import parse_listen
    from hpuwatch.settings import load_settings

    if form not in {"text", "json"}:
        raise UsageError(f"--format {form!r} is not text or json")
    if fail_on is not None and fail_on not in _ORDER:
        raise UsageError(f"--fail-on {fail_on!r} is not one of {', '.join(_ORDER)}")
    settings = load_settings(listen=listen, state_dir=state_dir)
    address = VLLM_ADDRESS if server is None else server
    try:
        parse_listen(address)
    except ConfigError as error:
        raise UsageError(f"--server {error}") from error
    checks = examine(settings, os.environ, server_python, address)
    if form == "json":
        rows = [{"name": c.name, "status": c.status, "text": c.text} for c in checks]
        print(json.dumps({"schema": "hpuwatch.doctor/1", "checks": rows}, indent=2))
    else:
        width = max(len(check.name) for check in checks)
        for check in checks:
            print(f"{_MARKS[check.status]}  {check.name:{width}}  {check.text}")
    worst = max(_ORDER.index(check.status) for check in checks)
    if fail_on is not None and worst >= _ORDER.index(fail_on):
        raise typer.Exit(1)
