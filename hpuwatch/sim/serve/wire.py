"""The small part of HTTP/1.1 that clients of a completion server use.

Requests with a Content-Length, responses with a length or in chunks, connections kept open.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus

_MOST_BODY = 16 * 1024 * 1024
_MOST_HEADERS = 200


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
class Response:
    """One complete answer."""

    status: HTTPStatus = HTTPStatus.OK
    body: bytes = b""
    content_type: str = "application/json"


def json_response(content: object, status: HTTPStatus = HTTPStatus.OK) -> Response:
    """Return an answer with a JSON body."""
    return Response(status, json.dumps(content).encode())


async def read_request(reader: asyncio.StreamReader) -> HttpRequest | None:
    """Read the next request, or None when the client has hung up.

    Raises:
        BadRequest: what came is no HTTP/1.1 request with a known length.
    """
    line = await _line(reader)
    if line is None:
        return None
    words = line.split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        raise BadRequest(HTTPStatus.BAD_REQUEST, "Invalid HTTP request received.")
    headers = await _headers(reader)
    if "transfer-encoding" in headers:
        raise BadRequest(HTTPStatus.LENGTH_REQUIRED, "Send a Content-Length.")
    try:
        length = int(headers.get("content-length", "0"))
    except ValueError:
        length = -1
    if length < 0:
        raise BadRequest(HTTPStatus.BAD_REQUEST, "The Content-Length is no number.")
    if length > _MOST_BODY:
        raise BadRequest(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "The body is too large.")
    try:
        body = await reader.readexactly(length)
    except asyncio.IncompleteReadError:
        return None
    return HttpRequest(words[0], words[1].partition("?")[0], headers, body)


async def _line(reader: asyncio.StreamReader) -> str | None:
    try:
        raw = await reader.readline()
    except (ValueError, ConnectionError):
        # readline() raises ValueError for a line beyond the reader's limit.
        return None
    return raw.decode("latin-1").rstrip("\r\n") if raw else None


async def _headers(reader: asyncio.StreamReader) -> dict[str, str]:
    headers: dict[str, str] = {}
    for _ in range(_MOST_HEADERS):
        line = await _line(reader)
        if not line:
            return headers
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip()
    raise BadRequest(HTTPStatus.BAD_REQUEST, "Too many headers.")


def head(status: HTTPStatus, headers: Mapping[str, str]) -> bytes:
    """Return the bytes before a body."""
    rows = [f"HTTP/1.1 {status.value} {status.phrase}"]
    rows += [f"{name}: {value}" for name, value in headers.items()]
    return ("\r\n".join(rows) + "\r\n\r\n").encode("latin-1")


def whole(response: Response, *, keeps_open: bool) -> bytes:
    """Return a complete answer as bytes."""
    headers = {
        "server": "uvicorn",
        "content-type": response.content_type,
        "content-length": str(len(response.body)),
        "connection": "keep-alive" if keeps_open else "close",
    }
    return head(response.status, headers) + response.body


def chunk(data: bytes) -> bytes:
    """Return one piece of a body of unknown length; an empty one ends it."""
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"
