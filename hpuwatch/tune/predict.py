"""What a setting will cost, said before a restart is paid for.

The figures of a prediction are those of the logs so far, carried over: graph memory by the
upper end of the law that the trials support (``gaudi.graphlaw``), the memory split by its
identity, warm-up seconds per bucket.  Bucket lists come from the rules of the release, and
only where these rules give the very list that the baseline's log shows.  A trial that ran
out of memory where the arithmetic saw room raises the arithmetic.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from hpuwatch.errors import ConfigError, StudyBroken
from hpuwatch.gaudi.buckets import DECODE, PROMPT, Bucket, generate
from hpuwatch.gaudi.graphlaw import GraphLaw, fit
from hpuwatch.gaudi.graphseen import Observation
from hpuwatch.gaudi.kvcache import HPU_BLOCK_SIZE
from hpuwatch.gaudi.memory import blocks_won
from hpuwatch.gaudi.planning import Plan
from hpuwatch.gaudi.resolve import MAX_NUM_SEQS, Flags
from hpuwatch.gaudi.warmuptime import TimedStart, learn
from hpuwatch.tune.facts import RESERVE, shows_reserve_too_small
from hpuwatch.tune.trial import Facts, Trial, TrialState
from hpuwatch.units import MIB

UNFORESEEN_FACTOR = 1.05
LEAST_NEED_BYTES = 16 * MIB

BucketLists: TypeAlias = Mapping[str, tuple[Bucket, ...]]


@dataclass(frozen=True, slots=True)
class Prediction:
    """What a setting is expected to cost.

    Attributes:
        need_bytes: what the reserve has to hold: graphs and activations that no log
            line told of, less what is proven to fit beside the reserve.
        reserve_bytes: what the setting reserves.
        kv_blocks: blocks of the KV cache, None where the log gave no block count.
        buckets: buckets by phase, None where the lists can't be foretold.
        warmup_seconds: None where nothing is known of it.
    """

    need_bytes: int
    reserve_bytes: int
    kv_blocks: int | None
    buckets: Mapping[str, int] | None
    warmup_seconds: float | None


@dataclass(frozen=True, slots=True)
class Forecast:
    """The arithmetic, calibrated by the trials so far.

    Attributes:
        environment: the operator's own bucket and reserve variables.
        baseline: what the log of the baseline said.
        graph_bytes: graph memory by phase, the most that a trial took.
        law: what graphs of other buckets take, where the lists are known.
        allowance_bytes: kept for activations that no line of the log told of.
        outside_bytes: what graphs took beyond the reserve of a trial that went well.
        factor: what failures raised the need by, 1 without any.
        lists_known: the rules give the baseline's own lists.
    """

    environment: Mapping[str, str]
    baseline: Facts
    graph_bytes: Mapping[str, int]
    law: GraphLaw
    allowance_bytes: int
    outside_bytes: int = 0
    factor: float = 1.0
    lists_known: bool = False

    @property
    def usable_bytes(self) -> int:
        """Return the memory that reserve and KV cache share."""
        return self.baseline.usable_bytes or 0

    def ratio_of(self, settings: Mapping[str, str]) -> float:
        """Return the reserve's ratio under settings."""
        return float(settings.get(RESERVE, self.baseline.reserve_ratio or 0.0))

    def predict(self, settings: Mapping[str, str]) -> Prediction:
        """Return what settings cost.

        Raises:
            BucketError: the runtime would make no buckets of them.
        """
        ratio = self.ratio_of(settings)
        blocks = self._blocks(ratio)
        lists = self.lists(settings, blocks)
        counts = (
            None
            if lists is None
            else {phase: len(buckets) for phase, buckets in lists.items()}
        )
        return Prediction(
            need_bytes=self._need(lists),
            reserve_bytes=round(ratio * self.usable_bytes),
            kv_blocks=blocks,
            buckets=counts,
            warmup_seconds=self._warmup(lists),
        )

    def _blocks(self, ratio: float) -> int | None:
        now, had = self.baseline.kv_blocks, self.baseline.reserve_ratio
        if not now or had is None or had >= 1:
            return now
        cache = self.baseline.kv_bytes or self.usable_bytes * (1 - had)
        return now + blocks_won((had - ratio) * self.usable_bytes, cache / now)

    def lists(
        self, settings: Mapping[str, str], blocks: int | None = None
    ) -> BucketLists | None:
        """Return the bucket lists under settings, with the baseline's blocks by default.

        Raises:
            BucketError: the runtime would make none.
        """
        blocks = self.baseline.kv_blocks if blocks is None else blocks
        if not self.lists_known or blocks is None:
            return None
        return bucket_lists({**self.environment, **settings}, self.baseline, blocks)

    def _need(self, lists: BucketLists | None) -> int:
        graphs: dict[str, float] = dict(self.graph_bytes)
        for phase, buckets in (lists or {}).items():
            if phase in graphs:
                graphs[phase] = self.law.bytes_of({phase: buckets}).high
        need = sum(graphs.values()) * self.factor + self.allowance_bytes
        return max(LEAST_NEED_BYTES, round(need) - self.outside_bytes)

    def _warmup(self, lists: BucketLists | None) -> float | None:
        """Return the seconds of these buckets, by the law of the baseline's own start."""
        seen = self.baseline
        if seen.warmup_seconds is None or not lists or not any(seen.buckets.values()):
            return seen.warmup_seconds
        timed = TimedStart(
            seen.buckets,
            seen.warmup_seconds,
            phase_seconds=seen.phase_seconds,
            fixed_seconds=seen.fixed_seconds,
        )
        return learn([timed]).seconds(lists).value


def calibrate(trials: Sequence[Trial], environment: Mapping[str, str]) -> Forecast:
    """Return the arithmetic as the trials so far know it.

    Raises:
        StudyBroken: the baseline's log lacks the memory split, so that nothing can be
            computed; says why that may be.
    """
    baseline = next(
        trial for trial in trials if trial.is_baseline and trial.state is TrialState.OK
    ).facts
    if not baseline.usable_bytes or baseline.reserve_ratio is None:
        raise StudyBroken(
            "the server's log doesn't show how device memory was split, so there is no "
            f"reserve to tune: {RESERVE} is ignored with --kv-cache-memory-bytes"
        )
    survivors = [trial.facts for trial in trials if trial.state is TrialState.OK]
    outside = max(
        sum(facts.graph_bytes.values()) - (facts.reserve_bytes or 0)
        for facts in survivors
    )
    forecast = Forecast(
        environment=environment,
        baseline=baseline,
        graph_bytes=_most(facts.graph_bytes for facts in survivors),
        law=fit(_observations(trials, environment)),
        allowance_bytes=baseline.allowance_bytes,
        outside_bytes=max(0, outside),
        lists_known=_foretold(environment, baseline) is not None,
    )
    return _raised(forecast, trials)


def bucket_lists(
    environment: Mapping[str, str], facts: Facts, blocks: int
) -> BucketLists | None:
    """Return the buckets of each phase, None where the release is unknown.

    Limits that the log doesn't print are vLLM's defaults; whoever uses the lists compares
    them with the log's first.

    Raises:
        BucketError: the runtime would make no list.
    """
    if not facts.release or facts.max_model_len is None:
        return None
    flags = Flags(
        max_num_seqs=facts.max_num_seqs or MAX_NUM_SEQS,
        max_num_batched_tokens=0,  # the plan knows the release's default
        max_model_len=facts.max_model_len,
        num_blocks=blocks,
        block_size=facts.block_size or HPU_BLOCK_SIZE,
    )
    budget = facts.max_num_batched_tokens
    settings = Plan(facts.release, flags, environment, budget).shapes(blocks)
    return {phase: generate(settings, phase) for phase in (PROMPT, DECODE)}


def _foretold(environment: Mapping[str, str], facts: Facts) -> BucketLists | None:
    """Return the lists by the rules if they have as many buckets as the log's, or None."""
    if facts.kv_blocks is None or not facts.buckets:
        return None
    try:
        lists = bucket_lists(environment, facts, facts.kv_blocks)
    except ConfigError:
        # An unknown release, or buckets that these rules would refuse: not foretold.
        return None
    if lists is None or any(
        facts.buckets.get(phase) != len(buckets) for phase, buckets in lists.items()
    ):
        return None
    return lists


def _observations(
    trials: Iterable[Trial], environment: Mapping[str, str]
) -> Iterable[Observation]:
    """Yield what the graphs of each trial that went well took, with their buckets."""
    for trial in trials:
        if trial.state is TrialState.OK:
            lists = _foretold({**environment, **trial.settings}, trial.facts)
            for phase, buckets in (lists or {}).items():
                if phase in trial.facts.graph_bytes:
                    used = trial.facts.graph_bytes[phase]
                    yield Observation(phase, buckets, used)


def _raised(forecast: Forecast, trials: Sequence[Trial]) -> Forecast:
    """Raise the need above every reserve that proved too small."""
    factor = forecast.factor
    for trial in trials:
        if trial.outcome is None or not shows_reserve_too_small(trial.outcome):
            continue
        failed = forecast.predict(trial.settings)
        beside = forecast.allowance_bytes - forecast.outside_bytes
        graphs = max(1, failed.need_bytes - beside)
        short = failed.reserve_bytes * UNFORESEEN_FACTOR - beside
        factor = max(factor, short / graphs)
    return replace(forecast, factor=factor)


def _most(rows: Iterable[Mapping[str, int]]) -> Mapping[str, int]:
    """Return the largest figure of each name."""
    most: dict[str, int] = {}
    for row in rows:
        for name, value in row.items():
            most[name] = max(value, most.get(name, value))
    return most
