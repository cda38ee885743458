"""A start of the simulated server, in this process and in no time at all, and its log read."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from hpuwatch.app.rules import shipped_rules
from hpuwatch.events import Event
from hpuwatch.parse.parser import Parser
from hpuwatch.parse.rules import RuleSet
from hpuwatch.sim.config.options import parse_options
from hpuwatch.sim.families import family_of
from hpuwatch.sim.serve.engine import Engine
from hpuwatch.sim.server import Server
from hpuwatch.sim.world import EngineFailed
from hpuwatch.source.assemble import Assembler
from hpuwatch.testing.clock import FakeClock

_RULES: list[RuleSet] = []


@dataclass(frozen=True)
class Started:
    """What one start printed, in one file and by stream, and what it became."""

    server: Server
    output: str
    engine: Engine | None = None
    failure: EngineFailed | None = None
    streams: Mapping[str, str] = field(default_factory=dict)


def start(*arguments: str, **env: str) -> Started:
    """Start a server with a command line and an environment, up to its last line."""
    output = io.StringIO()
    streams = {name: _Stream(output) for name in ("stdout", "stderr")}
    # Waits shorter than a moment are not waited for: a start takes no real time.
    options = parse_options([*arguments, "--speed", "1e12"], env)
    server = Server(options, FakeClock(), streams)
    engine, failed = None, None
    try:
        engine = asyncio.run(server.start())
    except EngineFailed as failure:
        family_of(options.point).engine_failed(server.world, failure)
        failed = failure
    told = {name: stream.getvalue() for name, stream in streams.items()}
    return Started(server, output.getvalue(), engine, failed, told)


class _Stream(io.StringIO):
    """One of the two streams of a server, which both end up in one file."""

    def __init__(self, file: io.StringIO) -> None:
        super().__init__()
        self._file = file

    def write(self, text: str) -> int:
        self._file.write(text)
        return super().write(text)


def events_of(output: str | bytes, *, unknown: int = 0) -> list[Event]:
    """Read a log with the shipped rules, to which so many lines that matter are unknown."""
    if not _RULES:
        _RULES.append(shipped_rules())
    data = output.encode() if isinstance(output, str) else output
    parser, assembler = Parser(_RULES[0]), Assembler()
    lines = [*assembler.feed(data, None), *assembler.close()]
    events = [event for line in lines for event in parser.feed(line)]
    events += parser.close()
    assert parser.unparsed == unknown
    return events


def only(events: Iterable[Event], kind: str) -> Event:
    """Return the one event of a kind."""
    (event,) = [event for event in events if event.kind == kind]
    return event


def kinds(events: Iterable[Event]) -> Sequence[str]:
    """Return the kinds of events in their order."""
    return [event.kind for event in events]
