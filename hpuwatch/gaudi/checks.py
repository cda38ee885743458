"""What values a knob accepts: each check returns a complaint, or None.

They say what the runtime makes of a value, which is not always an error: a misspelt
``true`` is silently false.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from hpuwatch.gaudi.variables import is_true

Check = Callable[[str], "str | None"]

_FALSE = frozenset({"false", "f", "0", "no", "n", "off", ""})


def number_below_one(text: str) -> str | None:
    """Want a ratio of 0 up to, not including, 1."""
    value = _number(text)
    if value is None:
        return f"{text!r} is no number; newer releases use 0.1 then, older ones stop"
    if value < 0:
        return f"{text} is below 0, which makes the KV cache larger than what is usable"
    if value >= 1:
        return f"{text} leaves no memory for the KV cache; stay below 1"
    return None


def share(text: str) -> str | None:
    """Want a share above 0, at most 1."""
    value = _number(text)
    if value is None or not 0 < value <= 1:
        return f"{text!r} is no share above 0 and at most 1; the server does not start"
    return None


def percentage(text: str) -> str | None:
    """Want a whole percentage of 0 to 50."""
    value = _whole(text)
    if value is None or not 0 <= value <= 50:
        return f"{text!r} is no whole number from 0 to 50; the server does not start"
    return None


def truth(text: str) -> str | None:
    """Want yes or no, in one of the spellings that the runtime knows."""
    if is_true(text) or text.lower() in _FALSE:
        return None
    return f"{text!r} is none of true, t, 1, yes, y, on and so counts as false"


def word_true(text: str) -> str | None:
    """Want yes or no, spelt so that releases with one spelling understand it too."""
    if text.lower() in {"true", *_FALSE}:
        return None
    if is_true(text):
        return (
            f"{text!r} counts as false up to fork-1.21; the word true works everywhere"
        )
    return truth(text)


def whole(least: int) -> Check:
    """Return the check for a whole number of at least ``least``."""

    def check(text: str) -> str | None:
        value = _whole(text)
        if value is None:
            return f"{text!r} is no whole number; the server does not start"
        if value < least:
            return f"{text} is below {least}"
        return None

    return check


def one_of(*values: str) -> Check:
    """Return the check for one of ``values``, in exactly this spelling."""

    def check(text: str) -> str | None:
        if text in values:
            return None
        return f"{text!r} is none of {', '.join(values)}"

    return check


def multiple_of(step: int) -> Check:
    """Return the check for a positive multiple of ``step``."""

    def check(text: str) -> str | None:
        value = _whole(text)
        if value is None or value < 1:
            return f"{text!r} is no positive whole number; the server does not start"
        if value % step:
            return f"{text} is no multiple of {step}, which runs slowly on Gaudi"
        return None

    return check


def recipe_cache(text: str) -> str | None:
    """Want a directory, whether it is emptied at the start, and its megabytes."""
    parts = [part.strip() for part in text.split(",")]
    if len(parts) != 3 or not parts[0]:
        return f"{text!r} is not DIRECTORY,true|false,MEGABYTES"
    if parts[1].lower() not in {"true", "false"}:
        return f"{parts[1]!r}, the second part, is neither true nor false"
    if parts[1].lower() == "true":
        return "the second part is true: the cache is emptied at every start"
    if (_whole(parts[2]) or 0) < 1:
        return f"{parts[2]!r}, the third part, is no number of megabytes"
    return None


def anything(_text: str) -> str | None:
    """Leave the judgement to the server."""
    return None


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _whole(text: str) -> int | None:
    try:
        return int(text)
    except ValueError:
        return None
