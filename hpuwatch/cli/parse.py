"""``hpuwatch parse``: a log as events, or what no rule knew of it."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from hpuwatch.events import Event, Value
    from hpuwatch.parse.parser import Parser

_FORMATS = {"text", "jsonl", "json"}


def parse(
    log: str = typer.Argument(
        ..., metavar="LOG", help="A log, plain or .gz, or - for standard input."
    ),
    unmatched: bool = typer.Option(
        False, "--unmatched", help="Show what no rule knew instead of the events."
    ),
    rules: Path | None = typer.Option(
        None,
        "--rules",
        metavar="PATH",
        help="Rules of your own beside the shipped ones.",
    ),
    form: str = typer.Option("text", "--format", help="text, jsonl or json."),
) -> None:
    """Read a log and print what it says, event by event."""
    from hpuwatch.app.rules import shipped_rules
    from hpuwatch.errors import UsageError
    from hpuwatch.parse.parser import Parser

    if form not in _FORMATS:
        raise UsageError(f"--format {form!r} is not text, jsonl or json")
    parser = Parser(shipped_rules(rules))
    events = _events(parser, log)
    if unmatched:
        for _ in events:
            pass
        _print_unmatched(parser, form)
    else:
        _print_events(events, form)


def _events(parser: Parser, log: str) -> Iterator[Event]:
    from hpuwatch.source.files import read_lines

    for line in read_lines(log):
        yield from parser.feed(line)
    yield from parser.close()


def _print_events(events: Iterator[Event], form: str) -> None:
    schema = {"schema": "hpuwatch.event/1"}
    if form == "json":
        document = schema | {"events": [_event(event) for event in events]}
        print(json.dumps(document, ensure_ascii=False, indent=2))
        return
    for event in events:
        if form == "jsonl":
            print(json.dumps(schema | _event(event), ensure_ascii=False))
        else:
            print(_sentence(event))


def _print_unmatched(parser: Parser, form: str) -> None:
    rows = [
        {
            "template": item.template,
            "level": item.level,
            "count": item.count,
            "example": item.example,
        }
        for item in parser.templates()
    ]
    schema = {"schema": "hpuwatch.unmatched/1"}
    if form == "json":
        document = schema | {"templates": rows}
        print(json.dumps(document, ensure_ascii=False, indent=2))
        return
    for row in rows:
        if form == "jsonl":
            print(json.dumps(schema | row, ensure_ascii=False))
        else:
            print(f"{row['count']:>7}  {row['level'] or '-':8}  {row['template']}")


def _event(event: Event) -> dict[str, object]:
    return {
        "kind": event.kind,
        "fields": {name: _value(value) for name, value in event.fields.items()},
        "line": {
            "number": event.line.number,
            "offset": event.line.offset,
            "text": event.line.text,
        },
        "speaker": {
            "process": event.speaker.process,
            "pid": event.speaker.pid,
            "rank": event.speaker.rank,
        },
        "level": event.level,
        "logged_at": event.logged_at,
        "context": list(event.context),
    }


def _value(value: Value) -> object:
    from hpuwatch.units import Amount

    if isinstance(value, Amount):
        return {"bytes": value.bytes, "printed": value.printed}
    if isinstance(value, tuple):
        return [_value(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)  # JSON has no infinity
    return value


def _sentence(event: Event) -> str:
    from hpuwatch.parse.proof import plain

    rank = "" if not event.speaker.rank else f" rank {event.speaker.rank}"
    fields = " ".join(f"{name}={plain(v)}" for name, v in event.fields.items())
    return f"{event.line.number:>7}  {event.kind}{rank}  {fields or event.line.text}"
