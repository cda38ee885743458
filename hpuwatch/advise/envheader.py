"""The head of an env file: for which server its settings were found.

Settings that were found on one server are no advice for another.  So the files that
``tune`` and ``suggest`` write begin with comments such as ``# card: gaudi3``, and ``lint``
compares them with the server that is to use the file.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields

LOG_BASE = "log-"
"""Begins a base that is a digest of what a log prints, not of a command and variables."""

_LINE = re.compile(r"#\s*(release|card|model|tp|base):\s*(\S.*?)\s*")


@dataclass(frozen=True, slots=True)
class EnvHeader:
    """What a server is; None for what isn't known.

    Attributes:
        release: as ``plugin-0.26`` or any version.
        card: ``gaudi2`` or ``gaudi3``.
        model: as the server was given it.
        tp: cards of a tensor-parallel group.
        base: digest of the command and the variables that the settings came on top of.
    """

    release: str | None = None
    card: str | None = None
    model: str | None = None
    tp: str | None = None
    base: str | None = None

    def lines(self) -> list[str]:
        """Return the comments that say it, only what is known."""
        return [f"# {name}: {value}" for name, value in self.known().items()]

    def known(self) -> dict[str, str]:
        """Return what is known, by name."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return {name: value for name, value in values.items() if value is not None}


def read_header(text: str) -> EnvHeader | None:
    """Return the head of an env file, None where it has none."""
    found = (_LINE.fullmatch(line.strip()) for line in text.splitlines())
    values = {line[1]: line[2] for line in found if line}
    return EnvHeader(**values) if values else None
