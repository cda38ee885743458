"""From log files to a report: read, parse, reduce, advise."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from hpuwatch.advise.document import Report
from hpuwatch.advise.report import build_report
from hpuwatch.app.catalogue import shipped_findings
from hpuwatch.app.remember import Memory, reported
from hpuwatch.app.rules import shipped_rules
from hpuwatch.errors import InputError, MissingFileError
from hpuwatch.events import Event
from hpuwatch.parse.parser import Parser
from hpuwatch.parse.rules import RuleSet
from hpuwatch.records import Line
from hpuwatch.source.files import read_lines
from hpuwatch.state.model import Start, State
from hpuwatch.state.reduce import outlasted

_GAUDI_KINDS = frozenset(
    {
        "bridge_banner",
        "bucket_config",
        "bucket_env_echo",
        "bucket_fallback",
        "buckets_generated",
        "cache_engine_init",
        "config_not_warmed",
        "graph_budget",
        "graph_summary",
        "hpu_graph_wrap",
        "kv_alloc_v1",
        "memory_split",
        "model_profiling_run",
        "runtime_config_dump",
        "simulated_server",
        "warmup_bucket",
        "warmup_finished",
        "warmup_misc",
        "weights_preload",
    }
)
"""What only a server on Gaudi says; vLLM itself says the rest on any card."""

_GAUDI_WORDS = re.compile(r"\bhpu\b|gaudi|habana|synStatus|MODULE:PT_", re.IGNORECASE)
_CUDA_WORDS = re.compile(
    r"\bCUDA graph|\bplatform cuda\b|device_config=cuda|\bNCCL\b|nvidia|Flash ?Attention backend"
    r"|torch\.cuda|cuda:\d",
    re.IGNORECASE,
)

_AT_ONCE = 1_000  # events that are folded together at most
_HEARD = 4_000  # characters of a line that are looked at


def report_of(
    paths: Sequence[str],
    rules_folder: Path | None = None,
    memory: Memory | None = None,
) -> Report:
    """Return the report over log files; ``-`` is standard input.

    Args:
        paths: the logs.
        rules_folder: log rules beside the shipped ones.
        memory: where starts and suggestions are kept; None keeps nothing.

    Raises:
        MissingFileError: a file can't be opened.
        InputError: a log is empty, binary, or not of a server on Gaudi.
        ConfigError: the rules can't be read.
    """
    rules = shipped_rules(rules_folder)
    states = [(_shown(path), state_of(path, rules)) for path in paths]
    if memory is None:
        return build_report(states, shipped_findings())
    return reported(memory, states)


def _shown(path: str) -> str:
    """Return a path as text; of its bytes some may be no letters."""
    return os.fsencode(path).decode("utf-8", "replace")


def spool_of(name: str | None, state_dir: str | None) -> str:
    """Return the log of the newest server that ``hpuwatch run`` started under a name.

    Raises:
        MissingFileError: nothing ran under that name.
    """
    from hpuwatch.runtime.instance import Instance
    from hpuwatch.settings import load_settings

    settings = load_settings(name=name, state_dir=state_dir)
    spool = Instance(settings.state_root(), settings.name).spool
    if not spool.is_file():
        raise MissingFileError(
            f"no server has run under the name {settings.name!r} in "
            f"{settings.state_root()}: check --name and --state-dir, or name a log"
        )
    return str(spool)


def state_of(path: str, rules: RuleSet) -> State:
    """Return what a log says of its server.

    Raises:
        MissingFileError: the file can't be opened.
        InputError: the log is empty, binary, or not of a server on Gaudi.
    """
    parser, origin = Parser(rules), _Origin()
    state = State()
    events: list[Event] = []
    for line in read_lines(path, parser):
        found = parser.feed(line)
        if found:
            origin.saw(found)
            events += found
            if len(events) >= _AT_ONCE:
                state = outlasted(state, events)
                events.clear()
        origin.heard(line)
    found = parser.close()
    origin.saw(found)
    state = outlasted(state, events + found)
    if not origin.gaudi:
        raise InputError(origin.complaint("standard input" if path == "-" else path))
    return state


def starts_of(path: str) -> tuple[Start, ...]:
    """Return the starts in a log, oldest first, as the shipped rules read them.

    Raises:
        MissingFileError: the file can't be opened.
        InputError: the log is not of a server on Gaudi, or holds no start.
    """
    starts = state_of(path, shipped_rules()).starts
    if not starts:
        raise InputError(f"{path} holds no start of a server")
    return starts


class _Origin:
    """Whose log it is, found out while reading."""

    def __init__(self) -> None:
        self.gaudi = False
        self._cuda = False
        self._vllm = False

    def saw(self, events: Sequence[Event]) -> None:
        """Take events into account."""
        for event in () if self.gaudi else events:
            self._vllm = True
            self.gaudi = self.gaudi or event.kind in _GAUDI_KINDS
            self.gaudi = self.gaudi or bool(_GAUDI_WORDS.search(event.line.text))

    def heard(self, line: Line) -> None:
        """Take any line into account, while nothing tells of Gaudi."""
        if not self.gaudi and not self._cuda:
            self._cuda = bool(_CUDA_WORDS.search(line.text[:_HEARD]))

    def complaint(self, name: str) -> str:
        """Say what the log looks like instead."""
        if self._cuda:
            return (
                f"{name} looks like the log of a server on CUDA, and hpuwatch reads logs "
                "of vLLM on Intel Gaudi"
            )
        if self._vllm:
            return (
                f"{name} looks like a vLLM log, but no line in it comes from a Gaudi "
                "server: give the log from the server's start on"
            )
        return (
            f"{name} holds no line of a vLLM server on Intel Gaudi: give the server's "
            "own output, from its start on"
        )
