"""An env file that was found for another server than the one that is to use it."""

from __future__ import annotations

from collections.abc import Iterator

from hpuwatch.advise.lint.configuration import Configuration, Setting
from hpuwatch.advise.lint.remark import Remark
from hpuwatch.errors import ConfigError
from hpuwatch.gaudi.releases import release_of

_WORDS = {
    "release": "the release",
    "card": "the card",
    "model": "the model",
    "tp": "the number of cards",
    "base": "the command or its variables",
}


def other_server(found: Configuration) -> Iterator[Remark]:
    """Compare the head of the env file with the server, as far as both are known."""
    if found.header is None:
        return
    server = found.server.known()
    for name, wanted in found.header.known().items():
        there = server.get(name)
        if there is not None and not _same(name, wanted, there):
            yield Remark(
                Setting(name, wanted, "env file"),
                f"The settings were found for {_WORDS[name]} {wanted}; here it is "
                f"{there}.",
                "Don't use this file here: tune on this server.",
            )


def _same(name: str, wanted: str, there: str) -> bool:
    if name == "release":
        try:
            return release_of(wanted).name == release_of(there).name
        except ConfigError:
            return wanted == there
    if name == "base":
        shorter = min(len(wanted), len(there))
        return wanted[:shorter] == there[:shorter]
    return wanted.lower() == there.lower()
