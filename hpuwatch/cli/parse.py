"""``hpuwatch parse``: a log as events, what no rule knew of it, or how much they know."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from hpuwatch.cli.options import OWN_RULES, SHARE, check_choice

if TYPE_CHECKING:
    from hpuwatch.events import Event, Value
    from hpuwatch.parse.parser import Parser
    from hpuwatch.parse.tally import Tally
    from hpuwatch.parse.unmatched import Counter as Unknown

_FORMATS = ("text", "jsonl", "json")
_Show = Callable[[Any], Any]


def parse(
    log: str = typer.Argument(
        ..., metavar="LOG", help="A log, plain or .gz, or - for standard input."
    ),
    unmatched: bool = typer.Option(
        False, "--unmatched", help="Show what no rule knew instead of the events."
    ),
    stats: bool = typer.Option(
        False, "--stats", help="Show how much the rules know instead, by level."
    ),
    rules: Path | None = OWN_RULES,
    share: bool = SHARE,
    form: str = typer.Option("text", "--format", help="text, jsonl or json."),
) -> None:
    """Read a log and print what it says, event by event."""
    from hpuwatch.app.rules import shipped_rules
    from hpuwatch.errors import UsageError
    from hpuwatch.parse.parser import Parser
    from hpuwatch.parse.tally import Tally
    from hpuwatch.parse.unmatched import Counter as Unknown

    check_choice("--format", form, _FORMATS)
    if stats and unmatched:
        raise UsageError("--stats and --unmatched exclude one another: give one")
    show = _without_site if share else _as_it_is
    tally, unknown = Tally() if stats else None, Unknown(show) if unmatched else None
    parser = Parser(shipped_rules(rules), tally, unknown)
    events = _events(parser, log, every_line=stats)
    if tally is not None:
        _print_stats(_stats(parser, tally, events), form)
    elif unknown is not None:
        _print_unmatched(unknown, events, form)
    else:
        _print_events(events, form, show)


def _as_it_is(value: Any) -> Any:
    return value


def _without_site(value: Any) -> Any:
    from hpuwatch.advise.render.share import site_masked

    return site_masked(value)


def _events(parser: Parser, log: str, *, every_line: bool) -> Iterator[Event]:
    from hpuwatch.source.files import read_lines

    for line in read_lines(log, None if every_line else parser):
        yield from parser.feed(line)
    yield from parser.close()


def _print_events(events: Iterator[Event], form: str, show: _Show) -> None:
    schema = {"schema": "hpuwatch.event/1"}
    if form == "json":
        document = schema | {"events": [show(_event(event)) for event in events]}
        print(json.dumps(document, ensure_ascii=False, indent=2))
        return
    for event in events:
        if form == "jsonl":
            print(json.dumps(schema | show(_event(event)), ensure_ascii=False))
        else:
            print(show(_sentence(event)))


def _print_unmatched(unknown: Unknown, events: Iterator[Event], form: str) -> None:
    for _ in events:
        pass
    rows = [
        {
            "template": item.template,
            "level": item.level,
            "count": item.count,
            "example": item.example,
        }
        for item in unknown.templates()
    ]
    if rest := unknown.rest.count:
        print(f"{rest:,} more lines are like none of these", file=sys.stderr)
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


def _stats(parser: Parser, tally: Tally, events: Iterator[Event]) -> dict[str, Any]:
    """Return ``stats/1``: the records of each level, and the events by kind."""
    kinds: Counter[str] = Counter()
    faults: Counter[str] = Counter()
    for event in events:
        kinds[event.kind] += 1
        if event.kind == "fault":
            faults[str(event.fields["name"])] += 1
    levels = [*tally.levels.items(), ("all", tally.total())]
    return {
        "schema": "hpuwatch.stats/1",
        "lines": parser.lines,
        "unparsed": parser.unparsed,
        "levels": {name: row.counts() for name, row in levels if row.records},
        "events": dict(kinds.most_common()),
        "faults": dict(faults.most_common()),
    }


def _print_stats(document: dict[str, Any], form: str) -> None:
    if form != "text":
        print(json.dumps(document, indent=2 if form == "json" else None))
        return
    print(f"{document['lines']:,} lines; {document['unparsed']:,} of them unparsed")
    names = ("records", "matched", "noise", "block", "unmatched")
    print(f"\n{'level':10}" + "".join(f"{name:>11}" for name in names))
    for level, row in document["levels"].items():
        print(f"{level:10}" + "".join(f"{row[name]:>11,}" for name in names))
    for title in ("events", "faults"):
        if document[title]:
            print(f"\n{title}")
        for name, count in document[title].items():
            print(f"{count:>11,}  {name}")


def _event(event: Event) -> dict[str, Any]:
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
            "engine": event.speaker.engine,
            "stage": event.speaker.stage,
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
    return value


def _sentence(event: Event) -> str:
    from hpuwatch.parse.proof import plain

    rank = "" if not event.speaker.rank else f" rank {event.speaker.rank}"
    fields = " ".join(f"{name}={plain(v)}" for name, v in event.fields.items())
    return f"{event.line.number:>7}  {event.kind}{rank}  {fields or event.line.text}"
