"""The small HTTP layer: requests in any pieces, and what it refuses."""

from __future__ import annotations

import asyncio
import itertools
from http import HTTPStatus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpuwatch.sim.serve.wire import (
    BadRequest,
    HttpRequest,
    chunk,
    json_response,
    read_request,
    whole,
)

pytestmark = pytest.mark.unit

_POST = (
    b"POST /v1/completions?x=1 HTTP/1.1\r\nHost: a\r\n"
    b"Content-Type: application/json\r\nContent-Length: 7\r\n\r\n"
    b'{"a":1}'
)


def _read(*pieces: bytes) -> list[HttpRequest | None]:
    async def all_of_them() -> list[HttpRequest | None]:
        reader = asyncio.StreamReader()

        async def feed() -> None:
            for piece in pieces:
                reader.feed_data(piece)
                await asyncio.sleep(0)
            reader.feed_eof()

        feeding = asyncio.ensure_future(feed())
        found: list[HttpRequest | None] = []
        while True:
            found.append(await read_request(reader))
            if found[-1] is None:
                await feeding
                return found

    return asyncio.run(all_of_them())


@given(st.lists(st.integers(0, 2 * len(_POST)), max_size=8))
def test_requests_are_read_whatever_the_pieces(cuts: list[int]) -> None:
    stream = _POST * 2
    ends = sorted({0, *cuts, len(stream)})
    pieces = [stream[a:b] for a, b in itertools.pairwise(ends)]
    first, second, end = _read(*pieces)
    assert first is not None
    assert first == second
    assert (first.method, first.path) == ("POST", "/v1/completions")
    assert first.body == b'{"a":1}'
    assert first.keeps_open
    assert end is None


def test_a_client_may_ask_to_close() -> None:
    (request, _) = _read(b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n")
    assert request is not None
    assert not request.keeps_open


def test_a_request_cut_short_is_no_request() -> None:
    assert _read(_POST[:-3]) == [None]


@pytest.mark.parametrize(
    ("stream", "status"),
    [
        (b"hello\r\n\r\n", HTTPStatus.BAD_REQUEST),
        (b"GET / HTTP/1.1\r\nContent-Length: x\r\n\r\n", HTTPStatus.BAD_REQUEST),
        (b"GET / HTTP/1.1\r\nContent-Length: -1\r\n\r\n", HTTPStatus.BAD_REQUEST),
        (
            b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n",
            HTTPStatus.LENGTH_REQUIRED,
        ),
        (
            b"POST / HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n",
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        ),
        (b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 500, HTTPStatus.BAD_REQUEST),
    ],
)
def test_what_is_no_http_is_refused(stream: bytes, status: HTTPStatus) -> None:
    with pytest.raises(BadRequest) as refusal:
        _read(stream)
    assert refusal.value.status == status


def test_answers_have_a_length_or_come_in_chunks() -> None:
    answer = whole(json_response({"a": 1}), keeps_open=True)
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"content-length: 8" in head
    assert body == b'{"a": 1}'
    assert chunk(b"abc") == b"3\r\nabc\r\n"
    assert chunk(b"") == b"0\r\n\r\n"
