"""What the simulated server says, and how: templates, headers, prefixes and streams.

The templates lie in ``lines/`` as data; a test compares them with the catalogue of real
lines, so that the parser and the simulator can't share a mistake.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, TextIO

import yaml

_FOLDER = Path(__file__).parent / "lines"
RELEASE = "plugin-0.26"


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


def load_script(release: str = RELEASE) -> Script:
    """Read the lines of a release from the package's data."""
    text = (_FOLDER / f"{release}.yaml").read_text(encoding="utf-8")
    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    document = yaml.load(text, Loader=loader)  # noqa: S506  a safe loader either way
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
        },
        errors=document["errors"],
        dump=document["dump"],
    )


class Voice:
    """Prints lines of the script, stamped with simulated time.

    A *speaker* is the prefix of a process, such as ``(EngineCore pid=12) ``.
    """

    def __init__(
        self,
        script: Script,
        now: Callable[[], float],
        streams: Mapping[str, TextIO],
    ) -> None:
        """Take the script, the simulated time (seconds since the epoch) and the streams."""
        self.script = script
        self._now = now
        self._streams = streams

    def say(self, speaker: str, name: str, /, **values: object) -> None:
        """Print one line."""
        template = self.script.lines[name]
        text = template.text.format(**values)
        self.write(template.stream, speaker + self._header(template) + text + "\n")

    def text(self, name: str, /, **values: object) -> str:
        """Return the bare text of a line, to be written by hand."""
        return self.script.lines[name].text.format(**values)

    def error(self, name: str, /, **values: object) -> str:
        """Return the text of an exception."""
        return self.script.errors[name].format(**values)

    def write(self, stream: str, text: str) -> None:
        """Print something that is no whole line, such as a piece of a bar."""
        target = self._streams[stream]
        target.write(text)
        target.flush()

    def _header(self, template: Template) -> str:
        if template.form == "bare":
            return ""
        if template.form == "uvicorn":
            return f"{template.level + ':':<9} "
        moment = datetime.fromtimestamp(self._now(), tz=timezone.utc).astimezone()
        return f"{template.level} {moment:%m-%d %H:%M:%S} [{template.origin}] "
