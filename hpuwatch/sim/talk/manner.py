"""What the environment changes about the log: VLLM_LOGGING_…, NO_COLOR, no logging at all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from hpuwatch.sim.talk.script import Style


class Colours(NamedTuple):
    """What is coloured on one stream."""

    prefixes: bool
    headers: bool


@dataclass(frozen=True, slots=True)
class Manner:
    """How one server logs.

    Attributes:
        level: the least level that is printed; at DEBUG headers name files differently.
        prefix: stands before the level of each header.
        stream: where records go instead of to their own stream, or None.
        colour: VLLM_LOGGING_COLOR: ``auto``, ``0`` or ``1``.
        no_color: NO_COLOR forbids colours.
        configured: vLLM configures logging; if not, only warnings are seen, bare.
    """

    level: str = "INFO"
    prefix: str = ""
    stream: str | None = None
    colour: str = "auto"
    no_color: bool = False
    configured: bool = True

    def colours(self, style: Style, *, is_tty: bool) -> Colours:
        """Tell what a release colours on a stream."""
        if style.colour == "always":
            return Colours(prefixes=True, headers=False)
        wanted = is_tty if self.colour == "auto" else self.colour == "1"
        headers = wanted and not self.no_color
        if style.colour == "no_color":
            return Colours(prefixes=not self.no_color, headers=headers)
        return Colours(prefixes=headers, headers=headers)
