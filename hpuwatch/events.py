"""What the server said, as values.

An :class:`Event` is one sentence of the log, understood: its kind is the name of the rule
that matched (the kinds of ``rules/parse``), its fields are typed.  Events say nothing about
what they mean for the server's state; that is ``state``'s business.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from hpuwatch.records import Line, made_often
from hpuwatch.units import Amount

Value: TypeAlias = "int | float | str | bool | Amount | tuple[Value, ...] | None"


@dataclass(frozen=True, slots=True)
class Speaker:
    """The process that printed a line, as far as its prefix tells.

    Attributes:
        process: ``APIServer``, ``EngineCore``, ``Worker`` …, empty without a prefix.
        pid: its process id, or None.
        rank: its tensor-parallel rank; a line without a rank counts as rank 0, except
            where only the pid tells workers apart (V0's ``VllmWorkerProcess``, ranks 1
            and up, which is None here).
        engine: its data-parallel engine, as vLLM's metric label ``engine`` counts them.
        stage: its pipeline stage within the engine.
    """

    process: str = ""
    pid: int | None = None
    rank: int | None = 0
    engine: int = 0
    stage: int = 0


@made_often
class Event:
    """One understood sentence of the log.

    Attributes:
        kind: the rule's event name, as ``memory_split``.
        fields: the rule's typed groups.
        line: where it stands; its text is masked.
        speaker: who said it.
        level: ``INFO`` …, or None where the line has no header.
        logged_at: ``MM-DD HH:MM:SS`` as printed (local time, no year), or None.
        context: of a fault, masked: the last lines of its traceback, else what the same
            process said before it.
    """

    kind: str
    fields: Mapping[str, Value] = field(default_factory=dict)
    line: Line = field(default_factory=lambda: Line(""))
    speaker: Speaker = field(default_factory=Speaker)
    level: str | None = None
    logged_at: str | None = None
    context: tuple[str, ...] = ()
