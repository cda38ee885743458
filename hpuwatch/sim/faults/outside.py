"""Faults that clients and owners see: HTTP answers, stops, orphans, descriptors."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Literal

from pydantic import Field, field_validator

from hpuwatch.sim.faults.fault import Fault

if TYPE_CHECKING:
    from hpuwatch.sim.faults.live import LiveFaults


class _OfAnswer(Fault):
    """Concerns requests for one path, or all of them.

    Attributes:
        path: such as ``/metrics``; empty for every path.
    """

    path: str = ""

    def concerns(self, path: str) -> bool:
        """Tell whether a request for this path is concerned."""
        return self.path in {"", path}


class SlowAnswer(_OfAnswer):
    """Answers come late.

    Attributes:
        real_seconds: how late; clients have clocks of their own.
    """

    fault: Literal["slow-answer"]
    real_seconds: float = Field(gt=0)


class RefuseAnswer(_OfAnswer):
    """Requests are refused with a status."""

    fault: Literal["refuse-answer"]
    status: HTTPStatus = HTTPStatus.SERVICE_UNAVAILABLE

    @field_validator("status")
    @classmethod
    def _is_refusal(cls, status: HTTPStatus) -> HTTPStatus:
        if status < HTTPStatus.BAD_REQUEST:
            raise ValueError(f"{status} refuses nothing: choose one from 400 up")
        return status


class NoAnswer(_OfAnswer):
    """Requests get no answer while it lasts."""

    fault: Literal["no-answer"]


class IgnoreSigterm(Fault):
    """SIGTERM is ignored."""

    fault: Literal["ignore-sigterm"]


class SlowStop(Fault):
    """The engine takes longer to end.

    Attributes:
        seconds: simulated, on top of the usual 0.7.
    """

    fault: Literal["slow-stop"]
    seconds: float = Field(gt=0)


class AbortRaceLost(Fault):
    """A stop with requests in flight waits until the clients hang up, as real ones do."""

    fault: Literal["abort-race-lost"]


class Orphans(Fault):
    """Child processes outlive the server and hold its port.

    Attributes:
        count: how many.
        ignore_sigterm: only SIGKILL ends them.
        live_real_seconds: after which they end by themselves.
    """

    fault: Literal["orphans"]
    count: int = Field(default=1, ge=1, le=64)
    ignore_sigterm: bool = False
    live_real_seconds: int = Field(default=600, ge=1)

    def strike(self, live: LiveFaults) -> None:
        """Start them."""
        live.leave_orphans(self)


class OutOfDescriptors(Fault):
    """The process can open no more files and accept no connection."""

    fault: Literal["out-of-descriptors"]

    def strike(self, live: LiveFaults) -> None:
        """Allow what is open now and no more."""
        live.limit_descriptors()

    def lift(self, live: LiveFaults) -> None:
        """Allow as many as before."""
        live.free_descriptors()
