"""The program and its verbs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import typer

from hpuwatch import __version__
from hpuwatch.cli import (
    attach,
    buckets,
    compare,
    demo,
    doctor,
    explain,
    history,
    last_exit,
    lint,
    load,
    parse,
    predict,
    replay,
    rules,
    run,
    sim,
    study,
    suggest,
    tune,
    watch,
)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"hpuwatch {__version__}")
        raise typer.Exit


def _program() -> typer.Typer:
    program = typer.Typer(
        name="hpuwatch",
        help="Own, understand and tune a vLLM server on Intel Gaudi (HPU).",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,  # plain help: it is piped, searched and put into docs
        context_settings={"help_option_names": ["-h", "--help"]},
    )

    @program.callback()
    def everywhere(
        version: bool = typer.Option(
            False,
            "--version",
            help="Print the version and exit.",
            callback=_version,
            is_eager=True,
        ),
    ) -> None:
        pass

    return program


def build() -> typer.Typer:
    """Return the program with all its verbs."""
    program = _program()
    program.command("_watch", hidden=True)(watch.watch)
    # The last words are what the list of commands shows: 60 characters, so none is cut.
    add = partial(_add, program)
    add("attach", attach.attach, "Follow a log; answer metrics and probes from it.")
    program.add_typer(buckets.program, name="buckets")
    add(
        "compare",
        compare.compare,
        "Say how two starts differ, and what explains it.",
    )
    add("demo", demo.demo, "See it all on a simulated server, in under two minutes.")
    add("doctor", doctor.doctor, "Look whether this machine is fit for the job.")
    add("explain", explain.explain, "Say what a name in our output means.")
    add(
        "history",
        history.history,
        "List remembered starts, and what predictions were worth.",
    )
    add(
        "last-exit",
        last_exit.last_exit,
        "Say why the last server ended, and what to do.",
    )
    add("lint", lint.lint, "Say what is wrong with a configuration, before a start.")
    add("load", load.load, "Give a server a known load, and measure it.")
    add("parse", parse.parse, "Print what a log says, event by event.")
    add(
        "predict",
        predict.predict,
        "Say what a configuration costs, before the restart.",
    )
    add("replay", replay.replay, "Play a recorded log for a dashboard.")
    program.add_typer(rules.program, name="rules")
    add(
        "run",
        run.run,
        "Start a server and own it: output, metrics, its end.",
        run.SETTINGS,
    )
    add("sim", sim.sim, "Simulate a vLLM server on Gaudi.", sim.SETTINGS)
    program.add_typer(study.program, name="study")
    add(
        "suggest", suggest.suggest, "Say what a server's log means, and what to change."
    )
    add(
        "tune",
        tune.tune,
        "Look for better settings, restart by restart.",
        tune.SETTINGS,
    )
    return program


def _add(
    program: typer.Typer,
    name: str,
    verb: Callable[..., None],
    short: str,
    settings: dict[str, Any] | None = None,
) -> None:
    program.command(name, short_help=short, context_settings=settings)(verb)
