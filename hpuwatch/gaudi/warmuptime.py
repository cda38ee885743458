"""How long a warm-up takes, and how long the server is away for it.

Warm-up compiles one graph for each bucket, so its seconds are taken to be::

    fixed + sum over phases (graphs to compile * seconds per graph)
          + sum over phases (graphs in the recipe cache * a share of that)

*Seconds per graph* are those of this server's earlier starts.  Buckets differ: in eight
progress bars of public and stand-in logs the mean over a third of a bar lay between 0.59
and 1.44 times the mean over all of it.  Buckets that a start did warm are counted with what
they took together, so only those that come and go make the interval wide.  A start that
printed nothing but its total leaves open how much of it was decode: the bounds are the
ratios of ``DECODE_PER_PROMPT``.

The *recipe cache* (``PT_HPU_RECIPE_CACHE_CONFIG``) keeps compiled graphs over a restart.
Two published warm-ups took 34 s instead of 504 and 23 s instead of 66.  A graph that reads
the KV cache is compiled for its number of blocks: another number makes the decodes new, and
so the prompts with context.

Before any log the public figures stand in, with all that lies between them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from statistics import fmean

from hpuwatch.gaudi.dialects import dialect_of
from hpuwatch.gaudi.estimate import Estimate, Origin, exactly
from hpuwatch.gaudi.model import DECODE, PROMPT, Bucket, BucketSettings
from hpuwatch.gaudi.variables import is_true

RECIPES = "PT_HPU_RECIPE_CACHE_CONFIG"

DECODE_PER_PROMPT = (0.4, 0.9, 1.7)
"""Seconds of a decode graph over those of a prompt graph: low, likely, high.

Four public logs have 0.45, 0.66, 1.4 and 1.6.
"""

_OF_MEAN = (0.59, 1.44)
_CACHED = (0.067, 0.15, 0.35)
"""What a graph from the recipe cache takes, as a share; the middle is geometric."""
_AGAIN = (0.9, 1.1)
"""Nothing public tells how much two equal starts differ: a tenth is our assumption."""


@dataclass(frozen=True, slots=True)
class Rates:
    """Seconds per graph."""

    prompt: float
    decode: float

    def of(self, phase: str) -> float:
        """Return the seconds of a graph of ``phase``."""
        return self.prompt if phase == PROMPT else self.decode


PUBLIC = (Rates(0.5, 0.33), Rates(1.9, 2.5), Rates(4.0, 45.0))
"""The cheapest, the median and the dearest graphs of public logs.

An 8B model with tiny shapes; a median of five and of seven logs; MiniMax-M2 for prompts and
a 405B model on eight cards for decodes.
"""


@dataclass(frozen=True, slots=True)
class TimedStart:
    """The warm-up of one start, as its log timed it.

    Attributes:
        counts: buckets by phase.
        total_seconds: of the whole warm-up.
        buckets: their lists, for the phases whose log has them.
        phase_seconds: of each phase; empty where only the total was printed.
        thirds: seconds per graph in the cheapest and the dearest third of a phase's bar.
        fixed_seconds: what is no bucket: sampler, defragmenter, pictures.
        had_recipes: a recipe cache was set, which may have held any of the graphs.
    """

    counts: Mapping[str, int]
    total_seconds: float
    buckets: Mapping[str, tuple[Bucket, ...]] = field(default_factory=dict)
    phase_seconds: Mapping[str, float] = field(default_factory=dict)
    thirds: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    fixed_seconds: float = 0.0
    had_recipes: bool = False

    @property
    def is_split(self) -> bool:
        """Tell whether each phase was timed by itself."""
        return all(
            phase in self.phase_seconds
            for phase in (PROMPT, DECODE)
            if self.counts.get(phase)
        )

    @property
    def bucket_seconds(self) -> float:
        """Return what the buckets took together."""
        if self.is_split:
            return sum(self.phase_seconds.get(phase, 0.0) for phase in self.counts)
        return max(0.0, self.total_seconds - self.fixed_seconds)


@dataclass(frozen=True, slots=True)
class WarmupLaw:
    """What a graph costs, and what that is known from.

    Attributes:
        likely: the best guess.
        bounds: rates between which it lies; a total alone makes several, since what is
            added to one phase is taken from the other.
        fixed_seconds: what is no bucket.
        origin: ``learned``, ``predicted`` or ``prior``.
        newest: the start whose buckets are known as a sum.
    """

    likely: Rates
    bounds: tuple[Rates, ...]
    fixed_seconds: float
    origin: Origin
    newest: TimedStart | None = None

    def seconds(
        self,
        buckets: Mapping[str, Sequence[Bucket]],
        cached: Mapping[str, frozenset[Bucket]] | None = None,
    ) -> Estimate:
        """Return the seconds of a warm-up.

        Args:
            buckets: what is warmed, by phase.
            cached: those of them whose graphs the recipe cache holds.
        """
        held = cached or {}
        fresh = {
            phase: [each for each in listed if each not in held.get(phase, ())]
            for phase, listed in buckets.items()
        }
        known = {
            phase: len(listed) - len(fresh[phase]) for phase, listed in buckets.items()
        }
        compiled = self.of_counts({phase: len(each) for phase, each in fresh.items()})
        low, high = compiled.low, compiled.high
        if self.newest is not None:
            least, most = self._by_difference(self.newest, fresh)
            low, high = max(low, least), min(high, most)
        value = min(max(compiled.value, low), high)
        fixed = exactly(self.fixed_seconds, self.origin)
        return Estimate(value, low, high, self.origin) + self._loaded(known) + fixed

    def of_counts(self, counts: Mapping[str, int]) -> Estimate:
        """Return the seconds to compile so many graphs of each phase."""
        ends = [_sum(rates, counts) for rates in (self.likely, *self.bounds)]
        return Estimate(ends[0], min(ends), max(ends), self.origin)

    def _loaded(self, counts: Mapping[str, int]) -> Estimate:
        """Return the seconds to load so many graphs from the recipe cache."""
        had = self.newest is not None and self.newest.had_recipes
        whole = self.of_counts(counts)
        low, value, high = _CACHED
        return Estimate(
            whole.value * value,
            whole.low * low,
            whole.high * (1.0 if had else high),
            self.origin,
        )

    def _by_difference(
        self, seen: TimedStart, fresh: Mapping[str, Sequence[Bucket]]
    ) -> tuple[float, float]:
        """Return bounds: the seconds that were seen, less what goes, and what comes."""
        if seen.counts.keys() - seen.buckets.keys():
            return 0.0, inf
        comes = {
            phase: len(set(each) - set(seen.buckets.get(phase, ())))
            for phase, each in fresh.items()
        }
        goes = {
            phase: len(set(each) - set(fresh.get(phase, ())))
            for phase, each in seen.buckets.items()
        }
        added, gone = self.of_counts(comes), self.of_counts(goes)
        least, most = (seen.bucket_seconds * share for share in _AGAIN)
        if seen.had_recipes:
            most /= _CACHED[0]
        return max(0.0, least - gone.high) + added.low, most - gone.low + added.high


def _sum(rates: Rates, counts: Mapping[str, int]) -> float:
    return sum(count * rates.of(phase) for phase, count in counts.items())


def learn(starts: Iterable[TimedStart]) -> WarmupLaw:
    """Return what the earlier starts of a server tell, oldest first.

    The newest start gives the best guess; the bounds span all of them.
    """
    told = [
        start
        for start in starts
        if start.counts.get(PROMPT) or start.counts.get(DECODE)
    ]
    if not told:
        low, likely, high = PUBLIC
        return WarmupLaw(likely, (low, high), 0.0, "prior")
    newest = told[-1]
    likely, _ = _rates(newest)
    return WarmupLaw(
        likely=likely,
        bounds=tuple(bound for start in told for bound in _rates(start)[1]),
        fixed_seconds=newest.fixed_seconds,
        origin="learned" if all(start.is_split for start in told) else "predicted",
        newest=newest,
    )


def _rates(start: TimedStart) -> tuple[Rates, tuple[Rates, ...]]:
    """Return the likely rates of a start and their bounds."""
    dearer = 1 / _CACHED[0] if start.had_recipes else 1.0
    if start.is_split:
        low, mean, high = zip(
            *(_phase_rates(start, each) for each in (PROMPT, DECODE)), strict=True
        )
        return Rates(*mean), (Rates(*low), Rates(*(each * dearer for each in high)))
    shared = [_shared(start, ratio) for ratio in DECODE_PER_PROMPT]
    least, most = _OF_MEAN[0], _OF_MEAN[1] * dearer
    bounds = [
        Rates(each.prompt * share, each.decode * share)
        for each in shared
        for share in (least, most)
    ]
    return shared[1], tuple(bounds)


def _phase_rates(start: TimedStart, phase: str) -> tuple[float, float, float]:
    """Return low, mean and high seconds per graph of a phase that was timed."""
    count = start.counts.get(phase, 0)
    if not count:
        # A phase without buckets tells nothing: the other one, by the public ratios.
        other = DECODE if phase == PROMPT else PROMPT
        low, mean, high = _phase_rates(start, other)
        least, likely, most = DECODE_PER_PROMPT
        if phase == DECODE:
            return low * least, mean * likely, high * most
        return low / most, mean / likely, high / least
    mean = start.phase_seconds[phase] / count
    cheapest, dearest = start.thirds.get(
        phase, (mean * _OF_MEAN[0], mean * _OF_MEAN[1])
    )
    return min(cheapest, mean), mean, max(dearest, mean)


def _shared(start: TimedStart, ratio: float) -> Rates:
    """Return rates that give the total, with decodes ``ratio`` times as dear as prompts."""
    prompts, decodes = start.counts.get(PROMPT, 0), start.counts.get(DECODE, 0)
    prompt = start.bucket_seconds / (prompts + ratio * decodes)
    return Rates(prompt, prompt * ratio)


@dataclass(frozen=True, slots=True)
class Recipes:
    """What the recipe cache holds after a start.

    Attributes:
        folder: where it lies.
        buckets: those whose graphs were compiled, by phase.
        num_blocks: the KV blocks that they were compiled for.
    """

    folder: str
    buckets: Mapping[str, tuple[Bucket, ...]]
    num_blocks: int

    def usable(
        self, env: Mapping[str, str], num_blocks: int
    ) -> Mapping[str, frozenset[Bucket]]:
        """Return the buckets whose graphs serve a server with so many blocks."""
        if recipe_folder(env) != self.folder:
            return {}
        if num_blocks == self.num_blocks:
            return {phase: frozenset(listed) for phase, listed in self.buckets.items()}
        plain = (each for each in self.buckets.get(PROMPT, ()) if each.context == 0)
        return {PROMPT: frozenset(plain)}


def skips_warmup(settings: BucketSettings) -> bool:
    """Tell whether the server warms nothing up (VLLM_SKIP_WARMUP)."""
    value = settings.env.get("VLLM_SKIP_WARMUP", "")
    if dialect_of(settings.dialect).strategy_rule in {"literal", "fixed"}:
        return value.lower() == "true"
    return is_true(value)


def recipe_folder(env: Mapping[str, str]) -> str | None:
    """Return where compiled graphs outlive the start; ``…,true,…`` empties it instead."""
    folder, _, rest = env.get(RECIPES, "").partition(",")
    empties = rest.partition(",")[0].strip().lower() == "true"
    return None if empties else folder.strip() or None


@dataclass(frozen=True, slots=True)
class Part:
    """One part of the time that the server is away.

    Attributes:
        name: ``drain``, ``stop``, ``load``, ``warm-up`` or ``settle``.
        seconds: None where nothing tells.
        why: what it rests on, or why nothing is known.
    """

    name: str
    seconds: Estimate | None
    why: str


_UNKNOWN = {
    "drain": "nobody knows how long the requests in flight will run",
    "stop": "no log tells of a stop",
    "load": "no earlier start of this server tells",
    "warm-up": "the buckets are unknown",
    "settle": "the first requests after a warm-up are slow, and no log tells how long",
}


def downtime(
    load_seconds: Sequence[float], warmup: Estimate | None
) -> tuple[Part, ...]:
    """Return the parts of the time between the last request before and the first after.

    Args:
        load_seconds: of earlier starts: from the first line to an allocated KV cache.
        warmup: see :meth:`WarmupLaw.seconds`.
    """
    known: dict[str, tuple[Estimate, str]] = {}
    if load_seconds:
        # Weights come from the page cache or from a disk, and a log can't tell which.
        spread = Estimate(
            fmean(load_seconds),
            min(load_seconds) / 2,
            max(load_seconds) * 2,
            "predicted",
        )
        known["load"] = spread, "earlier starts; half to double, for the page cache"
    if warmup is not None:
        known["warm-up"] = warmup, "graphs times seconds per graph"
    return tuple(
        Part(name, *known.get(name, (None, why))) for name, why in _UNKNOWN.items()
    )


def total(parts: Iterable[Part]) -> Estimate:
    """Return the sum of the parts that are known: the server is away at least so long."""
    return sum((part.seconds for part in parts if part.seconds), exactly(0.0))
