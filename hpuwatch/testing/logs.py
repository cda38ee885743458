"""Logs as text, for tests and experiments: what the shipped rules make of them."""

from __future__ import annotations

from functools import cache
from itertools import chain

from hpuwatch.app.rules import shipped_rules
from hpuwatch.events import Event
from hpuwatch.parse.parser import Parser
from hpuwatch.parse.rules import RuleSet
from hpuwatch.source.assemble import Assembler
from hpuwatch.state.model import Start, State
from hpuwatch.state.reduce import reduce

OUT_OF_MEMORY = "".join(
    f"(EngineCore pid=7) ERROR 01-02 03:04:05 [core.py:1] {text}\n"
    for text in (
        "EngineCore failed to start.",
        "Traceback (most recent call last):",
        '  File "x.py", line 1, in warm',
        "RuntimeError: FATAL ERROR :: MODULE:PT_DEVMEM Allocation failed for size::268435456 (256)MB",
    )
)
"""The last words of an engine that found no memory."""


@cache
def rules() -> RuleSet:
    """Return the shipped rules, read once."""
    return shipped_rules()


def events_of_text(text: str, received_at: float | None = None) -> list[Event]:
    """Return the events of a whole log, read at one moment."""
    parser, assembler = Parser(rules()), Assembler()
    lines = chain(assembler.feed(text.encode(), received_at), assembler.close())
    events = [event for line in lines for event in parser.feed(line)]
    return events + parser.close()


def state_of_text(text: str, received_at: float | None = None) -> State:
    """Return what is known after a whole log."""
    state = State()
    for event in events_of_text(text, received_at):
        state = reduce(state, event)
    return state


def start_of_text(text: str) -> Start:
    """Return the newest start of a log.

    Raises:
        ValueError: the rules know none of its lines.
    """
    start = state_of_text(text).current
    if start is None:
        raise ValueError("the text holds no line that the rules know")
    return start
