"""Asks a server for completions: connections that are kept open, and one request on each.

The requests are written as bytes that are ready to send, the answers read by
:class:`hpuwatch.load.answer.AnswerReader`.  A connection serves one request at a time and is
used again when its answer was read in full.
"""

from __future__ import annotations

import asyncio
import errno
import os
import ssl
from array import array
from collections.abc import Callable
from dataclasses import dataclass

from hpuwatch.load.answer import AnswerReader
from hpuwatch.load.prompts import Prompts
from hpuwatch.load.target import Target
from hpuwatch.load.workload import Request

# uvicorn hangs up on a connection that was idle for 5 s.
_IDLE_SECONDS = 3.0
_CONNECT_SECONDS = 30.0
_EXHAUSTED = {
    errno.EMFILE: "this process may open no more files (raise `ulimit -n`)",
    errno.ENFILE: "this machine can open no more files",
    errno.EADDRNOTAVAIL: "this machine has no free port left for a connection",
}


class Exhausted(Exception):  # noqa: N818  says what is the case
    """Our own machine is at its end; no request can be sent any more."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a request.

    Attributes:
        arrivals: when each piece of its text came, in the clock's seconds.
        input_tokens: of the prompt, None where the server didn't say.
        output_tokens: of the answer, likewise.
        failure: why it failed, empty if it didn't.
    """

    arrivals: array[float]
    input_tokens: int | None = None
    output_tokens: int | None = None
    failure: str = ""

    @property
    def tokens(self) -> int:
        """Return the tokens of the answer: as counted by the server, else the pieces."""
        pieces = len(self.arrivals)
        return pieces if self.output_tokens is None else self.output_tokens


class _Connection(asyncio.Protocol):
    """One connection, with at most one answer on its way."""

    def __init__(self, stamp: Callable[[], float]) -> None:
        self._stamp = stamp
        self._reader: AnswerReader | None = None
        self._answered: asyncio.Future[None] | None = None
        self._transport: asyncio.Transport | None = None
        self.is_open = False
        self.idle_since = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # noqa: S101  TCP always is
        self._transport = transport
        self.is_open = True

    def data_received(self, data: bytes) -> None:
        reader = self._reader
        if reader is None:
            self.close()  # nobody asked for this
            return
        reader.feed(data, self._stamp())
        if reader.complete:
            self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self.is_open = False
        if self._reader is not None:
            self._reader.end(self._stamp())
        self._wake()

    def _wake(self) -> None:
        if self._answered is not None and not self._answered.done():
            self._answered.set_result(None)

    async def ask(self, message: bytes) -> AnswerReader:
        """Send a request and return when its answer is there in full, good or bad."""
        assert self._transport is not None  # noqa: S101  connection_made came first
        reader = self._reader = AnswerReader()
        self._answered = asyncio.get_running_loop().create_future()
        self._transport.write(message)
        await self._answered
        self._reader = self._answered = None
        self.idle_since = self._stamp()
        return reader

    def close(self) -> None:
        self.is_open = False
        if self._transport is not None:
            self._transport.abort()


class Client:
    """Asks, on connections that it keeps."""

    def __init__(
        self,
        target: Target,
        prompts: Prompts,
        stamp: Callable[[], float],
        limit_seconds: float,
    ) -> None:
        """Take who is asked what, where time comes from and how long an answer may take."""
        self._target = target
        self._prompts = prompts
        self._stamp = stamp
        self._limit_seconds = limit_seconds
        self._idle: list[_Connection] = []
        secure = target.endpoint.secure
        self._tls = ssl.create_default_context() if secure else None

    async def ask(self, request: Request) -> Outcome:
        """Ask for a completion and return what came of it.

        Raises:
            Exhausted: this machine can't send it.
        """
        prompt = self._prompts.of(
            request.number, request.input_tokens, request.prefix_tokens
        )
        target = self._target
        message = target.message(target.body(prompt, request.output_tokens))
        try:
            reader = await asyncio.wait_for(self._answer(message), self._limit_seconds)
        except asyncio.TimeoutError:
            return Outcome(
                array("d"), failure=f"no end within {self._limit_seconds:g} s"
            )
        except OSError as error:
            if error.errno in _EXHAUSTED:
                raise Exhausted(_EXHAUSTED[error.errno]) from None
            return Outcome(array("d"), failure=f"no connection: {_spelt(error)}")
        return Outcome(
            reader.arrivals, reader.input_tokens, reader.output_tokens, reader.failure
        )

    async def _answer(self, message: bytes) -> AnswerReader:
        connection = self._kept()
        if connection is not None:
            reader = await self._on(connection, message)
            # A server may hang up on an idle connection while we write to it.
            if reader.status or not reader.failure:
                return reader
        return await self._on(await self._connect(), message)

    async def _on(self, connection: _Connection, message: bytes) -> AnswerReader:
        try:
            reader = await connection.ask(message)
        except asyncio.CancelledError:
            connection.close()
            raise
        if reader.keeps_open and connection.is_open:
            self._idle.append(connection)
        else:
            connection.close()
        return reader

    def _kept(self) -> _Connection | None:
        oldest = self._stamp() - _IDLE_SECONDS
        while self._idle:
            connection = self._idle.pop()
            if connection.is_open and connection.idle_since > oldest:
                return connection
            connection.close()
        return None

    async def _connect(self) -> _Connection:
        endpoint, loop = self._target.endpoint, asyncio.get_running_loop()
        opening = loop.create_connection(
            lambda: _Connection(self._stamp),
            endpoint.host,
            endpoint.port,
            ssl=self._tls,
        )
        try:
            _, connection = await asyncio.wait_for(opening, _CONNECT_SECONDS)
        except asyncio.TimeoutError:
            raise ConnectionError(f"none within {_CONNECT_SECONDS:g} s") from None
        return connection

    def close(self) -> None:
        """Close the connections that are kept."""
        for connection in self._idle:
            connection.close()
        self._idle.clear()


def _spelt(error: OSError) -> str:
    """Return an error in the system's own words, without the address it came from."""
    if isinstance(error, ssl.SSLError):  # its number is not the system's
        return str(error.reason or error)
    if error.errno is not None and error.errno > 0:
        return os.strerror(error.errno).lower()
    return error.strerror or str(error)
