"""Durations between the times that log headers print.

A header says ``MM-DD HH:MM:SS`` in local time, without a year: good for differences,
good for nothing else.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone

_HEADER_TIME = re.compile(r"(\d\d)-(\d\d) (\d\d):(\d\d):(\d\d)")
_LEAP_YEAR = 2000
_YEAR = timedelta(days=366)


def seconds_between(first: str | None, then: str | None) -> float | None:
    """Return the seconds from one header time to a later one.

    None where either is missing or is no such time.  A log that runs over New Year comes
    out right, since a time that seems to lie before the first is taken as next year's.
    Lines of several processes may stand a moment out of order: that counts as 0.
    """
    start, end = _parse(first), _parse(then)
    if start is None or end is None:
        return None
    if end < start - timedelta(days=1):
        end += _YEAR
    return max(0.0, (end - start).total_seconds())


def _parse(text: str | None) -> datetime | None:
    found = _HEADER_TIME.fullmatch(text or "")
    if found is None:
        return None
    month, day, hour, minute, second = map(int, found.groups())
    try:
        return datetime(
            _LEAP_YEAR, month, day, hour, minute, second, tzinfo=timezone.utc
        )
    except ValueError:
        return None
