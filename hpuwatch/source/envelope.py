r"""What log collectors put around a line.

Docker's json-file driver, the CRI format of Kubernetes nodes, time stamps of ``docker logs
-t`` and ``kubectl logs --timestamps``, ``[pod/…]`` prefixes, ``service  |`` of compose and
``journalctl -o short`` are taken off; lines without any of them pass as they are.  Docker and
CRI cut long lines into parts, which are joined again.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import datetime

from hpuwatch.records import Line

_LONGEST = 4 * 1024 * 1024  # characters of a joined line, against a collector gone mad

_POD = re.compile(r"\[pod/[^\]\s]+\] ")
_COMPOSE = re.compile(r"[\w.-]+ +\| ")
_STAMP = re.compile(
    r"(?P<at>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)) ?"
    r"(?:(?P<stream>stdout|stderr) (?P<tag>[FP])(?: |$))?"
)
_JOURNAL = re.compile(
    r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) [ \d]\d \d\d:\d\d:\d\d "
    r"[\w.-]+ [\w.@/-]+(?:\[\d+\])?: "
)
_ENDS = re.compile(r"\r\n|\n|\r")


class Unwrapper:
    """Takes a collector's envelope off, piece by piece."""

    def __init__(self) -> None:
        """Begin before the first line."""
        self._parts: dict[str, Line] = {}  # by stream: what waits for its next part
        self._number = 0
        self._partial_stream: str | None = None  # the CRI line being read is a part

    def feed(self, line: Line) -> list[Line]:
        """Return the pieces inside; a part of a longer line is kept for the next call."""
        if line.text.startswith('{"'):
            unwrapped = self._docker(line)
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

    def _docker(self, line: Line) -> list[Line] | None:
        try:
            entry = json.loads(line.text)
        except (ValueError, RecursionError):
            return None
        if not isinstance(entry, dict) or not isinstance(entry.get("log"), str):
            return None
        received = _dated(line, str(entry.get("time", "")))
        whole = self._joined(str(entry.get("stream", "")), received, entry["log"])
        if not entry["log"].endswith("\n") and len(whole.text) < _LONGEST:
            self._parts[str(entry.get("stream", ""))] = whole
            return []
        return _split(replace(whole, text=whole.text.removesuffix("\n")))

    def _first_piece(self, line: Line) -> list[Line]:
        text, at, stream, tag = _open(line.text)
        if stream is None:
            return [replace(_dated(line, at), text=text)]
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


def _open(text: str) -> tuple[str, str, str | None, str | None]:
    """Return the text inside, the collector's time, its stream and its part tag."""
    for outer in (_POD, _COMPOSE, _JOURNAL):
        found = outer.match(text)
        if found is not None:
            text = text[found.end() :]
    stamp = _STAMP.match(text)
    if stamp is None:
        return text, "", None, None
    return text[stamp.end() :], stamp["at"], stamp["stream"], stamp["tag"]


def _split(line: Line) -> list[Line]:
    """Cut at the line ends inside; empty pieces between carriage returns are dropped."""
    texts = [text for text in _ENDS.split(line.text) if text] or [""]
    return [replace(line, text=text) for text in texts]


def _dated(line: Line, stamp: str) -> Line:
    """Give a line read from a file the time at which its collector received it."""
    if not stamp or line.received_at is not None:
        return line
    # Python 3.10 reads neither Z nor nanoseconds.
    plain = re.sub(r"(\.\d{1,6})\d*", r"\1", stamp.replace("Z", "+00:00"))
    plain = re.sub(
        r"\.(\d{1,6})(?=[+-])", lambda m: "." + m[1].ljust(6, "0"), plain, count=1
    )
    try:
        return replace(line, received_at=datetime.fromisoformat(plain).timestamp())
    except ValueError:
        return line
