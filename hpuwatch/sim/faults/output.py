"""Faults of the output: silence, half a line, a flood, bytes that are no text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field, field_validator

from hpuwatch.sim.faults.fault import Fault

if TYPE_CHECKING:
    from hpuwatch.sim.faults.live import LiveFaults

_MOST_SECONDS_AT_ONCE = 1.0  # of a flood


class Silent(Fault):
    """The server lives on and prints nothing."""

    fault: Literal["silent"]


class HalfLine(Fault):
    """Half of the next line comes, without its end, and then nothing."""

    fault: Literal["half-line"]


class CloseOutput(Fault):
    """The server closes its output and lives on: a reader sees the end of the file."""

    fault: Literal["close-output"]
    stream: Literal["stdout", "stderr", "both"] = "both"

    def strike(self, live: LiveFaults) -> None:
        """Close it."""
        names = ("stdout", "stderr") if self.stream == "both" else (self.stream,)
        for name in names:
            live.outlet(name).close_below()


class Flood(Fault):
    """One line comes again and again.

    Attributes:
        lines_per_second: on the clock; what a pause held up is not made up for.
        line: what it says.
    """

    fault: Literal["flood"]
    lines_per_second: int = Field(default=100_000, ge=1, le=1_000_000)
    line: str = 'INFO:     127.0.0.1:40000 - "GET /health HTTP/1.1" 200 OK'

    def go_on(self, live: LiveFaults) -> None:
        """Print what is due since the last look."""
        real_seconds = min(live.real_seconds_since_look, _MOST_SECONDS_AT_ONCE)
        count = int(self.lines_per_second * real_seconds)
        if count:
            live.outlet("stdout").write(f"{self.line}\n" * count)


class BadBytes(Fault):
    """Bytes come that are no text.

    Attributes:
        hex: the bytes; by default broken UTF-8, a NUL, an escape and a bell in one line.
    """

    fault: Literal["bad-bytes"]
    hex: str = "ff fe c3 28 00 1b 5b 33 31 6d 07 80 0a"

    @field_validator("hex")
    @classmethod
    def _is_hex(cls, text: str) -> str:
        try:
            bytes.fromhex(text)
        except ValueError:
            raise ValueError("write pairs of hex digits, such as ff fe 0a") from None
        return text

    def strike(self, live: LiveFaults) -> None:
        """Write them."""
        live.outlet("stdout").write_bytes(bytes.fromhex(self.hex))


class ClockJump(Fault):
    """Time stamps leap, forward or back.

    Attributes:
        seconds: by how much; negative is back.  Some centuries at most, beyond which a
            number of seconds has no single ones any more.
    """

    fault: Literal["clock-jump"]
    seconds: float = Field(ge=-1e10, le=1e10)
