"""The settings that a start ran with, under the names that people type.

A log shows some as they were given and some only by what came of them: the reserve by the
split of memory, the strategy by the form of the bucket ranges.  Here both stand side by
side, so that two starts can be compared and a proposal can be found again in a later one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hpuwatch.advise.figures import tightest
from hpuwatch.advise.lint.words import flag_name, of_command
from hpuwatch.errors import UsageError
from hpuwatch.gaudi.knob import PREFIXES
from hpuwatch.gaudi.knobs import named
from hpuwatch.gaudi.planning import RESERVE, UTILISATION, Change
from hpuwatch.gaudi.resolve import STRATEGY
from hpuwatch.parse.mask import mask_value
from hpuwatch.state.configured import acting_variables, printed_strategy
from hpuwatch.state.model import Known, Memory, Start

SKIP = "VLLM_SKIP_WARMUP"
_NO_SETTINGS = frozenset({"served_model_name"})
_MORE_FLAGS = frozenset({"--quantization", "--dtype"})
_UNSET = frozenset({"", "None"})
_ROUNDING = 0.002
"""Two numbers are one setting if they are that near: logs print four digits at most."""
_YES, _NO = (
    frozenset({"true", "1", "yes", "on", "t", "y"}),
    frozenset({"false", "0", "no", "off", "f", "n"}),
)


def printed(start: Start) -> dict[str, Known[str]]:
    """Return what a log shows to hold, by variable or flag, with the line that says so."""
    server, found = start.server, dict(acting_variables(start.server))
    for name, known in server.flags.items():
        if name.islower() and known.value not in _UNSET and name not in _NO_SETTINGS:
            found[f"--{name.replace('_', '-')}"] = known
    split = tightest(start)
    memory = split[1] if split else Memory()
    sizes: dict[str, Known[int] | Known[float] | None] = {
        "--max-model-len": server.max_model_len,
        "--max-num-seqs": server.max_num_seqs,
        "--max-num-batched-tokens": server.max_num_batched_tokens,
        "--block-size": server.block_size,
        "--tensor-parallel-size": server.tensor_parallel,
        UTILISATION: memory.utilisation,
        RESERVE: memory.reserve_ratio,
    }
    for name, size in sizes.items():
        if size is not None:
            found[name] = Known(
                f"{size.value:g}" if size.value < 1 else str(size.value), size.line
            )
    if start.warmup.skipped is not None:
        found.setdefault(SKIP, Known("true", start.warmup.skipped.line))
    return {name: found[name] for name in sorted(found)}


def in_force(start: Start) -> dict[str, str]:
    """Return the same without the lines, masked, with the strategy that the ranges show."""
    found = {name: known.value for name, known in printed(start).items()}
    strategy = printed_strategy(start)
    if strategy is not None:
        found.setdefault(STRATEGY, strategy)
    return _masked(found)


def given(command: Sequence[str], env: Mapping[str, str]) -> dict[str, str]:
    """Return what a server's process was given; values are masked.

    Args:
        command: its words.
        env: its environment, of which only the server's own variables count.
    """
    try:
        words = of_command(command)
    except UsageError:  # a shell's script that can't be read: its variables still count
        words = {}
    found = {name: value for name, value in env.items() if _is_ours(name)}
    found |= {name: each.value for name, each in words.items() if _is_ours(name)}
    return _masked(found)


def _is_ours(name: str) -> bool:
    """Tell whether a name is one of the server's settings that we know or may know.

    Of flags only known ones count: what others hold may be anything, keys included.
    """
    if name in _MORE_FLAGS:
        return True
    knob = named(name)
    if knob is not None:
        return not knob.internal
    return name.startswith(PREFIXES)


def _masked(settings: Mapping[str, str]) -> dict[str, str]:
    return {name: mask_value(name, settings[name]) for name in sorted(settings)}


def same_value(one: str, other: str) -> bool:
    """Tell whether two texts are one value: ``1`` and ``True``, ``0.40`` and ``0.4``."""
    if one == other:
        return True
    low, lower = one.strip().lower(), other.strip().lower()
    if low == lower or {low, lower} <= _YES or {low, lower} <= _NO:
        return True
    try:
        first, second = float(low), float(lower)
    except ValueError:
        return False
    return abs(first - second) <= _ROUNDING * max(abs(first), abs(second))


def changes_of(
    env: Mapping[str, str], flags: Sequence[str], unset: Sequence[str] = ()
) -> tuple[Change, ...]:
    """Return a proposal's settings as changes.

    Args:
        env: variables.
        flags: words of a command line; each flag has its value behind it.
        unset: what is to be taken away.
    """
    words = iter(flags)
    return (
        *(Change(name, value) for name, value in env.items()),
        *(Change(flag_name(name)[0], next(words, "true")) for name in words),
        *(Change(name, None) for name in unset),
    )
