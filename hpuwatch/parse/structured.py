"""Log records that are JSON objects, one per line.

``VLLM_LOGGING_CONFIG_PATH`` replaces vLLM's own form, and most people who use it write JSON:
python-json-logger, structlog, the schemas of Elastic and of clouds.  They agree on what a
record has and differ in what they call it, so :data:`_KEYS` lists the names of each part.
What else stands in an object is dropped: it may hold what users asked.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from hpuwatch.parse.levels import level_name

_KEYS: Mapping[str, tuple[str, ...]] = {
    "message": ("message", "msg", "event", "log", "text", "short_message"),
    "level": (
        "levelname",
        "level",
        "severity",
        "log.level",
        "loglevel",
        "lvl",
        "levelno",
    ),
    "time": ("asctime", "timestamp", "@timestamp", "time", "ts", "created", "datetime"),
    "file": ("filename", "pathname", "file", "log.origin.file.name", "module"),
    "logger": ("name", "logger", "logger_name", "log.logger"),
    "line": ("lineno", "line", "log.origin.file.line"),
    "process": ("processName", "process_name", "process.name"),
    "pid": ("process", "pid", "process_id", "process.pid"),
    "exception": (
        "exc_info",
        "exc_text",
        "exception",
        "stack_trace",
        "error.stack_trace",
    ),
}
"""Names of each part, the most telling first; a dot leads into an inner object."""

_TIME = re.compile(r"(?:\d{4}[-/])?(\d\d)[-/](\d\d)[T ](\d\d:\d\d:\d\d)")
_MILLISECONDS = 1e11  # a count of seconds as large as this would lie in the year 5138
_LONGEST = 1024 * 1024  # characters of an object that is read


@dataclass(frozen=True, slots=True)
class Told:
    """What an object says.

    Attributes:
        first: the message's first line.
        more: its others, and those of the traceback that goes with it.
        level: ``INFO`` …, or None.
        logged_at: ``MM-DD HH:MM:SS``, or None.
        file: base name of the source file, or None.
        place: time, file and line as far as printed, for people.
        process: name of the process, or the empty text.
        pid: its process id, or None.
    """

    first: str
    more: tuple[str, ...]
    level: str | None
    logged_at: str | None
    file: str | None
    place: str
    process: str
    pid: int | None


def told_by(text: str) -> Told | None:
    """Return what a text that begins with ``{`` says, None where it is no log record."""
    if len(text) > _LONGEST:
        return None
    try:
        entry = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(entry, dict):
        return None
    message = _find(entry, "message")
    if not isinstance(message, str):
        return None
    level = level_name(_find(entry, "level"))
    if level is None and _find(entry, "time") is None:
        return None  # some answer or dump that happens to hold such a key
    return _told(entry, message, level)


def _told(entry: Mapping[str, Any], message: str, level: str | None) -> Told:
    printed = _find(entry, "time")
    file, line = _file(entry), _find(entry, "line")
    pid = _find(entry, "pid")
    place = [] if printed is None else [str(printed)]
    if file is not None:
        place.append(f"[{file}:{line}]" if isinstance(line, int) else f"[{file}]")
    first, *more = message.splitlines() or [""]
    return Told(
        first=first,
        more=(*more, *_exception(_find(entry, "exception"))),
        level=level,
        logged_at=_header_time(printed),
        file=file,
        place=" ".join(place),
        process=str(_find(entry, "process") or ""),
        pid=pid if isinstance(pid, int) else None,
    )


def _find(entry: Mapping[str, Any], part: str) -> Any:
    """Return the first value that is there and is no inner object, else None."""
    for key in _KEYS[part]:
        value: Any = entry.get(key)
        if value is None and "." in key:
            value = entry
            for step in key.split("."):
                value = value.get(step) if isinstance(value, dict) else None
        if value is not None and not isinstance(value, dict):
            return value
    return None


def _file(entry: Mapping[str, Any]) -> str | None:
    """Return ``core.py`` for that file, for its path and for the module's logger."""
    name = _find(entry, "file")
    if isinstance(name, str) and name:
        base = name.rpartition("/")[2]
        return base if base.endswith(".py") else f"{base}.py"
    logger = _find(entry, "logger")
    if isinstance(logger, str) and logger:
        return f"{logger.rpartition('.')[2]}.py"
    return None


def _header_time(printed: object) -> str | None:
    """Return ``MM-DD HH:MM:SS`` of a printed time, or of seconds or ms since the epoch."""
    if isinstance(printed, str):
        found = _TIME.search(printed)
        return f"{found[1]}-{found[2]} {found[3]}" if found else None
    if isinstance(printed, bool) or not isinstance(printed, (int, float)):
        return None
    try:
        seconds = printed / 1000 if printed > _MILLISECONDS else printed
        at = datetime.fromtimestamp(seconds, timezone.utc)
    except (ValueError, OverflowError, OSError):
        return None
    return at.strftime("%m-%d %H:%M:%S")


def _exception(value: object) -> Iterator[str]:
    """Yield a traceback's lines: a text, or structlog's list of exceptions."""
    if isinstance(value, str):
        yield from value.splitlines()
    elif isinstance(value, list):
        for each in reversed(value):  # structlog puts the last raised first
            if isinstance(each, dict) and isinstance(each.get("exc_type"), str):
                yield "Traceback (most recent call last):"
                yield f"{each['exc_type']}: {each.get('exc_value', '')}"
