"""Telling those who started us: stderr, systemd, and the container's termination log.

All of them may be missing, full or stalled, and none of them may hold us up.
"""

from __future__ import annotations

import os
import select
import socket
from contextlib import suppress
from pathlib import Path

TERMINATION_LOG = Path("/dev/termination-log")
_LONGEST_TERMINATION_LOG = 4096


def say(sentence: str) -> None:
    """Write one record to stderr, unless its reader stalls."""
    with suppress(OSError):
        if select.select([], [2], [], 0)[1]:
            os.write(2, f"hpuwatch: {sentence}\n".encode(errors="replace"))


def notify_systemd(**values: str) -> None:
    """Tell systemd ``READY=1``, ``STATUS=…``, if it started us (``NotifyAccess=all``)."""
    path = os.environ.get("NOTIFY_SOCKET", "")
    if not path.startswith(("/", "@")):
        return
    address = "\0" + path[1:] if path.startswith("@") else path
    message = "\n".join(f"{key}={value}" for key, value in values.items())
    with (
        suppress(OSError),
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as teller,
    ):
        teller.settimeout(0)
        teller.sendto(message.encode(errors="replace"), address)


def write_termination_log(text: str, path: Path = TERMINATION_LOG) -> None:
    """Leave a message where Kubernetes looks for the reason of an end, if it is there."""
    with suppress(OSError):
        # Not created: elsewhere than in a container it would be litter.
        descriptor = os.open(path, os.O_WRONLY | os.O_TRUNC)
        try:
            os.write(
                descriptor, text.encode(errors="replace")[:_LONGEST_TERMINATION_LOG]
            )
        finally:
            os.close(descriptor)
