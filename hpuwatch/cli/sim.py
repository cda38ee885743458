"""``hpuwatch sim``: a simulated vLLM server on Gaudi, for trials without hardware."""

from __future__ import annotations

import os

import typer

# The server has vLLM's own command line, so that every argument goes through untouched.
SETTINGS = {
    "allow_extra_args": True,
    "ignore_unknown_options": True,
    "help_option_names": [],
}


def sim(context: typer.Context) -> None:
    """Simulate a vLLM server on Gaudi (arguments as for `vllm serve`, see --help)."""
    from hpuwatch.sim.server import run

    raise typer.Exit(run(context.args, os.environ))
