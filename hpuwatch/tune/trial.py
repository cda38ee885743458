"""A trial: one start of the server with other settings, and what came of it.

A trial goes ``planned`` → ``running`` → one of the outcomes.  A failure is an outcome with
a cause and a phase; it never has a score.  Values only: how a trial is carried out lies in
``loop.trials``, where it is kept in ``store.study``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from statistics import fmean, median

from hpuwatch.advise.figures import PLENTY

UNSTEADY = 0.1
"""A spread of the windows above this share of their median is worth one more window."""


class TrialState(str, Enum):
    """What became of a trial."""

    PLANNED = "planned"
    RUNNING = "running"
    OK = "ok"
    OUT_OF_MEMORY = "out_of_memory"
    WARMUP_FAILED = "warmup_failed"
    NOT_READY = "not_ready"
    LOAD_FAILED = "load_failed"
    SETTING_NOT_ARRIVED = "setting_not_arrived"
    INTERRUPTED = "interrupted"

    @property
    def judged(self) -> bool:
        """Tell whether the trial says something about its settings."""
        return self not in _UNJUDGED


_UNJUDGED = (TrialState.PLANNED, TrialState.RUNNING, TrialState.INTERRUPTED)


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """The fixed load of every trial of a study: a closed loop of completions.

    Attributes:
        concurrency: requests in flight.
        requests: requests of one window.
        prompt_tokens: length of a prompt, about.
        output_tokens: tokens that each request generates, exactly.
        windows: measured windows; one more is run first and thrown away, and one more at
            the end where they differ much.
        window_limit_seconds: a window that takes longer has failed.
        seed: chooses the prompts.
    """

    concurrency: int = 64
    requests: int = 128
    prompt_tokens: int = 1024
    output_tokens: int = 128
    windows: int = 2
    window_limit_seconds: float = 900.0
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Window:
    """What one window of load measured; None where nothing was there to measure.

    Attributes:
        seconds: from the first request's start to the last one's end.
        requests: requests that came to an end, good or bad.
        errors: requests that failed.
        first_error: how the first of them failed, empty without one.
        output_tokens: tokens of the good ones.
        ttft_p50_seconds: median time to the first token; ``p99`` likewise.
        itl_p50_seconds: time between two tokens of a request (its mean, since a piece of
            a stream may hold several), the median of the requests; ``p99`` likewise.
    """

    seconds: float
    requests: int
    errors: int
    output_tokens: int
    first_error: str = ""
    ttft_p50_seconds: float | None = None
    ttft_p99_seconds: float | None = None
    itl_p50_seconds: float | None = None
    itl_p99_seconds: float | None = None

    @property
    def tokens_per_second(self) -> float:
        """Return output tokens per second."""
        return self.output_tokens / self.seconds if self.seconds > 0 else 0.0

    def stretched(self, factor: float) -> Window:
        """Return the window in another time: a simulated server's runs faster than ours."""
        times = {
            name: value * factor
            for name in _TIMES
            if (value := getattr(self, name)) is not None
        }
        return replace(self, seconds=self.seconds * factor, **times)


_TIMES = ("ttft_p50_seconds", "ttft_p99_seconds", "itl_p50_seconds", "itl_p99_seconds")


@dataclass(frozen=True, slots=True)
class Measurement:
    """What the load showed.

    Attributes:
        windows: the measured windows, in order.
        preemptions: requests preempted during them; None where the server won't say.
        bucket_misses: shapes that warm-up had not prepared, by the log.
        kv_use_peak: largest share of the KV cache in use that was seen, None where the
            server doesn't say.
    """

    windows: tuple[Window, ...]
    preemptions: int | None = None
    bucket_misses: int = 0
    kv_use_peak: float | None = None

    @property
    def tokens_per_second(self) -> float:
        """Return the median of the windows: of two their mean, of three the middle one."""
        return median(window.tokens_per_second for window in self.windows)

    @property
    def spread(self) -> float:
        """Return how far the windows lie apart, in tokens per second."""
        rates = [window.tokens_per_second for window in self.windows]
        return max(rates) - min(rates)

    @property
    def is_unsteady(self) -> bool:
        """Tell whether the windows differ so much that their middle says little."""
        return self.spread > UNSTEADY * self.tokens_per_second

    @property
    def errors(self) -> int:
        """Return the requests that failed."""
        return sum(window.errors for window in self.windows)

    @property
    def kv_was_plenty(self) -> bool:
        """Tell whether the load never came near the end of the KV cache."""
        peak = self.kv_use_peak
        return peak is not None and peak < PLENTY and not self.preemptions

    def mean(self, figure: str) -> float | None:
        """Return the mean of a figure of :class:`Window` over the windows that have it."""
        values = [getattr(window, figure) for window in self.windows]
        known = [value for value in values if value is not None]
        return fmean(known) if known else None

    def apart(self, figure: str) -> float:
        """Return how far the windows lie apart in a figure of :class:`Window`."""
        values = [getattr(window, figure) for window in self.windows]
        known = [value for value in values if value is not None]
        return max(known) - min(known) if known else 0.0


@dataclass(frozen=True, slots=True)
class Facts:
    """What the log of a trial's server said, as far as it was needed and printed.

    Memory is that of the rank with the least.  ``graph_bytes`` is by phase, with what
    warm-up took beyond the phases as ``other``; ``phase_seconds`` is by phase where each was
    timed, and ``fixed_seconds`` what else warm-up took; ``allowance_bytes`` is what the
    reserve should hold for activations that nobody measured.  ``flags`` holds tuned
    variables only, since a variable may be a secret.
    """

    simulated: bool = False
    release: str = ""
    model: str = ""
    card: str = ""
    tensor_parallel: int | None = None
    strategy: str = ""
    flags: Mapping[str, str] = field(default_factory=dict)
    usable_bytes: int | None = None
    reserve_bytes: int | None = None
    reserve_ratio: float | None = None
    kv_bytes: int | None = None
    kv_blocks: int | None = None
    block_size: int | None = None
    allowance_bytes: int = 0
    graph_bytes: Mapping[str, int] = field(default_factory=dict)
    buckets: Mapping[str, int] = field(default_factory=dict)
    warmup_seconds: float | None = None
    phase_seconds: Mapping[str, float] = field(default_factory=dict)
    fixed_seconds: float = 0.0
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    max_model_len: int | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a trial ended.

    Attributes:
        state: what became of it.
        cause: one sentence, for a failure.
        phase: where in its life the server was when it failed.
        facts: what the log said.
        measurement: what the load showed, for a trial that is ``ok``.
        ready_seconds: from the start of the process to the server's being ready.
    """

    state: TrialState
    cause: str = ""
    phase: str = ""
    facts: Facts = field(default_factory=Facts)
    measurement: Measurement | None = None
    ready_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Trial:
    """A row of the study.

    Attributes:
        number: from 0, which is the baseline.
        settings: environment variables that differ from the operator's own; none for
            the baseline.
        origin: who proposed it: ``baseline``, ``first guess``, ``designer`` or ``random``.
        state: repeats ``outcome.state`` once there is one.
        planned_at: seconds since the epoch; likewise the others.
    """

    number: int
    settings: Mapping[str, str]
    origin: str
    state: TrialState = TrialState.PLANNED
    planned_at: float = 0.0
    started_at: float | None = None
    ended_at: float | None = None
    outcome: Outcome | None = None

    @property
    def is_baseline(self) -> bool:
        """Tell whether it measured the operator's own configuration."""
        return not self.settings

    @property
    def facts(self) -> Facts:
        """Return what its log said; empty before there is one."""
        return self.outcome.facts if self.outcome else Facts()

    @property
    def measurement(self) -> Measurement | None:
        """Return what the load showed, None unless it is ``ok``."""
        return self.outcome.measurement if self.outcome else None
