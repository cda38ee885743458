"""What log collectors put around a line is taken off, and nothing else is."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpuwatch.app.rules import shipped_rules
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
        "vllm-1  | " + STAMP + " {}",
        "stack_vllm.1.x7y@node-2    | {}",
        "Nov 29 12:29:10.123456 host-1 vllm[123]: {}",
        "Sun 2026-11-29 12:29:10 UTC host-1 vllm[123]: {}",
        "[ 1234.567890] host-1 vllm[123]: {}",
        "1795955350.123456 host-1 vllm[123]: {}",
        "\x1b[36mvllm-1  | \x1b[0m{}",
        "\x1b[36mvllm-1  |\x1b[0m {}",
        "<6>{}",
        "10.0.0.1: {}",
        "2026-11-29 12:29:10.123 {}",
        "2026-11-29 12:29:10 {}",
        "2026-11-29T12:29:10+0100 host-1 vllm[123]: {}",
        "2026-11-29T12:29:10.123456+00:00 host-1 docker/vllm[123]: {}",
        "<14>Nov 29 12:29:10 host-1 vllm[123]: {}",
        "<14>1 2026-11-29T12:29:10.123Z host-1 vllm 123 - - {}",
        '<14>1 2026-11-29T12:29:10.123Z host-1 vllm 123 x1 [a b="c"] {}',
    ],
)
def test_each_envelope_is_taken_off(envelope: str) -> None:
    for message in (
        "INFO 11-29 12:29:10 [core.py:1] Skipping warmup...",
        "(Worker_TP3 pid=8) INFO 11-29 12:29:10 [core.py:1] Skipping warmup...",
        "Traceback (most recent call last):",
        "    step()",
        "RuntimeError: boom",
    ):
        assert unwrapped(envelope.format(message)) == [message]


def test_the_time_of_mpirun_stands_before_its_rank() -> None:
    text = "[1,6]<stdout>:INFO 11-29 12:29:10 [core.py:1] Skipping warmup..."
    assert unwrapped(f"Sun Nov 29 12:29:10 2026{text}") == [text]


@pytest.mark.parametrize(
    "text",
    [
        "2026-11-30 10:00:00,123 - vllm.core - INFO - said",
        "2026-11-30 10:00:00.123 | INFO     | vllm.core:run:12 - said",
        "2026-11-30 10:00:00 INFO said",
        "2026-11-30 10:00:00,123\tINFO worker.py:1 -- said",
        "10.0.0.1:8000 - said",
        "<unk>: 6",
        "Sun Nov 29 12:29:10 2026: said",
    ],
)
def test_what_looks_like_an_envelope_passes(text: str) -> None:
    assert unwrapped(text) == [text]


def test_no_sentence_that_a_rule_knows_has_an_envelope() -> None:
    rules = shipped_rules().rules
    lines = [each.line for rule in rules for each in rule.text.examples]
    assert [line for line in lines if unwrapped(line) != [line]] == []


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
    dated = (
        docker("a\n"),
        f"{STAMP} a",
        "2026-11-29T14:29:10.123456+0200 host vllm[1]: a",
        f"<14>1 {STAMP} host vllm 1 - - a",
    )
    for number, text in enumerate(dated, 1):
        (piece,) = unwrapper.feed(Line(text, number=number))
        assert piece.received_at == pytest.approx(SECONDS)


def journald(message: object, **more: str) -> str:
    entry = {"__REALTIME_TIMESTAMP": "1795955350123456", "_PID": "7"}
    return json.dumps({"MESSAGE": message, **entry, **more})


def test_journald_tells_text_and_what_is_no_text() -> None:
    coloured = list("\x1b[32mINFO\x1b[0m \u2588".encode())
    assert unwrapped(journald("one"), journald(coloured), journald("")) == [
        "one",
        "\x1b[32mINFO\x1b[0m \u2588",
        "",
    ]
    (piece,) = Unwrapper().feed(Line(journald("one"), 3, 2))
    assert (piece.text, piece.offset, piece.number) == ("one", 3, 2)
    assert piece.received_at == pytest.approx(SECONDS)


def test_journald_parts_are_joined_by_process() -> None:
    assert unwrapped(
        journald("one ", _LINE_BREAK="line-max"),
        journald("other", _PID="8"),
        journald("two ", CONTAINER_PARTIAL_MESSAGE="true"),
        journald("three"),
    ) == ["other", "one two three"]


@pytest.mark.parametrize(
    "text",
    [
        journald(None),
        journald([1, 300]),
        journald(["a"]),
        json.dumps({"MESSAGE": "a"}),
        json.dumps({"log": "a", "level": "info"}),
    ],
)
def test_what_is_no_entry_passes(text: str) -> None:
    assert unwrapped(text) == [text]


@pytest.mark.parametrize("stamp", ["", "x", "9" * 30])
def test_a_moment_that_is_none_is_left(stamp: str) -> None:
    (piece,) = Unwrapper().feed(Line(journald("a", __REALTIME_TIMESTAMP=stamp)))
    assert piece == Line("a")


def test_a_level_is_no_service() -> None:
    assert unwrapped("INFO | said") == ["INFO | said"]


def test_our_own_time_of_reading_stays() -> None:
    (piece,) = Unwrapper().feed(Line(f"{STAMP} a", received_at=5.0))
    assert piece.received_at == 5.0


def test_a_date_that_is_none_is_left() -> None:
    (piece,) = Unwrapper().feed(Line("2026-99-99T99:99:99Z text"))
    assert piece == Line("text")


@pytest.mark.parametrize("text", ['{"log": 5}', '{"a": 1}', '{"log"', "[1]"])
def test_other_json_is_no_envelope(text: str) -> None:
    assert unwrapped(text) == [text]
