"""What values a knob accepts, and what the runtime makes of any other.

A bad value is not always an error: a misspelt ``true`` is silently false, and one release
falls back to a default where the one before it stopped.  So each check takes the release
too, and returns a :class:`Judgement` with its outcome, or None for a good value.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from enum import Enum
from typing import Literal, NamedTuple

from hpuwatch.gaudi.spans import Point, covers
from hpuwatch.gaudi.variables import flag_number, is_true


class Outcome(Enum):
    """What becomes of a bad value."""

    DIES = "the server does not start"
    FALSE = "silently false"
    TRUE = "silently true"
    DEFAULT = "the default holds"
    WORKS = "it acts, but hardly as meant"


class Judgement(NamedTuple):
    """What is wrong with a value, in a sentence without its end, and what becomes of it.

    Attributes:
        outcome: what becomes of the value.
        text: the sentence.
        where: what the value has to be asked for by, or nothing comes of it: ``pad``, the
            strategy, or ``slices`` of fused attention; empty where it is always looked at.
    """

    outcome: Outcome
    text: str
    where: Literal["", "pad", "slices"] = ""


Check = Callable[[str, Point], "Judgement | None"]

LITERAL = "fork-..1.21 vllm"
"""Releases that know one spelling of yes, and read numbers with ``int`` alone."""

SLICE_UNIT = 1024
"""Slices of fused attention are multiples of so many tokens."""

_FALSE = frozenset({"false", "f", "0", "no", "n", "off", ""})
_STOPS = "the server does not start"
_SIZE = re.compile(r"\d+(\.\d+)?([kKmMgGtT]i?)?")
_RESOLUTION = re.compile(r"\d+x\d+(x\d+(-\d+)?)?")


def anything(_text: str, _at: Point) -> Judgement | None:
    """Leave the judgement to the server."""
    return None


def reserve(text: str, at: Point) -> Judgement | None:
    """Want a ratio of 0 up to, not including, 1."""
    value = _number(text)
    if value is None and _is_float(text):
        why = "is read as a number, but no size of a cache comes of it"
        return Judgement(Outcome.DIES, f"{text!r} {why}; {_STOPS}")
    if value is None:
        if covers("plugin-0.17..", at):
            return Judgement(
                Outcome.DEFAULT,
                f"{text!r} is no number, so 0.1 is used, with a warning",
            )
        return Judgement(Outcome.DIES, f"{text!r} is no number; {_STOPS} (ValueError)")
    if value < 0:
        return Judgement(
            Outcome.WORKS,
            f"{text} is below 0, which makes the KV cache larger than what is usable",
        )
    if value >= 1:
        return Judgement(
            Outcome.DIES, f"{text} leaves no memory for the KV cache; {_STOPS}"
        )
    return None


def ratio(text: str, _at: Point) -> Judgement | None:
    """Want a share of 0 to 1."""
    value = _number(text)
    if value is None:
        return Judgement(Outcome.DIES, f"{text!r} is no number; {_STOPS} (ValueError)")
    if not 0 <= value <= 1:
        return Judgement(Outcome.WORKS, f"{text} is no share from 0 to 1")
    return None


def share(text: str, _at: Point) -> Judgement | None:
    """Want a share above 0, at most 1."""
    value = _number(text)
    if value is None or not 0 < value <= 1:
        return Judgement(
            Outcome.DIES, f"{text!r} is no share above 0 and at most 1; {_STOPS}"
        )
    return None


def percentage(text: str, at: Point) -> Judgement | None:
    """Want a whole percentage of 0 to 50; only pad minds which."""
    value = _whole(text)
    if value is None:
        return whole(0)(text, at)
    if not 0 <= value <= 50:
        why = f"{text} is no percentage from 0 to 50; under pad {_STOPS}"
        return Judgement(Outcome.DIES, f"{why} (AssertionError)", "pad")
    return None


def sliced_from(text: str, at: Point) -> Judgement | None:
    """Want a length of 1024 or more; only slices of fused attention mind which."""
    value = _whole(text)
    if value is None:
        return whole(0)(text, at)
    if value < SLICE_UNIT:
        why = f"{text} is below {SLICE_UNIT}; where attention is sliced {_STOPS}"
        return Judgement(Outcome.DIES, f"{why} (AssertionError)", "slices")
    return None


def slice_size(text: str, at: Point) -> Judgement | None:
    """Want a positive multiple of 1024; only slices of fused attention mind which."""
    value = _whole(text)
    if value is None:
        return whole(0)(text, at)
    if value < 1:
        why = f"{text} is no size of a slice; where attention is sliced {_STOPS}"
        return Judgement(Outcome.DIES, f"{why} (AssertionError)", "slices")
    if value % SLICE_UNIT:
        up = -(-value // SLICE_UNIT) * SLICE_UNIT
        why = f"{text} is rounded up to {up}, the next multiple of {SLICE_UNIT}"
        return Judgement(Outcome.WORKS, why, "slices")
    return None


def truth(text: str, at: Point) -> Judgement | None:
    """Want yes or no, in a spelling that the release knows."""
    word = text.lower()
    if word == "true" or word in _FALSE:
        return None
    if not is_true(text):
        return Judgement(
            Outcome.FALSE,
            f"{text!r} is none of true, t, 1, yes, y, on and so counts as false",
        )
    if covers(LITERAL, at):
        return Judgement(
            Outcome.FALSE,
            f"{text!r} counts as false here: only the word true is understood",
        )
    return None


def one_or_true(text: str, _at: Point) -> Judgement | None:
    """Want 1 or true for yes; no other spelling is understood in any release."""
    if text.lower() in {"1", "true", *_FALSE}:
        return None
    return Judgement(
        Outcome.FALSE, f"{text!r} is neither 1 nor true and so counts as false"
    )


def not_zero(text: str, _at: Point) -> Judgement | None:
    """Want 0 for no; whatever else is set means yes, ``false`` included."""
    if text != "0" and text.lower() in _FALSE:
        return Judgement(Outcome.TRUE, f"{text!r} counts as true: only 0 means no")
    return None


def switch(text: str, _at: Point) -> Judgement | None:
    """Want 0 for no or 1 for yes; any other number means yes too."""
    value = _whole(text)
    if value is None:
        return Judgement(
            Outcome.DIES, f"{text!r} is no whole number; {_STOPS} (ValueError)"
        )
    if value not in {0, 1}:
        return Judgement(Outcome.TRUE, f"{text} counts as 1: only 0 means no")
    return None


def whole(least: int, below: Outcome = Outcome.WORKS) -> Check:
    """Return the check for a whole number of at least ``least``.

    Args:
        least: the smallest that makes sense.
        below: what becomes of a smaller one.
    """

    def check(text: str, at: Point) -> Judgement | None:
        value = _whole(text)
        if value is None:
            raised = "ValueError" if covers(LITERAL, at) else "RuntimeError"
            return Judgement(
                Outcome.DIES, f"{text!r} is no whole number; {_STOPS} ({raised})"
            )
        if value < least:
            end = f"; {_STOPS}" if below is Outcome.DIES else ""
            return Judgement(below, f"{text} is below {least}{end}")
        return None

    return check


def count(text: str, _at: Point) -> Judgement | None:
    """Want a whole number, 1 or more, as a flag: argparse or vLLM refuses another."""
    value = _whole(text)
    if value is None or value < 1:
        return Judgement(
            Outcome.DIES, f"{text!r} is no whole number of 1 or more; {_STOPS}"
        )
    return None


def model_length(text: str, at: Point) -> Judgement | None:
    """Want a whole number, also as 32k, or ``auto`` since plugin-0.17."""
    if covers("plugin-0.17..", at) and text in {"auto", "-1"}:
        return None
    return count(str(flag_number(text) or text), at)


def hidden_layers(text: str, at: Point) -> Judgement | None:
    """Want a whole number, 1 or more."""
    if _whole(text) is None and covers("plugin-0.17..", at):
        return Judgement(
            Outcome.DEFAULT,
            f"{text!r} is no whole number, so 1 is used, with a warning",
        )
    return whole(1)(text, at)


def one_of(*values: str, otherwise: Outcome = Outcome.DIES) -> Check:
    """Return the check for one of ``values``, in exactly this spelling."""

    def check(text: str, _at: Point) -> Judgement | None:
        if text in values:
            return None
        end = f"; {_STOPS}" if otherwise is Outcome.DIES else ""
        return Judgement(otherwise, f"{text!r} is none of {', '.join(values)}{end}")

    return check


def multiple_of(step: int) -> Check:
    """Return the check for a positive multiple of ``step``."""

    def check(text: str, _at: Point) -> Judgement | None:
        value = _whole(text)
        if value is None or value < 1:
            return Judgement(
                Outcome.DIES, f"{text!r} is no positive whole number; {_STOPS}"
            )
        if value % step:
            return Judgement(
                Outcome.WORKS,
                f"{text} is no multiple of {step}, which runs slowly on Gaudi",
            )
        return None

    return check


def data_type(text: str, at: Point) -> Judgement | None:
    """Want bfloat16, or auto; the plugin replaces other 16- and 32-bit types."""
    replaced = {"float16", "half", "float32", "float"}
    if text in replaced and covers("plugin", at):
        return Judgement(
            Outcome.DEFAULT, f"{text!r} is replaced by bfloat16, with a warning"
        )
    return None


def byte_size(text: str, _at: Point) -> Judgement | None:
    """Want bytes, or a number with a unit as 1G or 1Gi."""
    if _SIZE.fullmatch(text):
        return None
    return Judgement(
        Outcome.DIES, f"{text!r} is no size like 1000000, 1G or 1Gi; {_STOPS}"
    )


def start_method(text: str, _at: Point) -> Judgement | None:
    """Want spawn; with fork the server may hang at its end."""
    if text == "fork":
        return Judgement(Outcome.WORKS, "with fork the server may hang when it ends")
    return one_of("spawn")(text, _at)


def areas(text: str, _at: Point) -> Judgement | None:
    """Want a list of areas to debug."""
    known = ("steps", "defrag", "fwd")
    strange = [word for word in text.split(",") if word not in known]
    if strange:
        return Judgement(
            Outcome.DIES,
            f"{strange[0]!r} is none of {', '.join(known)}; {_STOPS} (RuntimeError)",
        )
    return None


def whole_numbers(text: str, _at: Point) -> Judgement | None:
    """Want whole numbers with commas between, or None."""
    if text == "None" or all(_whole(part) is not None for part in text.split(",")):
        return None
    return Judgement(
        Outcome.DIES, f"{text!r} is no list of whole numbers; {_STOPS} (ValueError)"
    )


def resolutions(text: str, _at: Point) -> Judgement | None:
    """Want picture sizes as WxH, WxHxN or WxHxN-M, with commas between."""
    for part in text.split(","):
        if not _RESOLUTION.fullmatch(part.strip()):
            return Judgement(
                Outcome.DIES,
                f"{part.strip()!r} is no size like 640x480, 640x480x2 or 640x480x1-4; "
                f"{_STOPS} (ValueError)",
            )
    return None


def recipe_cache(text: str, _at: Point) -> Judgement | None:
    """Want a directory, whether it is emptied at the start, and its megabytes."""
    parts = [part.strip() for part in text.split(",")]
    if len(parts) != 3 or not parts[0]:
        found = f"{text!r} is not DIRECTORY,true|false,MEGABYTES"
    elif parts[1].lower() not in {"true", "false"}:
        found = f"{parts[1]!r}, the second part, is neither true nor false"
    elif parts[1].lower() == "true":
        found = "the second part is true: the cache is emptied at every start"
    elif (_whole(parts[2]) or 0) < 1:
        found = f"{parts[2]!r}, the third part, is no number of megabytes"
    else:
        return None
    return Judgement(Outcome.WORKS, found)


def _number(text: str) -> float | None:
    return float(text) if _is_float(text) and math.isfinite(float(text)) else None


def _is_float(text: str) -> bool:
    """Tell whether ``float`` reads it, as it does nan and inf."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def _whole(text: str) -> int | None:
    try:
        return int(text)
    except ValueError:
        return None
