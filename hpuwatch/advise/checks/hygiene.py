"""Checks of what a log gives away: secrets in what is printed, and an open address."""

from __future__ import annotations

import re

from hpuwatch.advise.finding import Case, Sighting
from hpuwatch.parse.mask import STARS
from hpuwatch.records import Line
from hpuwatch.state.model import Start

_MASKED = re.compile(
    rf"['\"]?([A-Za-z_][\w-]*)['\"]?\s*[:=]\s*['\"\[]*{re.escape(STARS)}"
)
"""A name whose value the parser has hidden."""
_SECRETS = re.compile(r"(?i)key|token|secret|pass|pwd?|credential|auth")
_EVERYWHERE = re.compile(
    r"://(?:0\.0\.0\.0|\[::\])(?::|/|$)|\bhost['\"]?\s*[:=]\s*['\"](?:0\.0\.0\.0|::|)['\"]"
)
_HAS_KEY = re.compile(r"api_key['\"]?\s*[:=]\s*(?!None\b|\[\]|''|\"\")\S")


def secrets(case: Case) -> Sighting | None:
    """Look for names of secrets among the flags and variables that the log repeats."""
    start = case.start
    found: dict[str, Line] = {}
    arguments = start.server.arguments
    if arguments is not None:
        for name in _MASKED.findall(arguments.text):
            if _SECRETS.search(name):
                found.setdefault(name, arguments)
    for name, known in start.server.flags.items():
        if STARS in known.value and _SECRETS.search(name):
            found.setdefault(name, known.line)
    if not found:
        return None
    flags = arguments is not None and arguments in found.values()
    return Sighting(
        cure=("cure",) if flags else ("cure_variable",),
        numbers={"secrets": len(found)},
        words={"names": ", ".join(sorted(found))},
        lines=tuple(dict.fromkeys(found.values())),
    )


def open_to_all(case: Case) -> Sighting | None:
    """Look for a server that answers whoever reaches the machine, without a key."""
    start = case.start
    line = _listens_everywhere(start)
    arguments = start.server.arguments
    if line is None or arguments is None or _has_key(start):
        return None
    return Sighting(lines=tuple(dict.fromkeys((arguments, line))))


def _listens_everywhere(start: Start) -> Line | None:
    address, arguments = start.server.address, start.server.arguments
    if address is not None:
        return address.line if _EVERYWHERE.search(address.value) else None
    if arguments is not None and _EVERYWHERE.search(arguments.text):
        return arguments
    return None


def _has_key(start: Start) -> bool:
    """Tell whether the log shows that requests need a key."""
    arguments = start.server.arguments
    by_flag = arguments is not None and _HAS_KEY.search(arguments.text) is not None
    return by_flag or "VLLM_API_KEY" in start.server.flags
