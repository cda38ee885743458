"""How the simulated server says a line: header, process prefix, colours and streams.

Every process of a vLLM server writes through two streams of its own that put its prefix at
the start of each line, whoever writes: the logger, a progress bar, a traceback.  The
processes share what lies behind, so that their output interleaves wherever one of them has
not ended its line.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from typing import TextIO

from hpuwatch.sim.talk.manner import Manner
from hpuwatch.sim.talk.script import Script, Template

_GREY = "\x1b[90m"
_PLAIN = "\x1b[0m"
_LEVELS = {
    "DEBUG": "\x1b[37m",
    "INFO": "\x1b[32m",
    "WARNING": "\x1b[33m",
    "ERROR": "\x1b[31m",
}
"""The colours of levels; their order is that of their weight."""
_ORDER = tuple(_LEVELS)
_CALENDAR_SECONDS = 146_097 * 86_400  # the calendar's 400 years, after which it repeats


class Voice:
    """Prints lines of the script, stamped with simulated time.

    A *speaker* is the prefix of a process, such as ``(EngineCore pid=12) ``; empty for a
    process that has none (yet).
    """

    def __init__(
        self,
        script: Script,
        now: Callable[[], float],
        streams: Mapping[str, TextIO],
        manner: Manner | None = None,
    ) -> None:
        """Take the script, the simulated time (seconds since the epoch) and the streams."""
        self.script = script
        self.manner = manner or Manner()
        self._now = now
        self._streams = streams
        self._within_line: set[tuple[str, str]] = set()  # speaker and stream
        self._coloured = {
            name: self.manner.colours(script.style, is_tty=stream.isatty())
            for name, stream in streams.items()
        }

    def has(self, name: str) -> bool:
        """Tell whether this release prints the line at all."""
        return self.script.lines[name] is not None

    def once(self, name: str) -> bool:
        """Tell whether of several ranks only the first says the line."""
        template = self.script.lines[name]
        return template is not None and template.once

    def say(self, speaker: str, name: str, /, **values: object) -> None:
        """Print one line, unless the release has no such line or the level hides it."""
        template = self.script.lines[name]
        if template is None:
            return
        text = template.text.format(**values)
        if template.form == "bare":
            self.write(speaker, template.stream, f"{text}\n")
        elif template.form == "uvicorn":
            self.write(speaker, template.stream, f"{template.level + ':':<9} {text}\n")
        else:
            self._log(speaker, template, text, template.origin.format(**values))

    def text(self, name: str, /, **values: object) -> str:
        """Return the bare text of a line, to be written by hand; empty if there is none."""
        template = self.script.lines[name]
        return "" if template is None else template.text.format(**values)

    def error(self, name: str, /, **values: object) -> str:
        """Return the text of an exception."""
        return self.script.errors[name].format(**values)

    def write(self, speaker: str, stream: str, text: str) -> None:
        """Let a process write to a stream, whether it makes a whole line or not."""
        target = self._streams[stream]
        target.write(self._decorated(speaker, stream, text))
        target.flush()

    def _log(self, speaker: str, template: Template, text: str, origin: str) -> None:
        """Print a record as the configured logger does, or Python's own last resort."""
        manner = self.manner
        if not manner.configured:
            if template.level in {"WARNING", "ERROR"} or template.ours:
                self.write(speaker, "stderr", f"{text}\n")
            return
        is_hidden = _ORDER.index(template.level) < _ORDER.index(manner.level)
        if is_hidden and not template.ours:  # what is simulated says so at every level
            return
        stream = manner.stream or template.stream
        header = self._header(template.level, origin, stream)
        # Each line of a record repeats the header, and the break has a carriage return.
        record = header + text.replace("\n", "\r\n" + header)
        self.write(speaker, stream, f"{record}\n")

    def _header(self, level: str, origin: str, stream: str) -> str:
        seconds = self._now() % _CALENDAR_SECONDS  # no year is printed, so any will do
        moment = datetime.fromtimestamp(seconds, tz=timezone.utc).astimezone()
        stamp, place = f"{moment:%m-%d %H:%M:%S}", self._place(origin)
        if self.script.style.header == "nobracket":
            return f"{self.manner.prefix}{level} {stamp} {place}] "
        place = f"[{place}]"
        if self._coloured[stream].headers:
            level = f"{_LEVELS[level]}{level}{_PLAIN}"
            stamp, place = f"{_GREY}{stamp}{_PLAIN}", f"{_GREY}{place}{_PLAIN}"
        return f"{self.manner.prefix}{level} {stamp} {place} "

    def _place(self, origin: str) -> str:
        """Return the file as the header names it: at DEBUG with its path, but not all of it."""
        parts = origin.split("/")
        if self.manner.level != "DEBUG" or not self.script.style.paths_at_debug:
            return parts[-1]
        return "/".join(parts if len(parts) < 4 else [parts[0], "...", *parts[-2:]])

    def _decorated(self, speaker: str, stream: str, text: str) -> str:
        """Put the speaker's prefix at the start of each line."""
        style = self.script.style
        if not (speaker and text) or (
            style.prefix_needs_logging and not self.manner.configured
        ):
            return text
        prefix = speaker
        if self._coloured[stream].prefixes:
            prefix = f"\x1b[{style.prefix_colour}m{speaker.rstrip()}\x1b[0;0m "
        place = (speaker, stream)
        begun = place in self._within_line
        ended = text.endswith("\n")
        (self._within_line.discard if ended else self._within_line.add)(place)
        body = text[:-1] if ended else text
        decorated = body.replace("\n", "\n" + prefix) + "\n" * ended
        return decorated if begun else prefix + decorated
