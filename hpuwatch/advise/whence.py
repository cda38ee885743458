"""From which of several logs a quoted line comes.

A check gets starts of other logs too, to compare with, and quotes their lines as its own.  A
line doesn't know its file, but every line that can be quoted is kept by its start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass

from hpuwatch.records import Line
from hpuwatch.state.model import Start

FileOf = Callable[[Line], str]


def files_of(
    file: str, starts: Iterable[Start], others: Iterable[tuple[str, Start]]
) -> FileOf:
    """Return what tells the file of a line.

    Args:
        file: the log that is judged.
        starts: those in it; where another log has the very same line, it is theirs.
        others: starts of other logs, with the name of the log.
    """
    theirs = {line: name for name, start in others for line in _lines(start)}
    if not theirs:
        return lambda _line: file
    own = {line for start in starts for line in _lines(start)}
    return lambda line: file if line in own else theirs.get(line, file)


def _lines(value: object) -> Iterator[Line]:
    """Yield every line that a value holds."""
    if isinstance(value, Line):
        yield value
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _lines(each)
    elif isinstance(value, tuple):
        for each in value:
            yield from _lines(each)
    elif is_dataclass(value):
        for each in fields(value):
            yield from _lines(getattr(value, each.name))
