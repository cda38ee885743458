"""The small HTTP layer: requests in any pieces, and what it refuses."""

from __future__ import annotations

import itertools
from http import HTTPStatus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpuwatch.sim.http.wire import (
    BadRequest,
    HttpRequest,
    RequestReader,
    Response,
    chunk,
    json_response,
    packed,
    whole,
)

pytestmark = pytest.mark.unit

_POST = (
    b"POST /v1/completions?x=1 HTTP/1.1\r\nHost: a\r\n"
    b"Content-Type: application/json\r\nContent-Length: 7\r\n\r\n"
    b'{"a":1}'
)
_CHUNKED = (
    b"POST /v1/completions HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
    b'3\r\n{"a\r\n4;x=y\r\n":1}\r\n0\r\n\r\n'
)


def _read(*pieces: bytes) -> list[HttpRequest]:
    reader, found = RequestReader(), []
    for piece in pieces:
        reader.feed(piece)
        while (request := reader.next()) is not None:
            found.append(request)
    return found


@pytest.mark.parametrize(
    "request_bytes",
    [_POST, _CHUNKED, _CHUNKED.replace(b"0\r\n", b"0\r\nExpires: never\r\nA: b\r\n")],
)
@given(st.lists(st.integers(0, 2 * len(_CHUNKED)), max_size=8))
def test_requests_are_read_whatever_the_pieces(
    request_bytes: bytes, cuts: list[int]
) -> None:
    stream = request_bytes * 2
    ends = sorted({0, *(cut for cut in cuts if cut < len(stream)), len(stream)})
    first, second = _read(*(stream[a:b] for a, b in itertools.pairwise(ends)))
    assert first == second
    assert (first.method, first.path) == ("POST", "/v1/completions")
    assert first.body == b'{"a":1}'
    assert first.keeps_open


@pytest.mark.parametrize(
    ("words", "keeps_open"),
    [
        (b"HTTP/1.1\r\n", True),
        (b"HTTP/1.1\r\nConnection: close\r\n", False),
        (b"HTTP/1.0\r\n", False),
        (b"HTTP/1.0\r\nConnection: Keep-Alive\r\n", False),
    ],
)
def test_a_client_says_whether_it_comes_again(words: bytes, keeps_open: bool) -> None:
    (request,) = _read(b"GET /metrics?x=1 " + words + b"\r\n")
    assert request.keeps_open == keeps_open
    assert (request.target, request.path) == ("/metrics?x=1", "/metrics")


@pytest.mark.parametrize(
    ("target", "path"),
    [
        (b"http://a:80/health?x", "/health"),
        (b"http://a", "/"),
        (b"/%68ealth", "/health"),
        (b"//health", "//health"),
    ],
)
def test_a_path_may_be_written_in_other_ways(target: bytes, path: str) -> None:
    (request,) = _read(b"GET " + target + b" HTTP/1.1\r\n\r\n")
    assert request.path == path


def test_a_request_cut_short_is_no_request() -> None:
    assert _read(_POST[:-3]) == []
    assert _read(_CHUNKED[:-3]) == []


def test_a_client_may_wait_until_its_body_is_wanted() -> None:
    head, _, body = _POST.partition(b"\r\n\r\n")
    reader = RequestReader()
    reader.feed(head + b"\r\nExpect: 100-continue\r\n\r\n")
    assert reader.next() is None
    assert reader.wants_body
    reader.feed(body)
    assert reader.next() is not None
    assert not reader.wants_body


@pytest.mark.parametrize(
    ("stream", "status"),
    [
        (b"hello\r\n\r\n", HTTPStatus.BAD_REQUEST),
        (b"GET / HTTP/1.1\r\nContent-Length: x\r\n\r\n", HTTPStatus.BAD_REQUEST),
        (b"GET / HTTP/1.1\r\nContent-Length: -1\r\n\r\n", HTTPStatus.BAD_REQUEST),
        (
            b"GET / HTTP/1.1\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\n",
            HTTPStatus.BAD_REQUEST,
        ),
        (b"BREW / HTTP/1.1\r\n\r\n", HTTPStatus.BAD_REQUEST),
        (_CHUNKED.replace(b'{"a\r\n', b'{"a::'), HTTPStatus.BAD_REQUEST),
        (b"GET /\x1b[31m HTTP/1.1\r\n\r\n", HTTPStatus.BAD_REQUEST),
        (b"GET / HTTP/1.1\r\nX-Request-Id: a\nb\r\n\r\n", HTTPStatus.BAD_REQUEST),
        (b"GET / HTTP/1.1\r\nno header\r\n\r\n", HTTPStatus.BAD_REQUEST),
        (_CHUNKED.partition(b"3\r\n")[0] + b"0" * 70_000, HTTPStatus.BAD_REQUEST),
        (_CHUNKED.replace(b"3\r\n", b"x\r\n", 1), HTTPStatus.BAD_REQUEST),
        (
            _CHUNKED.replace(b"3\r\n", b"fffffffff\r\n", 1),
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        ),
        (
            b"GET / HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n",
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        ),
        (b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 20_000, HTTPStatus.BAD_REQUEST),
    ],
)
def test_what_is_no_http_is_refused(stream: bytes, status: HTTPStatus) -> None:
    with pytest.raises(BadRequest) as refusal:
        _read(stream)
    assert refusal.value.status == status


def test_answers_have_a_length_or_come_in_chunks() -> None:
    answer = whole(json_response({"a": [1, "é"]}), 0.0, keeps_open=True)
    head, _, body = answer.partition(b"\r\n\r\n")
    dated = b"HTTP/1.1 200 OK\r\ndate: Thu, 01 Jan 1970 00:00:00 GMT\r\n"
    assert head.startswith(dated + b"server: uvicorn\r\n")
    assert b"content-length: 14" in head
    assert b"connection" not in head
    assert body == '{"a":[1,"é"]}'.encode() == packed({"a": [1, "é"]})
    assert b"connection: close" in whole(Response(), 1e15, keeps_open=False)
    to_head = whole(json_response({}), 0.0, keeps_open=True, tells_body=False)
    assert b"content-length: 2" in to_head
    assert to_head.endswith(b"\r\n\r\n")
    assert chunk(b"abc") == b"3\r\nabc\r\n"
    assert chunk(b"") == b"0\r\n\r\n"
