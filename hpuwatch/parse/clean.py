"""Text that is safe to print: no colours, and nothing that speaks to a terminal.

A log holds what strangers sent to the server.  A sequence in it could set a terminal's
title or clipboard, clear the screen or, with marks of writing direction, show other words
than those that stand there.  What is dropped:

* control strings (OSC, DCS, SOS, PM, APC) with their bodies, in both notations; one that
  never ends reaches to the end of the text, as in a terminal,
* CSI and all other escape sequences,
* control characters but the tab, C1 among them,
* line and paragraph separators and marks that turn the writing direction.
"""

from __future__ import annotations

import re

_UNSAFE = re.compile(
    r"(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?"
    r"|(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"
    r"|\x1b[ -/]*[0-~]?"
    r"|[\0-\x08\x0a-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]+"
)


def clean(text: str) -> str:
    """Return the text without what a terminal would obey; printable text is unchanged."""
    return text if text.isprintable() else _UNSAFE.sub("", text)
