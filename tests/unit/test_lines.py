"""Stepping over lines and remembering how they were read change nothing but the time."""

from __future__ import annotations

import functools
import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpuwatch.app.rules import shipped_rules
from hpuwatch.events import Event
from hpuwatch.parse.habits import Habits
from hpuwatch.parse.parser import Parser
from hpuwatch.parse.rulefile import load_rules
from hpuwatch.parse.rules import RuleSet
from hpuwatch.parse.tally import Tally
from hpuwatch.parse.unmatched import Counter, Unmatched
from hpuwatch.records import Line
from hpuwatch.source.lines import Lines

pytestmark = pytest.mark.unit

ACCESS = 'INFO:     10.0.0.1:{n} - "POST /v1/completions HTTP/1.1" 200 OK'
STATISTICS = (
    "(APIServer pid={pid}) INFO 11-30 01:16:{n:02} [loggers.py:271] Engine 000: Avg prompt "
    "throughput: {n}.5 tokens/s, Avg generation throughput: 2.0 tokens/s, Running: {n} reqs, "
    "Waiting: 0 reqs, GPU KV cache usage: 6{n}.7%, Prefix cache hit rate: 0.0%"
)
MISS = (
    "(Worker_TP{pid} pid=7) WARNING 11-30 01:16:{n:02} [hpu_model_runner.py:5] "
    "Configuration: ('decode', {n}, 1, 128) was not warmed-up!"
)
UNKNOWN = (
    "(EngineCore pid={pid}) INFO 11-30 01:16:{n:02} [new.py:5] Kept {n} of {pid} hats"
)
ENGINE = "(EngineCore pid=7) ERROR 11-30 01:16:08 [core.py:1]"
TEMPLATES = [
    *[ACCESS] * 4,
    STATISTICS,
    MISS,
    UNKNOWN,
    "Kept {n} buckets",
    f"DEBUG 11-30 01:16:08 [n.py:5] {'long ' * 80}{{n}}",
    "WARNING: {n} odd",
    f"{ENGINE} Traceback (most recent call last):",
    f"{ENGINE}   File 'x.py', line {{n}}",
    f"{ENGINE} RuntimeError: no more than {{n}}",
    "Traceback (most recent call last):",
    "KeyError: {n}",
    f"ValueError: {ACCESS}",
    "Received request cmpl-{n}: prompt: 'one",
    "Received request cmpl-{n}: prompt: 'GET / HTTP/1.1\" 200 OK",
    ", params: SamplingParams(n={n})",
    "Prompt warmup processing:  50%|###  | {n}/4 [00:01<00:01,  1.78s/item, 1/4]",
    f"Prompt warmup processing:  50%|# | {{n}}/4 [00:01<00:01,  1.78s/item, 1/4]{ACCESS}",
    f"\x1b[32m{ACCESS}\x1b[0m",
    "\x1b]0;title " + ACCESS,
    f"2026-11-30T01:16:08.123456789Z stdout F {ACCESS}",
    f"2026-11-30T01:16:08.123456789-05:00 stdout P {ACCESS}",
    f"[pod/a/b] {ACCESS}",
    "vllm-1  | " + ACCESS,
    "",
    "\udcff",
]
WRAPPED = {"log": f"{ACCESS.format(n=4)}\n", "stream": "stdout"}


def written(pieces: list[tuple[str, int, int, str]]) -> bytes:
    text = "".join(
        template.replace("{n}", str(n))
        .replace("{n:02}", f"{n:02}")
        .replace("{pid}", str(pid))
        + line_end
        for template, n, pid, line_end in pieces
    )
    return text.encode("utf-8", "surrogateescape")


class NoHabits(Habits):
    """Remembers nothing."""

    def recall(self, text: str) -> None:
        del text

    def wants(self, *_: object) -> bool:
        return False


@functools.cache
def rules() -> RuleSet:
    return shipped_rules()


Read = tuple[list[Event], Parser, list[Unmatched]]


def slowly(data: bytes) -> Read:
    """Every piece of the stream, in one chunk, each read as if it were the first."""
    unknown, tally, lines = Counter(), Tally(), Lines()
    parser = Parser(rules(), tally, unknown)
    parser._habits = NoHabits()
    events = [e for line in lines.feed(data) for e in parser.feed(line)]
    events += [e for line in lines.close() for e in parser.feed(line)]
    templates = unknown.templates()
    assert sum(row.count for row in templates) == tally.total().unmatched
    return events + parser.close(), parser, templates


def quickly(data: bytes, cuts: list[int]) -> Read:
    unknown = Counter()
    parser = Parser(rules(), unmatched=unknown)
    lines, events = Lines(parser), list[Event]()
    bounds = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    for start, end in pairwise(bounds):
        for line in lines.feed(data[start:end]):
            events += parser.feed(line)
    for line in lines.close():
        events += parser.feed(line)
    return events + parser.close(), parser, unknown.templates()


def same(data: bytes, cuts: list[int]) -> None:
    slow, plain, seen = slowly(data)
    quick, parser, seen_quickly = quickly(data, cuts)
    assert quick == slow
    assert parser.unparsed == plain.unparsed
    assert seen_quickly == seen
    blank_at_the_end = data[len(data.rstrip(b"\r\n")) :].count(b"\n")
    assert 0 <= parser.lines - plain.lines <= blank_at_the_end


@pytest.mark.parametrize(
    "ends", [["\n"], ["\r\n"], ["\n", "\r\n"], ["\n"] * 6 + ["\r\n", "\r", ""]]
)
@given(data=st.data())
def test_the_events_are_the_same_whatever_is_stepped_over(
    data: st.DataObject, ends: list[str]
) -> None:
    pieces = st.tuples(
        st.sampled_from(TEMPLATES),
        st.integers(0, 3),
        st.integers(1, 2),
        st.sampled_from(ends),
    )
    log = written(data.draw(st.lists(pieces, max_size=40)))
    same(log, data.draw(st.lists(st.integers(0, 4000), max_size=6)))


STAMP = "2026-11-30T01:16:08.123456789-05:00 stdout"


@pytest.mark.parametrize(
    "lines",
    [
        # A part that ends like an access line; one that an access line goes on with.
        [f"{STAMP} P {ACCESS}", f"{STAMP} F Kept 5 buckets"],
        [f"{STAMP} P Kept", f"{STAMP} F {ACCESS}", f"{STAMP} F 5 buckets"],
        # A time is a time by its shape, not by its length and letters.
        *[[f"ERROR 11-30 01:16:08 [n.py:5] {n}"] * 3 for n in ("x", "Kept 5 hats")],
        [*["INFO 11-30 01:16:08 [n.py:5] a"] * 3, "INFO 1-130 01:16:08 [n.py:5] a"],
        [
            *["INFO 11-30 01:16:08 [n.py:5] a 5 GiB"] * 3,
            "INFO 11-30 01:16:08 [n.py:5] a GiB",
        ],
    ],
)
def test_the_same_where_little_makes_a_difference(lines: list[str]) -> None:
    data = "".join(line.replace("{n}", "7") + "\n" for line in lines).encode()
    same(data, [])
    same(data, list(range(len(data))))


def test_docker_s_objects_are_read_one_by_one() -> None:
    data = "".join(json.dumps(WRAPPED) + "\n" for _ in range(5)).encode()
    same(data + b"KeyError: 0\n", [40])


def pieces_of(data: bytes) -> tuple[list[Line], Parser]:
    parser = Parser(rules())
    lines = Lines(parser)
    taken = []
    for line in lines.feed(data):
        taken.append(line)
        parser.feed(line)
    for line in lines.close():
        taken.append(line)
        parser.feed(line)
    return taken, parser


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_flood_gives_no_pieces_and_all_of_it_is_counted(end: str) -> None:
    flood = "".join(ACCESS.format(n=n) + end for n in range(5_000))
    telling = "Application startup complete."
    taken, parser = pieces_of(f"{flood}{telling}{end}{flood}".encode())
    assert [(line.text, line.number) for line in taken[:1]] == [(telling, 5_001)]
    assert len(taken) < 1_000  # those of a chunk that a line end was cut in
    assert parser.lines == 10_001


def test_what_is_under_way_keeps_lines_only_for_a_while() -> None:
    begin = "Traceback (most recent call last):\nKeyError: 1\n"
    flood = "".join(ACCESS.format(n=n) + "\n" for n in range(5_000))
    taken, parser = pieces_of(f"{begin}{flood}".encode())
    assert len(taken) < 500
    assert not parser.busy
    assert parser.lines == 5_002


def test_a_traceback_that_nobody_ends_is_told_after_a_while() -> None:
    parser = Parser(rules())
    texts = ["Traceback (most recent call last):", "KeyError: 1"]
    texts += ["(Worker_TP1 pid=5) a word"] * 500
    events = [
        e for n, text in enumerate(texts, 1) for e in parser.feed(Line(text, n, n))
    ]
    assert [event.fields["message"] for event in events] == ["KeyError: 1"]
    assert not parser.busy


def test_endings_of_a_user_s_own_and_a_change_of_rules() -> None:
    own = load_rules(
        {
            "own.yaml": "config_version: 1\nrules:\n"
            "  - event: noise\n    endings: [' all is quiet']\n"
            "    patterns: ['{:str} all is quiet']\n"
        }
    )
    parser = Parser(rules())
    lines = Lines(parser)
    quiet = b"in the west all is quiet\n" * 3
    assert len(list(lines.feed(quiet))) == 3
    parser.use(own)
    assert list(lines.feed(quiet)) == []
    assert parser.lines == 6


def test_a_habit_keeps_who_speaks_and_when() -> None:
    parser = Parser(rules())
    texts = [
        MISS.replace("{n:02}", f"{n:02}")
        .replace("{n}", str(n))
        .replace("{pid}", str(n % 3))
        for n in range(12)
    ]
    events = [
        e for n, text in enumerate(texts, 1) for e in parser.feed(Line(text, n, n))
    ]
    assert [event.speaker.rank for event in events] == [n % 3 for n in range(12)]
    assert [event.fields["bs"] for event in events] == list(range(12))
    assert [event.logged_at for event in events] == [
        f"11-30 01:16:{n:02}" for n in range(12)
    ]
    assert [event.line.text for event in events] == texts


def test_letters_that_never_come_again_are_forgotten() -> None:
    habits = Habits()
    parser = Parser(rules())
    parser._habits = habits
    for number in range(5_000):
        word = "".join(chr(97 + int(digit)) for digit in str(number))
        parser.feed(Line(f"INFO 11-30 01:16:08 [new.py:5] {word}", number=number + 1))
    assert len(habits._known) <= 2_048
    assert not any(habits._known.values())
