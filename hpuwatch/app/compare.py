"""Finding the two starts to compare: in logs, or among those that were remembered.

A start is named by a log (its last start), ``LOG@2`` (the second one in it), a name (its
newest start), ``NAME@7`` or, where one name alone has such a start, ``7``.  What exists as a
file is a log.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hpuwatch.advise.account.record import StartRecord, record_of
from hpuwatch.advise.compare.document import Comparison, compared
from hpuwatch.advise.report import build_report
from hpuwatch.app.catalogue import shipped_findings
from hpuwatch.app.history import Kept, kept_under, record_in
from hpuwatch.app.report import state_of
from hpuwatch.app.rules import shipped_rules
from hpuwatch.errors import InputError, MissingFileError, UsageError
from hpuwatch.parse.rules import RuleSet
from hpuwatch.state.model import State


def comparison_of(
    a: str, b: str, root: Path, name: str | None = None, rules: Path | None = None
) -> Comparison:
    """Return how two starts differ.

    Args:
        a: what names the one.
        b: what names the other.
        root: the state directory.
        name: whose start a bare number is.
        rules: log rules beside the shipped ones.

    Raises:
        MissingFileError: there is no such log or start.
        UsageError: a number is of several names' starts.
        InputError: a log is empty, binary, or not of a server on Gaudi.
        StoreBroken: a store can't be read.
    """
    finder = _Finder(root, name, rules)
    return compared((a, b), finder.record(a), finder.record(b))


class _Finder:
    """Reads each log and the stores once."""

    def __init__(self, root: Path, name: str | None, rules: Path | None) -> None:
        self._root = root
        self._name = name
        self._folder = rules
        self._rules: RuleSet | None = None
        self._logs: dict[str, State] = {}
        self._kept: list[Kept] | None = None

    def record(self, text: str) -> StartRecord:
        place, number = _parted(text)
        if text == "-" or Path(text).is_file():
            return self._in_log(text, None)
        if number is not None and (place == "-" or Path(place).is_file()):
            return self._in_log(place, number)
        if "/" in text:
            raise MissingFileError(f"there is no log {text}")
        return self._in_store(text, place, number)

    def _in_log(self, path: str, number: int | None) -> StartRecord:
        if path not in self._logs:
            self._rules = self._rules or shipped_rules(self._folder)
            self._logs[path] = state_of(path, self._rules)
        state = self._logs[path]
        if not state.starts:
            raise InputError(f"{path} holds no start of a server")
        report = build_report([(path, state)], shipped_findings()).reports[0]
        starts = zip(state.starts, [*report.earlier, report], strict=True)
        found = [
            (start, part)
            for start, part in starts
            if number in (None, part.source.start)
        ]
        if not found:
            kept = f"{state.past.starts + 1} to {state.begun}"
            raise MissingFileError(f"{path} has no start {number}: it has {kept}")
        return record_of(*found[-1])

    def _in_store(self, text: str, place: str, number: int | None) -> StartRecord:
        if self._kept is None:
            self._kept = kept_under(self._root)
        if text.isdigit():
            place, number = self._owner(int(text)), int(text)
        found = record_in(self._kept, place, number)
        if found is None:
            raise MissingFileError(
                f"there is no log {text!r}, and no such start is remembered: hpuwatch "
                "history"
            )
        return found

    def _owner(self, number: int) -> str:
        """Return whose start of that number is meant.

        Raises:
            UsageError: several names have one.
        """
        if self._name is not None:
            return self._name
        kept: Sequence[Kept] = self._kept or ()
        names = [
            each.name for each in kept if any(number == one.id for one in each.starts)
        ]
        if len(names) > 1:
            several = " or ".join(f"{name}@{number}" for name in names)
            raise UsageError(f"{number} is of several names: write {several}")
        return names[0] if names else ""


def _parted(text: str) -> tuple[str, int | None]:
    place, at, number = text.rpartition("@")
    return (place, int(number)) if at and number.isdigit() else (text, None)
