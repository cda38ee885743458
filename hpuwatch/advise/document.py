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
    """Buckets by phase; ``multimodal`` counts steps of warm-up, several an image size.

    ``shapes`` has the lists that the log prints whole, by phase: (batch, query, context in
    KV blocks), or (batch, length) in old dialects.
    """

    prompt: int | None = None
    decode: int | None = None
    multimodal: int | None = None
    shapes: dict[str, list[tuple[int, ...]]] = Field(default_factory=dict)


class GraphsPart(_Document):
    """What graphs really took, by phase, in bytes."""

    prompt_used_bytes: int | None = None
    decode_used_bytes: int | None = None
    printed: dict[str, str] = Field(default_factory=dict)


class WarmedPart(_Document):
    """A bucket as warm-up came to it: its shape, and what was free before its graph."""

    shape: tuple[int, ...]
    free_bytes: int


class WarmupPart(_Document):
    """The warm-up; seconds of phases come from the times of the log's headers.

    By phase, in the order of the warm-up: ``phase_done`` counts the buckets that were
    done where it never finished; ``steps`` are the buckets whose lines print what
    was free, ``pace`` has pairs of buckets done and the seconds since the phase began.
    """

    seconds: float | None = None
    skipped: bool = False
    finished: bool = False
    done: int = 0
    total: int = 0
    phase_done: dict[str, int] = Field(default_factory=dict)
    allocated_bytes: int | None = None
    init_seconds: float | None = None
    sampler_seconds: float | None = None
    defragmenter_seconds: float | None = None
    phase_seconds: dict[str, float] = Field(default_factory=dict)
    compile_only: bool | None = None
    steps: dict[str, list[WarmedPart]] = Field(default_factory=dict)
    pace: dict[str, list[tuple[int, float]]] = Field(default_factory=dict)


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


class LeverPart(_Document):
    """A knob, what to do with it (or what people try), and why it helps, or why not."""

    knob: str
    change: str
    why: str


class FindingPart(_Document):
    """A finding; code and name are documented in docs/findings.md.

    ``helps`` are the knobs that can help, ``cannot_help`` those that people reach for in
    vain, as far as they act in the server at all.
    """

    code: str
    name: str
    severity: Severity
    title: str
    why: str
    cure: str = ""
    confidence: Origin = "measured"
    numbers: dict[str, float | int | str] = Field(default_factory=dict)
    figures: dict[str, FigurePart] = Field(default_factory=dict)
    helps: list[LeverPart] = Field(default_factory=list)
    cannot_help: list[LeverPart] = Field(default_factory=list)
    evidence: list[Evidence] = Field(default_factory=list)


class StepPart(_Document):
    """A part of the proposal: settings that belong together, as they are typed.

    ``answers`` is the code of the finding that it answers, null where the plan itself asks
    for it; ``gain`` is what it is for, in a few words.
    """

    settings: list[str]
    answers: str | None = None
    gain: str
    why: str


class BucketFilePart(_Document):
    """A bucket file: the variable that names it, where it is to lie, and what it holds."""

    variable: str
    path: str
    text: str


class ProposalPart(_Document):
    """A change to try, all of it with one restart; ``kept`` says what stays, a line each.

    ``expected`` has plain numbers, ``figures`` the same and more with their intervals.
    ``steps`` are its parts, the most gain first.  ``unset`` are variables to take away.
    ``checked`` tells whether ``predict`` could look at the whole; ``cautions`` is what it
    said then.  ``base`` is the fingerprint of the settings that the proposal came on top of;
    ``bucket_file`` is to be written first, and its variable is not in ``env``: a server that
    doesn't find its file does not start.  ``now`` is what the changed settings are
    today, defaults too, as far as that is known.
    """

    env: dict[str, str] = Field(default_factory=dict)
    unset: list[str] = Field(default_factory=list)
    flags: list[str] = Field(default_factory=list)
    expected: dict[str, float | int] = Field(default_factory=dict)
    figures: dict[str, FigurePart] = Field(default_factory=dict)
    steps: list[StepPart] = Field(default_factory=list)
    checked: bool = False
    cautions: list[str] = Field(default_factory=list)
    base: str | None = None
    bucket_file: BucketFilePart | None = None
    margin: dict[str, float | int | str] = Field(default_factory=dict)
    proven: bool = False
    why: str = ""
    kept: list[str] = Field(default_factory=list)
    now: dict[str, str] = Field(default_factory=dict)


class SettingPart(_Document):
    """What is set now, as the log prints it, secrets masked; ``line`` 0: no log said so."""

    name: str
    value: str
    line: int = 0


class LeftPart(_Document):
    """A setting that is left as it is, and why; ``value`` is null for a default."""

    name: str
    value: str | None = None
    why: str


class TrialPart(_Document):
    """A trial of a study: what it changed, and what its load measured."""

    number: int
    settings: dict[str, str] = Field(default_factory=dict)
    outcome: str
    tokens_per_second: float | None = None
    plus_minus: float | None = None
    kv_blocks: int | None = None
    cause: str = ""


class AccountabilityPart(_Document):
    """A figure that an earlier report predicted of this start's settings, and what came.

    ``suggested`` is the suggestion as it is typed.  ``observed`` is null where the server
    died of memory or time before it could come; that counts as outside.
    """

    figure: str
    predicted: float
    low: float
    high: float
    origin: Origin = "predicted"
    observed: float | None = None
    inside: bool
    suggested: str = ""


class AgainstPart(_Document):
    """What became worse since the last good start of the same server that is remembered.

    ``start`` is that start, as ``hpuwatch compare`` takes it; ``known`` is what it is told
    from others by.
    """

    start: str
    known: str = ""
    said: list[str]


class Headline(_Document):
    """What to do and why, one sentence or two each."""

    do: str
    why: str


class StartReport(_Document):
    """One life of a server, or (``origin`` predicted) one that has yet to begin.

    ``bucket_file`` is the text of the file that the server takes its buckets from, as far
    as the log's lists tell it.  ``store_read`` tells whether what is remembered of earlier
    starts was looked at, without which ``accountability`` and ``against`` say nothing.
    """

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
    not_established: list[str] = Field(default_factory=list)
    proposal: ProposalPart | None
    settings: list[SettingPart] = Field(default_factory=list)
    left: list[LeftPart] = Field(default_factory=list)
    bucket_file: str | None = None
    trials: list[TrialPart] = Field(default_factory=list)
    accountability: list[AccountabilityPart] = Field(default_factory=list)
    against: AgainstPart | None = None
    store_read: bool = False
    earlier: list[StartReport] = Field(default_factory=list)


class Report(_Document):
    """``report/1``."""

    schema_name: Literal["hpuwatch.report/1"] = Field(
        default="hpuwatch.report/1", alias="schema"
    )
    reports: list[StartReport]
