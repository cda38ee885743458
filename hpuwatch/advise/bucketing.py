"""What moves a bucket range in the server of a log: a variable, a flag, or a file.

The exponential strategy makes its ranges from flags and heeds hardly any variable; which
ones act depends on the release too (``gaudi.heeded``).  Advice names only what acts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hpuwatch.errors import ConfigError
from hpuwatch.gaudi.dialects import dialect_of
from hpuwatch.gaudi.heeded import heeded
from hpuwatch.gaudi.model import BucketSettings
from hpuwatch.gaudi.resolve import FILE_VARIABLE, Flags, strategy_of
from hpuwatch.state.configured import acting_variables, printed_strategy, release
from hpuwatch.state.model import DECODE, PROMPT, Start, value_of

_VARIABLES = {
    (PROMPT, 0): ("VLLM_PROMPT_BS_BUCKET_MAX",),
    (PROMPT, 1): ("VLLM_PROMPT_QUERY_BUCKET_MAX", "VLLM_PROMPT_SEQ_BUCKET_MAX"),
    (PROMPT, 2): ("VLLM_PROMPT_CTX_BUCKET_MAX",),
    (DECODE, 0): ("VLLM_DECODE_BS_BUCKET_MAX",),
    (DECODE, 2): ("VLLM_DECODE_BLOCK_BUCKET_MAX",),
}
"""The variable that ends an axis, the newest spelling first, by phase and axis."""

_FLAGS = {
    (PROMPT, 0): ("--max-num-seqs",),
    (PROMPT, 1): ("--max-num-batched-tokens",),
    (PROMPT, 2): ("--max-model-len",),
    (DECODE, 0): ("--max-num-seqs",),
    (DECODE, 2): ("--max-num-seqs", "--max-model-len"),
}
"""The flags that end an axis where no variable does."""

Axis = tuple[str, int]
"""A phase and the place of a number in its buckets."""

_WORDS = {"exp": "exponential", "lin": "linear", "pad": "padding-aware", "file": "file"}


@dataclass(frozen=True, slots=True)
class Ranges:
    """How a server's bucket ranges are made.

    Attributes:
        strategy: ``exp``, ``lin``, ``pad`` or ``file``; None where nothing tells.
        acting: the bucket variables that act; None where nothing tells.
        switch: the setting that makes the ranges linear, where one does.
        reads_file: the release takes buckets from a file.
    """

    strategy: str | None = None
    acting: frozenset[str] | None = None
    switch: str | None = None
    reads_file: bool = False

    @property
    def word(self) -> str:
        """Return the strategy's name for a sentence."""
        return _WORDS.get(self.strategy or "", "unknown")

    def variable(self, phase: str, axis: int) -> str | None:
        """Return the variable that ends the axis, None where none acts."""
        names = _VARIABLES.get((phase, axis), ())
        if self.acting is None:
            return names[0] if names else None
        return next((name for name in names if name in self.acting), None)


def variable_of(phase: str, axis: int) -> str | None:
    """Return the newest name of the variable for the axis, whether or not it acts."""
    names = _VARIABLES.get((phase, axis), ())
    return names[0] if names else None


def flags_of(phase: str, axis: int) -> tuple[str, ...]:
    """Return the flags that the axis follows."""
    return _FLAGS.get((phase, axis), ())


def ranges_of(start: Start) -> Ranges:
    """Return how the server makes its bucket ranges, as far as its log tells."""
    found = release(start.server)
    if found is None:
        return Ranges(printed_strategy(start))
    env = {name: each.value for name, each in acting_variables(start.server).items()}
    dialect = dialect_of(found.dialect)
    listed = env.get(FILE_VARIABLE) if "file" in dialect.strategies else None
    try:
        flags = Flags(
            1, 1, 1, 1, bucket_file=listed or None, strategy=printed_strategy(start)
        )
        strategy = strategy_of(dialect, flags, env)
    except ConfigError:
        return Ranges(printed_strategy(start))
    longest = value_of(start.server.max_model_len) or 1
    settings = BucketSettings(
        max_num_seqs=1,
        max_num_batched_tokens=1,
        max_model_len=longest,
        num_blocks=1,
        dialect=dialect.name,
        strategy=strategy,
        env=env,
    )
    switches = {
        "named": "VLLM_BUCKETING_STRATEGY=lin",
        "legacy": "VLLM_EXPONENTIAL_BUCKETING=false",
        "literal": "VLLM_EXPONENTIAL_BUCKETING=false",
    }
    return Ranges(
        strategy=strategy,
        acting=heeded(settings),
        switch=switches.get(dialect.strategy_rule) if strategy == "exp" else None,
        reads_file="file" in dialect.strategies,
    )


def wider(
    start: Start, axes: Sequence[Axis]
) -> tuple[tuple[str, ...], dict[str, object]]:
    """Say how the ranges get wider, by what the server's strategy heeds."""
    words: dict[str, object] = {"file": FILE_VARIABLE}
    if not axes:
        return ("cure_between",), words
    ranges = ranges_of(start)
    if ranges.strategy == "file":
        return ("cure_file",), words
    acting = _distinct(ranges.variable(*axis) for axis in axes)
    vain = [axis for axis in axes if not ranges.variable(*axis)]
    words |= {
        "acting": " and ".join(acting),
        "vain": " and ".join(_distinct(variable_of(*axis) for axis in vain)),
        "flags": " and ".join(
            _distinct(flag for axis in vain for flag in flags_of(*axis))
        ),
        "strategy": ranges.word,
        "ways": _ways(ranges, vain),
    }
    cure = ["cure"] if acting else []
    if ranges.strategy is None:
        cure.append("cure_unknown")
    elif vain:
        cure.append("cure_vain")
    return tuple(cure), words


def _ways(ranges: Ranges, vain: Sequence[Axis]) -> str:
    """Say what helps where the variables of the axes are ignored."""
    names = " and ".join(_distinct(variable_of(*axis) for axis in vain))
    ways = []
    if ranges.switch:
        ways.append(f"set {ranges.switch} and raise {names}")
    if ranges.reads_file:
        ways.append(f"list the shapes in a bucket file ({FILE_VARIABLE})")
    ways.append("limit the requests")
    said = ", or ".join(ways)
    return f"{said[0].upper()}{said[1:]}"


def _distinct(names: Iterable[str | None]) -> list[str]:
    return list(dict.fromkeys(name for name in names if name is not None))
