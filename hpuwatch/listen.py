"""Where to listen, as an operator writes it: ``HOST:PORT``, ``[::1]:PORT`` or ``:PORT``.

``:PORT`` means every address of the machine, as container manifests need it; nothing else
opens hpuwatch to other machines.  Port 0 lets the system choose one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from hpuwatch.errors import ConfigError

FORMS = "HOST:PORT, [::1]:PORT or :PORT with a port up to 65535"
"""What an address may look like, for messages."""

_LABEL = r"[A-Za-z0-9_-]{1,63}"
_FORM = re.compile(
    rf"(?:\[(?P<six>[0-9A-Fa-f:.]+)\]|(?P<host>(?:{_LABEL}(?:\.{_LABEL})*)?))"
    r":(?P<port>[0-9]{1,5})"
)


@dataclass(frozen=True, slots=True)
class Listen:
    """A host (empty: every address) and a port (0: any free one)."""

    host: str
    port: int

    def __str__(self) -> str:
        """Return the address as it is written in a URL."""
        return (
            f"[{self.host}]:{self.port}"
            if ":" in self.host
            else f"{self.host}:{self.port}"
        )


def parse_listen(text: str) -> Listen:
    """Read a listen address.

    Raises:
        ConfigError: it has none of the three forms, or the port is above 65535.
    """
    match = _FORM.fullmatch(text.strip())
    if match is None or int(match["port"]) > 65535:
        raise ConfigError(f"{text!r} is not an address to listen on: write {FORMS}")
    return Listen(match["six"] or match["host"], int(match["port"]))
