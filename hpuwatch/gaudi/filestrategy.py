"""Buckets from a file: one tuple (batch, query, context) a line.

Each member is a number, a list or ``range(…)``; a line stands for every combination.  A
query of 1 makes decode buckets, anything else prompt buckets.  Releases up to 0.16
evaluate a line and pass over what they don't understand; later ones only read literals,
and stop at what they don't understand.

The text is parsed, never executed.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from itertools import product

from hpuwatch.gaudi import plugin
from hpuwatch.gaudi.grammar import PluginDialect
from hpuwatch.gaudi.model import PROMPT, Bucket, BucketError, BucketSettings
from hpuwatch.gaudi.ranges import check_size

_LONGEST_RANGE = 10_000
_OPERATORS: dict[type[ast.operator], Callable[[object, object], object]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}


class _Bad(Exception):  # noqa: N818  a line that the runtime doesn't understand
    pass


def file_buckets(s: BucketSettings, d: PluginDialect, phase: str) -> list[Bucket]:
    """Return the buckets of ``phase`` that the bucket file names, filtered and sorted.

    Raises:
        BucketError: a line stops the server, or nothing is left for the phase.
    """
    wanted = [
        bucket
        for bucket in read_file(s.bucket_file or "", d)
        if (bucket.query != 1) == (phase == PROMPT)
    ]
    if not wanted and d.long_context:
        # The long-context rule looks for the largest context of an empty list.
        raise BucketError(
            f"The bucket file has no line for {phase}; add one, such as "
            f"{'(1, 128, 0)' if phase == PROMPT else '(1, 1, 128)'}.",
        )
    if phase == PROMPT:
        return plugin.finished_prompts(s, d, wanted)
    return plugin.finished_decodes(s, d, wanted)


def read_file(text: str, d: PluginDialect) -> list[Bucket]:
    """Return every bucket that the file names, in its order.

    Raises:
        BucketError: a line stops the server; says which and why.
    """
    buckets: list[Bucket] = []
    for number, line in enumerate(text.splitlines(), start=1):
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        try:
            axes = _axes(stripped, evaluates=d.file_evaluates)
        except _Bad as bad:
            if d.file_evaluates:
                continue
            raise BucketError(
                f"Line {number} of the bucket file ({stripped}) {bad}; this release "
                "does not skip such a line but stops with an AttributeError.",
                "AttributeError",
            ) from None
        check_size(*(len(axis) for axis in axes))
        buckets += (_bucket(values, number, stripped) for values in product(*axes))
    return buckets


def _axes(line: str, *, evaluates: bool) -> list[list[object]]:
    try:
        tree = ast.parse(line, mode="eval")
    except (SyntaxError, ValueError):
        raise _Bad("is no valid expression") from None
    value = _value(tree.body, evaluates=evaluates)
    if not isinstance(value, tuple) or len(value) != 3:
        raise _Bad("is not a tuple of batch, query and context")
    return [list(m) if isinstance(m, (list, range)) else [m] for m in value]


def _bucket(values: tuple[object, ...], number: int, line: str) -> Bucket:
    try:
        batch, query, context = (int(value) for value in values)  # type: ignore[call-overload]  # what is no number raises
    except (TypeError, ValueError) as error:
        raise BucketError(
            f"Line {number} of the bucket file ({line}) holds a value that is no "
            "number; use whole numbers, lists of them, or range(…).",
            type(error).__name__,
        ) from None
    return Bucket(batch, query, context)


def _value(node: ast.expr, *, evaluates: bool) -> object:
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Tuple(elts=members) | ast.List(elts=members):
            values = [_value(member, evaluates=evaluates) for member in members]
            return values if isinstance(node, ast.List) else tuple(values)
        case ast.Set() | ast.Dict():
            return {}  # a literal, and no number
        case ast.Call(func=ast.Name(id="range"), args=args, keywords=[]):
            values = [_value(argument, evaluates=evaluates) for argument in args]
            return _range(values, evaluates=evaluates)
        case ast.BinOp() if evaluates:
            return _computed(node)
        case ast.UnaryOp():
            return _signed(node, evaluates=evaluates)
        case _:
            raise _Bad("holds an expression that is not allowed")


def _signed(node: ast.UnaryOp, *, evaluates: bool) -> object:
    number = _value(node.operand, evaluates=evaluates)
    match node.op, number:
        case ast.USub(), int() | float():
            return -number
        case ast.UAdd(), int() | float():
            return number
        case _:
            raise _Bad("holds a sign that belongs to no number")


def _range(args: list[object], *, evaluates: bool) -> object:
    numbers = [a for a in args if isinstance(a, int)]
    least = 1 if evaluates else 2
    if len(numbers) != len(args) or not least <= len(args) <= 3:
        raise _Bad("has a range with other arguments than two or three whole numbers")
    try:
        values = range(*numbers)
    except ValueError:
        raise _Bad("has a range with a step of 0") from None
    if evaluates:
        return values
    if len(values) > _LONGEST_RANGE:
        raise _Bad(f"has a range of more than {_LONGEST_RANGE} values")
    return list(values)


def _computed(node: ast.BinOp) -> object:
    left = _value(node.left, evaluates=True)
    right = _value(node.right, evaluates=True)
    operation = _OPERATORS.get(type(node.op))
    if operation is None:
        raise _Bad("holds an operator that hpuwatch does not know")
    try:
        return operation(left, right)
    except (TypeError, ZeroDivisionError):
        raise _Bad("can't be computed") from None
