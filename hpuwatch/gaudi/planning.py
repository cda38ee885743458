"""A plan: what a server is to be started with, as far as it decides shapes and memory.

A plan is changed by :class:`Change`, one variable or flag at a time, under the names that
the server itself reads.  So what a log says, what an operator proposes and what a repair
does are all the same kind of thing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import ceil, isfinite

from hpuwatch.errors import ConfigError
from hpuwatch.gaudi.dialects import dialect_of
from hpuwatch.gaudi.knobs import KNOBS
from hpuwatch.gaudi.kvcache import KV_DTYPES
from hpuwatch.gaudi.model import BucketSettings
from hpuwatch.gaudi.releases import Release, release_of
from hpuwatch.gaudi.resolve import (
    EXPONENTIAL,
    FILE_VARIABLE,
    STRATEGY,
    Flags,
    default_sizes,
    resolve,
)
from hpuwatch.gaudi.spans import Point, point_of

RESERVE = "VLLM_GRAPH_RESERVED_MEM"
READY_TIMEOUT = "VLLM_ENGINE_READY_TIMEOUT_S"
READY_LIMIT = (
    "With several API servers that ends the start; with a single one vLLM 0.24 was measured "
    "not to mind (vllm-project/vllm issue 48031)."
)
"""What is known of that time-out, in a sentence.

Every public log of a server that it ended comes from one of several API servers; a single
one waits for the engine's own start first, which has no limit.  Public warm-ups of the plugin
of 634 to 3,000 s came through, with the limit at 600 s.
"""
UTILISATION = "--gpu-memory-utilization"

_CHOOSES = {
    "VLLM_CONTIGUOUS_PA": "contiguous_pa",
    STRATEGY: "strategy",
    EXPONENTIAL: "strategy",
    FILE_VARIABLE: "bucket_file",
}
"""A variable that decides what a flag of ours may stand in for: setting it ends that."""


@dataclass(frozen=True, slots=True)
class Change:
    """One variable or flag that is set anew.

    Attributes:
        name: a variable, or a flag with its dashes.
        value: None to unset it, so that the default holds again.
    """

    name: str
    value: str | None

    def __str__(self) -> str:
        """Return it as it is typed: ``NAME=1``, ``--flag 1`` or ``unset NAME``."""
        if self.value is None:
            return f"unset {self.name}"
        joint = " " if self.name.startswith("--") else "="
        return f"{self.name}{joint}{self.value}"


@dataclass(frozen=True, slots=True)
class Plan:
    """What a server is started with.

    Attributes:
        release_text: the release as it was given, with its patch.
        flags: what decides the buckets; its blocks and its token budget are filled in
            by :meth:`shapes`.
        env: the variables that are set.
        token_budget: ``--max-num-batched-tokens``, None for the release's default.
        utilisation_given: ``--gpu-memory-utilization``, a share of the free memory, None
            for the release's default.
        blocks_override: ``--num-gpu-blocks-override``.
        kv_cache_dtype: ``--kv-cache-dtype``.
        eager: ``--enforce-eager``: no graphs, and nothing is reserved for them.
        tensor_parallel: cards that the model is divided among.
    """

    release_text: str
    flags: Flags
    env: Mapping[str, str] = field(default_factory=dict)
    token_budget: int | None = None
    utilisation_given: float | None = None
    blocks_override: int | None = None
    kv_cache_dtype: str = "auto"
    eager: bool = False
    tensor_parallel: int = 1

    @property
    def release(self) -> Release:
        """The release, by the one table."""
        return release_of(self.release_text)

    @property
    def at(self) -> Point:
        """The same, to compare with ranges of releases."""
        return point_of(self.release_text)

    @property
    def tokens(self) -> int:
        """Return the tokens of a step."""
        if self.token_budget is not None:
            return self.token_budget
        dialect = dialect_of(self.release.dialect)
        sizes = default_sizes(dialect, self.flags.max_model_len)
        return sizes["max_num_batched_tokens"]

    @property
    def utilisation(self) -> float:
        """Return the share of the free memory that reserve and KV cache divide."""
        given = self.utilisation_given
        return default_utilisation(self.at) if given is None else given

    def shapes(self, num_blocks: int, dialect: str | None = None) -> BucketSettings:
        """Return what decides the buckets of a server with so many blocks.

        Args:
            num_blocks: KV blocks.
            dialect: rules to stand in for those of the release.

        Raises:
            BucketError: the server would stop at a variable or flag; says which.
        """
        flags = self.sized(num_blocks)
        return resolve(dialect or self.release.dialect, flags, self.env)

    def sized(self, num_blocks: int) -> Flags:
        """Return the flags with the blocks and the token budget filled in."""
        return replace(
            self.flags, num_blocks=num_blocks, max_num_batched_tokens=self.tokens
        )

    @property
    def reserve_ratio(self) -> float:
        """Return the share of the usable memory that is kept for graphs."""
        return 0.0 if self.eager else ratio_of(self.env.get(RESERVE), self.at)

    @property
    def divides_alike(self) -> tuple[object, ...]:
        """Return what decides the blocks: plans where it is equal have equally many."""
        flags = self.flags
        sizes = (flags.block_size, self.blocks_override, self.kv_cache_dtype)
        return (self.utilisation, self.reserve_ratio, *sizes, self.tensor_parallel)

    @property
    def ready_seconds(self) -> int | None:
        """Return how long the front end may wait for the engine; None: for ever."""
        return ready_seconds(self.env, self.at)


def ready_seconds(env: Mapping[str, str], at: Point) -> int | None:
    """Return how long a release's front end may wait for the engine; None: for ever.

    Whether it gives up then is another matter, see ``READY_LIMIT``.  Text that is no number ends the start, so the default stands in for it.
    """
    if at.family != "plugin":
        return None
    knob = KNOBS[READY_TIMEOUT]
    text = env.get(READY_TIMEOUT, "") if knob.acts(at) else ""
    # Before the variable acted, its default was the fixed time.
    return int(text if text.isdigit() else knob.rows[0][1])


def patient_seconds(ready_after_seconds: float) -> int:
    """Return a time-out to advise: twice what a start takes, up to the next five minutes."""
    return max(1, ceil(2 * ready_after_seconds / 300)) * 300


def default_utilisation(at: Point) -> float:
    """Return the share of the free memory that a release takes unless it is told."""
    return float(KNOBS[UTILISATION].default(at) or KNOBS[UTILISATION].rows[0][1])


def ratio_of(text: str | None, at: Point) -> float:
    """Return the reserve that a release makes of its variable; the default of no number.

    Some releases stop at text that is no number; that is told by the table of knobs.  Where
    the release has no such variable the newest default stands in.
    """
    knob = KNOBS[RESERVE]
    default = float(knob.default(at) or knob.rows[0][1])
    try:
        ratio = default if text is None else float(text)
    except ValueError:
        return default
    return ratio if isfinite(ratio) else default


def _yes(text: str) -> bool:
    word = text.strip().lower()
    if word not in {"on", "true", "1", "yes", "off", "false", "0", "no"}:
        raise ValueError(word)
    return word in {"on", "true", "1", "yes"}


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError(text)
    return number


def _whole(text: str) -> int:
    number = int(text)
    if number < 0:
        raise ValueError(text)
    return number


def _cache_dtype(text: str) -> str:
    if text not in KV_DTYPES:
        raise ValueError(text)
    return text


def _strategy(text: str) -> str:
    if text not in {"exp", "lin", "pad"}:
        raise ConfigError(f"--strategy {text!r} is not exp, lin or pad")
    return text


_Reader = Callable[[str], object]
_SHAPE_FLAGS: dict[str, tuple[str, _Reader]] = {
    "--max-num-seqs": ("max_num_seqs", _count),
    "--max-model-len": ("max_model_len", _count),
    "--block-size": ("block_size", _count),
    "--max-num-prefill-seqs": ("max_num_prefill_seqs", _count),
    "--enable-prefix-caching": ("prefix_caching", _yes),
    "--num-speculative-tokens": ("num_speculative_tokens", _whole),
    "--mamba-chunk-size": ("mamba_chunk_size", _whole),
    "--strategy": ("strategy", _strategy),
    "--contiguous-pa": ("contiguous_pa", _yes),
}
_PLAN_FLAGS: dict[str, tuple[str, _Reader]] = {
    "--max-num-batched-tokens": ("token_budget", _count),
    UTILISATION: ("utilisation_given", float),
    "--num-gpu-blocks-override": ("blocks_override", _count),
    "--kv-cache-dtype": ("kv_cache_dtype", _cache_dtype),
    "--enforce-eager": ("eager", _yes),
    "--tensor-parallel-size": ("tensor_parallel", _count),
}
KNOWN_FLAGS = (*_SHAPE_FLAGS, *_PLAN_FLAGS)
"""The flags that decide shapes or memory; --strategy and --contiguous-pa are our own."""


def applied(plan: Plan, changes: Iterable[Change]) -> Plan:
    """Return the plan after some changes, one after the other.

    Raises:
        ConfigError: a flag is unknown here, or its value can't be read.
    """
    for change in changes:
        if change.name.startswith("-"):
            plan = _with_flag(plan, change)
        else:
            plan = _with_variable(plan, change)
    return plan


def _with_variable(plan: Plan, change: Change) -> Plan:
    env = {name: value for name, value in plan.env.items() if name != change.name}
    if change.value is not None:
        env[change.name] = change.value
    stand_in = _CHOOSES.get(change.name)
    flags = replace(plan.flags, **{stand_in: None}) if stand_in else plan.flags  # type: ignore[arg-type]  # each may be None
    return replace(plan, env=env, flags=flags)


def _with_flag(plan: Plan, change: Change) -> Plan:
    name, value = change.name, change.value
    if name.startswith("--no-"):
        name, value = f"--{name[5:]}", "false"
    if name in _SHAPE_FLAGS:
        news = _read(Flags, _SHAPE_FLAGS[name], change.name, value)
        return replace(plan, flags=replace(plan.flags, **news))  # type: ignore[arg-type]  # read by its row
    if name in _PLAN_FLAGS:
        news = _read(Plan, _PLAN_FLAGS[name], change.name, value)
        return replace(plan, **news)  # type: ignore[arg-type]  # likewise
    raise ConfigError(
        f"{change.name} decides neither shapes nor memory; known are "
        f"{', '.join(KNOWN_FLAGS)}"
    )


def _read(
    owner: type[Flags | Plan], row: tuple[str, _Reader], said: str, value: str | None
) -> dict[str, object]:
    """Return the field and its value; the default where the flag is unset."""
    name, reader = row
    if value is None:
        return {name: owner.__dataclass_fields__[name].default}
    try:
        return {name: reader(value)}
    except ValueError:
        raise ConfigError(f"{said} {value!r} can't be read as its value") from None
