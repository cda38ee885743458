"""vLLM's command line as one table (flags.yaml), and the parser that it makes.

Which flags there are depends on the release; what one doesn't know is refused in vLLM's
words with exit code 2.  Each kind of value is a function here.
"""

from __future__ import annotations

import argparse
import json
import re
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

import yaml

from hpuwatch.gaudi.spans import Point, covers

FITTING = "plugin-0.17.."
"""Releases that cut the model's length to what the cache holds, if asked (``auto``, -1)."""

_TABLE = Path(__file__).with_name("flags.yaml")

# vLLM reads 32k as 32,000 and 32K as 32,768; so for m, g and t.
_MULTIPLES = {
    **{letter: 1000**power for power, letter in enumerate("kmgt", start=1)},
    **{letter: 1024**power for power, letter in enumerate("KMGT", start=1)},
}
_TOO_LARGE = 1 << 63
_FLAG = re.compile(r"argument (--[\w-]+)")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)([kKmMgGtT])(i)?")
_DATA_TYPES = ("auto", "half", "float16", "bfloat16", "float", "float32")
_LOAD_DEVICES = ("cpu", "hpu")
_BLOCK_SIZES = {
    "fork-..1.20 vllm": (8, 16, 32, 64, 128),
    "fork plugin-0.10": (1, 8, 16, 32, 64, 128),
    "plugin-0.11..0.16": (1, 8, 16, 32, 64, 128, 256),
}
"""The sizes of a block that vLLM lets one choose from; of the first releases that fit."""
_CACHE_TYPES = ("auto", "bfloat16", "fp8", "fp8_e4m3", "fp8_e5m2", "fp8_inc")


@dataclass(frozen=True, slots=True)
class Flag:
    """One flag of vLLM.

    Attributes:
        kind: what its value is, as a function of this module or a form of switch.
        known: the releases that have it, as ``gaudi.spans`` writes them.
        also: a shorter spelling, or empty.
        default: the value without it, where that hangs on nothing else.
        help: what it does; empty where nothing simulated hangs on it.
    """

    name: str
    kind: str = "text"
    known: str = "all"
    also: str = ""
    default: Any = None
    help: str = ""

    @property
    def field(self) -> str:
        """Its name among parsed arguments."""
        return self.name.removeprefix("--").replace("-", "_")


@cache
def flags() -> dict[str, Flag]:
    """Return the table by name, in the order of vLLM's parser."""
    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    text = _TABLE.read_text(encoding="utf-8")
    rows = yaml.load(text, Loader=loader)  # noqa: S506  a safe loader either way
    found = {name: Flag(name, **row) for name, row in rows.items()}
    return {
        name: replace(flag, default=False) if flag.kind == "switch" else flag
        for name, flag in found.items()
    }


class VllmParser(argparse.ArgumentParser):
    """Fails with exit code 2, in vLLM's name and words unless the flag is our own."""

    def error(self, message: str) -> NoReturn:
        """End with what is wrong with one argument."""
        flag = _FLAG.match(message)
        if flag is not None and flag[1] not in flags():
            self.refuse(message)
        self._fail(self.prog, message)

    def unknown(self, words: list[str]) -> NoReturn:
        """End with arguments that nobody knows; vLLM's outer parser says this."""
        outer = self.prog.partition(" ")[0]
        self._fail(outer, f"unrecognized arguments: {' '.join(words)}")

    def refuse(self, message: str) -> NoReturn:
        """End in our own name with what can't be simulated."""
        self.exit(2, f"{self.format_usage()}hpuwatch sim: error: {message}\n")

    def _fail(self, program: str, message: str) -> NoReturn:
        usage = f"usage: {self.prog} [model_tag] [options]"
        self.exit(2, f"{usage}\n{program}: error: {message}\n")


def add_flags(parser: argparse.ArgumentParser, at: Point) -> None:
    """Give a parser the flags of a release; ``--help`` tells of those that matter."""
    group: Any = parser.add_argument_group(
        "vLLM's flags", "Its other flags are accepted too, and change nothing."
    )
    for flag in flags().values():
        if not covers(flag.known, at):
            continue
        names = (flag.name, flag.also) if flag.also else (flag.name,)
        group.add_argument(
            *names,
            dest=flag.field,
            default=flag.default,
            help=flag.help or argparse.SUPPRESS,
            **_form(flag, at),
        )


def _form(flag: Flag, at: Point) -> dict[str, Any]:
    """Return how argparse reads a flag."""
    if flag.kind in _TYPES:
        fits = flag.kind == "length" and covers(FITTING, at)
        read = length if fits else _TYPES[flag.kind]
        return {"type": read, "metavar": flag.kind.upper()}
    if flag.kind == "block_size":
        listed = (sizes for spans, sizes in _BLOCK_SIZES.items() if covers(spans, at))
        return {"type": integer, "choices": next(listed, None), "metavar": "INTEGER"}
    if flag.kind in _CHOICES:
        return {"choices": _CHOICES[flag.kind]}
    # The V0 engine's switches may carry a word: --enable-chunked-prefill=False.
    takes_word = at.is_v0
    forms: dict[str, dict[str, Any]] = {
        "switch": {"action": "store_true"},
        "either": {"action": _Either, "takes_word": takes_word},
        "several": {"nargs": "+", "metavar": "TEXT"},
        "text": {"metavar": "TEXT"},
    }
    return forms[flag.kind]


class _Either(argparse.Action):
    """A switch with a counterpart: ``--flag`` and ``--no-flag``."""

    def __init__(
        self, option_strings: list[str], *, takes_word: bool, **rest: Any
    ) -> None:
        spellings = [*option_strings]
        spellings += [f"--no-{text[2:]}" for text in option_strings if text[:2] == "--"]
        form = {"nargs": "?", "const": "true"} if takes_word else {"nargs": 0}
        super().__init__(spellings, **(rest | form))

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        word = str(values).lower() if values else "true"
        if word not in {"true", "false"}:
            parser.error(
                f"argument {option_string}: expected True or False, got {values!r}"
            )
        wanted = (word == "true") != (option_string or "").startswith("--no-")
        setattr(namespace, self.dest, wanted)


def integer(text: str) -> int:
    """Read a whole number.

    Raises:
        ArgumentTypeError: it has more than 64 bits.
    """
    return _within_bits(int(text), text)


def number(text: str) -> float:
    """Read a number that can be reckoned with.

    Raises:
        ArgumentTypeError: it is nan or infinite.
    """
    value = float(text)
    if value - value != 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no number to reckon with")
    return value


def size(text: str) -> int:
    """Read a whole number, also as ``32k``.

    Raises:
        ArgumentTypeError: it has more than 64 bits.
    """
    found = _SIZE.fullmatch(text)
    if found is None:
        return integer(text)
    letter = found[2].upper() if found[3] else found[2]
    return _within_bits(float(found[1]) * _MULTIPLES[letter], text)


def length(text: str) -> int:
    """Read a length of the model in tokens; -1 for ``auto``."""
    return -1 if text == "auto" else size(text)


def byte_size(text: str) -> int:
    """Read bytes, also as ``1G`` or ``1Gi``."""
    return size(text)


def port(text: str) -> int:
    """Read a TCP port; 0 takes a free one.

    Raises:
        ArgumentTypeError: there is none of that number.
    """
    if not 0 <= int(text) < 65536:
        raise argparse.ArgumentTypeError(f"{text!r} is no port from 0 to 65535")
    return int(text)


def parsed_json(text: str) -> object:
    """Read a value in JSON; anything else is taken as it stands, as ``image=2`` is.

    Raises:
        ArgumentTypeError: it looks like JSON and is none.
    """
    try:
        return json.loads(text)
    except ValueError:
        if text.startswith(("{", "[")):
            message = f"Value {text} cannot be converted to <function loads>."
            raise argparse.ArgumentTypeError(message) from None
        return text


def _within_bits(value: float, text: str) -> int:
    if abs(value) >= _TOO_LARGE:
        raise argparse.ArgumentTypeError(f"{text!r} is too large to reckon with")
    return int(value)


# A word that is no number is refused in argparse's words, which name the type.
for _read in (integer, size, length, byte_size, port):
    _read.__name__ = "int"
number.__name__ = "float"

_TYPES = {
    "integer": integer,
    "number": number,
    "size": size,
    "length": size,
    "byte_size": byte_size,
    "port": port,
    "json": parsed_json,
}
_CHOICES = {
    "data_type": _DATA_TYPES,
    "cache_type": _CACHE_TYPES,
    "load_device": _LOAD_DEVICES,
}
