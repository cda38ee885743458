"""What the environment decides, as the release understands it.

Everything is read once, before the first line is printed.  Nothing raises: a value that the
real server dies of is kept with the stage of the start at which it is noticed, and
:meth:`Knobs.check` raises it there.  So do settings that can't go together, and those of the
command line that vLLM takes and dies of (``refusals``).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from hpuwatch.gaudi.spans import Point, covers
from hpuwatch.sim.config.core import unknown_to_core
from hpuwatch.sim.config.options import Options
from hpuwatch.sim.config.reading import KnobError
from hpuwatch.sim.config.refusals import refusals, refuse_unsimulated
from hpuwatch.sim.config.resolving import DEFAULT_RESERVE, resolve
from hpuwatch.sim.config.variables import (
    BUCKETS,
    FRONT,
    IMPORT,
    SPLIT,
    Variable,
    variables,
)
from hpuwatch.sim.talk.manner import Manner

__all__ = ["KnobError", "Knobs", "Warned", "heeds", "read_knobs"]

_STRATEGIES = {
    "exp": "ExponentialBucketingStrategy",
    "lin": "LinearBucketingStrategy",
    "pad": "PaddingAwareBucketingStrategy",
}
_REPLACED = {
    "half": "torch.float16",
    "float16": "torch.float16",
    "float": "torch.float32",
    "float32": "torch.float32",
}
"""Types of weights that the plugin replaces by bfloat16, as it names them."""


@dataclass(frozen=True, slots=True)
class Warned:
    """A line that a setting causes: its name in the release's lines, and its values."""

    stage: str
    line: str
    values: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Knobs:
    """What the environment decides.

    Attributes:
        reserve: VLLM_GRAPH_RESERVED_MEM, a share of usable memory.
        prompt_ratio: the share of the graphs' budget for prompts, in forks that have one.
        prompt_graph_order: in which order prompt graphs are captured: ``min_tokens`` or
            ``max_bs``; ``decode_graph_order`` the same for decodes.
        tensor_cache: whether graphs keep a cache of their input tensors.
        compact_gdn: as set; None leaves it to the model, as with ``hybrid_cache``.
        strategy: how buckets are made: ``exp``, ``lin``, ``pad`` or ``file``.
        bucketing: whether shapes are padded at all.
        bucket_env: the variables that the lists hang on, those that are set and known.
        bucket_file: the text of the bucket file, None without one.
        prefix_caching: whether blocks are reused, contiguous attention considered.
        max_prefill_seqs: prompts in one prefill.
        multimodal_buckets: numbers of patches, None for the model's own.
        lazy: graphs of the bridge's lazy mode; else eager mode with torch.compile.
        compile_only: warm-up compiles without running.
        fsdpa_slices: long prompts' fused attention runs in slices.
        flags: the variables that the log's ``User flags`` block shows, in its order.
        unknown_variables: those that vLLM's core warns that it doesn't know.
        warnings: the lines that settings cause.
        deaths: what the server dies of, by stage.
    """

    reserve: float = DEFAULT_RESERVE
    prompt_ratio: float = 0.3
    prompt_graph_order: str = "min_tokens"
    decode_graph_order: str = "max_bs"
    tensor_cache: bool = False
    compact_gdn: bool | None = None
    hybrid_cache: bool | None = None
    strategy: str = "exp"
    bucketing: bool = True
    bucket_env: Mapping[str, str] = dataclasses.field(default_factory=dict)
    bucket_file: str | None = None
    merged_prefill: bool = False
    contiguous_pa: bool = False
    prefix_caching: bool = True
    max_prefill_seqs: int = 1
    defrag: bool = False
    defrag_threshold: int = 32
    multimodal_buckets: tuple[int, ...] | None = None
    multimodal_resolutions: tuple[str, ...] = ()
    lazy: bool = False
    sliced_sdpa: bool = False
    slice_tokens: int = 1024
    slice_from_tokens: int = 8192
    fsdpa_slices: bool = False
    regional_compilation: bool = True
    dynamic_shapes: bool = True
    fullgraph: bool = False
    row_parallel_chunks: int = 1
    row_parallel_from_tokens: int = 8192
    skip_warmup: bool = False
    full_warmup: bool = False
    compile_only: bool = True
    mm_warmup_executes: bool = False
    recipe_cache: str = ""
    gc_details: bool = False
    step_compilations: bool = False
    step_compilations_all: bool = False
    step_fallbacks_all: bool = False
    profiler: bool = False
    developer_mode: bool = False
    logging_level: str = "INFO"
    logging_prefix: str = ""
    logging_stream: str = "stdout"
    logging_color: str = "auto"
    configure_logging: bool = True
    no_color: bool = False
    stats_seconds: float = 10.0
    flags: tuple[tuple[str, object], ...] = ()
    unknown_variables: tuple[str, ...] = ()
    warnings: tuple[Warned, ...] = ()
    deaths: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def check(self, stage: str) -> None:
        """Die of what the real server dies of at this stage of the start.

        Raises:
            KnobError: with its exception's last line, or lines.
        """
        if stage in self.deaths:
            raise KnobError(self.deaths[stage])

    @property
    def manner(self) -> Manner:
        """How the server logs."""
        return Manner(
            level=self.logging_level,
            prefix=self.logging_prefix,
            stream=self.logging_stream.rpartition(".")[2] or None,
            colour=self.logging_color,
            no_color=self.no_color,
            configured=self.configure_logging,
        )

    @property
    def reaches_card(self) -> bool:
        """Whether the front end lets the server come so far as to look at a card."""
        return IMPORT not in self.deaths and FRONT not in self.deaths

    def warned(self, stage: str) -> Iterator[Warned]:
        """Return the lines that settings cause at this stage."""
        return (warned for warned in self.warnings if warned.stage == stage)


def heeds(name: str, at: Point) -> bool:
    """Tell whether a release acts on an environment variable."""
    variable = variables().get(name)
    return variable is not None and variable.acts(at)


def read_knobs(options: Options) -> Knobs:
    """Resolve the environment of a server.

    Raises:
        ConfigError: it asks for something that can't be simulated.
    """
    reading = _Reading(options)
    reading.all()
    values = resolve(reading.values, reading.texts, options)
    refuse_unsimulated(options, values)
    known = {name: value for name, value in values.items() if name in _FIELDS}
    return Knobs(
        **known,
        flags=_user_flags(reading.texts, values, options.point),
        unknown_variables=unknown_to_core(options.env, options.point),
        warnings=tuple(_warnings(options, values)),
        deaths={**refusals(options, values), **reading.deaths},
    )


_FIELDS = frozenset(field.name for field in dataclasses.fields(Knobs))


class _Reading:
    """One pass over the table: values by field, what was understood by name, and deaths."""

    def __init__(self, options: Options) -> None:
        self._env = options.env
        self._at = options.point
        self.values: dict[str, Any] = {}
        self.texts: dict[str, object] = {}
        self.deaths: dict[str, str] = {}

    def all(self) -> None:
        """Read every variable that the release looks at."""
        for variable in variables().values():
            if variable.field:
                self.values.setdefault(variable.field, variable.without(self._at))
            if variable.name in self._env and self._looks_at(variable):
                self._one(variable)

    def _looks_at(self, variable: Variable) -> bool:
        """Tell whether it is read; fork-1.21 reads the bounds of one strategy only."""
        if variable.under and covers("fork-1.21", self._at):
            wanted = "exp" if self.values["exponential"] else "lin"
            return variable.under == wanted
        return variable.is_read(self._at)

    def _one(self, variable: Variable) -> None:
        name = variable.name
        try:
            value = variable.read(name, self._env[name], self._at)
        except KnobError as error:
            self.deaths.setdefault(variable.stage, str(error))
            return
        self.texts[name] = value
        if variable.field and variable.acts(self._at):
            self.values[variable.field] = value


def _user_flags(
    understood: Mapping[str, object], values: Mapping[str, Any], at: Point
) -> tuple[tuple[str, object], ...]:
    """Return what the log lists as set by the user; the platform itself sets two of them."""
    shown = dict(understood)
    if not at.is_v0:
        shown.setdefault("PT_HPU_WEIGHT_SHARING", "0")
        if not values["lazy"]:
            shown.setdefault("RUNTIME_SCALE_PATCHING", "1")
    return tuple(
        (variable.name, shown[variable.name])
        for variable in variables().values()
        if variable.name in shown and variable.is_shown(at)
    )


def _warnings(options: Options, values: Mapping[str, Any]) -> Iterator[Warned]:
    at = options.point
    if values["caching_turned_off"]:
        yield Warned(FRONT, "contiguous_pa", {})
    if not at.is_v0 and options.dtype in _REPLACED:
        yield Warned(FRONT, "dtype_replaced", {"dtype": _REPLACED[options.dtype]})
    if values["start_method"] == "fork":
        yield Warned(FRONT, "fork_start_method_forced", {})
    if covers("fork-1.21.2..1.23", at) and options.num_scheduler_steps > 1:
        yield Warned(FRONT, "v1_fallback", {"feature": "--num-scheduler-steps"})
    if values["reserve_was_bad"]:
        yield Warned(SPLIT, "bad_reserve", {"default": values["reserve"]})
    yield from _bucket_warnings(options, values)


def _bucket_warnings(options: Options, values: Mapping[str, Any]) -> Iterator[Warned]:
    overruled, strategy = values["strategy_overruled"], values["strategy"]
    if overruled is not None:
        yield Warned(BUCKETS, "strategy_deprecated", {})
    if overruled not in {None, strategy}:
        told = {
            "strategy": _STRATEGIES[overruled],
            "new_strategy": _STRATEGIES[strategy],
            "value": options.env["VLLM_EXPONENTIAL_BUCKETING"],
        }
        yield Warned(BUCKETS, "strategy_overruled", told)
    first = values["bucket_env"].get("VLLM_PROMPT_QUERY_BUCKET_MIN", "0")
    honours_one = covers("plugin-0.13..", options.point) and strategy == "exp"
    if honours_one and int(first) == 1:
        yield Warned(BUCKETS, "query_min_one", {})
