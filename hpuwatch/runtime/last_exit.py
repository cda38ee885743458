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
from hpuwatch.runtime.facts import ExitRecord
from hpuwatch.runtime.instance import Instance


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
    next_step: str = ""

    def text(self) -> str:
        """Return it for people: the sentence, the last lines, what to do."""
        parts = [self.sentence, *(f"  | {line}" for line in self.lines)]
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
    facts = instance.read()
    told = None
    with suppress(OSError, ValidationError):
        told = LastExit.model_validate_json(instance.last_exit.read_text("utf-8"))
    if facts.exit is None or (told is not None and told.run == facts.run):
        return told
    return bare(instance.name, facts.run, facts.exit)


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
