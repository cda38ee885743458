"""How the last server of a name ended, for people and scripts who come later.

The watcher writes it when the server has ended.  Where it could not, the keeper's facts
still tell the bare end.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from hpuwatch.errors import ResourceError
from hpuwatch.runtime.facts import ExitRecord, Facts, read_facts
from hpuwatch.runtime.instance import Instance, before_of
from hpuwatch.runtime.quote import Quote
from hpuwatch.state.snapshot import Ended


class LastExit(BaseModel):
    """The document ``hpuwatch.last-exit/1``."""

    model_config = ConfigDict(frozen=True, populate_by_name=True)

    schema_: str = Field("hpuwatch.last-exit/1", alias="schema")
    name: str
    run: str
    sentence: str
    phase: str | None = None
    code: int | None
    signal: int | None
    asked: bool
    ended_at: float
    lines: tuple[str, ...] = ()
    elsewhere: tuple[Quote, ...] = ()
    next_step: str = ""

    def text(self) -> str:
        """Return it for people: the sentence, the last lines, other logs, what to do."""
        parts = [self.sentence, *(f"  | {line}" for line in self.lines)]
        parts += filter(None, (quote.text() for quote in self.elsewhere))
        if self.next_step:
            parts.append(f"next: {self.next_step}")
        return "\n".join(parts)


def write_last_exit(path: Path, document: LastExit) -> None:
    """Store it in one step.

    Raises:
        ResourceError: the folder can't be written.
    """
    new = path.with_suffix(".new")
    try:
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(document.model_dump_json(by_alias=True, indent=2) + "\n")
        new.replace(path)
    except OSError as error:
        raise ResourceError(
            f"{path} can't be written ({error.strerror}): free some room there"
        ) from error


def read_last_exit(instance: Instance) -> LastExit | None:
    """Return how the newest server that ended did so, or None if none has."""
    told = stored_last_exit(instance.last_exit)
    for facts in (instance.read(), read_facts(before_of(instance.facts))):
        found = _of_run(facts, told, instance.name)
        if found is not None:
            return found
    return told


def ended_before(folder: Path) -> Ended | None:
    """Return how the server before the one that runs in a folder ended, if that is known."""
    facts = read_facts(before_of(folder / "facts"))
    found = _of_run(facts, stored_last_exit(folder / "last-exit.json"), folder.name)
    if found is None:
        return None
    code = found.code
    if found.signal is not None:
        code = 128 + found.signal
    return Ended(code, found.phase or "", asked=found.asked, at=found.ended_at)


def stored_last_exit(path: Path) -> LastExit | None:
    """Return the document in a file, or None where there is none."""
    with suppress(OSError, ValidationError):
        return LastExit.model_validate_json(path.read_text("utf-8"))
    return None


def _of_run(facts: Facts, told: LastExit | None, name: str) -> LastExit | None:
    """Return the end of one run: in its watcher's words, else as its keeper noted it."""
    if told is not None and told.run == facts.run:
        return told
    return bare(name, facts.run, facts.exit) if facts.exit else None


def bare(name: str, run: str, end: ExitRecord) -> LastExit:
    """Return what the process alone tells of its end."""
    return LastExit(
        name=name,
        run=run,
        sentence=f"the server {how(end)}",
        code=end.code,
        signal=end.signal,
        asked=end.asked,
        ended_at=end.ended_at,
    )


def how(end: ExitRecord) -> str:
    """Return how a process ended, in words that follow "the server"."""
    if end.error:
        return f"can't be started: {end.error}"
    if end.code is None and end.signal is None:
        return "has ended, and the keeper that would know how is gone"
    if end.signal is not None:
        return _ended_by(end.signal, asked=end.asked)
    if end.asked:
        return f"stopped as asked (exit code {end.code})"
    return f"ended by itself with exit code {end.code}"


def _ended_by(number: int, *, asked: bool) -> str:
    name = _signal_name(number)
    if not asked:
        return f"was ended unasked by {name}"
    if number == signal.SIGKILL:
        return f"was asked to stop and had to be killed ({name})"
    return f"stopped as asked ({name})"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
