"""The types that a placeholder of a rule may have: how they look and what they become.

``{free:bytes}`` in a pattern is matched by the type's regular expression and converted to a
value of :data:`hpuwatch.events.Value`.  A text that looks right and can't be converted (a
whole number beyond 64 bits, a list nested too deeply) counts as no match, so nothing here has
to be feared: what comes out is of a sane size, and a number that is none (``nan``, ``inf``)
is None.
"""

from __future__ import annotations

import ast
import json
import re
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import isfinite

from hpuwatch.events import Value
from hpuwatch.units import Amount, format_bytes, gib_amount, parse_amount

_DIGITS = r"\d+(?:\.\d+)?(?:[eE][+-]?\d+)?"
_NUMBER = rf"-?(?:{_DIGITS}|inf|nan)"
_NUMPY = re.compile(r"np\.\w+\((-?\d+(?:\.\d+)?)\)")
_INTEGERS_ONLY = re.compile(r"[\[\](),\s\d-]*")
_LITERAL_LIMIT = 20_000  # characters that the slow, general reader is given at most
_DEEPEST = 8  # lists within one another; no server prints more than three
_LARGEST = 2**63  # no count, size or number of bytes comes near it

Converter = Callable[[str], Value]


@dataclass(frozen=True, slots=True)
class FieldType:
    """How a value looks (a regular expression without groups) and what it becomes."""

    regex: str
    convert: Converter


def shapes(text: str) -> tuple[Value, ...]:
    """Read a printed list or tuple, nested ones and NumPy items too.

    A list of 14,000 buckets is common, so all-integer text takes a fast way.

    Raises:
        ValueError: the text is cut or is no list.
    """
    if "np." in text:
        text = _NUMPY.sub(r"\1", text)
    try:
        return _frozen(_read(text), _DEEPEST)
    except (SyntaxError, RecursionError, MemoryError, TypeError) as error:
        raise ValueError(f"{text[:40]!r} is no list") from error


def _read(text: str) -> object:
    if _INTEGERS_ONLY.fullmatch(text):
        plain = text.replace("(", "[").replace(")", "]").replace(",]", "]")
        return json.loads(plain)
    if len(text) > _LITERAL_LIMIT:
        raise ValueError("a list of this length must hold integers only")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of odd spellings, which are the log's
        return ast.literal_eval(text)


def _frozen(value: object, deepest: int) -> tuple[Value, ...]:
    if not isinstance(value, (list, tuple)) or deepest == 0:
        raise ValueError("this is no list, or one of lists without end")
    return tuple(
        _frozen(item, deepest - 1) if isinstance(item, (list, tuple)) else _scalar(item)
        for item in value
    )


def _scalar(item: object) -> Value:
    if isinstance(item, int):
        return _bounded(item)
    if isinstance(item, float):
        return _finite(item)
    if item is None or isinstance(item, str):
        return item
    raise ValueError(f"{item!r} is neither number nor text")


def _bounded(number: int) -> int:
    """Return a number that 64 bits hold.

    Raises:
        ValueError: it is larger: a damaged line, not a count.
    """
    if -_LARGEST < number < _LARGEST:
        return number
    raise ValueError("no server counts that far")


def _finite(number: float) -> float | None:
    """Return the number, None for what is none: ``nan`` or ``inf``."""
    return number if isfinite(number) else None


def _bucket_list(text: str) -> tuple[Value, ...]:
    """Read a list of buckets; one that a log collector cut becomes the empty tuple."""
    try:
        return shapes(text)
    except ValueError:
        return ()


def clock_seconds(text: str) -> float:
    """Turn a progress bar's ``1:02:03`` or ``02:03`` into seconds."""
    seconds = 0
    for part in text.split(":"):
        seconds = seconds * 60 + int(part)
    return float(_bounded(seconds))


def phase_name(text: str) -> str:
    """Shorten a printed phase: ``Graph/Prompt`` and ``prefix_prefill`` are ``prompt``."""
    lowered = text.strip().lower()
    for word, name in _PHASE_WORDS:
        if word in lowered:
            return name
    return lowered.removeprefix("graph/")


_PHASE_WORDS = (
    ("prompt", "prompt"),
    ("prefill", "prompt"),
    ("decode", "decode"),
    ("multimodal", "multimodal"),
    ("unified", "unified"),
)


def _integer(text: str) -> int:
    return _bounded(int(text.replace(",", "") if "," in text else text))


def _number(text: str) -> float | None:
    return _finite(float(text))


def _count_bytes(text: str) -> Amount:
    count = _integer(text)
    return Amount(count, format_bytes(count))


def _bytes(text: str) -> Amount:
    return _bounded_amount(parse_amount(text))


def _gib(text: str) -> Amount:
    return _bounded_amount(gib_amount(text))


def _bounded_amount(amount: Amount) -> Amount:
    _bounded(amount.bytes)
    return amount


def _truth(text: str) -> bool:
    return text.lower() in {"true", "1"}


def _text(text: str) -> str:
    return text.strip()


_ITEMS = r"[^()\[\]]*(?:\([^()]*\)[^()\[\]]*)*"

TYPES: Mapping[str, FieldType] = {
    "int": FieldType(r"-?\d{1,3}(?:,\d{3})+(?!\d)|-?\d+", _integer),
    "float": FieldType(_NUMBER, _number),
    "seconds": FieldType(_NUMBER, _number),
    "percent": FieldType(_NUMBER, _number),
    "bytes": FieldType(rf"-?{_DIGITS} (?:[KMGT]iB|B)", _bytes),
    "gib": FieldType(rf"-?{_DIGITS}", _gib),
    "count_bytes": FieldType(r"\d+", _count_bytes),
    "str": FieldType(r".+?", _text),
    "maybe": FieldType(r".*?", _text),
    "word": FieldType(r"\S+", _text),
    "name": FieldType(r"[A-Za-z_]\w*", _text),
    "env": FieldType(r"[A-Z][A-Z0-9_]*", _text),
    "phase": FieldType(r"[A-Za-z][A-Za-z0-9_/() ]*", phase_name),
    "clock": FieldType(r"\d+:\d\d(?::\d\d)?", clock_seconds),
    "tuple": FieldType(rf"\({_ITEMS}(?:\({_ITEMS}\)[^()\[\]]*)*\)", shapes),
    "bucket_list": FieldType(r"\[[^\[\]]*\]?", _bucket_list),
    "dims_config": FieldType(
        r"\[(?:-?\d+(?:, ?-?\d+)*)?\]|\(-?\d+(?:, ?-?\d+)*,?\)", shapes
    ),
    "nested": FieldType(r"\[.*\]", shapes),
    "bar": FieldType(r"[ #0-9\u2588-\u258f]*", _text),
    "bool": FieldType(r"[Tt]rue|[Ff]alse|[01]", _truth),
}
"""Every type by its name.

``seconds`` and ``percent`` stay as printed; ``gib`` is the number of a "took X GB" line;
``maybe`` is text that may be empty; ``count_bytes`` is a bare count of bytes.
"""

NUMBERS = frozenset(
    {
        *("int", "float", "seconds", "percent", "bytes", "gib", "count_bytes", "bool"),
        *("clock", "dims_config", "bar"),
    }
)
"""The types that are numbers, alone or in a tuple, or a bar: nobody's words are in one."""
