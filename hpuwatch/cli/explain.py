"""``hpuwatch explain NAME``: what a word of hpuwatch's output means."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from hpuwatch.cli.options import JSON_OR_TEXT, OWN_RULES, Format, check_choice

if TYPE_CHECKING:
    from hpuwatch.app.explain import Meaning


def explain(
    name: str = typer.Argument(
        ...,
        metavar="NAME",
        help="An event, fault, finding, knob, metric, phase, or a word of a report.",
    ),
    rules: Path | None = OWN_RULES,
    form: Format = "text",
) -> None:
    """Say what a name means: where it comes from, its values, what belongs to it."""
    from hpuwatch.app.explain import explain as look_up

    check_choice("--format", form, JSON_OR_TEXT)
    found = look_up(name, rules)
    if form == "json":
        print(found.model_dump_json(by_alias=True, indent=2))
        return
    for number, meaning in enumerate(found.meanings):
        if number:
            print()
        print(f"{found.name}: {meaning.kind}\n{meaning.text}")
        for line in _facts(meaning):
            print(line)


_ROW_BY_ROW = ("can help", "can't help")


def _facts(meaning: Meaning) -> Iterator[str]:
    for key, value in meaning.facts.items():
        if key == "rules":
            for rule in value:
                yield ""
                yield from _rule(rule)
        elif isinstance(value, dict):
            yield f"  {key}:"
            yield from (f"    {text} ({where})" for where, text in value.items())
        elif key in _ROW_BY_ROW:
            yield f"  {key}:"
            yield from (f"    {row}" for row in value)
        else:
            yield f"  {key}: {_plain(value)}"


def _rule(rule: dict[str, Any]) -> Iterator[str]:
    said_by = f"; {rule['releases']}" if rule["releases"] else ""
    yield f"  {rule['where']} ({rule['severity']}{said_by})"
    yield from (f"    {pattern}" for pattern in rule["patterns"])
    for key in ("fields", "set"):
        if rule[key]:
            yield f"    {key}: {_plain(rule[key])}"
    if rule["example"]:
        yield f"    as in: {rule['example']}"


def _plain(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key}={inner}" for key, inner in value.items())
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "-"
    return str(value)
