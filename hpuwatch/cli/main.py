"""The program and its verbs."""

from __future__ import annotations

import typer

from hpuwatch import __version__
from hpuwatch.cli import (
    attach,
    buckets,
    demo,
    doctor,
    last_exit,
    parse,
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


def build() -> typer.Typer:
    """Return the program with all its verbs."""
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

    program.command("_watch", hidden=True)(watch.watch)
    program.command("attach")(attach.attach)
    program.add_typer(buckets.program, name="buckets")
    program.command("demo")(demo.demo)
    program.command("doctor")(doctor.doctor)
    program.command("last-exit")(last_exit.last_exit)
    program.command("parse")(parse.parse)
    program.add_typer(rules.program, name="rules")
    program.command("run", context_settings=run.SETTINGS)(run.run)
    program.command("sim", context_settings=sim.SETTINGS)(sim.sim)
    program.add_typer(study.program, name="study")
    program.command("suggest")(suggest.suggest)
    program.command("tune", context_settings=tune.SETTINGS)(tune.tune)
    return program
