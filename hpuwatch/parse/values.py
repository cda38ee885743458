"""The types that a placeholder of a rule may have: how they look and what they become.

``{free:bytes}`` in a pattern is matched by the type's regular expression and converted to a
value of :data:`hpuwatch.events.Value`.  A text that looks right and can't be converted (a
number too large for a float) counts as no match, so nothing here has to be feared.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from hpuwatch.events import Value
from hpuwatch.units import Amount, format_bytes, gib_amount, parse_amount

_DIGITS = r"\d+(?:\.\d+)?(?:[eE][+-]?\d+)?"
_NUMBER = rf"-?(?:{_DIGITS}|inf|nan)"
_NUMPY = re.compile(r"np\.\w+\((-?\d+(?:\.\d+)?)\)")
_INTEGERS_ONLY = re.compile(r"[\[\](),\s\d-]*")
_LITERAL_LIMIT = 20_000  # characters that the slow, general reader is given at most

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
    if _INTEGERS_ONLY.fullmatch(text):
        plain = text.replace("(", "[").replace(")", "]").replace(",]", "]")
        return _frozen(json.loads(plain))
    if len(text) > _LITERAL_LIMIT:
        raise ValueError("a list of this length must hold integers only")
    try:
        return _frozen(ast.literal_eval(text))
    except (SyntaxError, RecursionError, MemoryError, TypeError) as error:
        raise ValueError(f"{text[:40]!r} is no list") from error


def _frozen(value: object) -> tuple[Value, ...]:
    if not isinstance(value, (list, tuple)):
        raise ValueError(f"{value!r} is no list")  # noqa: TRY004  one error for bad text
    return tuple(
        _frozen(item) if isinstance(item, (list, tuple)) else _scalar(item)
        for item in value
    )


def _scalar(item: object) -> Value:
    if item is None or isinstance(item, (bool, int, float, str)):
        return item
    raise ValueError(f"{item!r} is neither number nor text")


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
    return float(seconds)


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
    return int(text.replace(",", "") if "," in text else text)


def _count_bytes(text: str) -> Amount:
    count = int(text)
    return Amount(count, format_bytes(count))


def _truth(text: str) -> bool:
    return text.lower() in {"true", "1"}


def _text(text: str) -> str:
    return text.strip()


_ITEMS = r"[^()\[\]]*(?:\([^()]*\)[^()\[\]]*)*"

TYPES: Mapping[str, FieldType] = {
    "int": FieldType(r"-?\d{1,3}(?:,\d{3})+(?!\d)|-?\d+", _integer),
    "float": FieldType(_NUMBER, float),
    "seconds": FieldType(_NUMBER, float),
    "percent": FieldType(_NUMBER, float),
    "bytes": FieldType(rf"-?{_DIGITS} (?:[KMGT]iB|B)", parse_amount),
    "gib": FieldType(rf"-?{_DIGITS}", gib_amount),
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
