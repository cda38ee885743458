"""The files in which Gaudi's native libraries log, ``$HABANA_LOGS``.

They lie in that folder and in one folder for each device, begin each record with
``[HH:MM:SS.ffffff][LIBRARY][level]``, and are appended to by every process.  The time of a
record has no date and no zone, so it is taken from the time of the file's last write, back
from record to record.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path

from hpuwatch.runtime.quote import DAY_SECONDS, MOST_LINES, Quote, quoted, tail, unread

"""How much of each file's end is read."""

_MOST_FILES = 20
_MOST_NAMES = 2_000  # directory entries that are looked at
_MOST_QUOTES = 4
_SLACK_SECONDS = 60  # processes write a moment out of order
_TIME = re.compile(rb"\[(?:[\d-]{8,10}[ T])?(\d\d):(\d\d):(\d\d)")
_ERROR = re.compile(rb"\[(?:error|err|critical|fatal)\s*\]", re.IGNORECASE)
_HEAD = 200  # bytes of a record in which its level stands


def device_log_folder(env: Mapping[str, str]) -> Path | None:
    """Return where a server with this environment logs, or None without a home."""
    if env.get("HABANA_LOGS"):
        return Path(env["HABANA_LOGS"])
    return Path(env["HOME"]) / ".habana_logs" if env.get("HOME") else None


def device_errors(folder: Path, since: float) -> list[Quote]:
    """Quote the last errors of each file, the file written last first.

    Args:
        folder: of the logs.
        since: seconds since the epoch; what is older is left out.
    """
    try:
        files = _files(folder, since)
    except OSError as error:
        return [unread(str(folder), error)]
    quotes = []
    for file in files:
        try:
            quote = quoted(str(file), _errors(file, since))
        except OSError as error:
            quote = unread(str(file), error)
        if quote.lines or quote.unread:
            quotes.append(quote)
    return quotes[:_MOST_QUOTES]


def _files(folder: Path, since: float) -> list[Path]:
    """Return the files that were written to since then, the newest first."""
    written: list[tuple[float, Path]] = []
    with os.scandir(folder) as entries:
        for entry in islice(_with_inner(entries), _MOST_NAMES):
            with suppress(OSError):
                found = entry.stat()
                if stat.S_ISREG(found.st_mode) and found.st_mtime >= since:
                    written.append((found.st_mtime, Path(entry.path)))
    return [path for _, path in sorted(written, reverse=True)][:_MOST_FILES]


def _with_inner(entries: Iterator[os.DirEntry[str]]) -> Iterator[os.DirEntry[str]]:
    """Yield the entries of a folder and of the folders in it, a link to one left out."""
    folders = []
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            folders.append(entry.path)
        yield entry
    for path in folders:
        with suppress(OSError), os.scandir(path) as inner:
            yield from inner


def _errors(file: Path, since: float) -> list[str]:
    """Return the last errors since then, oldest first."""
    end, at = tail(file)
    found: list[bytes] = []
    after: int | None = None
    for record in reversed(end.splitlines()):
        time = _TIME.match(record)
        if time is not None:
            seconds = _seconds(time)
            at -= _passed(seconds, seconds if after is None else after)
            after = seconds
            if at < since:
                break
        if _ERROR.search(record[:_HEAD]):
            found.append(record)
            if len(found) == MOST_LINES:
                break
    return [record.decode("utf-8", "replace") for record in reversed(found)]


def _seconds(time: re.Match[bytes]) -> int:
    hours, minutes, seconds = (int(part) for part in time.groups())
    return hours * 3600 + minutes * 60 + seconds


def _passed(earlier: int, later: int) -> int:
    """Return the seconds from one time of day to the next record's."""
    if later < earlier <= later + _SLACK_SECONDS:
        return 0
    return (later - earlier) % DAY_SECONDS
