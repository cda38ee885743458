r"""Forms of a header: level, time and source file before a message.

vLLM's own come first, with the operator's words before them or not::

    INFO 03-01 10:00:44 habana_worker.py:12] message
    myhost INFO 03-01 10:00:44 [hpu_worker.py:12] message
    INFO:     Application startup complete.

``VLLM_LOGGING_CONFIG_PATH`` allows any other.  Those that people use are read too: a time,
then words set apart, then a level, then perhaps a logger; or a level set apart; or glog's::

    2026-11-30 10:00:00,123 - vllm.core - INFO - message
    2026-11-30 10:00:00.123 | INFO     | vllm.core:run:12 - message
    [INFO] message
    I1130 10:00:00.123456 77 core.py:12] message

What isn't recognised stays in the message, where the rules find their sentences all the same.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from hpuwatch.parse.levels import LEVELS, level_name

_LEVEL = "|".join(LEVELS)
_OWN = re.compile(
    rf"(?P<level>{_LEVEL}) (?P<at>\d\d-\d\d \d\d:\d\d:\d\d) "
    r"\[?(?P<file>[\w./+-]+):\d+\] ?"
)
OWN = re.sub(r"[?]P<[a-z]+>", "?:", _OWN.pattern)
"""vLLM's own header, to be found within a line: a regular expression without groups."""
_UVICORN = re.compile(rf"(?P<level>{_LEVEL}): +")
_OPERATORS_WORDS = 200  # characters in which VLLM_LOGGING_PREFIX and a header must end

_ANY_LEVEL = (
    rf"(?P<level>{_LEVEL}|WARN|FATAL|(?<=\[)(?:debug|info|warning|error|critical))\b"
)
_APART = r"(?:\] ?-? ?\[?|[ \t]-+ \[?| *\| *|[ \t]?\[)"
_LOGGER = r"[\w/]+(?:[.-]\w+)+(?::[\w<>]+){0,2}|\w+:\d+|\d+"
_CLOCK = (
    r"(?:(?:\d{4}[-/])?(?:(?P<month>\d\d)[-/](?P<day>\d\d))?[T ])?"
    r"(?P<clock>\d\d:\d\d:\d\d)(?:[.,]\d{1,9})?(?: ?(?:Z|UTC|[+-]\d\d:?\d\d))?"
)
_TIMED = re.compile(
    rf"\[?{_CLOCK}"
    rf"(?:(?:{_APART}(?=[\w.:<>@/-]{{1,80}}[\] |])|[ \t](?=(?:{_LOGGER})[\] |]))"
    rf"(?P<logger>[\w.:<>@/-]{{1,80}})){{0,3}}?"
    rf"(?:{_APART}|[ \t])\[?{_ANY_LEVEL}"
)
_LEVELLED = re.compile(
    rf"\[{_ANY_LEVEL} *\](?::(?= ))?"
    rf"|(?P<level2>{_LEVEL})(?= +(?:[-|] |(?:\w+\.)+[a-z_]\w*(?:: | +- )))"
    rf"|(?P<level3>{_LEVEL}):(?P<logger>[\w.]+):"
)
_LEVEL_FIRST = re.compile(rf"\[?{_ANY_LEVEL}[\] |:\t-]{{1,9}}\[?{_CLOCK}(?=[\]\s|:-])")
_GLOG = re.compile(
    r"(?P<level>[DIWEF])(?P<month>\d\d)(?P<day>\d\d) (?P<clock>\d\d:\d\d:\d\d)"
    r"(?:\.\d+)?(?: +\d+)? (?P<file>[\w./+-]+):\d+\] ?"
)
_LETTERS = frozenset("CDEFIW")
_DIGIT = re.compile(r"\[?\d")
_FIRST = _LETTERS | frozenset("0123456789[")
"""What any header but one behind the operator's words begins with."""
_BREAK = re.compile(r"(?: *\])?(?: *(?:[|:]|-+)(?= |$))? ?")
_NAMES_FILE = re.compile(r"[.:]")
_PLACE = re.compile(
    r"\[?(?P<logger>(?:[\w/]+\.)+[a-z_]\w*(?::[\w<>]+){0,2}|\w+:\d+)"
    r"(?: +\[?\d+\]?)?(?: *\](?: -+)?| +-+| *\||:)(?: |$)"
)


class Header(NamedTuple):
    """What a header says, and where it ends.

    Attributes:
        end: place of the message.
        level: ``INFO`` …
        logged_at: ``MM-DD HH:MM:SS``, or None.
        file: base name of the source file, or None.
        foreign: it is neither vLLM's nor uvicorn's own.
    """

    end: int
    level: str
    logged_at: str | None = None
    file: str | None = None
    foreign: bool = False


def header(text: str, at: int) -> Header | None:
    """Return the header that stands at a place of a clean text, if there is one."""
    first = text[at : at + 1]
    if first in _LETTERS:
        found = _OWN.match(text, at)
        if found is not None:
            return _own(found)
        found = _UVICORN.match(text, at)
        if found is not None:
            return Header(found.end(), found[1])
    if text.find("] ", at) >= 0:
        found = _OWN.search(text, at, _operators_words_end(text, at))
        if found is not None:
            return _own(found)
    if first in _LETTERS and (glog := _GLOG.match(text, at)):
        return Header(
            glog.end(),
            level_name(glog["level"]) or "",
            _time(glog),
            _base(glog["file"]),
            foreign=True,
        )
    return _foreign(text, at) if first in _FIRST else None


def _own(found: re.Match[str]) -> Header:
    level, logged_at, file = found.groups()
    return Header(found.end(), level, logged_at, file.rpartition("/")[2])


def _operators_words_end(text: str, at: int) -> int:
    """Return where VLLM_LOGGING_PREFIX must have ended: what is quoted isn't part of it."""
    end = at + _OPERATORS_WORDS
    quotes = (text.find(quote, at, end) for quote in "'\"")
    return min((place for place in quotes if place >= 0), default=end)


def _foreign(text: str, at: int) -> Header | None:
    if _DIGIT.match(text, at):
        found = _TIMED.match(text, at)
    else:
        found = _LEVEL_FIRST.match(text, at) or _LEVELLED.match(text, at)
    if found is None:
        return None
    groups = found.groupdict()
    level = groups["level"] or groups.get("level2") or groups.get("level3")
    end = found.end()
    if gap := _BREAK.match(text, end):
        end = gap.end()
    logger = groups.get("logger") or ""
    if not _NAMES_FILE.search(logger):
        place = _PLACE.match(text, end)
        end, logger = (place.end(), place["logger"]) if place else (end, "")
    return Header(
        end,
        level_name(level) or "",
        _time(found) if "clock" in groups else None,
        _base(logger) if logger else None,
        foreign=True,
    )


def _time(found: re.Match[str]) -> str | None:
    if found["month"] is None:
        return None
    return f"{found['month']}-{found['day']} {found['clock']}"


def _base(place: str) -> str:
    """Return ``core.py`` for ``vllm/core.py:12`` and for the logger ``vllm.core:run``."""
    name = place.partition(":")[0].rpartition("/")[2]
    if name.endswith(".py"):
        return name
    return f"{name.rpartition('.')[2]}.py"
