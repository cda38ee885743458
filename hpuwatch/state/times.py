"""What can be made of the times that log headers print.

A header says ``MM-DD HH:MM:SS`` in local time, without year and zone.  That is good for
differences (:func:`seconds_between`) and, with a time near the log's end to take the year
from, for an order of a whole log (:class:`Chronology`).
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone

_SET_BACK_SECONDS = 15 * 60.0
"""Lines that come late are less behind than this; a clock that was set back is more."""
_PERSISTING_SECONDS = 60.0
"""How long a clock must run behind before it is believed to have been set back."""
_SLACK = timedelta(days=1)  # between any two zones

_HEADER_TIME = re.compile(r"(\d\d)-(\d\d) (\d\d):(\d\d):(\d\d)")
_LEAP_YEAR = 2000
_BETWEEN_LEAP_YEARS = 9  # the longest wait for a 29 February is 8 years, and one more
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


class Chronology:
    """Seconds since the epoch for the header times of one log, in order of arrival.

    The first time gets the newest year in which it doesn't lie behind the reference; each
    further one the year that brings it nearest to the one before, so a log runs over New
    Year.  Seconds never go back: a line that comes late gets the time of the line before
    it.  A clock that goes on far behind was set back (end of summer time, a container with
    another zone): from then on its times count from where they had come to.

    The zone is unknown: the seconds are as if the header's were UTC's.
    """

    def __init__(self, reference: float) -> None:
        """Begin before the first line.

        Args:
            reference: seconds since the epoch, not before the log's first line: when its
                file was last written, or when the line was received.
        """
        self._reference = datetime.fromtimestamp(reference, timezone.utc)
        self._newest: datetime | None = None  # of the lines so far, as printed
        self._behind: datetime | None = None  # since when lines lie far behind it
        self._shift = timedelta(0)  # by which the clock was set back
        self.seconds: float | None = None

    def at(self, logged_at: str | None) -> float | None:
        """Return the seconds of a line.

        Args:
            logged_at: ``MM-DD HH:MM:SS``, or None for a line without time, which happened
                when the line before it did.

        Returns:
            seconds since the epoch, or None before the first time.
        """
        printed = _parse(logged_at)
        if printed is not None:
            self._take(printed)
        return self.seconds

    def _take(self, printed: datetime) -> None:
        if self._newest is None:
            now = _newest_year(printed, self._reference + _SLACK)
        else:
            now = _nearest_year(printed, self._newest)
            if now < self._newest and not self._was_set_back(now):
                return
        self._newest, self._behind = now, None
        self.seconds = (now + self._shift).timestamp()

    def _was_set_back(self, now: datetime) -> bool:
        """Tell whether a time behind the newest is of a clock that was set back."""
        newest = self._newest or now
        if newest - now < timedelta(seconds=_SET_BACK_SECONDS):
            return False
        if self._behind is None or now < self._behind:
            self._behind = now
        if now - self._behind < timedelta(seconds=_PERSISTING_SECONDS):
            return False
        self._shift += newest - self._behind
        return True


def _newest_year(printed: datetime, latest: datetime) -> datetime:
    """Return the date in the newest year that has it and where it isn't too late."""
    for year in range(latest.year, latest.year - _BETWEEN_LEAP_YEARS, -1):
        found = _in_year(printed, year)
        if found <= latest and found.month == printed.month:
            return found
    return _in_year(printed, latest.year)


def _nearest_year(printed: datetime, near: datetime) -> datetime:
    years = (near.year, near.year + 1, near.year - 1)
    return min((_in_year(printed, y) for y in years), key=lambda at: abs(at - near))


def _in_year(printed: datetime, year: int) -> datetime:
    """Return the date in a year; where that has no 29 February, the day after the 28th."""
    try:
        return printed.replace(year=year)
    except ValueError:
        return printed.replace(year=year, day=28) + timedelta(days=1)


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
