"""The lines of a bucket file, as the runtime understands them.

Each line is a tuple (batch, query, context) whose members are numbers, lists, or
``range(…)``; it stands for every combination.  Releases up to 0.16 evaluate a line as an
expression and pass over what fails.  Later ones first put a list in place of each
``range(a, b)`` or ``range(a, b, c)`` that a pattern finds in the text, then read the line as
a literal, and stop at what is none.

The text is parsed, never executed.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any, Literal

from hpuwatch.gaudi.grammar import PluginDialect
from hpuwatch.gaudi.model import UNKNOWN, Bucket, BucketError
from hpuwatch.gaudi.ranges import MOST, check_size

Fate = Literal["read", "skipped", "stops", "unknown"]

_LONGEST_RANGE = 10_000
_NO_LOGGER = "'functools._lru_cache_wrapper' object has no attribute 'warning'"
_MOST_BITS = 64  # of an exponent; whatever is larger makes no bucket
_MOST_COMPUTED_BITS = 4096  # a number may be on its way to a smaller one
_NUMBER = r"\s*(-?\d+)\s*"
_RANGE = re.compile(rf"range\({_NUMBER},{_NUMBER}(?:,{_NUMBER})?\)")
_MEANT = re.compile(r"\s*\(\s*(?:\d|range\b|\[)")
_Number = int | float | complex
_OPERATORS: dict[type[ast.operator], Callable[[_Number, _Number], object]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}
_SIGNS: dict[type[ast.unaryop], Callable[[Any], object]] = {
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Invert: operator.invert,
    ast.Not: operator.not_,
}
_DEFERRED = (
    *(ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp),
    *(ast.IfExp, ast.BoolOp, ast.Compare),
)
"""Expressions that needn't look at each of their names."""


@dataclass(frozen=True, slots=True)
class FileLine:
    """What becomes of one line of a bucket file that is neither empty nor a comment.

    Attributes:
        number: of the line in the file, from 1.
        text: the line without the white space around it.
        buckets: what it names, in its order; may hold duplicates.
        fate: it is read; or skipped with a word in the log; or stops the server; or
            hpuwatch can't tell what the runtime makes of it.
        why: what is wrong with it, to be read after "the line"; empty where it is read.
        raised: as of :class:`BucketError`, and so are ``words``; empty where the server
            survives the line.
    """

    number: int
    text: str
    buckets: tuple[Bucket, ...] = ()
    fate: Fate = "read"
    why: str = ""
    raised: str = ""
    words: str = ""


class _Bad(Exception):  # noqa: N818  a line that the runtime doesn't understand
    pass


class _Stops(Exception):  # noqa: N818  a line that no release survives
    def __init__(self, why: str, error: Exception) -> None:
        super().__init__(why)
        self.raised, self.words = type(error).__name__, str(error)


class _Unknown(Exception):  # noqa: N818  a line that hpuwatch can't tell the fate of
    pass


def file_lines(text: str, dialect: PluginDialect) -> Iterator[FileLine]:
    """Yield the lines of a bucket file with what ``dialect`` makes of each.

    A line that stops the server is yielded like the others: the lines after it are what
    the runtime would find once it is mended.
    """
    for number, line in enumerate(text.split("\n"), start=1):
        stripped = line.strip()
        if stripped and not stripped.startswith("#"):
            yield _line(number, stripped, evaluates=dialect.file_evaluates)


def _line(number: int, text: str, *, evaluates: bool) -> FileLine:
    try:
        axes = _axes(text, evaluates=evaluates)
        check_size(*(len(axis) for axis in axes))
        buckets = tuple(_bucket(values) for values in product(*axes))
    except _Bad as bad:
        if evaluates:
            return FileLine(number, text, fate="skipped", why=str(bad))
        why = f"{bad}; this release does not skip such a line but stops with an error"
        return FileLine(number, text, (), "stops", why, "AttributeError", _NO_LOGGER)
    except _Stops as stop:
        why = str(stop)
        return FileLine(number, text, (), "stops", why, stop.raised, stop.words)
    except (_Unknown, RecursionError) as unknown:
        deep = isinstance(unknown, RecursionError)
        why = "is nested more deeply than hpuwatch reads" if deep else str(unknown)
        return FileLine(number, text, fate="unknown", why=why, raised=UNKNOWN)
    except BucketError as error:
        why = f"stands for more than {MOST:,} buckets, which hpuwatch doesn't list"
        return FileLine(number, text, fate="stops", why=why, raised=error.raised)
    return FileLine(number, text, buckets)


def _axes(text: str, *, evaluates: bool) -> list[list[object]]:
    value = _value(_parsed(text)) if evaluates else _literal(text)
    if not isinstance(value, tuple) or len(value) != 3:
        raise _Bad("is not a tuple of batch, query and context")
    return [list(m) if isinstance(m, (list, range)) else [m] for m in value]


def _parsed(text: str) -> ast.expr:
    try:
        return ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise _Bad("is no valid expression") from None


def _bucket(values: tuple[object, ...]) -> Bucket:
    try:
        batch, query, context = (int(value) for value in values)  # type: ignore[call-overload]  # what is no number raises
    except (TypeError, ValueError, OverflowError) as error:
        why = (
            "holds a value that is no number; use whole numbers, lists of them, or "
            "range(…)"
        )
        raise _Stops(why, error) from None
    return Bucket(batch, query, context)


def _literal(text: str) -> object:
    """Return what a newer release reads, which knows literals and ranges in their place."""
    listed = _RANGE.sub(_spelled_out, text)
    try:
        return ast.literal_eval(listed)
    except (SyntaxError, MemoryError):
        raise _Bad("is no valid expression") from None
    except (ValueError, TypeError):
        raise _Bad("holds an expression that is not allowed") from None


def _spelled_out(found: re.Match[str]) -> str:
    try:
        values = range(*(int(number) for number in found.groups() if number))
    except ValueError:
        raise _Bad("has a range with a step of 0") from None
    if _size(values) > _LONGEST_RANGE:
        raise _Bad(f"has a range of more than {_LONGEST_RANGE} values")
    return str(list(values))


def _size(values: range) -> int:
    """Return the length of a range of any size, where ``len`` overflows."""
    return max(0, -((values.start - values.stop) // values.step))


def _value(node: ast.expr) -> object:
    """Return what an expression stands for in a release that evaluates it."""
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Tuple(elts=members) | ast.List(elts=members):
            values = list(map(_value, members))
            return values if isinstance(node, ast.List) else tuple(values)
        case ast.Set() | ast.Dict() if all(map(_is_plain, ast.iter_child_nodes(node))):
            return {}  # a value, and no number
        case ast.Call(func=ast.Name(id="range"), args=args, keywords=[]):
            return _range(list(map(_value, args)))
        case ast.UnaryOp(op=sign, operand=operand):
            return _signed(sign, _value(operand))
        case ast.BinOp():
            return _computed(node)
        case _:
            raise _refusal(node)


def _is_plain(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant)


def _refusal(node: ast.expr) -> Exception:
    parts = list(ast.walk(node))
    names = {part.id for part in parts if isinstance(part, ast.Name)}
    if names - {"range"} and not any(isinstance(part, _DEFERRED) for part in parts):
        return _Bad("names something that is not known there")
    return _Unknown(
        "holds an expression that hpuwatch does not evaluate; write the numbers out"
    )


def _signed(sign: ast.unaryop, value: object) -> object:
    try:
        return _SIGNS[type(sign)](value)
    except TypeError:
        raise _Bad("holds a sign that belongs to no number") from None


def _range(args: list[object]) -> range:
    numbers = [number for number in args if isinstance(number, int)]
    if len(numbers) != len(args) or not 1 <= len(args) <= 3:
        raise _Bad("has a range with other arguments than one to three whole numbers")
    try:
        values = range(*numbers)
    except ValueError:
        raise _Bad("has a range with a step of 0") from None
    check_size(_size(values))
    return values


def _computed(node: ast.BinOp) -> object:
    left, right = _value(node.left), _value(node.right)
    operation = _OPERATORS.get(type(node.op))
    if (
        operation is None
        or not isinstance(left, _Number)
        or not isinstance(right, _Number)
    ):
        raise _Unknown(
            "holds an operation that hpuwatch does not know; write the numbers out"
        )
    if isinstance(node.op, ast.Pow) and abs(right) > _MOST_BITS:
        raise _Unknown("holds a number too large for a bucket")
    try:
        result = operation(left, right)
    except (ArithmeticError, TypeError):
        raise _Bad("can't be computed") from None
    if isinstance(result, int) and result.bit_length() > _MOST_COMPUTED_BITS:
        raise _Unknown("holds a number too large for a bucket")
    return result


def looks_like_a_bucket(line: str) -> bool:
    """Tell whether a line is meant as one of a bucket file, right or wrong."""
    return _MEANT.match(line) is not None
