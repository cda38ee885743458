"""The part of HTTP/1.1 that clients of a completion server use, as bytes.

Requests with a length or in chunks, however they are cut; answers with a length or in
chunks.  Nothing here waits: :class:`RequestReader` is fed what came.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus

_MOST_BODY = 64 * 1024 * 1024
_MOST_HEAD = 64 * 1024
_HEAD_END = b"\r\n\r\n"


class BadRequest(Exception):  # noqa: N818  named after its status
    """The bytes are no request that can be answered; the connection ends."""

    def __init__(self, status: HTTPStatus, message: str) -> None:
        """Take what to answer before hanging up."""
        super().__init__(message)
        self.status = status
        self.message = message


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """One request; header names are in lower case, the path has no query."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def keeps_open(self) -> bool:
        """Tell whether the client wants to use the connection again."""
        return self.headers.get("connection", "").lower() != "close"


@dataclass(frozen=True, slots=True)
class _Head:
    method: str
    path: str
    headers: Mapping[str, str]

    @property
    def is_chunked(self) -> bool:
        return self.headers.get("transfer-encoding", "").lower() == "chunked"

    @property
    def length(self) -> int:
        """Return the length of the body.

        Raises:
            BadRequest: it is no number, or too many.
        """
        text = self.headers.get("content-length", "0")
        if not text.isdecimal():
            raise BadRequest(HTTPStatus.BAD_REQUEST, "Invalid HTTP request received.")
        return _checked_length(int(text))


class RequestReader:
    """Puts requests together from the pieces that came."""

    def __init__(self) -> None:
        """Start with nothing."""
        self._buffer = bytearray()
        self._head: _Head | None = None
        self._body = bytearray()  # of a request that comes in chunks
        self.wants_body = False

    def feed(self, data: bytes) -> None:
        """Take what came."""
        self._buffer += data

    def next(self) -> HttpRequest | None:
        """Return the next request, None while it isn't complete.

        Raises:
            BadRequest: what came is no HTTP/1.1 request.
        """
        if self._head is None:
            self._head = self._read_head()
            if self._head is None:
                return None
            expects = self._head.headers.get("expect", "").lower()
            self.wants_body = expects == "100-continue"
        head = self._head
        body = self._read_chunks() if head.is_chunked else self._read_whole(head.length)
        if body is None:
            return None
        self._head, self.wants_body = None, False
        return HttpRequest(head.method, head.path, head.headers, body)

    def _read_head(self) -> _Head | None:
        buffer = self._buffer
        while buffer.startswith(b"\r\n"):
            del buffer[:2]
        end = buffer.find(_HEAD_END)
        if end < 0:
            if len(buffer) > _MOST_HEAD:
                raise BadRequest(HTTPStatus.BAD_REQUEST, "Too many headers.")
            return None
        first, *rows = buffer[:end].decode("latin-1").split("\r\n")
        del buffer[: end + len(_HEAD_END)]
        words = first.split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            raise BadRequest(HTTPStatus.BAD_REQUEST, "Invalid HTTP request received.")
        headers = {}
        for row in rows:
            name, _, value = row.partition(":")
            headers[name.strip().lower()] = value.strip()
        return _Head(words[0], words[1].partition("?")[0], headers)

    def _read_whole(self, length: int) -> bytes | None:
        if len(self._buffer) < length:
            return None
        body = bytes(self._buffer[:length])
        del self._buffer[:length]
        return body

    def _read_chunks(self) -> bytes | None:
        buffer = self._buffer
        while (end := buffer.find(b"\r\n")) >= 0:
            try:
                size = int(buffer[:end].partition(b";")[0], 16)
            except ValueError:
                size = -1
            if size < 0:
                raise BadRequest(
                    HTTPStatus.BAD_REQUEST, "Invalid HTTP request received."
                )
            _checked_length(len(self._body) + size)
            begin = end + 2
            if len(buffer) < begin + size + 2:
                return None
            self._body += buffer[begin : begin + size]
            del buffer[: begin + size + 2]
            if not size:
                body = bytes(self._body)
                self._body.clear()
                return body
        return None


def _checked_length(length: int) -> int:
    if length > _MOST_BODY:
        raise BadRequest(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "The body is too large.")
    return length


@dataclass(frozen=True, slots=True)
class Response:
    """One complete answer."""

    status: HTTPStatus = HTTPStatus.OK
    body: bytes = b""
    content_type: str = "application/json"


def packed(content: object) -> bytes:
    """Return JSON as vLLM writes it: without blanks, text as it is."""
    return json.dumps(content, separators=(",", ":"), ensure_ascii=False).encode(
        "utf-8", "surrogatepass"
    )


def json_response(content: object, status: HTTPStatus = HTTPStatus.OK) -> Response:
    """Return an answer with a JSON body."""
    return Response(status, packed(content))


def head(status: HTTPStatus, headers: Mapping[str, str]) -> bytes:
    """Return the bytes before a body."""
    rows = [f"HTTP/1.1 {status.value} {status.phrase}"]
    rows += [f"{name}: {value}" for name, value in headers.items()]
    return ("\r\n".join(rows) + "\r\n\r\n").encode("latin-1")


def whole(response: Response, *, keeps_open: bool) -> bytes:
    """Return a complete answer as bytes."""
    headers = {"server": "uvicorn", "content-length": str(len(response.body))}
    if response.body:
        headers["content-type"] = response.content_type
    if not keeps_open:
        headers["connection"] = "close"
    return head(response.status, headers) + response.body


def chunk(data: bytes) -> bytes:
    """Return one piece of a body of unknown length; an empty one ends it."""
    return b"%x\r\n%b\r\n" % (len(data), data)
