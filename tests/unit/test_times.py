"""Header times in order: the year, New Year, late lines and clocks that are set back."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpuwatch.state.times import Chronology

pytestmark = pytest.mark.unit


def epoch(
    year: int, month: int, day: int, hour: int = 0, minute: int = 0, second: int = 0
) -> float:
    at = datetime(year, month, day, hour, minute, second, tzinfo=timezone.utc)
    return at.timestamp()


def read(reference: float, *printed: str | None) -> list[float | None]:
    chronology = Chronology(reference)
    return [chronology.at(text) for text in printed]


def test_the_year_is_that_of_the_file() -> None:
    assert read(epoch(2026, 8, 3), "08-02 17:38:43") == [epoch(2026, 8, 2, 17, 38, 43)]


def test_a_start_before_new_year_is_last_years() -> None:
    times = read(epoch(2027, 1, 1, 3), "12-31 23:59:50", None, "01-01 00:00:10")
    assert times[0] == times[1] == epoch(2026, 12, 31, 23, 59, 50)
    assert times[2] == epoch(2027, 1, 1, 0, 0, 10)


def test_another_zone_makes_no_other_year() -> None:
    # The header's clock is hours ahead of the file's, at New Year.
    assert read(epoch(2026, 12, 31, 20), "01-01 05:00:00") == [epoch(2027, 1, 1, 5)]


def test_a_leap_day() -> None:
    late, leap = "02-29 23:59:59", epoch(2024, 2, 29, 23, 59, 59)
    assert read(epoch(2026, 8, 3), late) == [leap]
    assert read(epoch(2024, 3, 1), "02-28 23:59:59", late, "03-01 00:00:01") == [
        leap - 86_400,
        leap,
        leap + 2,
    ]


def test_a_leap_day_in_a_year_without_one_is_the_next_day() -> None:
    times = read(epoch(2026, 3, 1), "02-28 12:00:00", "02-29 12:00:00")
    assert times == [epoch(2026, 2, 28, 12), epoch(2026, 3, 1, 12)]


def test_a_late_line_does_not_turn_time_back() -> None:
    times = read(
        epoch(2026, 8, 3), "08-02 10:05:00", "08-02 10:01:00", "08-02 10:05:01"
    )
    assert times == [
        epoch(2026, 8, 2, 10, 5),
        epoch(2026, 8, 2, 10, 5),
        epoch(2026, 8, 2, 10, 5, 1),
    ]


def test_a_clock_that_was_set_back_goes_on() -> None:
    before, *after = read(
        epoch(2026, 10, 26),
        "10-25 02:59:59",
        "10-25 02:00:00",
        "10-25 02:00:50",
        "10-25 02:01:30",
        "10-25 02:02:30",
    )
    assert before == epoch(2026, 10, 25, 2, 59, 59)
    assert after == [before, before, before + 90, before + 150]


@pytest.mark.parametrize("text", [None, "", "13-01 00:00:00", "02-30 00:00:00", "now"])
def test_no_time_is_none(text: str | None) -> None:
    assert read(0.0, text) == [None]


MOMENTS = st.integers(int(epoch(2020, 1, 1)), int(epoch(2030, 12, 31)))
STEPS = st.lists(st.integers(0, 100 * 86_400), max_size=12)


@given(MOMENTS, STEPS)
def test_a_log_of_less_than_a_year_comes_out_as_it_was(
    begin: int, steps: list[int]
) -> None:
    moments = [datetime.fromtimestamp(begin, timezone.utc)]
    for step in steps:
        if (moments[-1] - moments[0]).days < 200:
            moments.append(moments[-1] + timedelta(seconds=step))
    printed = [moment.strftime("%m-%d %H:%M:%S") for moment in moments]
    found = read(moments[-1].timestamp(), *printed)
    assert found == [moment.timestamp() for moment in moments]


@given(
    st.floats(0, 4e9),
    st.lists(
        st.builds(
            "{:02}-{:02} {:02}:{:02}:{:02}".format,
            st.integers(0, 13),
            st.integers(0, 32),
            st.integers(0, 24),
            st.integers(0, 60),
            st.integers(0, 60),
        )
    ),
)
def test_time_never_goes_back(reference: float, printed: list[str]) -> None:
    times = [time for time in read(reference, *printed) if time is not None]
    assert times == sorted(times)
