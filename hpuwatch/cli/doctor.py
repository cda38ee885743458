"""``hpuwatch doctor``: look at this machine and say what is missing."""

from __future__ import annotations

import json
import os

import typer

from hpuwatch.cli.options import JSON_OR_TEXT, Format, check_choice

_MARKS = {"ok": "ok     ", "note": "note   ", "warning": "WARNING", "error": "ERROR  "}
_ORDER = ["ok", "note", "warning", "error"]
_STATUS = {"info": "note"}  # --fail-on has the words of the findings


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
    form: Format = "text",
    fail_on: str | None = typer.Option(
        None, "--fail-on", help="Exit 1 at this or worse: info, warning, error."
    ),
) -> None:
    """Look at interpreter, runtime, cards, recipe cache, ports and state directory."""
    from hpuwatch.advise.finding import SEVERITIES
    from hpuwatch.app.doctor import VLLM_ADDRESS, examine
    from hpuwatch.errors import ConfigError, UsageError
    from hpuwatch.listen import parse_listen
    from hpuwatch.settings import load_settings

    check_choice("--format", form, JSON_OR_TEXT)
    check_choice("--fail-on", fail_on, SEVERITIES)
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
        width = max(len(each.name) for each in checks)
        for each in checks:
            print(f"{_MARKS[each.status]}  {each.name:{width}}  {each.text}")
    worst = max(_ORDER.index(each.status) for each in checks)
    if fail_on is not None and worst >= _ORDER.index(_STATUS.get(fail_on, fail_on)):
        raise typer.Exit(1)
