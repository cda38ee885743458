"""Options that several verbs have, so that they look alike everywhere."""

from __future__ import annotations

import typer

OWN_RULES = typer.Option(
    None,
    "--rules",
    metavar="PATH",
    help="Log rules of your own, beside the shipped ones: a folder or a file.",
)
SHARE = typer.Option(False, "--share", help="Mask hosts, paths and addresses.")
