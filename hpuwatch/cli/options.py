"""Options that several verbs have, so that they look alike everywhere."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated

import typer

OWN_RULES = typer.Option(
    None,
    "--rules",
    metavar="PATH",
    help="Log rules of your own, beside the shipped ones: a folder or a file.",
)
SHARE = typer.Option(False, "--share", help="Mask hosts, paths and addresses.")

JSON_OR_TEXT = ("text", "json")
Format = Annotated[str, typer.Option("--format", help="text or json.")]

Release = Annotated[
    str | None,
    typer.Option(
        help="plugin-0.26, fork-1.22, plugin-head or any version [plugin-0.26]."
    ),
]
Seqs = Annotated[int | None, typer.Option(min=1, help="Sequences at a time [256].")]
ModelLen = Annotated[
    int | None, typer.Option(min=1, help="Longest sequence, in tokens.")
]
Blocks = Annotated[
    int | None,
    typer.Option("--num-blocks", min=1, help="KV blocks, as the server's log has it."),
]
Tokens = Annotated[
    int | None,
    typer.Option(
        min=1, help="Tokens of a step [plugin: 2048; fork: the model's length]."
    ),
]
BlockSize = Annotated[
    int | None, typer.Option(min=1, help="Tokens of a KV block [128].")
]
Prefills = Annotated[
    int | None, typer.Option(min=1, help="Prompts of a prefill; a flag of the fork.")
]
Caching = Annotated[
    bool | None,
    typer.Option(
        "--enable-prefix-caching/--no-enable-prefix-caching",
        help="Keep the KV blocks of prefixes; decides buckets before plugin-0.11 only.",
    ),
]
Drafts = Annotated[
    int | None, typer.Option(min=0, help="Tokens of a speculative draft.")
]
Chunk = Annotated[int | None, typer.Option(min=0, help="Chunk of a Mamba model.")]
ChunkSaid = Annotated[
    bool, typer.Option(help="The chunk stands in the model's configuration.")
]
Unclamped = Annotated[
    bool,
    typer.Option(help="plugin-head: a hybrid or sliding-window model."),
]
AttentionBlock = Annotated[
    int | None,
    typer.Option(
        min=1, help="Tokens of an attention block, where a hybrid model has its own."
    ),
]
Strategy = Annotated[
    str | None, typer.Option(help="exp, lin or pad, whatever the variables say.")
]
Contiguous = Annotated[
    str | None,
    typer.Option("--contiguous-pa", metavar="on|off", help="Contiguous attention."),
]
BucketFile = Annotated[
    str | None, typer.Option(metavar="PATH", help="Take the buckets from this file.")
]
Config = Annotated[
    str | None,
    typer.Option("--config", metavar="YAML", help="vLLM's own configuration file."),
]
EnvFile = Annotated[
    list[str] | None,
    typer.Option("--env-file", metavar="FILE", help="The same as --env FILE."),
]
Env = Annotated[
    list[str] | None,
    typer.Option(
        "--env",
        metavar="NAME=VALUE|FILE",
        help="A variable (empty unsets it), or an env file.",
    ),
]
Inherit = Annotated[
    bool, typer.Option("--inherit", help="The server gets the variables set here.")
]
FromEnv = Annotated[bool, typer.Option("--from-env", hidden=True)]
"""The former name of ``--inherit``."""


def check_choice(option: str, value: str | None, known: Sequence[str]) -> None:
    """Refuse a value that an option doesn't have; None stands for none.

    Raises:
        UsageError: it is not one of ``known``.
    """
    from hpuwatch.errors import UsageError

    if value is not None and value not in known:
        several = f"one of {', '.join(known)}"
        told = " or ".join(known) if len(known) == 2 else several
        raise UsageError(f"{option} {value!r} is not {told}")


def fail_at(fail_on: str | None, severities: Iterable[str]) -> None:
    """End with 1 where something is as grave as ``fail_on`` or worse.

    Raises:
        Exit: something is.
    """
    from hpuwatch.advise.finding import SEVERITIES

    grave = () if fail_on is None else SEVERITIES[SEVERITIES.index(fail_on) :]
    if any(severity in grave for severity in severities):
        raise typer.Exit(1)
