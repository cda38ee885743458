"""How the simulated server says a line: header, process prefix and stream."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from typing import TextIO

from hpuwatch.sim.talk.script import Script, Template


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
