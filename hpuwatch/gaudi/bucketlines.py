"""The lines of a bucket file, as the runtime understands them.

Each line is a tuple (batch, query, context) whose members are numbers, lists, or
``range(…)``; it stands for every combination.  Releases up to 0.16 evaluate a line as an
expression and pass over what fails; later ones only read literals and whole-numbered
ranges, and stop at what they don't understand.

The text is parsed, never executed.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import Literal

from hpuwatch.gaudi.grammar import PluginDialect
from hpuwatch.gaudi.model import Bucket, BucketError
from hpuwatch.gaudi.ranges import check_size

Fate = Literal["read", "skipped", "stops"]

_LONGEST_RANGE = 10_000
_MOST_BITS = 64  # of a computed number; whatever is larger is no bucket
_PLAIN = re.compile(r"-?\d+")
_MEANT = re.compile(r"\s*\(\s*(?:\d|range\b|\[)")
_OPERATORS: dict[type[ast.operator], Callable[[int | float, int | float], object]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}
_DEFERRED = (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


@dataclass(frozen=True, slots=True)
class FileLine:
    """What becomes of one line of a bucket file that is neither empty nor a comment.

    Attributes:
        number: of the line in the file, from 1.
        text: the line without the white space around it.
        buckets: what it names, in its order; may hold duplicates.
        fate: it is read; or skipped with a word in the log; or stops the server.
        why: what is wrong with it, to be read after "the line"; empty where it is read.
        raised: the exception that stops the server; ``unknown`` where hpuwatch can't tell
            what the runtime makes of the line.
    """

    number: int
    text: str
    buckets: tuple[Bucket, ...] = ()
    fate: Fate = "read"
    why: str = ""
    raised: str = ""


class _Bad(Exception):  # noqa: N818  a line that the runtime doesn't understand
    pass


class _Stops(Exception):  # noqa: N818  a line that no release survives, or nobody knows
    def __init__(self, why: str, raised: str) -> None:
        super().__init__(why)
        self.raised = raised


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
        return FileLine(number, text, fate="stops", why=why, raised="AttributeError")
    except _Stops as stop:
        return FileLine(number, text, fate="stops", why=str(stop), raised=stop.raised)
    except RecursionError:
        why = "is nested more deeply than hpuwatch reads"
        return FileLine(number, text, fate="stops", why=why, raised="unknown")
    except BucketError:
        why = "stands for more buckets than a server can list; use greater steps"
        return FileLine(number, text, fate="stops", why=why, raised="HANG")
    return FileLine(number, text, buckets)


def _axes(text: str, *, evaluates: bool) -> list[list[object]]:
    value = _Reading(text, evaluates).value(_parsed(text))
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
        raise _Stops(why, type(error).__name__) from None
    return Bucket(batch, query, context)


@dataclass(frozen=True, slots=True)
class _Reading:
    """A line under way, and whether its release evaluates it."""

    text: str
    evaluates: bool

    def value(self, node: ast.expr) -> object:
        """Return what ``node`` stands for."""
        match node:
            case ast.Constant(value=value):
                return value
            case ast.Tuple(elts=members) | ast.List(elts=members):
                values = [self.value(member) for member in members]
                return values if isinstance(node, ast.List) else tuple(values)
            case ast.Set() | ast.Dict():
                return {}  # a literal, and no number
            case ast.Call(func=ast.Name(id="range"), args=args, keywords=[]):
                return self._range(args)
            case ast.UnaryOp():
                return self._signed(node)
            case ast.BinOp() if self.evaluates:
                return self._computed(node)
            case _:
                raise self._refusal(node)

    def _refusal(self, node: ast.expr) -> Exception:
        if not self.evaluates:
            return _Bad("holds an expression that is not allowed")
        parts = list(ast.walk(node))
        names = {part.id for part in parts if isinstance(part, ast.Name)}
        if names - {"range"} and not any(isinstance(p, _DEFERRED) for p in parts):
            return _Bad("names something that is not known there")
        return _Stops(
            "holds an expression that hpuwatch does not evaluate; write the numbers out",
            "unknown",
        )

    def _signed(self, node: ast.UnaryOp) -> object:
        number = self.value(node.operand)
        match node.op, number:
            case ast.USub(), int() | float():
                return -number
            case ast.UAdd(), int() | float():
                return number
            case _:
                raise _Bad("holds a sign that belongs to no number")

    def _range(self, args: list[ast.expr]) -> object:
        if not (self.evaluates or all(map(self._is_plain, args))):
            raise _Bad("has a range of something else than plain whole numbers")
        numbers = [n for n in map(self.value, args) if isinstance(n, int)]
        least = 1 if self.evaluates else 2
        if len(numbers) != len(args) or not least <= len(args) <= 3:
            raise _Bad(
                "has a range with other arguments than two or three whole numbers"
            )
        try:
            values = range(*numbers)
        except ValueError:
            raise _Bad("has a range with a step of 0") from None
        size = max(0, -((values.start - values.stop) // values.step))
        if self.evaluates:
            check_size(size)
            return values
        if size > _LONGEST_RANGE:
            raise _Bad(f"has a range of more than {_LONGEST_RANGE} values")
        return list(values)

    def _is_plain(self, node: ast.expr) -> bool:
        written = ast.get_source_segment(self.text, node) or ""
        return _PLAIN.fullmatch(written) is not None

    def _computed(self, node: ast.BinOp) -> object:
        left, right = self.value(node.left), self.value(node.right)
        operation = _OPERATORS.get(type(node.op))
        if (
            operation is None
            or not isinstance(left, (int, float))
            or not isinstance(right, (int, float))
        ):
            raise _Stops(
                "holds an operation that hpuwatch does not know; write the numbers out",
                "unknown",
            )
        if isinstance(node.op, ast.Pow) and abs(right) > _MOST_BITS:
            raise _Stops("holds a number too large for a bucket", "unknown")
        try:
            return operation(left, right)
        except (ZeroDivisionError, OverflowError):
            raise _Bad("can't be computed") from None


def looks_like_a_bucket(line: str) -> bool:
    """Tell whether a line is meant as one of a bucket file, right or wrong."""
    return _MEANT.match(line) is not None
