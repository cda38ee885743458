"""The listening side: connections are opened here, their requests answered in order.

Answers are written straight to the transport, so that a streamed token costs one write
and wakes nobody.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import cast

from hpuwatch.sim.http.wire import (
    BadRequest,
    HttpRequest,
    RequestReader,
    Response,
    chunk,
    head,
    whole,
)

Answer = Callable[["HttpRequest", "Connection"], Awaitable[None]]
"""Answers one request by what it sends on the connection."""

_BACKLOG = 4096
_ACCEPTED_AT_ONCE = 1  # where none can be, asyncio complains of each
_KEEP_ALIVE_SECONDS = 5.0  # real ones, after which an idle connection is ended


class Connection(asyncio.Protocol):
    """One client's connection.

    Attributes:
        gone: called when the client hangs up, while a request is being answered.
        sent_bytes: bytes of the latest answer's body.
        status: of the latest answer.
    """

    def __init__(
        self, answer: Answer, now: Callable[[], float], opened: set[Connection]
    ) -> None:
        """Take who answers, the clock of dates, and where to be listed while open."""
        self.gone: Callable[[], None] | None = None
        self.sent_bytes = 0
        self.status = HTTPStatus.OK
        self.peer = "-"
        self._answer = answer
        self._now = now
        self._opened = opened
        self._reader = RequestReader()
        self._waiting: deque[HttpRequest] = deque()
        self._task: asyncio.Task[None] | None = None
        self._transport: asyncio.Transport | None = None
        self._keeps_open = True
        self._has_begun = False  # to answer the request at hand
        self._tells_body = True
        self._leaves = False
        self._end: asyncio.TimerHandle | None = None
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def is_answering(self) -> bool:
        """Tell whether a request is being answered."""
        return self._task is not None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._transport = cast("asyncio.Transport", transport)
        # A stream that nobody reads may wait here whole; it is bounded by its tokens.
        self._transport.set_write_buffer_limits(high=1 << 30)
        peer = transport.get_extra_info("peername") or ("-", 0)
        self.peer = f"{peer[0]}:{peer[1]}" if isinstance(peer, tuple) else "-"
        self._opened.add(self)

    def connection_lost(self, _exc: Exception | None) -> None:
        """End, whoever wanted it."""
        self._transport = None
        self._opened.discard(self)
        self._waiting.clear()
        if not self.closed.done():
            self.closed.set_result(None)
        if self.gone is not None:
            self.gone()

    def data_received(self, data: bytes) -> None:
        """Take what came, and answer it when the requests before are answered."""
        if self._end is not None:
            self._end.cancel()
        self._reader.feed(data)
        try:
            while (request := self._reader.next()) is not None:
                self._waiting.append(request)
        except BadRequest as error:
            self._keeps_open = False
            self.send(Response.of_text(error.status, error.message))
            self.close()
            return
        if self._reader.wants_body:
            self._reader.wants_body = False
            self._write(b"HTTP/1.1 100 Continue\r\n\r\n")
        if self._waiting and not self.is_answering:
            self._task = asyncio.ensure_future(self._answer_all())

    def send(self, response: Response) -> None:
        """Send a complete answer."""
        self._has_begun = True
        self.status, self.sent_bytes = response.status, len(response.body)
        self._write(
            whole(
                response,
                self._now(),
                keeps_open=self._keeps_open,
                tells_body=self._tells_body,
            )
        )

    def begin_stream(self) -> None:
        """Send the head of a stream of events."""
        self._has_begun = True
        self.status, self.sent_bytes = HTTPStatus.OK, 0
        headers = {
            "content-type": "text/event-stream; charset=utf-8",
            "transfer-encoding": "chunked",
        }
        if not self._keeps_open:
            headers["connection"] = "close"
        self._write(head(HTTPStatus.OK, self._now(), headers))

    def send_events(self, events: bytes) -> None:
        """Send a piece of a stream; an empty one ends it."""
        self._write(chunk(events))

    def leave(self) -> None:
        """Hang up, but give what is being answered to its end."""
        self._leaves = True
        if not self.is_answering:
            self.close()

    def close(self) -> None:
        """Hang up when all that was sent has gone out."""
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Hang up at once."""
        if self._task is not None:
            self._task.cancel()
        if self._transport is not None:
            self._transport.abort()

    def _write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    async def _answer_all(self) -> None:
        stays = False
        try:
            while self._waiting:
                request = self._waiting.popleft()
                self._keeps_open = request.keeps_open and not self._leaves
                await self._answer_one(request)
                self.gone = None
                stays = self._keeps_open and not self._leaves
                if not stays:
                    break
        finally:
            self._task = None
            self.gone = None
            if stays:
                loop = asyncio.get_running_loop()
                self._end = loop.call_later(_KEEP_ALIVE_SECONDS, self.close)
            else:
                self.close()

    async def _answer_one(self, request: HttpRequest) -> None:
        """Answer a request, with a 500 where nobody foresaw what it does."""
        self._has_begun, self._tells_body = False, request.method != "HEAD"
        try:
            await self._answer(request, self)
        except Exception as error:  # noqa: BLE001  one request is not the server's end
            message = f"{request.method} {request.path} can't be answered"
            told = {"message": message, "exception": error}
            asyncio.get_running_loop().call_exception_handler(told)
            if self._has_begun:
                self._keeps_open = False
            else:
                status = HTTPStatus.INTERNAL_SERVER_ERROR
                self.send(Response.of_text(status, status.phrase))


class FrontDoor:
    """Takes connections and has their requests answered."""

    def __init__(self, answer: Answer, now: Callable[[], float]) -> None:
        """Prepare, and stay closed until the server is ready.

        Args:
            answer: answers requests.
            now: seconds since the epoch, for the dates of answers.
        """
        self._answer = answer
        self._now = now
        self._opened: set[Connection] = set()
        self._server: asyncio.Server | None = None

    async def open(self, listener: socket.socket) -> None:
        """Listen on a socket that is bound already.

        Raises:
            OSError: another server took the port in the meantime.
        """
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: Connection(self._answer, self._now, self._opened),
            sock=listener,
            backlog=_ACCEPTED_AT_ONCE,
        )
        listener.listen(_BACKLOG)

    def stop_listening(self) -> None:
        """Refuse new connections."""
        if self._server is not None:
            self._server.close()

    async def hang_up(self, seconds: float | None = 1.0) -> None:
        """Give answers in flight some real seconds, then end all connections.

        With None it waits until the clients have hung up themselves.
        """
        for connection in list(self._opened):
            connection.leave()
        left = [connection.closed for connection in self._opened]
        if left:
            await asyncio.wait(left, timeout=seconds)
        for connection in list(self._opened):
            connection.abort()
