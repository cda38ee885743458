"""The part of HTTP/1.1 that clients of a completion server use, as bytes.

Requests with a length or in chunks, however they are cut; answers with a length or in
chunks.  Nothing here waits: :class:`RequestReader` is fed what came.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from email.utils import formatdate
from http import HTTPStatus
from typing import Any
from urllib.parse import unquote

_LAST_DATE_SECONDS = 253_402_300_799.0  # of the year 9999
_MOST_BODY = 64 * 1024 * 1024
_MOST_HEAD = 64 * 1024
_HEAD_END = b"\r\n\r\n"
_FIRST_ROW = re.compile(
    r"(GET|HEAD|POST|PUT|PATCH|DELETE|OPTIONS|TRACE|CONNECT) ([!-~]+) (HTTP/1\.[01])"
)
_HEADER = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):([\t -~\x80-\xff]*)")
_HOST = re.compile(r"^https?://[^/]*")
_LENGTH = re.compile(r"[0-9]{1,18}")
_CHUNK = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;[^\r\n]*)?\r\n")


class BadRequest(Exception):  # noqa: N818  named after its status
    """The bytes are no request that can be answered; the connection ends."""

    def __init__(self, status: HTTPStatus, message: str) -> None:
        """Take what to answer before hanging up."""
        super().__init__(message)
        self.status = status
        self.message = message


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """One request.

    Attributes:
        target: the path with its query, as they were sent.
        headers: their names are in lower case.
        version: such as ``HTTP/1.1``.
    """

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes = b""
    version: str = "HTTP/1.1"

    @property
    def path(self) -> str:
        """The path, decoded; neither the query nor, for a proxy, the host."""
        place = self.target.partition("?")[0]
        return unquote(_HOST.sub("", place) or "/")

    @property
    def keeps_open(self) -> bool:
        """Tell whether the client may use the connection again."""
        wish = self.headers.get("connection", "").lower()
        return self.version != "HTTP/1.0" and wish != "close"

    @property
    def is_chunked(self) -> bool:
        """Tell whether the body comes in chunks."""
        return self.headers.get("transfer-encoding", "").lower() == "chunked"

    @property
    def length(self) -> int:
        """Return the length of the body.

        Raises:
            BadRequest: it is no number, or too many.
        """
        text = self.headers.get("content-length", "0")
        if not _LENGTH.fullmatch(text):
            raise _invalid()
        return _checked_length(int(text))


class RequestReader:
    """Puts requests together from the pieces that came."""

    def __init__(self) -> None:
        """Start with nothing."""
        self._buffer = bytearray()
        self._head: HttpRequest | None = None
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
        return replace(head, body=body)

    def _read_head(self) -> HttpRequest | None:
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
        asked = _FIRST_ROW.fullmatch(first)
        found = [_HEADER.fullmatch(row) for row in rows]
        if asked is None or None in found:
            raise _invalid()
        headers = {row[1].lower(): row[2].strip() for row in found if row}
        return HttpRequest(asked[1], asked[2], headers, version=asked[3])

    def _read_whole(self, length: int) -> bytes | None:
        if len(self._buffer) < length:
            return None
        body = bytes(self._buffer[:length])
        del self._buffer[:length]
        return body

    def _read_chunks(self) -> bytes | None:
        buffer = self._buffer
        while (end := buffer.find(b"\r\n")) >= 0:
            found = _CHUNK.match(buffer)
            if found is None:
                raise _invalid()
            size = int(found[1], 16)
            _checked_length(len(self._body) + size)
            begin = end + 2
            if not size:
                return self._end_chunks(end)
            last = begin + size
            if len(buffer) < last + 2:
                return None
            if buffer[last : last + 2] != b"\r\n":
                raise _invalid()
            self._body += buffer[begin:last]
            del buffer[: last + 2]
        if len(buffer) > _MOST_HEAD:
            raise _invalid()
        return None

    def _end_chunks(self, begin: int) -> bytes | None:
        """Return the body once all that may follow its last chunk is there, too."""
        end = self._buffer.find(_HEAD_END, begin)
        if end < 0:
            if len(self._buffer) > _MOST_HEAD:
                raise _invalid()
            return None
        del self._buffer[: end + len(_HEAD_END)]
        body = bytes(self._body)
        self._body.clear()
        return body


def _invalid() -> BadRequest:
    return BadRequest(HTTPStatus.BAD_REQUEST, "Invalid HTTP request received.")


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

    @classmethod
    def of_text(cls, status: HTTPStatus, text: str) -> Response:
        """Answer with a plain text, as the web server itself does."""
        return cls(status, text.encode(), "text/plain; charset=utf-8")


def packed(content: object) -> bytes:
    """Return JSON as vLLM writes it: without blanks, text as it is."""
    return json.dumps(content, separators=(",", ":"), ensure_ascii=False).encode(
        "utf-8", "surrogatepass"
    )


def unpacked(body: bytes) -> Any:
    """Return what stands in JSON.

    Raises:
        ValueError: it is none, is nested too deep, or holds half of a surrogate pair, which
            is no text.
    """
    try:
        content = json.loads(body)
        json.dumps(content, ensure_ascii=False).encode()
    except RecursionError:
        raise ValueError("nested too deep") from None
    return content


def json_response(content: object, status: HTTPStatus = HTTPStatus.OK) -> Response:
    """Return an answer with a JSON body."""
    return Response(status, packed(content))


def head(status: HTTPStatus, seconds: float, headers: Mapping[str, str]) -> bytes:
    """Return the bytes before a body, sent so many seconds after the epoch."""
    date = formatdate(min(seconds, _LAST_DATE_SECONDS), usegmt=True)
    rows = [f"HTTP/1.1 {status.value} {status.phrase}"]
    rows += [f"date: {date}", "server: uvicorn"]
    rows += [f"{name}: {value}" for name, value in headers.items()]
    return ("\r\n".join(rows) + "\r\n\r\n").encode("latin-1")


def whole(
    response: Response, seconds: float, *, keeps_open: bool, tells_body: bool = True
) -> bytes:
    """Return a complete answer as bytes; without its body it is one to ``HEAD``."""
    headers = {"content-length": str(len(response.body))}
    if response.body:
        headers["content-type"] = response.content_type
    if not keeps_open:
        headers["connection"] = "close"
    return head(response.status, seconds, headers) + (
        response.body if tells_body else b""
    )


def chunk(data: bytes) -> bytes:
    """Return one piece of a body of unknown length; an empty one ends it."""
    return b"%x\r\n%b\r\n" % (len(data), data)
