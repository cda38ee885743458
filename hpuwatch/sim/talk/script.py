"""What each release says: line templates, exception texts and the environment dump, as data.

A file of ``lines/`` may be ``like`` another and tell only what differs; an entry that is
null there is not printed by that release, and whoever says it says nothing.  So the code
that knows the order of a start needs to know no releases.  A test compares the templates
with the catalogue of real lines, so that the parser and the simulator can't share a mistake.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from hpuwatch.gaudi.releases import NEWEST

_FOLDER = Path(__file__).parents[1] / "lines"
_MERGED = ("processes", "style", "facts", "lines", "errors", "bridge", "dump")
"""Sections of which a file tells only the entries that differ."""


@dataclass(frozen=True, slots=True)
class Template:
    """One line that can be said.

    Attributes:
        text: a ``str.format`` template of the message.
        origin: ``file.py:line`` of the header, with its path below vLLM's package where it
            is vLLM's own; a template too, as each bucketing strategy has its own file;
            empty for a line without a header.
        form: ``header``, ``bare`` or ``uvicorn``.
        once: of several ranks only the first says it.
        ours: no real server prints it.
    """

    text: str
    origin: str = ""
    level: str = "INFO"
    form: str = "header"
    stream: str = "stdout"
    once: bool = False
    ours: bool = False


@dataclass(frozen=True, slots=True)
class Style:
    """How a release's headers and prefixes look.

    Attributes:
        header: ``bracket`` (``[file.py:1] text``) or ``nobracket`` (``file.py:1] text``).
        colour: ``always`` (prefixes are coloured even in files), ``no_color`` (unless
            NO_COLOR forbids it) or ``tty`` (on a terminal only).
        prefix_colour: the escape sequence's number.
        paths_at_debug: at DEBUG headers name files with their path.
        prefix_needs_logging: VLLM_CONFIGURE_LOGGING=0 takes the prefixes away too.
    """

    header: str = "bracket"
    colour: str = "always"
    prefix_colour: str = "1;36"
    paths_at_debug: bool = False
    prefix_needs_logging: bool = False


@dataclass(frozen=True, slots=True)
class Script:
    """Everything that one release says.

    Attributes:
        processes: the names in the prefixes of the server's processes, see ``world``.
        style: how headers and prefixes look.
        facts: what else differs in the order or the figures of a start.
        lines: by name; None for a line that only other releases print.
        errors: the last lines of exceptions, by name.
        bridge: the variables that the bridge prints, in its order, with what holds where
            nothing is set.
        dump: the sections of the settings that the plugin prints, each key with its value.
    """

    release: str
    version: str
    build: str
    processes: Mapping[str, str | None]
    style: Style
    facts: Mapping[str, Any]
    lines: Mapping[str, Template | None]
    errors: Mapping[str, str]
    bridge: Mapping[str, str]
    dump: Mapping[str, Mapping[str, str]]

    @property
    def said(self) -> Mapping[str, Template]:
        """The lines that this release prints."""
        return {name: line for name, line in self.lines.items() if line is not None}


def releases() -> tuple[str, ...]:
    """Return the releases that can be simulated."""
    return tuple(sorted(file.stem for file in _FOLDER.glob("*.yaml")))


@lru_cache
def load_script(release: str = NEWEST) -> Script:
    """Read the lines of a release from the package's data."""
    document = _document(release)
    return Script(
        release=release,
        version=document["version"],
        build=document["build"],
        processes=document["processes"],
        style=Style(**document["style"]),
        facts=document["facts"],
        lines={name: _template(entry) for name, entry in document["lines"].items()},
        errors={name: text for name, text in document["errors"].items() if text},
        bridge=document["bridge"],
        dump=document["dump"],
    )


def _template(entry: Mapping[str, Any] | None) -> Template | None:
    if entry is None:
        return None
    rest = {name: value for name, value in entry.items() if name != "from"}
    return Template(origin=entry.get("from", ""), **rest)


@lru_cache
def _document(release: str) -> dict[str, Any]:
    """Read a release's file over the one that it is ``like``, section by section."""
    text = (_FOLDER / f"{release}.yaml").read_text(encoding="utf-8")
    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    own = yaml.load(text, Loader=loader)  # noqa: S506  a safe loader either way
    older = _document(own["like"]) if "like" in own else {}
    merged: dict[str, Any] = older | own
    for section in _MERGED:
        merged[section] = older.get(section, {}) | own.get(section, {})
    return merged
