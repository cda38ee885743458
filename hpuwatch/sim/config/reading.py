"""How the real server reads one environment variable, and the words that it dies with.

Each function takes the variable's name, its text and the release, and returns what the
server understands.  The rules changed with the releases: up to fork-1.21 a truth is the word
``true`` and nothing else, later six spellings are true and everything else, typing errors
included, is silently false.  A number that is none ends the server in Python's own words up
to fork-1.21, and in those of the plugin's table of variables since then.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable

from hpuwatch.gaudi.spans import Point, covers

LITERAL = "fork-..1.21 vllm"
"""Releases that know one spelling of yes, and read numbers with ``int`` alone."""

_RESOLUTION = re.compile(r"\d+x\d+(x\d+(-\d+)?)?")
_TRUE = frozenset({"true", "t", "1", "yes", "y", "on"})


class KnobError(Exception):
    """A setting that the real server dies of; the message is its exception's last line."""


Read = Callable[[str, str, Point], object]
"""From name, text and release to what is understood; may raise :class:`KnobError`."""


def as_it_stands(_name: str, text: str, _at: Point) -> str:
    """Take the text."""
    return text


def truth(_name: str, text: str, at: Point) -> bool:
    """Read yes or no, in the spellings of the release."""
    if covers(LITERAL, at):
        return text.lower() == "true"
    return text.lower() in _TRUE


def one_or_true(_name: str, text: str, _at: Point) -> bool:
    """Read yes as ``1`` or ``true``."""
    return text.lower() in {"1", "true"}


def just_one(_name: str, text: str, _at: Point) -> bool:
    """Read yes as ``1`` alone."""
    return text == "1"


def not_zero(_name: str, text: str, _at: Point) -> bool:
    """Read everything but ``0`` as yes, ``false`` included."""
    return text != "0"


def is_no(_name: str, text: str, _at: Point) -> bool:
    """Read whether something is turned off, as the bridge does: ``0`` or ``false``."""
    return text.lower() in {"0", "false"}


def is_given(_name: str, _text: str, _at: Point) -> bool:
    """Read any text as yes, the empty one too."""
    return True


def integer(_name: str, text: str, _at: Point) -> int:
    """Read a whole number as vLLM itself does.

    Raises:
        KnobError: it is none.
    """
    try:
        return int(text)
    except ValueError:
        raise KnobError(
            f"ValueError: invalid literal for int() with base 10: {text!r}"
        ) from None


def switch(name: str, text: str, at: Point) -> bool:
    """Read a number that stands for a truth.

    Raises:
        KnobError: it is no number.
    """
    return integer(name, text, at) != 0


def whole(name: str, text: str, at: Point) -> int:
    """Read a whole number of Gaudi's own table of variables.

    Raises:
        KnobError: it is none.
    """
    try:
        return integer(name, text, at)
    except KnobError:
        if covers(LITERAL, at):
            raise
        raise undeclared(name) from None


def wholes(name: str, text: str, at: Point) -> tuple[int, ...]:
    """Read whole numbers with commas between; the word ``None`` is none of them.

    Raises:
        KnobError: one is none, or negative, so that it has no square root.
    """
    if text == "None":
        return ()
    numbers = tuple(integer(name, part, at) for part in text.split(","))
    if min(numbers) < 0:
        raise KnobError("ValueError: math domain error")
    return numbers


def resolutions(name: str, text: str, _at: Point) -> tuple[str, ...]:
    """Read picture sizes, as ``640x480``, ``640x480x2`` or ``640x480x1-4``.

    Raises:
        KnobError: one is none.
    """
    entries = tuple(entry.strip() for entry in text.split(","))
    for entry in entries:
        if not _RESOLUTION.fullmatch(entry):
            raise KnobError(f"ValueError: Invalid {name} entry {entry!r}")
    return entries


def number(_name: str, text: str, _at: Point) -> float:
    """Read a number.

    Raises:
        KnobError: it is none.
    """
    try:
        return float(text)
    except ValueError:
        raise KnobError(
            f"ValueError: could not convert string to float: {text!r}"
        ) from None


def share(name: str, text: str, at: Point) -> float:
    """Read a number of Gaudi's own table of variables.

    Raises:
        KnobError: it is none.
    """
    try:
        return number(name, text, at)
    except KnobError:
        raise undeclared(name) from None


def reserve(name: str, text: str, at: Point) -> float | None:
    """Read the share of memory for graphs; None where the default is taken with a warning.

    Raises:
        KnobError: up to plugin-0.16 for what is no number; ever since for a number of which
            no size comes.
    """
    try:
        ratio = number(name, text, at)
    except KnobError:
        if covers("plugin-0.17..", at):
            return None
        raise
    if math.isnan(ratio):
        raise KnobError("ValueError: cannot convert float NaN to integer")
    if math.isinf(ratio):
        raise KnobError("OverflowError: cannot convert float infinity to integer")
    return ratio


def layers(name: str, text: str, at: Point) -> int:
    """Read the layers of a graph; since plugin-0.17 one, for what is no number.

    Raises:
        KnobError: in older releases.
    """
    try:
        return integer(name, text, at)
    except KnobError:
        if covers("plugin-0.17..", at):
            return 1
        raise


def interval(name: str, text: str, at: Point) -> float:
    """Read seconds between two lines; what isn't above 0 means ten.

    Raises:
        KnobError: it is no number.
    """
    seconds = number(name, text, at)
    return seconds if seconds > 0 else 10.0


def graph_order(_name: str, text: str, _at: Point) -> str:
    """Read in which order graphs are captured.

    Raises:
        KnobError: the fork knows no such order.
    """
    if text in {"min_tokens", "max_bs"}:
        return text
    raise KnobError(
        f"NotImplementedError: Unsupported graph allocation strategy: {text}"
    )


def strategy(_name: str, text: str, at: Point) -> str:
    """Read the name of a bucketing strategy.

    Raises:
        KnobError: the release has none of that name.
    """
    older = covers("fork-1.22.. plugin-0.10", at)
    names = (
        ("exponential_bucketing", "linear_bucketing")
        if older
        else ("exp", "lin", "pad")
    )
    if text in names:
        return text
    raise KnobError(
        f"RuntimeError: bucketing_strategy: {text} is not in allowed options:"
        f" [{', '.join(names)}]!"
    )


def areas(name: str, text: str, _at: Point) -> tuple[str, ...]:
    """Read the areas to debug.

    Raises:
        KnobError: one is unknown.
    """
    words = tuple(text.split(","))
    if not {"steps", "defrag", "fwd"}.issuperset(words):
        raise undeclared(name)
    return words


def start_method(name: str, text: str, at: Point) -> str:
    """Read how worker processes start.

    Raises:
        KnobError: it is neither spawn nor fork.
    """
    if text in {"spawn", "fork"}:
        return text
    if covers("plugin-0.11..", at):
        raise KnobError(
            f"ValueError: Invalid value {text!r} for {name}."
            " Valid options: ['spawn', 'fork']."
        )
    raise KnobError(f"ValueError: cannot find context for {text!r}")


def level(_name: str, text: str, _at: Point) -> str:
    """Read what is printed at least.

    Raises:
        KnobError: Python's logging knows no such level.
    """
    known = {"DEBUG", "INFO", "WARNING", "WARN", "ERROR", "CRITICAL", "FATAL", "NOTSET"}
    if text.upper() in known:
        return text.upper()
    raise KnobError("ValueError: Unable to configure logger 'vllm'")


def stream(_name: str, text: str, _at: Point) -> str:
    """Read where lines go: ``stdout`` or ``stderr``.

    Raises:
        KnobError: Python's logging finds no such stream.
    """
    name = text.removeprefix("ext://").removeprefix("sys.")
    if text.startswith("ext://sys.") and name in {"stdout", "stderr"}:
        return name
    raise KnobError("ValueError: Unable to configure handler 'vllm'")


def undeclared(name: str) -> KnobError:
    """Return the death by a value that Gaudi's table of variables can't take."""
    return KnobError(f"RuntimeError: {name}: failed to process environment variable")
