"""What each release says: line templates, exception texts and the environment dump, as data.

A file of ``lines/`` may be ``like`` another and tell only what differs; an entry that is
null there is not printed by that release.  A test compares the templates with the catalogue
of real lines, so that the parser and the simulator can't share a mistake.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from hpuwatch.gaudi.releases import NEWEST

_FOLDER = Path(__file__).parents[1] / "lines"


@dataclass(frozen=True, slots=True)
class Template:
    """One line that can be said.

    Attributes:
        text: a ``str.format`` template of the message.
        origin: ``file.py:line`` of the header, empty for a line without one.
        form: ``header``, ``bare`` or ``uvicorn``.
        ours: no real server prints it.
    """

    text: str
    origin: str = ""
    level: str = "INFO"
    form: str = "header"
    stream: str = "stdout"
    ours: bool = False


@dataclass(frozen=True, slots=True)
class Script:
    """Everything that one release says."""

    version: str
    build: str
    lines: Mapping[str, Template]
    errors: Mapping[str, str]
    dump: Mapping[str, Mapping[str, str]]


def releases() -> tuple[str, ...]:
    """Return the releases that can be simulated."""
    return tuple(sorted(file.stem for file in _FOLDER.glob("*.yaml")))


def load_script(release: str = NEWEST) -> Script:
    """Read the lines of a release from the package's data."""
    document = _document(release)
    return Script(
        version=document["version"],
        build=document["build"],
        lines={
            name: Template(
                text=entry["text"],
                origin=entry.get("from", ""),
                level=entry.get("level", "INFO"),
                form=entry.get("form", "header"),
                stream=entry.get("stream", "stdout"),
                ours=entry.get("ours", False),
            )
            for name, entry in document["lines"].items()
            if entry is not None
        },
        errors=document["errors"],
        dump=document["dump"],
    )


def _document(release: str) -> dict[str, Any]:
    """Read a release's file over the one that it is ``like``, section by section."""
    text = (_FOLDER / f"{release}.yaml").read_text(encoding="utf-8")
    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    own = yaml.load(text, Loader=loader)  # noqa: S506  a safe loader either way
    if "like" not in own:
        return dict(own)
    older = _document(own["like"])
    merged: dict[str, Any] = older | own
    for section in ("lines", "errors", "dump"):
        merged[section] = older[section] | own.get(section, {})
    return merged
