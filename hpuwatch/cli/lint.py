"""``hpuwatch lint [LOG] [-- CMD...]``: what is wrong with a configuration, before a start."""

from __future__ import annotations

import json
import os
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from hpuwatch.cli.options import (
    JSON_OR_TEXT,
    Env,
    EnvFile,
    Format,
    Inherit,
    check_choice,
    fail_at,
)

if TYPE_CHECKING:
    from hpuwatch.app.lint import Verdict
    from hpuwatch.app.server_inputs import View

Words = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[LOG] [-- CMD...]",
        help="A server's log, the command line of a server, or both.",
        show_default=False,
    ),
]
Release = Annotated[
    str | None,
    typer.Option(help="plugin-0.26, fork-1.22 or any version; else as the log says."),
]
Cwd = Annotated[
    str, typer.Option("--cwd", metavar="PATH", help="The server's working directory.")
]
Mapped = Annotated[
    list[str] | None,
    typer.Option(
        "--map", metavar="INSIDE=HERE", help="A folder in the server's container."
    ),
]
Card = Annotated[
    str | None, typer.Option(help="gaudi2 or gaudi3, to compare with an env file.")
]
Blocks = Annotated[
    int | None, typer.Option("--num-blocks", min=1, help="KV blocks, as a log has it.")
]
Chunk = Annotated[int, typer.Option(min=0, help="Chunk of a Mamba model.")]
WarmupSeconds = Annotated[
    float | None, typer.Option(help="What warm-up takes, where you know it.")
]
FailOn = Annotated[
    str | None,
    typer.Option(help="Exit 1 at this severity or worse: info, warning, error."),
]
_WIDTH = 88


def lint(
    words: Words = None,
    release: Release = None,
    env: Env = None,
    env_file: EnvFile = None,
    inherit: Inherit = False,
    cwd: Cwd = ".",
    mapped: Mapped = None,
    card: Card = None,
    num_blocks: Blocks = None,
    mamba_chunk_size: Chunk = 0,
    warmup_seconds: WarmupSeconds = None,
    form: Format = "text",
    fail_on: FailOn = None,
) -> None:
    """Say what is wrong with a server's configuration, before a start is paid for.

    Ends with 78 where an env file was made for another server.
    """
    from hpuwatch.advise.finding import SEVERITIES
    from hpuwatch.app.lint import Order, judge

    check_choice("--format", form, JSON_OR_TEXT)
    check_choice("--fail-on", fail_on, SEVERITIES)
    order = Order(
        words=words or [],
        release=release,
        env=[*(env_file or []), *(env or [])],
        inherit=inherit,
        view=_view(cwd, mapped or []),
        card=card,
        num_blocks=num_blocks,
        mamba_chunk_size=mamba_chunk_size,
        warmup_seconds=warmup_seconds,
    )
    verdict = judge(order, os.environ)
    if form == "json":
        print(json.dumps(verdict.document(), indent=2, ensure_ascii=False))
    else:
        print(_text(verdict))
    _end(verdict, fail_on)


def _end(verdict: Verdict, fail_on: str | None) -> None:
    """Raise what ends the verb with another code than 0."""
    from hpuwatch.advise.lint.kinds import WRONG_SERVER
    from hpuwatch.errors import ConfigError

    if any(each.code == WRONG_SERVER for each in verdict.findings):
        raise ConfigError("the env file was made for another server: don't use it here")
    fail_at(fail_on, (each.severity for each in verdict.findings))


def _view(cwd: str, mapped: Sequence[str]) -> View:
    from hpuwatch.app.server_inputs import View
    from hpuwatch.errors import UsageError

    folders = []
    for text in mapped:
        inside, sign, here = text.partition("=")
        if not sign or not inside.startswith("/") or not here:
            raise UsageError(f"--map {text!r} is not /INSIDE=HERE")
        folders.append((inside, here))
    return View(cwd, tuple(sorted(folders, key=lambda pair: -len(pair[0]))))


def _text(verdict: Verdict) -> str:
    from hpuwatch.parse.mask import mask, mask_value

    found = verdict.configuration
    lines = [f"{found.release.name}: {len(found.settings)} settings looked at"]
    lines += [f"note: {note}" for note in verdict.notes]
    for each in verdict.findings:
        about = each.remark.about
        value = mask_value(about.name, about.value)
        told = f"{about.name}={value}" if value else about.name
        lines += ["", f"{each.severity.upper()} {each.code}: {told} ({about.where})"]
        for text in (each.remark.happens, each.remark.cure):
            lines += textwrap.wrap(
                mask(text),
                _WIDTH,
                initial_indent="  ",
                subsequent_indent="  ",
                break_long_words=False,
                break_on_hyphens=False,
            )
    lines += ["", _sum(verdict)]
    return "\n".join(lines)


def _sum(verdict: Verdict) -> str:
    from hpuwatch.advise.finding import SEVERITIES
    from hpuwatch.units import counted

    counts = dict.fromkeys(reversed(SEVERITIES), 0)
    for each in verdict.findings:
        counts[each.severity] += 1
    told = [
        f"{count} {name}" if name == "info" else counted(count, name)
        for name, count in counts.items()
        if count
    ]
    return ", ".join(told) if told else "nothing found"
