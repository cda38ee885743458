"""The shape of ``report/1``, which scripts rely on.

Bytes are numbers; where the log rounds, the text that it printed stands under ``printed``.
What the log doesn't say is null.  Additions keep the schema's number.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from hpuwatch.gaudi.estimate import Origin
from hpuwatch.gaudi.severity import Severity


class _Document(BaseModel):
    model_config = ConfigDict(populate_by_name=True, frozen=True)


class Evidence(_Document):
    """A line of the log; ``line`` is 0 where it is of another log, whose end was read."""

    file: str
    line: int
    text: str


class SourcePart(_Document):
    """Where a report comes from; ``start`` counts the lives in the file from 1.

    ``broken_events`` is what a fault of hpuwatch kept from being taken in, of the file.
    """

    file: str
    start: int
    broken_events: int = 0


class ServerPart(_Document):
    """What the server is, as far as the log says."""

    release: str | None = None
    assumed_like: str | None = None
    version: str | None = None
    build: str | None = None
    engine: str | None = None
    model: str | None = None
    card: str | None = None
    tp: int | None = None
    bridge_mode: str | None = None
    max_model_len: int | None = None
    phase: str


class MemoryPart(_Document):
    """The ledger of the rank whose memory is tightest, in bytes."""

    rank: int | None = None
    ranks: int = 0
    total: int | None = None
    weights: int | None = None
    profile_run: int | None = None
    profile_seconds: float | None = None
    free: int | None = None
    utilisation: float | None = None
    usable: int | None = None
    reserve: int | None = None
    reserve_ratio: float | None = None
    dummy_block: int | None = None
    kv_cache: int | None = None
    printed: dict[str, str] = Field(default_factory=dict)


class KvPart(_Document):
    """The KV cache; ``tokens`` may follow from an assumed block size.

    ``block_size_from`` says how the size is known: printed (a flag, or blocks and tokens),
    derived (a bucket range that starts with a block) or assumed (usual on HPU).
    """

    blocks: int | None = None
    tokens: int | None = None
    block_size: int | None = None
    block_size_assumed: bool = False
    block_size_from: Literal["printed", "derived", "assumed"] | None = None
    cpu_blocks: int | None = None
    max_concurrency: float | None = None


class BucketsPart(_Document):
    """Buckets by phase; ``multimodal`` counts steps of warm-up, several an image size."""

    prompt: int | None = None
    decode: int | None = None
    multimodal: int | None = None


class GraphsPart(_Document):
    """What graphs really took, by phase, in bytes."""

    prompt_used_bytes: int | None = None
    decode_used_bytes: int | None = None
    printed: dict[str, str] = Field(default_factory=dict)


class WarmupPart(_Document):
    """The warm-up; seconds of phases come from the times of the log's headers."""

    seconds: float | None = None
    skipped: bool = False
    finished: bool = False
    done: int = 0
    total: int = 0
    allocated_bytes: int | None = None
    init_seconds: float | None = None
    sampler_seconds: float | None = None
    defragmenter_seconds: float | None = None
    phase_seconds: dict[str, float] = Field(default_factory=dict)
    compile_only: bool | None = None


class TrafficPart(_Document):
    """The load of the log; ``shown`` is false for hardly any.

    ``preemptions`` counts those that lines told of; where ``preemptions_printed`` is
    false, no periodic line had the number.
    """

    busy_lines: int = 0
    kv_use_peak_percent: float | None = None
    running_peak: int | None = None
    waiting_peak: int | None = None
    preemptions: int = 0
    preemptions_printed: bool = False
    prompt_tokens_per_second_peak: float | None = None
    generation_tokens_per_second_peak: float | None = None
    shown: bool = False


class FaultPart(_Document):
    """A fault; ``root`` is false for a mere consequence."""

    fault_class: str = Field(alias="class")
    severity: str
    phase: str
    text: str
    line: int
    at: str | None = None
    root: bool = True


class FigurePart(_Document):
    """A figure that no line prints: the best guess, between what, and how it is known."""

    value: float
    low: float
    high: float
    origin: Origin


class FindingPart(_Document):
    """A finding; code and name are documented in docs/findings.md."""

    code: str
    name: str
    severity: Severity
    title: str
    why: str
    cure: str = ""
    confidence: Origin = "measured"
    numbers: dict[str, float | int | str] = Field(default_factory=dict)
    figures: dict[str, FigurePart] = Field(default_factory=dict)
    evidence: list[Evidence] = Field(default_factory=list)


class ProposalPart(_Document):
    """A change to try; ``kept`` says what stays, a line each."""

    env: dict[str, str] = Field(default_factory=dict)
    flags: list[str] = Field(default_factory=list)
    expected: dict[str, float | int] = Field(default_factory=dict)
    figures: dict[str, FigurePart] = Field(default_factory=dict)
    margin: dict[str, float | int | str] = Field(default_factory=dict)
    proven: bool = False
    why: str = ""
    kept: list[str] = Field(default_factory=list)


class Headline(_Document):
    """What to do and why, one sentence or two each."""

    do: str
    why: str


class StartReport(_Document):
    """One life of a server."""

    source: SourcePart
    origin: Literal["measured", "simulated", "predicted"]
    headline: Headline
    server: ServerPart
    memory: MemoryPart
    kv: KvPart
    buckets: BucketsPart
    graphs: GraphsPart
    warmup: WarmupPart
    traffic: TrafficPart
    faults: list[FaultPart]
    findings: list[FindingPart]
    proposal: ProposalPart | None
    earlier: list[StartReport] = Field(default_factory=list)


class Report(_Document):
    """``report/1``."""

    schema_name: Literal["hpuwatch.report/1"] = Field(
        default="hpuwatch.report/1", alias="schema"
    )
    reports: list[StartReport]
