"""The control endpoint: how far the server is, and faults while it runs.

It listens on loopback or a Unix socket of its own, so that a dead API doesn't take it
along.  ``GET /`` tells the state, ``POST /faults`` takes a fault as a scenario holds it
(in JSON), ``DELETE /faults/N`` lifts one.
"""

from __future__ import annotations

import errno
import socket
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING

from hpuwatch.errors import ConfigError, ResourceError
from hpuwatch.sim.faults.scenario import read_fault
from hpuwatch.sim.http.front import Connection, FrontDoor
from hpuwatch.sim.http.wire import HttpRequest, Response, json_response, unpacked

if TYPE_CHECKING:
    from hpuwatch.sim.faults.case import Case
    from hpuwatch.sim.faults.live import LiveFaults

_LOOPBACK = "127.0.0.1"


class Control:
    """The control endpoint of one server."""

    def __init__(self, place: str, live: LiveFaults) -> None:
        """Take a port (0: any free one) or the path of a Unix socket."""
        self._place = place
        self._live = live
        self._file: Path | None = None  # that it made for its socket
        self._door = FrontDoor(self._answer, self._now)

    async def open(self) -> None:
        """Listen, and say where.

        Raises:
            ResourceError: the place can't be had.
        """
        try:
            listener, address = self._bound()
            await self._door.open(listener)
        except (OSError, OverflowError) as error:
            raise ResourceError(
                f"the control endpoint can't listen on {self._place} ({error}):"
                " choose another port or path"
            ) from None
        world = self._live.world
        world.voice.say(world.speakers.front, "control", address=address)

    async def close(self) -> None:
        """Stop listening."""
        self._door.stop_listening()
        await self._door.hang_up(0)
        if self._file is not None:
            self._file.unlink(missing_ok=True)

    def _bound(self) -> tuple[socket.socket, str]:
        if self._place.isdecimal():
            listener = _bound_to(socket.AF_INET, (_LOOPBACK, int(self._place)))
            return listener, "http://{}:{}".format(*listener.getsockname())
        path = Path(self._place)
        if path.is_socket():
            with socket.socket(socket.AF_UNIX) as probe:
                if not probe.connect_ex(self._place):
                    raise OSError(errno.EADDRINUSE, "another server listens there")
            path.unlink()  # a killed server left it
        listener = _bound_to(socket.AF_UNIX, self._place)
        self._file = path
        return listener, f"unix:{self._place}"

    def _now(self) -> float:
        return self._live.world.pace.stamp()

    async def _answer(self, request: HttpRequest, connection: Connection) -> None:
        connection.send(self._response(request))

    def _response(self, request: HttpRequest) -> Response:
        method, (kind, _, number) = request.method, request.path[1:].partition("/")
        if (method, kind) == ("GET", ""):
            return json_response(self._state())
        if (method, kind) == ("POST", "faults"):
            return self._add(request.body)
        if (method, kind) == ("DELETE", "faults") and self._drop(number):
            return json_response(self._state())
        message = "use GET /, POST /faults or DELETE /faults/N with a known N"
        return json_response({"error": message}, HTTPStatus.NOT_FOUND)

    def _drop(self, number: str) -> bool:
        known = {str(each): each for each in self._live.cases}
        return number in known and self._live.drop(known[number])

    def _add(self, body: bytes) -> Response:
        try:
            fault = read_fault(unpacked(body))
        except (ConfigError, ValueError) as error:
            return json_response({"error": str(error)}, HTTPStatus.BAD_REQUEST)
        case = self._live.add(fault)
        # The answer comes first: the fault may be the end of the process.
        return json_response(_told(case), HTTPStatus.CREATED)

    def _state(self) -> dict[str, object]:
        reading = self._live.reading()
        return {
            "simulated": True,
            "phase": reading.now.phase,
            "index": reading.now.index,
            "seconds": reading.seconds,
            "requests": reading.requests,
            "faults": [_told(case) for case in self._live.cases.values()],
        }


def _bound_to(family: int, place: str | tuple[str, int]) -> socket.socket:
    listener = socket.socket(family)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(place)
    except (OSError, OverflowError):
        listener.close()
        raise
    return listener


def _told(case: Case) -> dict[str, object]:
    content = case.fault.model_dump(exclude_unset=True)
    return {"number": case.number, "struck": case.struck, "on": case.is_on, **content}
