"""``hpuwatch buckets``: which shapes a configuration warms up, without starting it."""

from __future__ import annotations

import json
import textwrap
from typing import TYPE_CHECKING, Annotated

import typer

from hpuwatch.cli.bucket_options import configured
from hpuwatch.cli.options import JSON_OR_TEXT, Format, check_choice, fail_at

if TYPE_CHECKING:
    from hpuwatch.app.bucket_compare import Checked, Comparison
    from hpuwatch.app.bucket_sources import Told
    from hpuwatch.app.buckets import Answer, Explained

program = typer.Typer(
    help="Say which shapes a configuration warms up.",
    no_args_is_help=True,
)
_verb = configured(program)
_verb_of_log = configured(program, takes_log=True)

Shape = Annotated[
    str, typer.Argument(help="BATCH,QUERY,CONTEXT; the context in blocks.")
]
_OPERAND = (
    "A log, a saved list, a bucket file, an env file, a YAML configuration, a release, or "
    "NAME=VALUE,flag-name=VALUE."
)
Before = Annotated[str, typer.Argument(metavar="A", help=_OPERAND)]
After = Annotated[
    str,
    typer.Argument(metavar="B", help="Likewise; settings change what a log A tells."),
]
File = Annotated[str, typer.Argument(metavar="FILE", help="The bucket file.")]
Out = Annotated[
    str,
    typer.Option("--out", metavar="FILE", help="The picture: FILE.png or FILE.svg."),
]
FailOn = Annotated[
    str | None,
    typer.Option(help="Exit 1 at this severity or worse: info, warning, error."),
]
_WIDTH = 88
_SHOWN = 12  # buckets of a difference that are named in a line of text


@_verb_of_log
def count(told: Told, form: Format = "text") -> None:
    """Say how many buckets a configuration makes."""
    from hpuwatch.app.buckets import answer, counts

    found = answer(told)
    if _is_json(form):
        print(json.dumps(counts(found), indent=2))
    else:
        print(_summary(found))


@_verb_of_log
def list_(told: Told, form: Format = "text") -> None:
    """List the buckets, as lines of a bucket file.

    VLLM_BUCKETING_FROM_FILE takes such a file.
    """
    from hpuwatch.app.buckets import answer, lists

    found = answer(told)
    if _is_json(form):
        print(json.dumps(lists(found)))
        return
    for line in _summary(found).splitlines():
        print(f"# {line}")
    for bucket in (*found.prepared.prompt, *found.prepared.decode):
        print(tuple(bucket))


@_verb_of_log
def explain(told: Told, shape: Shape, form: Format = "text") -> None:
    """Say which bucket a shape gets, and whether it is ready."""
    from hpuwatch.app import buckets

    found = buckets.answer(told)
    explained = buckets.explain(found, *buckets.read_shape(shape))
    if _is_json(form):
        document = {**buckets.counts(found), "shape": explained.document()}
        print(json.dumps(document, indent=2))
    else:
        print(_explained(explained))


@_verb
def diff(told: Told, before: Before, after: After, form: Format = "text") -> None:
    """Say which buckets are added and removed from A to B."""
    from hpuwatch.app.bucket_compare import compare
    from hpuwatch.app.bucket_sources import of_operand

    one = of_operand(before, told)
    other = of_operand(after, one if one.stands_alone else told)
    found = compare(one, other)
    if _is_json(form):
        print(json.dumps(found.document()))
    else:
        print(_compared(found, before, after))


@_verb_of_log
def check(
    told: Told,
    file: File,
    form: Format = "text",
    fail_on: FailOn = None,
) -> None:
    """Say what a release makes of a bucket file."""
    from hpuwatch.advise.finding import SEVERITIES
    from hpuwatch.app.bucket_compare import check_path

    check_choice("--fail-on", fail_on, SEVERITIES)
    found = check_path(file, told)
    if _is_json(form):
        print(json.dumps(found.document(), indent=2))
    else:
        print(_checked(found))
    fail_at(fail_on, (remark.severity for remark in found.check.remarks))


@_verb_of_log
def heatmap(told: Told, out: Out) -> None:
    """Draw the buckets, and where they are padding.

    The same in words goes to stdout, and into the picture's description.
    """
    from pathlib import Path

    from hpuwatch.app.bucket_heatmap import draw
    from hpuwatch.app.buckets import answer

    print(draw(answer(told), Path(out)))


def _row(name: str, text: str) -> str:
    """Return a line with its name before it, in as many lines as it takes."""
    return textwrap.fill(
        text,
        _WIDTH,
        initial_indent=f"{name:10}",
        subsequent_indent=" " * 10,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _is_json(form: str) -> bool:
    check_choice("--format", form, JSON_OR_TEXT)
    return form == "json"


def _summary(found: Answer) -> str:
    settings = found.settings
    paged = "on" if settings.contiguous_pa else "off"
    rows = [
        ("release", f"{found.release.name} (dialect {settings.dialect})"),
        ("strategy", f"{settings.strategy}, contiguous paged attention {paged}"),
        (
            "prompt",
            f"{_buckets(found, 'prompt')}, {len(found.warmed)} shapes warmed",
        ),
        ("decode", _buckets(found, "decode")),
        *(("note", note) for note in found.notes),
    ]
    return "\n".join(_row(name, text) for name, text in rows)


def _buckets(found: Answer, phase: str) -> str:
    said = " as printed" if phase in found.printed else ""
    return f"{len(found.prepared.of(phase))} buckets{said}"


def _explained(told: Explained) -> str:
    wanted, bucket = tuple(told.wanted), tuple(told.bucket)
    if told.warm:
        state = "warmed up"
    elif told.prepared:
        state = "listed, but not warmed up: its first use compiles"
    else:
        state = "made up for this request, which waits until it is compiled"
    if not told.holds:
        state += "; it does not hold the shape"
    rows = [("shape", f"{told.phase} {wanted}"), ("bucket", f"{bucket}, {state}")]
    if told.padding is not None:
        rows.append(("padding", f"{told.padding:.0%} of the bucket"))
    if told.exceeds:
        limits = " and ".join(f"{name} ({at})" for name, at in told.exceeds.items())
        rows.append(("limit", f"the shape exceeds {limits}: no such step comes"))
    return "\n".join(_row(name, text) for name, text in rows)


def _compared(found: Comparison, before: str, after: str) -> str:
    lines = []
    for sign, name, side in (("A", before, found.before), ("B", after, found.after)):
        lines.append(f"{sign}         {name}: {side.release.name}")
        lines += [_row(f"note {sign}", note) for note in side.notes]
    for phase, change in found.changes.items():
        total = (
            len(found.before.prepared.of(phase)),
            len(found.after.prepared.of(phase)),
        )
        lines.append(
            f"{phase:10}{total[0]} → {total[1]} buckets: {change.kept} kept, "
            f"{len(change.added)} added, {len(change.removed)} removed"
        )
        for sign, buckets in (("+", change.added), ("-", change.removed)):
            if buckets:
                named = " ".join(str(tuple(each)) for each in buckets[:_SHOWN])
                more = len(buckets) - _SHOWN
                lines.append(f"{sign:10}{named}{f' … {more} more' if more > 0 else ''}")
    return "\n".join(lines)


def _checked(found: Checked) -> str:
    check = found.check
    like = (
        f", assumed like {found.release.assumed_like}"
        if found.release.assumed_like
        else ""
    )
    lines = [f"release   {found.release.name} (dialect {found.release.dialect}{like})"]
    if check.prompt is None:
        lines.append("buckets   unknown: hpuwatch can't tell what becomes of a line")
    elif check.starts:
        lines.append(f"buckets   {check.prompt} prompt, {check.decode} decode")
    else:
        lines.append("buckets   none: the server does not start with this file")
    for remark in check.remarks:
        place = f"{found.path}:{remark.line}: " if remark.line else ""
        lines.append(_row(remark.severity, f"{place}{remark.text}"))
    return "\n".join(lines)
