"""What a server is started with, now and once a proposal is followed."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass

from hpuwatch.advise.document import StartReport
from hpuwatch.advise.lint.words import MODEL
from hpuwatch.advise.plan.arguments import LISTS
from hpuwatch.gaudi.resolve import FILE_VARIABLE
from hpuwatch.parse.mask import STARS

_SWITCHES = frozenset({"true", "false"})
_PORT, _PORTS = 8000, re.compile(r"[1-9]\d{0,4}")


def is_whole(each: StartReport) -> bool:
    """Tell whether there is a server to write down: one that ran, or one that may."""
    return each.proposal is not None or (
        each.origin != "predicted" and each.settings != []
    )


def model_of(each: StartReport) -> str | None:
    """Return what the server serves; a first configuration may know a kind of model only.

    A name that is masked, or that would be read as an option, is no name.
    """
    named = {setting.name: setting.value for setting in each.settings}.get(MODEL)
    model = named if each.origin == "predicted" else named or each.server.model
    unknown = not model or STARS in model or model.startswith("-")
    return None if unknown else model


@dataclass(frozen=True, slots=True)
class Command:
    """What a server is started with.

    Attributes:
        env: variables; None where the value is a secret that comes from elsewhere.
        flags: with their dashes; ``true`` and ``false`` are switches.
        model: what it serves, None where nobody knows.
        bucket_file: (path, text) of the file of its buckets, where both are known.
    """

    env: Mapping[str, str | None]
    flags: Mapping[str, str]
    model: str | None
    bucket_file: tuple[str, str] | None = None

    @property
    def port(self) -> int:
        """Return where it listens."""
        given = self.flags.get("--port", "")
        return int(given) if _PORTS.fullmatch(given) else _PORT

    def arguments(self) -> list[str]:
        """Return what follows the model on the server's command line."""
        words: list[str] = []
        for name, value in self.flags.items():
            if name in LISTS:
                words += [name, *_words(value)]
            elif value.startswith("-"):
                words.append(f"{name}={value}")
            elif value not in _SWITCHES:
                words += [name, value]
            elif value == "true":
                words.append(name)
            else:
                words.append(f"--no-{name.removeprefix('--')}")
        return words


def _words(value: str) -> list[str]:
    try:
        return shlex.split(value)
    except ValueError:  # masked within its quotes
        return [value]


def set_now(each: StartReport) -> dict[str, str]:
    """Return everything that the log says is set."""
    return {setting.name: setting.value for setting in each.settings}


def set_then(each: StartReport) -> dict[str, str]:
    """Return everything that is set once the proposal is followed."""
    settings, proposal = set_now(each), each.proposal
    if proposal is None:
        return settings
    words = iter(proposal.flags)
    settings |= {**proposal.env, **{name: next(words) for name in words}}
    if proposal.bucket_file is not None:
        settings[proposal.bucket_file.variable] = proposal.bucket_file.path
    return {
        name: value for name, value in settings.items() if name not in proposal.unset
    }


def command_of(each: StartReport) -> Command:
    """Return what the server is started with once the proposal is followed."""
    settings = set_then(each)
    settings.pop(MODEL, None)
    path = settings.get(FILE_VARIABLE)
    proposed = each.proposal.bucket_file if each.proposal else None
    text = proposed.text if proposed else each.bucket_file
    file = (path, text) if path and text else None
    return Command(
        env={
            name: None if STARS in value else value
            for name, value in settings.items()
            if not name.startswith("-")
        },
        flags={
            name: value
            for name, value in settings.items()
            if name.startswith("-") and STARS not in value
        },
        model=model_of(each),
        bucket_file=file,
    )
