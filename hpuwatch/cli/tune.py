"""``hpuwatch tune -- CMD…``: let scikit-optimize look for better settings, restart by restart."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from hpuwatch.app.tune import Result, Tuning
    from hpuwatch.app.tune_order import Order
    from hpuwatch.tune.trial import LoadPlan

SETTINGS = {"allow_interspersed_args": False}
"""The first word that isn't an option of ours begins the server's command."""

_LOAD_WORDS = {
    "concurrency": "concurrency",
    "requests": "requests",
    "prompt": "prompt_tokens",
    "output": "output_tokens",
    "windows": "windows",
}


_Command = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="-- CMD...", help="The server's command line.", show_default=False
    ),
]
_Trials = Annotated[
    int | None,
    typer.Option(help="Starts it may cost, your own configuration included. [8]"),
]
_Knobs = Annotated[
    str | None,
    typer.Option(help="What to tune: reserve, or reserve,buckets. [reserve]"),
]
_Load = Annotated[
    str | None,
    typer.Option(
        metavar="KEY=N,...",
        help="The load of each trial: concurrency, requests (of a window), prompt and "
        "output (tokens), windows.",
    ),
]
_Resume = Annotated[bool, typer.Option("--resume", help="Go on with the last study.")]
_KeepBest = Annotated[
    bool, typer.Option("--keep-best", help="Leave the server on the best settings.")
]
_Then = Annotated[
    str, typer.Option(help="At the end: serve (leave a server running) or stop.")
]
_Out = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="Write the best setting here, as an env file."),
]
_DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Show plan and downtime, change nothing.")
]
_Url = Annotated[
    str | None, typer.Option(help="Where the server listens, if CMD has no --port.")
]
_Seed = Annotated[int | None, typer.Option(help="Of the search. [0]")]
_Name = Annotated[str | None, typer.Option(help="The instance (default: default).")]
_StateDir = Annotated[
    str | None, typer.Option(help="Where studies and the output of trials are kept.")
]
_NoProgress = Annotated[
    float,
    typer.Option(
        metavar="SECONDS",
        min=1,
        help="A start that prints nothing for so long has failed.",
    ),
]


def tune(
    command: _Command = None,
    trials: _Trials = None,
    knobs: _Knobs = None,
    load: _Load = None,
    resume: _Resume = False,
    keep_best: _KeepBest = False,
    then: _Then = "serve",
    out: _Out = None,
    dry_run: _DryRun = False,
    url: _Url = None,
    seed: _Seed = None,
    name: _Name = None,
    state_dir: _StateDir = None,
    no_progress: _NoProgress = 900.0,
) -> None:
    """Measure your own configuration, then look for a better one, restart by restart."""
    from hpuwatch.app.tune_order import Order
    from hpuwatch.errors import UsageError
    from hpuwatch.loop.trials import Limits
    from hpuwatch.settings import load_settings

    if then not in ("serve", "stop"):
        raise UsageError(f"--then {then!r} is neither serve nor stop")
    settings = load_settings(name=name, state_dir=state_dir)
    order = Order(
        command=tuple(command or ()),
        settings=settings,
        trials=trials,
        knobs=tuple(knobs.split(",")) if knobs else None,
        seed=seed,
        load=_load_plan(load) if load else None,
        url=url,
        resume=resume,
        keep_best=keep_best,
        serve=then == "serve",
        out=Path(out) if out else None,
        limits=Limits(no_progress, stop_seconds=settings.stop_wait_seconds),
    )
    if dry_run:
        _show_plan(order)
        return
    code = _carry_out(order)
    if code:
        raise typer.Exit(code)


def _load_plan(text: str) -> LoadPlan:
    from hpuwatch.errors import UsageError
    from hpuwatch.tune.trial import LoadPlan

    figures: dict[str, int] = {}
    for part in text.split(","):
        key, _, value = part.partition("=")
        value = value[:9]  # more digits are beyond every bound
        if key not in _LOAD_WORDS or not value.isdecimal() or not int(value):
            known = ", ".join(_LOAD_WORDS)
            raise UsageError(
                f"--load {part!r} is not KEY=N with a KEY of {known} and N above 0"
            )
        figures[_LOAD_WORDS[key]] = int(value)
    return LoadPlan(**figures)


def _show_plan(order: Order) -> None:
    from hpuwatch.app.tune_order import check_order
    from hpuwatch.app.tune_plan import plan_text
    from hpuwatch.clock import SystemClock

    endpoint = check_order(order, os.environ)
    sys.stdout.write(plan_text(order, os.environ, endpoint, SystemClock()))


def _carry_out(order: Order) -> int:
    from hpuwatch.app.tune import Tuning
    from hpuwatch.cli.tune_screen import screen
    from hpuwatch.clock import SystemClock

    with screen() as audience:
        tuning = Tuning(order, os.environ, SystemClock(), audience)
        result = tuning.run()
    _print_result(result)
    if order.serve:
        _leave_running(tuning, result)
    if result.signal:
        _say(f"go on with: {resume_command(order, os.environ)}")
        return 128 + result.signal
    if result.ending.error is not None:
        raise result.ending.error
    return 0


def _print_result(result: Result) -> None:
    from hpuwatch.cli.tune_screen import put
    from hpuwatch.tune.report import study_text

    ending = result.ending
    put(study_text(result.study, ending.trials, ending.reason), sys.stdout)
    verdict = result.verdict
    if result.env_file and verdict is not None and not verdict.best.is_baseline:
        put(f"The best setting as an env file: {result.env_file}", sys.stdout)


def _leave_running(tuning: Tuning, result: Result) -> None:
    from hpuwatch.cli.tune_screen import put

    verdict = result.verdict
    best = verdict.best.settings if verdict and tuning.order.keep_best else {}
    which = " ".join(f"{key}={value}" for key, value in best.items())
    _say(f"starting the server again, {which or 'on its original configuration'}")
    served = tuning.serve(best)
    pid = f" (pid {served.server_pid})" if served.server_pid else ""
    put(
        f"The server runs as {served.name!r}{pid} "
        f"{'with ' + which if which else 'on its original configuration'}; "
        f"stop it with: kill {served.keeper_pid}",
        sys.stdout,
    )


def resume_command(order: Order, environment: Mapping[str, str]) -> str:
    """Return the command line that goes on with a study, in another shell too.

    The variables that the study belongs to stand before it, but for secrets; a secret in
    the command is masked.  Knobs, load and seed are left out: a study has its own.
    """
    from hpuwatch.parse.mask import mask
    from hpuwatch.tune.study import server_variables

    variables = [
        f"{name}={shlex.quote(value)}"
        for name, value in server_variables(environment).items()
        if mask(f"{name}={value}") == f"{name}={value}"
    ]
    words = ["hpuwatch", "tune", "--resume", "--name", order.settings.name]
    if order.trials is not None:
        words += ["--trials", str(order.trials)]
    if order.url is not None:
        words += ["--url", order.url]
    if order.out is not None:
        words += ["--out", str(order.out)]
    if order.settings.state_dir is not None:
        words += ["--state-dir", str(order.settings.state_dir)]
    words += ["--keep-best"] * order.keep_best + ["--then", "stop"] * (not order.serve)
    typed = shlex.join([*words, "--", *order.command])
    return mask(" ".join([*variables, typed]))


def _say(text: str) -> None:
    from hpuwatch.cli.tune_screen import put

    put(f"hpuwatch: {text}", sys.stderr)
