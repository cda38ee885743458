"""The raw reader: whatever the pieces in which an answer comes, it reads the same."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpuwatch.load.answer import AnswerReader

pytestmark = pytest.mark.unit

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
CRLF = "\r\n"
CHUNKED = HEAD + b"transfer-encoding: chunked\r\n\r\n"


def event(content: object) -> bytes:
    text = content if isinstance(content, str) else json.dumps(content)
    return f"data: {text}\n\n".encode()


def chunks(*parts: bytes) -> bytes:
    framed = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts)
    return CHUNKED + framed + b"0\r\n\r\n"


def piece(text: str, reason: str | None = None) -> object:
    return {"choices": [{"index": 0, "text": text, "finish_reason": reason}]}


def delta(reason: str | None = None, **said: object) -> object:
    return {"choices": [{"index": 0, "delta": said, "finish_reason": reason}]}


USAGE = {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 3}}


def read(*parts: bytes) -> AnswerReader:
    reader = AnswerReader()
    for moment, part in enumerate(parts):
        reader.feed(part, float(moment))
    return reader


STREAM = chunks(
    event(piece(" a")),
    event(piece(' "content": "x')) + event(piece(" c", "length")),
    event(USAGE),
    event("[DONE]"),
)


@given(st.lists(st.integers(1, len(STREAM) - 1), max_size=8, unique=True).map(sorted))
def test_pieces_may_be_cut_anywhere(cuts: Sequence[int]) -> None:
    bounds = [0, *cuts, len(STREAM)]
    reader = read(*(STREAM[a:b] for a, b in itertools.pairwise(bounds)))
    assert (reader.complete, reader.failure) == (True, "")
    assert len(reader.arrivals) == 3
    assert (reader.input_tokens, reader.output_tokens) == (7, 3)
    assert reader.keeps_open


def test_each_piece_has_the_moment_at_which_it_came() -> None:
    first = CHUNKED + b"%x\r\n%s\r\n" % (len(event(piece("a"))), event(piece("a")))
    second = b"%x\r\n%s\r\n" % (len(event(piece("b")) * 2), event(piece("b")) * 2)
    assert list(read(first, second, b"0\r\n\r\n").arrivals) == [0.0, 1.0, 1.0]


@pytest.mark.parametrize(
    ("events", "count"),
    [
        ([delta(role="assistant", content=""), delta(content="a"), delta("stop")], 1),
        ([delta(role="assistant", content=""), delta("length", content="a")], 1),
        ([delta(reasoning_content="a"), delta(reasoning="b"), delta(content="c")], 3),
        ([delta(content="a"), delta(content=""), delta(content="b")], 3),  # half of a é
        ([piece("a"), piece(""), piece("b", "length")], 3),
        ([piece("a"), piece("", "stop")], 1),
        ([piece("a") | {"usage": None}], 1),  # type: ignore[operator]
        ([piece("a") | {"usage": {"completion_tokens": 1}}], 1),  # type: ignore[operator]
        ([delta(tool_calls=[{"index": 0}])], 1),
    ],
)
def test_only_what_carries_a_token_is_counted(
    events: Sequence[object], count: int
) -> None:
    reader = read(chunks(*map(event, events), event("[DONE]")))
    assert len(reader.arrivals) == count
    assert not reader.failure


def test_a_token_without_any_text_is_one_all_the_same() -> None:
    one = {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 1}}
    reader = read(chunks(event(piece("", "length")), event(one)))
    assert (len(reader.arrivals), reader.failure) == (1, "")


def test_spaces_carriage_returns_and_comments_don_t_matter() -> None:
    spaced = (
        b': ping\r\n\r\ndata:{"choices": [{"text": "a"}]}\r\n\r\ndata: [DONE]\r\n\r\n'
    )
    assert len(read(chunks(spaced)).arrivals) == 1


@pytest.mark.parametrize("keeps", [True, False])
def test_a_body_with_a_length_may_be_followed_by_another_answer(keeps: bool) -> None:
    body = event(piece("a", "stop"))
    head = HEAD + (b"" if keeps else b"connection: close\r\n")
    reader = read(head + b"content-length: %d\r\n\r\n" % len(body) + body)
    assert (reader.complete, reader.keeps_open) == (True, keeps)


def test_a_body_without_a_length_ends_with_the_connection() -> None:
    reader = read(HEAD + b"\r\n" + event(piece("a", "stop")))
    assert not reader.complete
    reader.end(1.0)
    assert (reader.complete, reader.failure, reader.keeps_open) == (True, "", False)


@pytest.mark.parametrize(
    ("events", "is_whole"),
    [
        ([piece("a"), piece("b", "length")], True),
        ([piece("a"), piece("", "stop"), USAGE], True),
        ([piece("a"), "[DONE]"], True),
        ([piece("a", "stop"), piece("b")], False),
        ([piece("a"), USAGE], False),
    ],
)
def test_a_stream_that_doesn_t_say_that_it_ends_was_cut_off(
    events: Sequence[object], is_whole: bool
) -> None:
    reader = read(chunks(*map(event, events)))
    assert reader.complete
    assert reader.failure == (
        "" if is_whole else "the stream ended before the answer did"
    )


COUNTS = st.one_of(
    st.none(), st.booleans(), st.text(), st.floats(), st.integers(), st.just(10**400)
)
JSON = st.recursive(COUNTS, lambda inner: st.lists(inner, max_size=3), max_leaves=5)


@given(JSON, JSON, JSON, st.booleans())
def test_whatever_a_server_sends_counts_are_none_or_whole_numbers(
    count: object, choices: object, delta: object, streams: bool
) -> None:
    event_of = {
        "choices": [{"delta": delta, "text": choices}] if streams else choices,
        "usage": {"prompt_tokens": count, "completion_tokens": count},
    }
    for said in (chunks(event(event_of)), plain(200, json.dumps(event_of))):
        reader = read(said)
        assert reader.complete
        for tokens in (reader.input_tokens, reader.output_tokens):
            assert tokens is None or (type(tokens) is int and 0 <= tokens < 1 << 41)


@given(st.binary())
def test_any_bytes_are_an_answer_or_a_failure(data: bytes) -> None:
    for said in (data, CHUNKED + data, HEAD + b"\r\n" + data):
        reader = read(said)
        reader.end(1.0)
        assert reader.failure


def test_interim_answers_and_trailers_are_passed_over() -> None:
    interim = b"HTTP/1.1 100 Continue\r\n\r\n" * 3000
    reader = read(interim + STREAM[:-2] + b"X-A: 1\r\n\r\n")
    assert (reader.status, reader.complete, len(reader.arrivals)) == (200, True, 3)


def test_an_answer_in_one_piece_counts_once() -> None:
    body = json.dumps({"choices": [{"text": " a b"}], "usage": USAGE["usage"]})
    reader = read(plain(200, body))
    assert (len(reader.arrivals), reader.output_tokens) == (1, 3)


def plain(status: int, body: str) -> bytes:
    rows = (
        f"{status} X",
        "content-type: application/json",
        f"content-length: {len(body)}",
    )
    return f"HTTP/1.1 {CRLF.join(rows)}{CRLF * 2}{body}".encode()


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (plain(400, '{"error": {"message": "too  long"}}'), "HTTP 400: too long"),
        (plain(404, '{"detail": "Not Found"}'), "HTTP 404: Not Found"),
        (plain(400, '{"object": "error", "message": "bad"}'), "HTTP 400: bad"),
        (plain(502, "<html>Bad Gateway</html>"), "HTTP 502: <html>Bad Gateway</html>"),
        (plain(200, "hello"), "the answer is no completion"),
        (plain(200, "[]"), "the answer is no completion"),
        (b"SSH-2.0-OpenSSH\r\n\r\n", "what came is no HTTP/1.1 answer"),
        (CHUNKED + b"zz\r\n", "what came is no HTTP/1.1 answer"),
        (CHUNKED + b"-5\r\n", "what came is no HTTP/1.1 answer"),
        (HEAD + b"content-length: -5\r\n\r\n", "what came is no HTTP/1.1 answer"),
        (b"HTTP/1.1 0 X\r\n\r\n", "what came is no HTTP/1.1 answer"),
        (plain(500, "\x1b[31mboom\x07"), "HTTP 500: boom"),
        (plain(500, json.dumps({"detail": "\x1b[2J\ud800"})), "HTTP 500: ?"),
        (HEAD + b"\r\n" + b"a" * (2 << 20), "the stream holds a line without end"),
        (chunks(b"data: {oops\n\n"), "the stream holds what is no JSON"),
        (
            chunks(b"data: " + b"[" * 100_000 + b"\n"),
            "the stream holds what is no JSON",
        ),
        (chunks(event("[DONE]")), "the answer has no text"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", "the answer has no text"),
        (
            chunks(event(piece("a")), event({"error": {"message": "EngineCore died"}})),
            "the stream broke off: EngineCore died",
        ),
    ],
)
def test_what_is_no_good_answer_says_why(said: bytes, words: str) -> None:
    reader = read(said)
    assert reader.complete
    assert reader.failure == words


@pytest.mark.parametrize(
    ("come", "words"),
    [(b"", "without an answer"), (CHUNKED + b"5\r\nda", "in the middle of its answer")],
)
def test_a_connection_that_breaks_off_says_where(come: bytes, words: str) -> None:
    reader = read(come)
    reader.end(1.0)
    assert reader.failure == f"the server closed the connection {words}"
    assert not reader.keeps_open
