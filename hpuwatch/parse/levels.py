"""The names that levels go by in logs, and the five that we know them by."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
"""Python's own, from the least."""

_OTHERS: Mapping[str, str] = MappingProxyType(
    {
        "TRACE": "DEBUG",
        "WARN": "WARNING",
        "ERR": "ERROR",
        "EXCEPTION": "ERROR",
        "FATAL": "CRITICAL",
        **{level[0]: level for level in LEVELS},
        "F": "CRITICAL",  # glog's worst; its other letters are the first ones too
        **{str(number * 10): level for number, level in enumerate(LEVELS, 1)},
    }
)


def level_name(printed: object) -> str | None:
    """Return ``WARNING`` for ``warn``, ``W``, ``Warning`` and 30; None for no level."""
    if not isinstance(printed, (str, int)):
        return None
    name = str(printed).strip().upper()
    return name if name in LEVELS else _OTHERS.get(name)
