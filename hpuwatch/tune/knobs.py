"""Which settings can be tuned, and which of them the running strategy honours.

A setting that the release ignores is not offered: under the exponential strategy the step
variables change nothing (and the server doesn't say so), so there the two bucket settings
are the strategy itself and the batch of a prefill.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hpuwatch.errors import ConfigError, UsageError
from hpuwatch.gaudi.dialects import dialect_of
from hpuwatch.gaudi.grammar import PluginDialect
from hpuwatch.gaudi.releases import release_of
from hpuwatch.gaudi.variables import is_true
from hpuwatch.tune.facts import LEGACY_STRATEGY, RESERVE, STRATEGY

BUCKETS = "buckets"
FROM_FILE = "VLLM_BUCKETING_FROM_FILE"


@dataclass(frozen=True, slots=True)
class Knob:
    """A setting that can be tuned.

    Attributes:
        name: as ``--knobs`` spells it.
        variable: the environment variable that it sets.
        default: what holds where the variable isn't set.
        values: what it may be, ordered; empty for a ratio.
        strategies: bucketing strategies that honour it.
    """

    name: str
    variable: str
    default: str
    values: tuple[str, ...] = ()
    strategies: tuple[str, ...] = ("exp", "lin", "pad")


_BLOCK_STEPS = ("32", "64", "128", "256", "512", "1024")
KNOBS = (
    Knob("reserve", RESERVE, "0.1", strategies=("exp", "lin", "pad", "file")),
    Knob(
        "decode-block-step",
        "VLLM_DECODE_BLOCK_BUCKET_STEP",
        "128",
        _BLOCK_STEPS,
        ("lin", "pad"),
    ),
    Knob(
        "prompt-query-step",
        "VLLM_PROMPT_QUERY_BUCKET_STEP",
        "128",
        ("128", "256", "512", "1024"),
        ("lin", "pad"),
    ),
    Knob(
        "decode-batch-step",
        "VLLM_DECODE_BS_BUCKET_STEP",
        "32",
        ("4", "8", "16", "32", "64"),
        ("lin",),
    ),
    Knob("strategy", STRATEGY, "exp", ("exp", "lin", "pad")),
    Knob("prompt-batch-max", "VLLM_PROMPT_BS_BUCKET_MAX", "1", ("1", "2", "4", "8")),
)
_BY_NAME = {knob.name: knob for knob in KNOBS}
_PAIRS = {
    "exp": ("strategy", "prompt-batch-max"),
    "lin": ("decode-block-step", "prompt-query-step"),
    "pad": ("decode-block-step", "prompt-query-step"),
}


def strategy_of(environment: Mapping[str, str]) -> str:
    """Return the strategy that an environment asks for, by the rules since plugin-0.20."""
    if environment.get(FROM_FILE):
        return "file"
    if LEGACY_STRATEGY in environment:
        return "exp" if is_true(environment[LEGACY_STRATEGY]) else "lin"
    return environment.get(STRATEGY, "exp")


def check_release(knobs: Sequence[Knob], release: str) -> None:
    """Check that a release honours the knobs; one that we don't know may.

    Raises:
        UsageError: it ignores one of them.
    """
    try:
        dialect = dialect_of(release_of(release).dialect)
    except ConfigError:
        return
    plugin = isinstance(dialect, PluginDialect)
    honoured = {
        STRATEGY: dialect.strategy_rule == "named",
        "VLLM_PROMPT_QUERY_BUCKET_STEP": plugin,
        "VLLM_PROMPT_BS_BUCKET_MAX": plugin,
    }
    for knob in knobs:
        if not honoured.get(knob.variable, True):
            raise UsageError(
                f"release {release} ignores {knob.variable}: tune other settings"
            )


def choose_knobs(
    asked: Sequence[str], environment: Mapping[str, str], strategy: str
) -> tuple[Knob, ...]:
    """Return the knobs that ``--knobs`` names, all of them honoured under ``strategy``.

    ``buckets`` stands for the two bucket settings of the strategy.

    Raises:
        UsageError: a name is unknown, or the setting would change nothing.
    """
    names: list[str] = []
    for name in asked:
        names += _pair(strategy) if name == BUCKETS else [name]
    knobs = tuple(
        _honoured(name, environment, strategy) for name in dict.fromkeys(names)
    )
    if not knobs:
        raise UsageError(
            "--knobs names nothing to tune: give reserve, or reserve,buckets"
        )
    if len(knobs) > 1 and "strategy" in names and any("step" in n for n in names):
        raise UsageError(
            "--knobs can't vary the strategy and a step together: "
            "a step means nothing under exp"
        )
    return knobs


def _pair(strategy: str) -> list[str]:
    if strategy not in _PAIRS:
        raise UsageError(
            f"buckets can't be tuned here: they come from {FROM_FILE}, which no "
            "bucket variable changes"
        )
    return list(_PAIRS[strategy])


def _honoured(name: str, environment: Mapping[str, str], strategy: str) -> Knob:
    knob = _BY_NAME.get(name)
    if knob is None:
        known = ", ".join([*_BY_NAME, BUCKETS])
        raise UsageError(f"--knobs doesn't know {name!r}: choose from {known}")
    if strategy not in knob.strategies:
        offered = ", ".join(_PAIRS.get(strategy, ())) or "reserve only"
        raise UsageError(
            f"{knob.variable} changes nothing under the bucketing strategy "
            f"{strategy!r}: tune {offered}"
        )
    if name == "strategy" and LEGACY_STRATEGY in environment:
        raise UsageError(
            f"{STRATEGY} changes nothing while {LEGACY_STRATEGY} is set: unset that first"
        )
    return knob
