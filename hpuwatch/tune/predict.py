"""What a setting will cost, said before a restart is paid for.

The figures of a prediction are those of the logs so far, carried over: graph memory per
bucket (of the trial that took the most) times the buckets that the setting makes, the
memory split by its identity, warm-up seconds per bucket.  Bucket lists come from the rules
of the release, and only where these rules give the very list that the baseline's log
shows.  A trial that ran out of memory where the arithmetic saw room raises the arithmetic.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias, TypeVar

from hpuwatch.advise.figures import HPU_BLOCK_SIZE
from hpuwatch.errors import ConfigError, StudyBroken
from hpuwatch.gaudi.buckets import DECODE, PROMPT, Bucket, generate
from hpuwatch.gaudi.releases import release_of
from hpuwatch.gaudi.resolve import Flags, resolve
from hpuwatch.tune.facts import OTHER, RESERVE, shows_reserve_too_small
from hpuwatch.tune.trial import Facts, Trial, TrialState
from hpuwatch.units import MIB

DEFAULT_MAX_NUM_SEQS = 256
DEFAULT_TOKEN_BUDGET = 2048
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
        bucket_bytes: the same per bucket.
        allowance_bytes: kept for activations that no line of the log told of.
        outside_bytes: what graphs took beyond the reserve of a trial that went well.
        factor: what failures raised the need by, 1 without any.
        lists_known: the rules give the baseline's own lists.
    """

    environment: Mapping[str, str]
    baseline: Facts
    graph_bytes: Mapping[str, int]
    bucket_bytes: Mapping[str, float]
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
            need_bytes=self._need(counts),
            reserve_bytes=round(ratio * self.usable_bytes),
            kv_blocks=blocks,
            buckets=counts,
            warmup_seconds=self._warmup(counts),
        )

    def _blocks(self, ratio: float) -> int | None:
        now, had = self.baseline.kv_blocks, self.baseline.reserve_ratio
        if now is None or had is None or had >= 1:
            return now
        return round(now * (1 - ratio) / (1 - had))

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

    def _need(self, counts: Mapping[str, int] | None) -> int:
        graphs = dict(self.graph_bytes)
        if counts:
            graphs |= {
                phase: round(self.bucket_bytes[phase] * count)
                for phase, count in counts.items()
                if phase in self.bucket_bytes
            }
        need = sum(graphs.values()) * self.factor + self.allowance_bytes
        return max(LEAST_NEED_BYTES, round(need) - self.outside_bytes)

    def _warmup(self, counts: Mapping[str, int] | None) -> float | None:
        seconds, listed = (
            self.baseline.warmup_seconds,
            sum(self.baseline.buckets.values()),
        )
        if seconds is None or not counts or not listed:
            return seconds
        return seconds * sum(counts.values()) / listed


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
        bucket_bytes=_most(_per_bucket(facts) for facts in survivors),
        allowance_bytes=baseline.allowance_bytes,
        outside_bytes=max(0, outside),
        lists_known=_foretells(environment, baseline),
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
        max_num_seqs=facts.max_num_seqs or DEFAULT_MAX_NUM_SEQS,
        max_num_batched_tokens=facts.max_num_batched_tokens or DEFAULT_TOKEN_BUDGET,
        max_model_len=facts.max_model_len,
        num_blocks=blocks,
        block_size=facts.block_size or HPU_BLOCK_SIZE,
    )
    settings = resolve(release_of(facts.release).dialect, flags, environment)
    return {phase: generate(settings, phase) for phase in (PROMPT, DECODE)}


def _foretells(environment: Mapping[str, str], facts: Facts) -> bool:
    """Tell whether the rules give as many buckets as the log lists."""
    if facts.kv_blocks is None or not facts.buckets:
        return False
    try:
        lists = bucket_lists(environment, facts, facts.kv_blocks)
    except ConfigError:
        # An unknown release, or buckets that these rules would refuse: not foretold.
        return False
    return lists is not None and all(
        facts.buckets.get(phase) == len(buckets) for phase, buckets in lists.items()
    )


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


def _per_bucket(facts: Facts) -> Mapping[str, float]:
    return {
        phase: used / facts.buckets[phase]
        for phase, used in facts.graph_bytes.items()
        if phase != OTHER and facts.buckets.get(phase)
    }


_Number = TypeVar("_Number", int, float)


def _most(rows: Iterable[Mapping[str, _Number]]) -> Mapping[str, _Number]:
    """Return the largest figure of each name."""
    most: dict[str, _Number] = {}
    for row in rows:
        for name, value in row.items():
            most[name] = max(value, most.get(name, value))
    return most
