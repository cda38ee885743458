"""What is known of the server, as frozen values.

A :class:`State` is a row of :class:`Start`; each start is one life of the server (or one
model switch within it).  Every figure is a :class:`Known`: the value and the line that said
so, since a report must be able to show what it rests on.  Memory figures are kept per rank,
because every rank prints its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Generic, TypeVar

from hpuwatch.life.phases import Phase
from hpuwatch.records import Line
from hpuwatch.units import Amount

T = TypeVar("T")

PROMPT = "prompt"
DECODE = "decode"
MULTIMODAL = "multimodal"

Shape = tuple[int, ...]
"""A bucket or a request's shape: (batch, query, blocks), or (batch, x) in old dialects."""


@dataclass(frozen=True, slots=True)
class Known(Generic[T]):
    """A value and the line that it rests on."""

    value: T
    line: Line


def value_of(known: Known[T] | None) -> T | None:
    """Return the value, None where nothing is known."""
    return known.value if known else None


@dataclass(frozen=True, slots=True)
class Server:
    """What the server is, as far as the log says."""

    version: Known[str] | None = None  # vLLM's own, as "0.26.0"
    build: Known[str] | None = None  # Gaudi software, as "1.24.0.460"
    engine: Known[str] | None = None  # "V0" or "V1"
    plugin: bool = False  # vllm-gaudi (else the fork or upstream)
    model: Known[str] | None = None
    card: Known[str] | None = None  # "gaudi", "gaudi2", "gaudi3"
    tensor_parallel: Known[int] | None = None
    pipeline_parallel: Known[int] | None = None
    bridge_mode: Known[str] | None = None  # "lazy" or "eager" (torch.compile)
    max_model_len: Known[int] | None = None
    max_num_seqs: Known[int] | None = None
    max_num_batched_tokens: Known[int] | None = None
    block_size: Known[int] | None = None  # --block-size, tokens
    range_block_size: Known[int] | None = None  # what a bucket range shows it to be
    strategy: Known[str] | None = None  # of bucketing: "exp", "lin" or "pad"
    features: Mapping[str, str] = field(default_factory=dict)  # the Features block
    flags: Mapping[str, Known[str]] = field(default_factory=dict)  # User flags, echoes
    simulated: bool = False  # hpuwatch sim says so in its log
    arguments: Line | None = None  # what repeats the flags of the command line
    address: Known[str] | None = None  # where it listens

    @property
    def served_name(self) -> str:
        """Return the name that vLLM labels its own metrics with, "" before it is known."""
        served = value_of(self.flags.get("served_model_name")) or ""
        return served.strip("'\"[]") or value_of(self.model) or ""


@dataclass(frozen=True, slots=True)
class Memory:
    """The memory ledger of one rank, bytes of device memory."""

    total: Known[Amount] | None = None
    weights: Known[Amount] | None = None
    profile_run: Known[Amount] | None = None
    free: Known[Amount] | None = None  # after weights and profile run
    utilisation: Known[float] | None = None  # gpu_memory_utilization
    usable: Known[Amount] | None = None
    reserve: Known[Amount] | None = None  # for graphs
    reserve_ratio: Known[float] | None = None  # VLLM_GRAPH_RESERVED_MEM
    dummy_block: Known[Amount] | None = None
    kv_cache: Known[Amount] | None = None
    kv_taken: Known[Amount] | None = None  # as the cache engine allocated it
    used_after_kv: Known[Amount] | None = None  # of the device, with KV allocated
    profile_seconds: float | None = None  # between two headers: weights, profile run

    def amounts(self) -> dict[str, Amount]:
        """Return what is known of it, by name, in the order in which a server settles it."""
        named = {
            "total": self.total,
            "weights": self.weights,
            "profile_run": self.profile_run,
            "free": self.free,
            "usable": self.usable,
            "reserve": self.reserve,
            "dummy_block": self.dummy_block,
            "kv_cache": self.kv_cache,
        }
        return {name: known.value for name, known in named.items() if known}


class BlocksFrom(IntEnum):
    """What a number of KV blocks rests on, the weakest first."""

    TOKENS = 1  # of the cache, by the block size
    ENGINE = 2  # as the engine counts them: "# HPU blocks"
    OVERRIDE = 3  # --num-gpu-blocks-override
    WORKER = 4  # as allocated: "Usable num_blocks"


@dataclass(frozen=True, slots=True)
class Kv:
    """The KV cache as the scheduler sees it; of several engines, the smallest."""

    blocks: Known[int] | None = None
    blocks_from: BlocksFrom | None = None
    tokens: Known[int] | None = None
    cpu_blocks: Known[int] | None = None
    max_concurrency: Known[float] | None = None
    fitting_len: Known[int] | None = None  # longest request that would fit, as printed
    wanted_len: Known[int] | None = None  # longest request that was to fit, as printed
    wanted: Known[Amount] | None = None  # what that request needs, as printed
    available: Known[Amount] | None = None  # what there was instead, as printed
    hybrid: bool = False  # some layers keep states instead, and took a share of it

    @property
    def block_size(self) -> int | None:
        """Return tokens per block where both figures are known and agree.

        They don't in hybrid models, whose tokens follow from the concurrency.
        """
        if self.blocks_from is BlocksFrom.TOKENS:
            return None
        if self.blocks and self.tokens and self.blocks.value:
            size, rest = divmod(self.tokens.value, self.blocks.value)
            return size if rest == 0 else None
        return None


@dataclass(frozen=True, slots=True)
class BucketList:
    """The buckets of one phase as the log lists them.

    ``shapes`` is empty where the list was cut or never printed; ``count`` then still holds.
    """

    count: int
    shapes: tuple[Shape, ...] = ()


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the warm-up of one phase has come."""

    done: int
    total: int
    elapsed_seconds: float | None = None  # as the bar prints it
    first_at: float | None = None  # received_at of the first sign of this phase
    last_at: float | None = None
    free: Known[Amount] | None = None  # free_mem of the newest bucket line
    first_free: Known[Amount] | None = None  # of bucket 1, rank 0
    capturing: bool = False  # V0's second pass, which captures graphs
    points: tuple[tuple[int, float], ...] = ()  # (done, seconds), the newest only
    steps: tuple[tuple[Shape, Amount], ...] = ()  # free before each, the first only


@dataclass(frozen=True, slots=True)
class Warmup:
    """The warm-up of one start."""

    skipped: Known[bool] | None = None
    seconds: Known[float] | None = None  # "Warmup finished in N secs"
    allocated: Known[Amount] | None = None
    init_seconds: Known[float] | None = None  # "init engine … took N s"
    sampler_seconds: float | None = None  # between its two lines, from their headers
    defragmenter_seconds: float | None = None  # likewise
    phase_seconds: Mapping[str, float] = field(default_factory=dict)  # likewise
    compile_only: bool | None = None  # False: "Cannot use PT_COMPILE_ONLY_MODE"
    compile_only_line: Line | None = None  # what said so
    progress: Mapping[str, Progress] = field(default_factory=dict)  # by phase
    budgets: Mapping[str, Known[Amount]] = field(
        default_factory=dict
    )  # for graphs, by phase; up to fork 1.21 it bounds them
    prompt_ratio: Known[float] | None = None  # VLLM_GRAPH_PROMPT_RATIO
    under_way: tuple[str, str] | None = None  # phase, header time of the newest bucket


@dataclass(frozen=True, slots=True)
class Miss:
    """A shape that traffic asked for and warm-up had not prepared.

    ``reason`` is ``not_warmed_up`` (a graph compiled while a user waited) or
    ``not_prepared`` (no bucket covers it; one was invented).  ``count`` says how often
    traffic asked for it: 0 for shapes of the start itself, as the profile run's.  An empty
    ``shape`` stands for all further ones of a storm.
    """

    phase: str
    reason: str
    shape: Shape
    line: Line
    count: int = 1


MissKey = tuple[str, str, Shape]
"""Phase, reason and shape of a miss."""

MissKind = tuple[str, str]
"""Phase and reason of a miss."""

FaultKind = tuple[str, str, bool]
"""Class and severity of a fault, and whether it is a cause."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Something broke.

    Attributes:
        name: the fault class, as ``device_oom_devmem`` (ids of rules/parse/faults.yaml).
        phase: where in its life the server was.
        severity: ``fatal``, ``error`` or ``warning``.
        root: False for a consequence ("EngineDeadError", or whatever else is fatal once
            the server has died of a cause), True for a cause: one death has one.
        wanted: bytes asked for, where printed.
        at: "prompt bucket 3 of 48", "profile run" or "KV cache allocation", where known.
        message: the exception's own words, where known.
        context: the last lines of its traceback, else what its process said before.
    """

    name: str
    phase: Phase
    severity: str
    line: Line
    rank: int | None = 0
    root: bool = True
    wanted: Amount | None = None
    at: str | None = None
    message: str = ""
    context: tuple[str, ...] = ()

    @property
    def kind(self) -> FaultKind:
        """Return what counters tell apart."""
        return self.name, self.severity, self.root


@dataclass(frozen=True, slots=True)
class Traffic:
    """What the engine's periodic lines tell of the load; None where no such line came."""

    lines: int = 0
    busy_lines: int = 0  # with requests running or tokens coming out
    waiting_lines: int = 0  # in a row up to now, with requests waiting
    waiting_lines_longest: int = 0
    stalled_lines: int = 0  # in a row up to now, with requests running and no token
    stalled_longest: Known[int] | None = None  # the most of them in a row
    kv_use_peak: Known[float] | None = None  # ratio 0 to 1
    running_peak: Known[int] | None = None
    waiting_peak: Known[int] | None = None
    preemptions: int = 0
    preempted: Known[int] | None = None  # the newest line that told of one
    preemptions_printed: bool = False  # a periodic line had a number, 0 included
    prompt_tokens_per_second_peak: Known[float] | None = None
    generation_tokens_per_second_peak: Known[float] | None = None


@dataclass(frozen=True, slots=True)
class Contradiction:
    """A figure that two lines of one rank give differently; the later one is kept.

    With a share it is a part that can't be that share of the first, both on one line, of
    which nothing is kept.
    """

    figure: str  # as Memory names it
    first: Known[Amount]
    then: Known[Amount]
    share: float | None = None


@dataclass(frozen=True, slots=True)
class Start:
    """One life of the server."""

    first_line: Line
    phase: Phase = Phase.STARTING
    phase_since: float | None = None  # received_at of the line that began the phase
    broke_in: Phase | None = None  # the phase in which it broke, once it has failed
    began_at: float | None = None  # received_at of first_line
    server: Server = field(default_factory=Server)
    memory: Mapping[int, Memory] = field(default_factory=dict)  # by rank
    kv: Kv = field(default_factory=Kv)
    buckets: Mapping[str, Known[BucketList]] = field(default_factory=dict)  # by phase
    graphs_used: Mapping[str, Known[Amount]] = field(default_factory=dict)  # by phase
    warmup: Warmup = field(default_factory=Warmup)
    missed: Mapping[MissKey, Miss] = field(default_factory=dict)
    faults: tuple[Fault, ...] = ()
    traffic: Traffic = field(default_factory=Traffic)
    compiled: Mapping[str, int] = field(default_factory=dict)  # graph compilations seen
    captured: Mapping[str, Known[float]] = field(
        default_factory=dict
    )  # ratio, by phase
    captured_shapes: Mapping[str, tuple[Shape, ...]] = field(
        default_factory=dict
    )  # by phase, where the ratio is below 1
    marks: Mapping[str, str] = field(default_factory=dict)  # header times, by step
    worker_ranks: Mapping[int, int] = field(default_factory=dict)  # by pid, V0 workers
    engines: frozenset[int] = frozenset()  # those that said that they initialise
    reached: Mapping[str, Line] = field(default_factory=dict)  # what brought each phase
    fronts: Mapping[int, Line] = field(default_factory=dict)  # API servers, by pid
    ports: Mapping[int, Line] = field(default_factory=dict)  # where they listen
    versions: Mapping[str, Line] = field(default_factory=dict)  # a life has one
    contradictions: tuple[Contradiction, ...] = ()

    @property
    def misses(self) -> tuple[Miss, ...]:
        """Return the shapes that were asked for in vain, in the order of their first time."""
        return tuple(self.missed.values())

    def missed_by_kind(self) -> Mapping[MissKind, int]:
        """Return how often traffic asked for a shape in vain."""
        counts: Counter[MissKind] = Counter()
        for miss in self.missed.values():
            counts[miss.phase, miss.reason] += miss.count
        return counts


@dataclass(frozen=True, slots=True)
class Past:
    """Starts that are no longer kept: what counters still need of them.

    Attributes:
        starts: how many they are.
        name: the model that the newest of them served, as ``Server.served_name``.
        misses: how often traffic missed, by the model's name, in the order in which the
            names came.
        faults: how many there were.
    """

    starts: int = 0
    name: str = ""
    misses: Mapping[str, Mapping[MissKind, int]] = field(default_factory=dict)
    faults: Mapping[FaultKind, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class State:
    """All that one log tells: its starts, oldest first; the newest is the one being lived.

    Attributes:
        starts: the newest ones.
        past: what is left of those before them.
        broken: events that a fault of ours kept from being taken in.
    """

    starts: tuple[Start, ...] = ()
    past: Past = field(default_factory=Past)
    broken: int = 0

    @property
    def current(self) -> Start | None:
        """Return the newest start, or None before the first event."""
        return self.starts[-1] if self.starts else None

    @property
    def begun(self) -> int:
        """Return how many starts there were, whether they are kept or not."""
        return self.past.starts + len(self.starts)
