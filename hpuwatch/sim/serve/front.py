"""The listening side: connections are opened here, and all ended at the end."""

from __future__ import annotations

import asyncio
import socket

from hpuwatch.sim.serve.api import Api

_GOODBYE_SECONDS = 1.0


class FrontDoor:
    """Takes connections and hands them to the API."""

    def __init__(self, api: Api) -> None:
        """Prepare, and stay closed until the server is ready."""
        self._api = api
        self._open: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def open(self, listener: socket.socket) -> None:
        """Listen on a socket that is bound already.

        Raises:
            OSError: another server took the port in the meantime.
        """
        self._server = await asyncio.start_server(self._connected, sock=listener)

    def stop_listening(self) -> None:
        """Refuse new connections."""
        if self._server is not None:
            self._server.close()

    async def hang_up(self) -> None:
        """Give answers in flight a moment, then end all connections."""
        if not self._open:
            return
        # An idle connection waits for a request that never comes.
        _, left = await asyncio.wait(set(self._open), timeout=_GOODBYE_SECONDS)
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    def _connected(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        task = asyncio.ensure_future(self._api.serve(reader, writer))
        self._open.add(task)
        task.add_done_callback(self._open.discard)
