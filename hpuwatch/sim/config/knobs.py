"""The environment as the plugin reads it, bad values included.

Boolean variables are true for ``true t 1 yes y on`` and false for everything else, typos
included.  A bad reserve is a warning; a bad strategy or bucket number ends the engine with
the exception that :class:`KnobError` carries.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from hpuwatch.gaudi.planning import RESERVE, ratio_of
from hpuwatch.gaudi.releases import NEWEST
from hpuwatch.gaudi.spans import point_of

STRATEGIES = ("exp", "lin", "pad")
DEFAULT_RESERVE = ratio_of(None, point_of(NEWEST))

_TRUE = {"true", "t", "1", "yes", "y", "on"}
_AXES = {
    "PROMPT_BS": ("MIN", "STEP", "MAX"),
    "PROMPT_SEQ": ("MIN", "STEP", "MAX"),
    "PROMPT_QUERY": ("MIN", "STEP", "MAX"),
    "PROMPT_CTX": ("MIN", "STEP", "MAX"),
    "DECODE_BS": ("MIN", "STEP", "MAX"),
    "DECODE_BLOCK": ("MIN", "STEP", "MAX"),
}
BUCKET_VARIABLES = tuple(
    f"VLLM_{axis}_BUCKET_{part}" for axis, parts in _AXES.items() for part in parts
)


class KnobError(Exception):
    """A value that the plugin dies of; the message is ``Type: text`` as it prints it."""


@dataclass(frozen=True, slots=True)
class Knobs:
    """What the environment decides.

    Attributes:
        reserve: VLLM_GRAPH_RESERVED_MEM, a share of usable memory.
        reserve_was_bad: it was no number, so the default holds.
        strategy: how buckets are made.
        strategy_overruled: what VLLM_EXPONENTIAL_BUCKETING replaced, or None.
        max_prefill_seqs: prompts in one prefill.
        bucket_env: the bucket variables that are set.
        flags: the variables that the log's ``User flags`` block shows, in its order.
        recipe_cache: PT_HPU_RECIPE_CACHE_CONFIG as it stands.
    """

    reserve: float = DEFAULT_RESERVE
    reserve_was_bad: bool = False
    strategy: str = "exp"
    strategy_overruled: str | None = None
    contiguous_pa: bool = False
    skip_warmup: bool = False
    developer_mode: bool = False
    max_prefill_seqs: int = 1
    bucket_env: Mapping[str, str] | None = None
    flags: tuple[tuple[str, object], ...] = ()
    recipe_cache: str = ""


def is_true(text: str | None) -> bool:
    """Read a boolean variable as the plugin does."""
    return text is not None and text.strip().lower() in _TRUE


def read_knobs(env: Mapping[str, str]) -> Knobs:
    """Resolve the environment.

    Raises:
        KnobError: the strategy is unknown.
    """
    strategy, overruled = _strategy(env)
    reserve, bad = _reserve(env.get(RESERVE))
    bucket_env = {name: env[name] for name in BUCKET_VARIABLES if name in env}
    return Knobs(
        reserve=reserve,
        reserve_was_bad=bad,
        strategy=strategy,
        strategy_overruled=overruled,
        contiguous_pa=is_true(env.get("VLLM_CONTIGUOUS_PA")),
        skip_warmup=is_true(env.get("VLLM_SKIP_WARMUP")),
        developer_mode=is_true(env.get("VLLM_DEVELOPER_MODE")),
        max_prefill_seqs=_integer(env, "VLLM_PROMPT_BS_BUCKET_MAX", 1),
        bucket_env=bucket_env,
        flags=_flags(env, bucket_env),
        recipe_cache=env.get("PT_HPU_RECIPE_CACHE_CONFIG", ""),
    )


def check_bucket_numbers(env: Mapping[str, str]) -> None:
    """Refuse a bucket variable that is no integer, as the plugin does.

    Raises:
        KnobError: with the plugin's own exception text.
    """
    for name in BUCKET_VARIABLES:
        _integer(env, name, 0)


def unknown_to_core(env: Mapping[str, str]) -> tuple[str, ...]:
    """Return the plugin's variables, which vLLM's core warns that it doesn't know."""
    plugins = {
        *BUCKET_VARIABLES,
        RESERVE,
        "VLLM_SKIP_WARMUP",
        "VLLM_CONTIGUOUS_PA",
        "VLLM_BUCKETING_STRATEGY",
        "VLLM_EXPONENTIAL_BUCKETING",
        "VLLM_DEVELOPER_MODE",
        "VLLM_DEFRAG",
    }
    return tuple(name for name in env if name in plugins)


def _strategy(env: Mapping[str, str]) -> tuple[str, str | None]:
    strategy = env.get("VLLM_BUCKETING_STRATEGY", STRATEGIES[0])
    if strategy not in STRATEGIES:
        raise KnobError(
            f"ValueError: Invalid bucketing strategy: {strategy},"
            f" please choose from {list(STRATEGIES)}"
        )
    older = env.get("VLLM_EXPONENTIAL_BUCKETING")
    if older is None:
        return strategy, None
    return ("exp" if is_true(older) else "lin"), strategy


def _reserve(text: str | None) -> tuple[float, bool]:
    try:
        reserve = DEFAULT_RESERVE if text is None else float(text)
    except ValueError:
        return DEFAULT_RESERVE, True
    # The runtime would take "nan" and die in its arithmetic; the warning says more.
    return (reserve, False) if math.isfinite(reserve) else (DEFAULT_RESERVE, True)


def _integer(env: Mapping[str, str], name: str, default: int) -> int:
    try:
        return int(env.get(name, default))
    except ValueError:
        raise KnobError(
            f"RuntimeError: {name}: failed to process environment variable"
        ) from None


def _flags(
    env: Mapping[str, str], bucket_env: Mapping[str, str]
) -> tuple[tuple[str, object], ...]:
    switches = (
        "VLLM_DEVELOPER_MODE",
        "VLLM_SKIP_WARMUP",
        "VLLM_CONTIGUOUS_PA",
        "VLLM_EXPONENTIAL_BUCKETING",
    )
    shown: list[tuple[str, object]] = [
        (name, is_true(env[name])) for name in switches if name in env
    ]
    if "VLLM_BUCKETING_STRATEGY" in env:
        shown.append(("VLLM_BUCKETING_STRATEGY", env["VLLM_BUCKETING_STRATEGY"]))
    shown += bucket_env.items()
    shown.append(("PT_HPU_WEIGHT_SHARING", env.get("PT_HPU_WEIGHT_SHARING", "0")))
    return tuple(shown)
