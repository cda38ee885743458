"""An operator's rule files, loaded again whenever they change.

A thread of its own waits for changes (watchdog tells of them, and it looks every few seconds
where that can't), reads the files and compiles them; whoever follows a log takes the finished
set between two chunks.  A mistake costs nothing: it is told, every one with file and line,
and the rules that were in force stay so, at the beginning the shipped ones.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType

from typing_extensions import Self

from hpuwatch.app.rules import rule_files, shipped_rules
from hpuwatch.errors import ConfigError
from hpuwatch.parse.rules import RuleSet
from hpuwatch.source.changes import Changes
from hpuwatch.state.snapshot import Snapshot

_LOOK_SECONDS = 5.0
"""How often it looks for changes that nobody told of: a network file system, no watches left."""
_SETTLE_SECONDS = 0.2
"""How long files must rest before they are read: editors write in several steps."""
_MOST_ROUNDS = 20  # of waiting for that

_Stamps = tuple[tuple[str, int, int, int], ...]


class LiveRules:
    """The rules in force, and those that take their place."""

    def __init__(self, path: Path | None, tell: Callable[[str], None]) -> None:
        """Load the rules.

        Args:
            path: a folder of rule files or one file, or None for the shipped rules only.
            tell: says a sentence to people; called from a thread, too.

        Raises:
            ConfigError: the shipped rules can't be loaded.
        """
        self._path = None if path is None else path.absolute()
        self._tell = tell
        self._failures = 0
        self._changed = threading.Event()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="rules", daemon=True)
        self._stamps = _stamps(self._path)
        self.rules = self._newest = self._loaded() or shipped_rules()

    def take(self) -> RuleSet | None:
        """Return rules that have come since the last call; they are in force now."""
        newest = self._newest
        if newest is self.rules:
            return None
        self.rules = newest
        return newest

    def told_in(self, snapshot: Snapshot) -> Snapshot:
        """Return the snapshot with what is known of the rules."""
        count = len(self.rules.rules)
        return replace(snapshot, rules=count, rule_failures=self._failures)

    def look(self) -> None:
        """Load the files again if they have changed."""
        stamps = _stamps(self._path)
        if stamps == self._stamps:
            return
        self._stamps = stamps
        loaded = self._loaded()
        if loaded is not None:
            _compile(loaded)
            self._newest = loaded
            self._tell(f"{self._path} has changed: {len(loaded.rules)} rules in force")

    def __enter__(self) -> Self:
        """Follow the files from now on."""
        if self._path is not None:
            self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Follow them no longer."""
        self._over.set()
        self._changed.set()

    def _loaded(self) -> RuleSet | None:
        path = self._path
        if path is not None and not rule_files(path):
            path = None  # an empty folder: nothing yet, or no longer
        try:
            return shipped_rules(path)
        except ConfigError as error:
            if path is None:
                raise
            self._failures += 1
            for line in str(error).splitlines():
                self._tell(line)
            self._tell("the log rules that were in force stay so")
            return None

    def _follow(self) -> None:
        path = self._path
        if path is None:
            return
        with Changes([path, path.parent], self._note):
            while not self._over.is_set():
                self._changed.wait(_LOOK_SECONDS)
                for _ in range(_MOST_ROUNDS):
                    if self._over.is_set() or not self._changed.is_set():
                        break
                    self._changed.clear()
                    self._changed.wait(_SETTLE_SECONDS)
                self._look_again()

    def _look_again(self) -> None:
        """Look, and go on whatever came of it: the next file may be good."""
        try:
            self.look()
        except Exception as error:  # noqa: BLE001  nobody would ever load rules again
            self._failures += 1
            self._tell(
                f"the log rules can't be loaded: {type(error).__name__}: {error}"
            )
            self._tell("the log rules that were in force stay so")

    def _note(self, paths: set[str]) -> None:
        ours = str(self._path)
        if any(path == ours or path.startswith(f"{ours}/") for path in paths):
            self._changed.set()


def _compile(rules: RuleSet) -> None:
    """Compile what would otherwise be compiled when the first lines need it."""
    rules.find("")
    for rule in rules.rules:
        for template in rule.templates:
            _ = template.regex


def _stamps(path: Path | None) -> _Stamps:
    """Return what changes when a rule file does."""
    found: list[tuple[str, int, int, int]] = []
    with suppress(OSError):
        for file in [] if path is None else rule_files(path):
            now = file.stat()
            found.append((str(file), now.st_ino, now.st_mtime_ns, now.st_size))
    return tuple(found)
