"""How the runtime reads an environment variable: truth, integers, and an axis of them."""

from __future__ import annotations

from collections.abc import Mapping

from hpuwatch.gaudi.model import BucketError
from hpuwatch.gaudi.ranges import Axis, PaddedAxis

_TRUE = frozenset({"true", "t", "1", "yes", "y", "on"})


_MULTIPLES = {
    **{letter: 1000**power for power, letter in enumerate("kmg", start=1)},
    **{letter: 1024**power for power, letter in enumerate("KMG", start=1)},
}


def is_true(text: str) -> bool:
    """Tell whether the runtime takes ``text`` for true; typing errors are false."""
    return text.lower() in _TRUE


def integer(env: Mapping[str, str], name: str, default: int) -> int:
    """Return the integer in variable ``name``, or ``default`` where it isn't set.

    Raises:
        BucketError: the value is not an integer.
    """
    if name not in env:
        return default
    try:
        return int(env[name])
    except ValueError as error:
        raise BucketError(
            f"{name}={env[name]!r} is not an integer; set a whole number or unset it.",
            words=str(error),
        ) from None


def flag_number(text: str) -> int | None:
    """Return a whole number as vLLM's flags take it, None for anything else.

    ``32k`` is 32,000 and ``32K`` 32,768; so for m and g.
    """
    multiple = _MULTIPLES.get(text[-1:])
    try:
        return int(text) if multiple is None else int(float(text[:-1]) * multiple)
    except (ValueError, OverflowError):
        return None


def _read(env: Mapping[str, str], axis: str, part: str, default: int) -> int:
    """Read one number of ``axis``; a QUERY that isn't set falls back to SEQ."""
    name = f"VLLM_{axis}_BUCKET_{part}"
    if axis == "PROMPT_QUERY" and name not in env:
        name = f"VLLM_PROMPT_SEQ_BUCKET_{part}"
    return integer(env, name, default)


def read_axis(env: Mapping[str, str], axis: str, default: Axis) -> Axis:
    """Read ``VLLM_<axis>_BUCKET_{MIN,STEP,MAX}`` over the defaults."""
    return Axis(
        _read(env, axis, "MIN", default.minimum),
        _read(env, axis, "STEP", default.step),
        _read(env, axis, "MAX", default.maximum),
    )


def read_padded(env: Mapping[str, str], axis: str, default: PaddedAxis) -> PaddedAxis:
    """Read the five variables of ``axis`` over the defaults."""
    return PaddedAxis(
        *read_axis(env, axis, Axis(*default[:3])),
        _read(env, axis, "PAD_MAX", default.pad_max),
        _read(env, axis, "PAD_PERCENT", default.pad_percent),
    )
