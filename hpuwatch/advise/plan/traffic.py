"""Traffic in words, as a person says it: ``1k in, 2k out, 64 at once``.

Parts stand between commas; each is a number and what it counts.  ``k`` is 1,024 tokens and
``m`` 1,048,576, as lengths are counted in this field.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from hpuwatch.errors import UsageError

EXAMPLE = '"1k in, 2k out, 64 at once"'

_PART = re.compile(r"([\d.]{1,18})\s*([km]?)\s*(?:tokens?\s+)?([a-z][a-z ]*)")
_TIMES = {"": 1, "k": 1024, "m": 1024**2}
_NAMES = {
    "prompt_tokens": ("in", "input", "prompt", "prompts"),
    "output_tokens": ("out", "output", "generated", "answer"),
    "at_once": (
        *("at once", "at a time", "concurrent", "in parallel", "parallel", "users"),
        *("requests", "requests at once", "seqs", "sequences"),
    ),
}
_WANTED = {
    "prompt_tokens": "how long prompts are (… in)",
    "output_tokens": "how long answers are (… out)",
    "at_once": "how many requests run (… at once)",
}
_MOST = {"prompt_tokens": 2**24, "output_tokens": 2**24, "at_once": 2**16}


@dataclass(frozen=True, slots=True)
class ExpectedTraffic:
    """The load that a server is to bear.

    Attributes:
        prompt_tokens: of a usual long prompt.
        output_tokens: of a usual long answer.
        at_once: requests in flight.
    """

    prompt_tokens: int
    output_tokens: int
    at_once: int

    @property
    def tokens(self) -> int:
        """Return the tokens of a whole request."""
        return self.prompt_tokens + self.output_tokens


def read_traffic(text: str) -> ExpectedTraffic:
    """Read traffic in words.

    Raises:
        UsageError: a part is no number with a word that is known, comes twice or is
            missing, or its number makes no sense.
    """
    found: dict[str, int] = {}
    for part in filter(None, (each.strip() for each in re.split("[,;]", text.lower()))):
        name, number = _read(part)
        if name in found:
            raise UsageError(f"--traffic: {part!r} says a second time {_WANTED[name]}")
        found[name] = number
    missing = [words for name, words in _WANTED.items() if name not in found]
    if missing:
        raise UsageError(
            f"--traffic {text!r} doesn't say {' and '.join(missing)}: write {EXAMPLE}"
        )
    return ExpectedTraffic(**found)


def _read(part: str) -> tuple[str, int]:
    read = _PART.fullmatch(part)
    words = read[3].strip() if read else ""
    name = next((name for name, known in _NAMES.items() if words in known), None)
    if read is None or name is None:
        raise UsageError(f"--traffic: {part!r} can't be read: write {EXAMPLE}")
    try:
        number = float(read[1]) * _TIMES[read[2]]
    except ValueError:
        raise UsageError(f"--traffic: {read[1]!r} in {part!r} is no number") from None
    if number != int(number) or not 0 < number <= _MOST[name]:
        raise UsageError(
            f"--traffic: {part!r} is not a whole number from 1 to {_MOST[name]:,}"
        )
    return name, int(number)
