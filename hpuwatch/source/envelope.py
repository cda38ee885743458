r"""What log collectors and launchers put around a line.

Docker's json-file driver, the CRI format of Kubernetes nodes, time stamps of ``docker logs
-t`` and ``kubectl logs --timestamps``, ``[pod/…]`` prefixes, ``service  |`` of compose,
``journalctl`` in its short forms and as JSON, syslog, priorities for systemd, times of mpirun,
addresses of pdsh, and dates in front of anything but a header are taken off; lines without any
of them pass as they are.  Docker, CRI and journald cut long lines into parts, which are joined
again.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import datetime
from functools import lru_cache
from typing import Any, NamedTuple

from hpuwatch.parse.forms import header
from hpuwatch.records import Line

_LONGEST = 4 * 1024 * 1024  # characters of a joined line, against a collector gone mad

_POD = re.compile(r"\[pod/[^\]\s]+\] ")
_COMPOSE = re.compile(
    r"(?:\x1b\[[\d;]*m)?(?!(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) )[\w.@-]+ +\|"
    r"(?:\x1b\[0?m)? (?:\x1b\[0m)?"
)
_PARTS = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.\d+)?(Z|[+-]\d\d:?\d\d)")
_ISO = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:?\d\d)"
_STAMP = re.compile(
    rf"(?P<at>{_ISO}) ?(?:(?P<stream>stdout|stderr) (?P<tag>[FP])(?: |$))?"
)
_SYSLOG = re.compile(
    r"(?:<\d{1,3}>)?"
    # journalctl -o short, short-precise, short-full, short-monotonic and short-unix
    r"(?:(?:(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) [ \d]\d"
    r" \d\d:\d\d:\d\d(?:\.\d+)?|[A-Z][a-z]{2} \d{4}-\d\d-\d\d \d\d:\d\d:\d\d \S+"
    r"|\[ *\d+\.\d+\]|\d{9,11}\.\d{6}) [\w.-]+ [\w.@/-]+(?:\[\d+\])?: "
    # journalctl -o short-iso, rsyslog's own and RFC 5424
    rf"|(?P<at>{_ISO}) [\w.-]+ [\w.@/-]+\[\d+\]: "
    rf"|1 (?P<at2>{_ISO}) \S+ \S+ \S+ \S+ (?:-|\[[^\]]*\]) )"
)
_LAUNCHED = re.compile(
    r"<[0-7]>"  # a priority, as services tell systemd
    # mpirun --timestamp-output, before its rank
    r"|[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4}(?=\[\d{1,5},\d{1,5}\]<std)"
    r"|(?:\d{1,3}\.){3}\d{1,3}: "  # pdsh and DeepSpeed's launcher
)
_DATE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:[.,]\d{1,9})? ")
_ENDS = re.compile(r"\r\n|\n|\r")
_LOGGERS_OWN = {"level", "levelname", "severity"}
"""Keys of a logger that writes JSON itself: no collector's."""
_MICROSECONDS = re.compile(r"\d{1,17}")
PART_SIGN = re.compile(rb"d(?:out|err) P ")
"""What stands in a line of CRI whose rest is another line."""


class Unwrapper:
    """Takes a collector's envelope off, piece by piece."""

    def __init__(self) -> None:
        """Begin before the first line."""
        self._parts: dict[str, Line] = {}  # by stream: what waits for its next part
        self._number = 0
        self._partial_stream: str | None = None  # the CRI line being read is a part

    @property
    def waiting(self) -> bool:
        """Return whether a part of a longer line waits for the next one."""
        return bool(self._parts)

    def feed(self, line: Line) -> list[Line]:
        """Return the pieces inside; a part of a longer line is kept for the next call."""
        if line.text.startswith("(") and line.number != self._number:
            # A process's prefix: no envelope begins so.
            self._number, self._partial_stream = line.number, None
            return [line]
        if line.text.startswith('{"'):
            unwrapped = self._object(line)
            if unwrapped is not None:
                return unwrapped
        if line.number == self._number:
            return self._same_line(line)
        self._number = line.number
        self._partial_stream = None
        return self._first_piece(line)

    def close(self) -> list[Line]:
        """Return the parts whose rest never came."""
        rest = [piece for part in self._parts.values() for piece in _split(part)]
        self._parts.clear()
        return rest

    def _object(self, line: Line) -> list[Line] | None:
        try:
            entry = json.loads(line.text)
        except (ValueError, RecursionError):
            return None
        if not isinstance(entry, dict):
            return None
        told = _docker(entry) or _journald(entry)
        if told is None:
            return None
        whole = self._joined(told.stream, _dated(line, told.at), told.text)
        if told.is_part and len(whole.text) < _LONGEST:
            self._parts[told.stream] = whole
            return []
        return _split(replace(whole, text=whole.text.removesuffix("\n")))

    def _first_piece(self, line: Line) -> list[Line]:
        text, at, stream, tag = _open(line.text)
        if stream is None:
            return [line if text == line.text else replace(_dated(line, at), text=text)]
        whole = self._joined(stream, _dated(line, at), text)
        if tag == "P" and len(whole.text) < _LONGEST:
            self._parts[stream] = whole
            self._partial_stream = stream
            return []
        return [whole]

    def _same_line(self, line: Line) -> list[Line]:
        stream = self._partial_stream
        if stream is None:
            return [line]
        before = self._parts.pop(stream, None)
        self._parts[stream] = line
        return [before] if before is not None else []

    def _joined(self, stream: str, line: Line, text: str) -> Line:
        before = self._parts.pop(stream, None)
        if before is None:
            return replace(line, text=text)
        return replace(line, text=before.text + text, offset=before.offset)


class _Entry(NamedTuple):
    """What a collector's object holds: a text, when it came, and whether more follows."""

    text: str
    at: str | float
    stream: str
    is_part: bool


def _docker(entry: dict[str, Any]) -> _Entry | None:
    text = entry.get("log")
    if not isinstance(text, str) or not _LOGGERS_OWN.isdisjoint(entry):
        return None
    at, stream = str(entry.get("time", "")), str(entry.get("stream", ""))
    return _Entry(text, at, stream, not text.endswith("\n"))


def _journald(entry: dict[str, Any]) -> _Entry | None:
    """Read an entry of ``journalctl -o json``; what is no plain text stands as bytes."""
    text = entry.get("MESSAGE")
    if isinstance(text, list) and all(type(b) is int and 0 <= b < 256 for b in text):
        text = bytes(text).decode("utf-8", "replace")
    if not isinstance(text, str) or "__REALTIME_TIMESTAMP" not in entry:
        return None
    microseconds = str(entry["__REALTIME_TIMESTAMP"])
    return _Entry(
        text,
        int(microseconds) / 1e6 if _MICROSECONDS.fullmatch(microseconds) else "",
        str(entry.get("_STREAM_ID") or entry.get("_PID", "")),
        entry.get("_LINE_BREAK") == "line-max"
        or entry.get("CONTAINER_PARTIAL_MESSAGE") == "true",
    )


def _open(text: str) -> tuple[str, str, str | None, str | None]:
    """Return the text inside, the collector's time, its stream and its part tag."""
    for outer in (_POD, _COMPOSE):
        found = outer.match(text)
        if found is not None:
            text = text[found.end() :]
    syslog = _SYSLOG.match(text)
    if syslog is not None:
        return text[syslog.end() :], syslog["at"] or syslog["at2"] or "", None, None
    stamp = _STAMP.match(text)
    if stamp is None:
        return text[_launched_end(text) :], "", None, None
    return text[stamp.end() :], stamp["at"], stamp["stream"], stamp["tag"]


def _launched_end(text: str) -> int:
    """Return where what is behind a launcher's mark or a bare date begins."""
    launched = _LAUNCHED.match(text)
    if launched is not None:
        return launched.end()
    date = _DATE.match(text)
    if date is None or ((head := header(text, 0)) is not None and head.foreign):
        return 0  # the date belongs to a header
    return date.end()


def _split(line: Line) -> list[Line]:
    """Cut at the line ends inside; empty pieces between carriage returns are dropped."""
    texts = [text for text in _ENDS.split(line.text) if text] or [""]
    return [replace(line, text=text) for text in texts]


def _dated(line: Line, at: str | float) -> Line:
    """Give a line read from a file the time at which its collector received it."""
    if at == "" or line.received_at is not None:
        return line
    if isinstance(at, float):
        return replace(line, received_at=at)
    seconds = _seconds(at)
    return line if seconds is None else replace(line, received_at=seconds)


def _seconds(stamp: str) -> float | None:
    """Return seconds since the epoch, None where the date is none."""
    found = _PARTS.fullmatch(stamp)
    if found is None:
        return None
    clock, fraction, zone = found.groups()
    whole = _whole_seconds(clock, zone.replace("Z", "+0000").replace(":", ""))
    return None if whole is None else whole + float(fraction or 0)


@lru_cache(maxsize=64)
def _whole_seconds(clock: str, zone: str) -> float | None:
    """Return the seconds of a time; a log has many lines of each."""
    try:
        at = datetime.strptime(f"{clock}{zone}", "%Y-%m-%dT%H:%M:%S%z")
    except ValueError:
        return None
    return at.timestamp()
