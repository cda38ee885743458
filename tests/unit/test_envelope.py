"""What log collectors put around a line is taken off, and nothing else is."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpuwatch.records import Line
from hpuwatch.source.envelope import Unwrapper

pytestmark = pytest.mark.unit

STAMP = "2026-11-29T12:29:10.123456789Z"
SECONDS = 1795955350.123456


def unwrapped(*texts: str) -> list[str]:
    unwrapper = Unwrapper()
    lines = [Line(text, number=n) for n, text in enumerate(texts, 1)]
    pieces = [piece for line in lines for piece in unwrapper.feed(line)]
    return [piece.text for piece in pieces + unwrapper.close()]


def docker(log: str, stream: str = "stdout") -> str:
    return json.dumps({"log": log, "stream": stream, "time": STAMP})


@pytest.mark.parametrize(
    "envelope",
    [
        "{}",
        STAMP + " {}",
        "2026-11-29T12:29:10+02:00 {}",
        STAMP + " stdout F {}",
        STAMP + " stderr F {}",
        "Nov 29 12:29:10 host-1 vllm[123]: {}",
        "Nov  9 12:29:10 host docker/vllm: {}",
        "[pod/vllm-0/server] {}",
        "[pod/vllm-0/server] " + STAMP + " {}",
        "vllm-1  | {}",
    ],
)
def test_each_envelope_is_taken_off(envelope: str) -> None:
    message = "INFO 11-29 12:29:10 [core.py:1] Skipping warmup..."
    assert unwrapped(envelope.format(message)) == [message]


@given(st.text(alphabet="abc {}[]|:()=.%", max_size=60))
def test_other_text_passes_as_it_is(text: str) -> None:
    line = Line("INFO: " + text, 5, 2, 1.0)
    assert Unwrapper().feed(line) == [line]


@given(st.text(max_size=80), st.integers(1, 2))
def test_nothing_raises(text: str, number: int) -> None:
    unwrapper = Unwrapper()
    for envelope in ("{}", '{{"log": {}', STAMP + " stdout P {}", "{{{}"):
        unwrapper.feed(Line(envelope.format(text), number=number))
    unwrapper.close()


def test_docker_parts_are_joined() -> None:
    assert unwrapped(docker("one "), docker("line\n"), docker("two\n")) == [
        "one line",
        "two",
    ]


def test_a_joined_line_begins_where_its_first_part_did() -> None:
    unwrapper = Unwrapper()
    assert unwrapper.feed(Line(docker("one "), 10, 1)) == []
    (piece,) = unwrapper.feed(Line(docker("line\n"), 99, 2))
    assert (piece.text, piece.offset, piece.number) == ("one line", 10, 2)


def test_docker_streams_are_joined_apart() -> None:
    texts = unwrapped(docker("out "), docker("err\n", "stderr"), docker("end\n"))
    assert texts == ["err", "out end"]


def test_docker_line_with_carriage_returns_is_many_pieces() -> None:
    unwrapper = Unwrapper()
    pieces = unwrapper.feed(Line(docker("\rbar 1\rbar 2\r\n"), 40, 3))
    assert [(p.text, p.offset, p.number) for p in pieces] == [
        ("bar 1", 40, 3),
        ("bar 2", 40, 3),
    ]


def test_an_unfinished_part_comes_at_the_end() -> None:
    assert unwrapped(docker("half")) == ["half"]
    assert unwrapped(f"{STAMP} stdout P half") == ["half"]


def test_cri_parts_are_joined() -> None:
    assert unwrapped(
        f"{STAMP} stdout P Generated 2 ",
        f"{STAMP} stdout F prompt buckets",
        f"{STAMP} stdout F next",
    ) == ["Generated 2 prompt buckets", "next"]


def test_cri_part_that_holds_carriage_returns() -> None:
    unwrapper = Unwrapper()
    pieces = [
        piece
        for line in (
            Line(f"{STAMP} stderr P bar 1", 0, 1),
            Line("bar 2", 50, 1),
            Line("bar", 56, 1),
            Line(f"{STAMP} stderr F  3", 60, 2),
        )
        for piece in unwrapper.feed(line)
    ]
    assert [piece.text for piece in pieces] == ["bar 1", "bar 2", "bar 3"]


def test_empty_cri_line() -> None:
    assert unwrapped(f"{STAMP} stdout F ", f"{STAMP} stdout F") == ["", ""]


def test_the_collector_dates_lines_of_a_file() -> None:
    unwrapper = Unwrapper()
    for number, text in enumerate((docker("a\n"), f"{STAMP} a"), 1):
        (piece,) = unwrapper.feed(Line(text, number=number))
        assert piece.received_at == pytest.approx(SECONDS)


def test_our_own_time_of_reading_stays() -> None:
    (piece,) = Unwrapper().feed(Line(f"{STAMP} a", received_at=5.0))
    assert piece.received_at == 5.0


def test_a_date_that_is_none_is_left() -> None:
    (piece,) = Unwrapper().feed(Line("2026-99-99T99:99:99Z text"))
    assert piece == Line("text")


@pytest.mark.parametrize("text", ['{"log": 5}', '{"a": 1}', '{"log"', "[1]"])
def test_other_json_is_no_envelope(text: str) -> None:
    assert unwrapped(text) == [text]
