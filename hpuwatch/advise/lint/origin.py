"""An env file that was found for another server than the one that is to use it."""

from __future__ import annotations

from collections.abc import Iterator

from hpuwatch.advise.envheader import LOG_BASE, EnvHeader
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
    for name, wanted, said in disagreements(found.header, found.server):
        yield Remark(
            Setting(name, wanted, "env file"),
            said,
            "Don't use this file here: tune on this server.",
        )


def disagreements(
    header: EnvHeader, server: EnvHeader
) -> Iterator[tuple[str, str, str]]:
    """Yield (name, what the file was made for, a sentence) of all that differs."""
    there = server.known()
    for name, wanted in header.known().items():
        if name in there and _alike(name, wanted, there[name]):
            if _same(name, wanted, there[name]):
                continue
            said = f"The settings were found for {_WORDS[name]} {wanted}; here it is "
            yield name, wanted, f"{said}{there[name]}."


def _alike(name: str, wanted: str, there: str) -> bool:
    """Tell whether two can be compared: a log's base and a command's have nothing in common."""
    return name != "base" or wanted.startswith(LOG_BASE) == there.startswith(LOG_BASE)


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
