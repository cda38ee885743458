"""One-dimensional ranges: the values that one axis of the buckets may take.

The runtime computes them in IEEE doubles, and the rounding of the last bit decides some
values.  So the order of operations here is the runtime's: exponents are built as
``(1.0 / (count - 1)) * i``, then ``pow``, times the minimum, by the step, rounded up.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from hpuwatch.gaudi.model import HANG, TOO_MANY, BucketError

MOST = 1_000_000
"""Candidates for buckets that hpuwatch lists; the runtime has no such limit."""

_SKIP = "If you want to skip warmup, set VLLM_SKIP_WARMUP=true"


class Axis(NamedTuple):
    """The three numbers of a range."""

    minimum: int
    step: int
    maximum: int


class PaddedAxis(NamedTuple):
    """The five numbers of a padding-aware range: gaps in values and in percent."""

    minimum: int
    step: int
    maximum: int
    pad_max: int
    pad_percent: int


def log2_up(value: float) -> int:
    """Return the base-2 logarithm of ``value``, rounded up.

    Raises:
        BucketError: ``value`` is not positive, so that it has none.
    """
    if value <= 0:
        raise BucketError(
            f"An exponential range can't end at {value}; raise the batch, length or "
            "number of blocks that it comes from to 1 or more.",
            words="math domain error",
        )
    return math.ceil(math.log2(value))


def up_to(value: float, step: int) -> int:
    """Round ``value`` up to a multiple of ``step``."""
    return math.ceil(value / step) * step


def check_size(*lengths: int) -> None:
    """Refuse a product of ``lengths`` that is too large to list here.

    Raises:
        BucketError: it has more than ``MOST`` members.
    """
    size = math.prod(lengths)
    if size > MOST:
        raise BucketError(
            f"These settings name more than {MOST:,} candidates for buckets: hpuwatch "
            "doesn't make such a list; use greater steps or smaller maxima.",
            TOO_MANY,
        )


def linear(axis: Axis, *, zero_ends: bool = True) -> list[int]:
    """Return doublings of the minimum below the step, then multiples of the step.

    The maximum itself is no member unless it is a multiple.  With ``zero_ends`` a
    minimum of 0 is a value of its own, which comes last; without, it never ends.

    Raises:
        BucketError: the minimum is above the maximum, the step is 0, or no end.
    """
    minimum, step, maximum = axis
    if minimum > maximum:
        raise BucketError(
            f"The range {minimum}, {step}, {maximum} has its minimum above its "
            "maximum; lower the MIN or raise the MAX variable of this axis.",
            "AssertionError",
            f"Min. batch size cannot be greater than max. batch size. {_SKIP}",
        )
    if minimum < 0 or (minimum == 0 and not zero_ends):
        raise _endless(minimum, step, maximum)
    if minimum == maximum == 0:
        return [0]
    if step == 0:
        raise BucketError(
            f"The range {minimum}, 0, {maximum} has a step of 0; "
            "set the STEP variable of this axis to 1 or more.",
            words="range() arg 3 must not be zero",
        )
    check_size(abs(maximum // step))
    value = minimum or step
    values = {v for v in range(step, maximum + 1, step) if v >= value}
    while value < step and value <= maximum:
        values.add(value)
        value *= 2
    return sorted(values) + ([0] if minimum == 0 else [])


def _endless(*numbers: int) -> BucketError:
    return BucketError(
        f"The range {', '.join(map(str, numbers))} never ends in this release; "
        "set the MIN variable of this axis to 1 or more.",
        HANG,
    )


def exponential(
    axis: Axis,
    count: int,
    *,
    exact_end: bool,
    kept: tuple[int, ...] = (0, 1),
    clipped: bool = True,
) -> list[int]:
    """Return at most ``count`` values that grow by a constant factor.

    Each is rounded up to a multiple of the step.  A minimum in ``kept`` is a value of
    its own and the growth starts at the step.  With ``exact_end`` (contiguous paged
    attention) the last value is the maximum itself.  Unless ``clipped``, it may exceed
    the maximum by the rounding.
    """
    minimum, step, maximum = axis
    if count <= 1:
        return [maximum]
    values: set[int] = set()
    if minimum in kept:
        values.add(minimum)
        minimum = step
    for i in range(count):
        exact = minimum * math.pow(maximum / minimum, (1.0 / (count - 1)) * i)
        last = exact_end and i == count - 1
        values.add(maximum if last else up_to(exact, step))
    ordered = sorted(values)
    if clipped and ordered[-1] > maximum:
        ordered[-1] = maximum
    return ordered


def filled(axis: Axis, count: int, *, exact_end: bool, long: bool = False) -> list[int]:
    """Return ``count`` values, exponential, where doubles give way to unused neighbours.

    The rule of fork-1.21, fork-1.22 and plugin-0.10.  With ``long`` the upper half of
    the values is spaced evenly.

    Raises:
        BucketError: the minimum is 0, or there is one value where two are needed.
    """
    minimum, step, maximum = axis
    if count == 1:
        return [maximum]
    early = count // 2 if long else count
    if minimum == 0 or early <= 1:
        raise BucketError(
            f"This release can't space {count} values from {minimum} to {maximum} (it "
            "divides by zero); use a longer range, or a LIMIT of 4 or more.",
            "ZeroDivisionError",
            "float division by zero" if long or early <= 1 else "division by zero",
        )
    check_size(maximum // step)
    unused = set(range(minimum, maximum + 1, step))
    first = maximum / count if long else maximum
    values: set[int] = set()
    for i in range(early):
        exact = minimum * math.pow(first / minimum, (1.0 / (early - 1)) * i)
        value = maximum if exact_end and i == count - 1 else up_to(exact, step)
        if value in values:
            free = unused - values
            if not free:
                break
            value = min(free, key=lambda v: (abs(v - exact), v))
        values.add(value)
    late = count - early
    values.update(
        up_to(first + i * ((maximum - first) / late), step) for i in range(1, late + 1)
    )
    return sorted(values)


def padded(axis: PaddedAxis) -> list[int]:
    """Return values whose gaps keep the padding within two bounds.

    A gap is closed when it would waste more than ``pad_percent`` of a value or more than
    ``pad_max``.  The maximum is always a member.

    Raises:
        BucketError: the minimum is above the maximum, the step is not positive, or the
            percentage lies outside 0 to 50.
    """
    _check_padded(axis)
    minimum, step, maximum, pad_max, pad_percent = axis
    pad_max = pad_max or maximum
    values = [minimum]
    current = minimum
    while current <= maximum:
        last = values[-1]
        if current <= step:
            following = last * 2 if last else 1
            if following <= maximum:
                values.append(following)
        else:
            following = current + step
            gap = following - last - 1
            wide = gap / following > pad_percent / 100 or gap > pad_max
            if current != last and (wide or current % pad_max == 0):
                values.append(current)
        current = following
    if values[-1] != maximum:
        values.append(maximum)
    return values


def _check_padded(axis: PaddedAxis) -> None:
    if axis.minimum > axis.maximum:
        complaint = f"its minimum {axis.minimum} above its maximum {axis.maximum}"
        words = f"bucket_min cannot be greater than bucket_max. {_SKIP}"
    elif axis.step <= 0:
        complaint = f"the step {axis.step}, which must be positive"
        words = f"bucket_step must be positive, got: ({axis.step})"
    elif not 0 <= axis.pad_percent <= 50:
        complaint = f"the padding percentage {axis.pad_percent}, which must be 0 to 50"
        words = "pad_percent must be between 0 and 50 percentage points, got: "
        words += f"({axis.pad_percent})"
    elif axis.minimum < 0:
        raise _endless(*axis)
    else:
        check_size(axis.maximum // axis.step)
        return
    raise BucketError(
        f"A padding-aware range has {complaint}; mend the variables of this axis.",
        "AssertionError",
        words,
    )
