"""What the kernel says of Gaudi's driver, of killed processes and of native crashes.

``/dev/kmsg`` holds the newest records with the time since boot; where it isn't to be had, the
file into which a system logger writes them.  Both tell of the whole machine, so only lines of
these kinds are quoted.
"""

from __future__ import annotations

import os
import re
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from hpuwatch.clock import Clock
from hpuwatch.runtime.quote import DAY_SECONDS, MOST_LINES, Quote, quoted, tail, unread

KMSG = Path("/dev/kmsg")
FILES = (Path("/var/log/kern.log"), Path("/var/log/messages"))

_MOST_BYTES = 8 * 1024**2  # more than the kernel keeps, unless it was told to
_RECORD_BYTES = 8192
_TELLING = re.compile(
    r"habanalabs|\baccel accel\d|\bhl\d{1,3}:"
    r"|[Oo]ut of memory|oom-kill|oom_reaper"
    r"|segfault at|general protection fault"
)
_KMSG = re.compile(r"\d+,\d+,(\d+),[^;]*;(.*)")
_ISO = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?)(Z|[+-]\d\d:\d\d)")
_CLASSIC = re.compile(r"[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d")


def kernel_errors(
    since: float,
    clock: Clock,
    kmsg: Path = KMSG,
    files: Sequence[Path] = FILES,
) -> Quote:
    """Quote what the kernel has said since then.

    Args:
        since: seconds since the epoch.
        clock: to tell when the machine was booted.
        kmsg: the kernel's own device.
        files: where a system logger may keep the same, the first that is there counts.
    """
    try:
        return quoted("the kernel's log", _of_kmsg(kmsg, since, clock))
    except OSError as error:
        first = unread(f"the kernel's log, {kmsg}", error)
    for file in files:
        with suppress(OSError):
            return quoted(str(file), _of_file(file, since, clock))
    return first


def _of_kmsg(path: Path, since: float, clock: Clock) -> Sequence[str]:
    since_boot = since - (clock.now() - clock.boottime())
    found: deque[str] = deque(maxlen=MOST_LINES)
    for record in _records(path):
        parts = _KMSG.match(record)
        if parts is None or int(parts[1]) / 1e6 < since_boot:
            continue
        if _TELLING.search(parts[2]):
            found.append(parts[2])
    return found


def _records(path: Path) -> Iterator[str]:
    """Yield what the kernel keeps; it gives one record for each read, and never waits."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        rest, size = b"", 0
        while size < _MOST_BYTES:
            try:
                data = os.read(descriptor, _RECORD_BYTES)
            except BlockingIOError:
                break
            except BrokenPipeError:  # it was overwritten before we read it
                continue
            if not data:
                break
            size += len(data)
            *lines, rest = (rest + data).split(b"\n")
            yield from (line.decode("utf-8", "replace") for line in lines)
    finally:
        os.close(descriptor)


def _of_file(path: Path, since: float, clock: Clock) -> list[str]:
    data, _ = tail(path)
    lines = data.decode("utf-8", "replace").splitlines()
    return [
        line
        for line in lines
        if _TELLING.search(line) and _logged_at(line, clock.now()) >= since
    ]


def _logged_at(line: str, now: float) -> float:
    """Return when a system logger got a line, 0 where it doesn't say."""
    iso = _ISO.match(line)
    if iso is not None:
        zone = "+00:00" if iso[2] == "Z" else iso[2]
        return datetime.fromisoformat(f"{iso[1][:19]}{zone}").timestamp()
    classic = _CLASSIC.match(line)
    if classic is None:
        return 0.0
    year = time.localtime(now).tm_year
    for each in (year, year - 1):
        at = _local(f"{each} {classic[0]}")
        if at <= now + DAY_SECONDS:
            return at
    return 0.0


def _local(text: str) -> float:
    try:
        return time.mktime(time.strptime(text, "%Y %b %d %H:%M:%S"))
    except ValueError:  # 29 February of another year
        return 0.0
