"""What warm-up's graphs take: a straight law, learned from what starts have printed.

In public logs the graph of a prompt bucket takes memory in proportion to its tokens, batch
x query, and the slope is anything from 2 KiB to 1.4 MiB: only a log of the same server can
tell.  So the graphs of a phase are taken to follow::

    bytes = fixed * graphs + slope * tokens        both at least 0

and the two are fitted to *observations*: some buckets and what they took together.  Steps
of ``free_mem`` are observations of one bucket each, a captured total is one of many.

Three or more observations that differ in tokens per graph give a least-squares fit and the
95 % interval of Student's t (``learned``).  Fewer leave the two coefficients open: then the
interval spans all that each of them allows, from "all of it per graph" to "all of it per
token" (``predicted``), which also bounds the interval of a fit.  Where graphs and tokens
can't be told apart, a prompt's best guess is the slope alone, as public logs have it; a
decode's is the middle.  The intervals hold only as far as the law does: graphs that bend
away from the line are outside of what they can tell.

Before any log, :func:`prior` spans the public figures of ``gaudi.graphpoints``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import fmean, median

from hpuwatch.gaudi.estimate import Estimate, Origin, exactly
from hpuwatch.gaudi.graphpoints import POINTS
from hpuwatch.gaudi.graphseen import EVERY, Observation, tokens_of
from hpuwatch.gaudi.model import DECODE, PROMPT, Bucket

_HIDDEN_SIZE = 8192
"""Stands in for the hidden size of an unknown model: that of one with 70 billion weights."""
_FEWEST_FOR_SPREAD = 3

_T_95 = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)
"""Two-sided 95 % quantiles of Student's t by degrees of freedom, 1 to 30 and above."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What graphs cost by a straight law, in bytes per graph and per token."""

    fixed_bytes: float
    token_bytes: float

    def of(self, graphs: int, tokens: int) -> float:
        """Return what so many graphs with so many tokens take."""
        return self.fixed_bytes * graphs + self.token_bytes * tokens


@dataclass(frozen=True, slots=True)
class Spread:
    """How far a least-squares fit may be off.

    Attributes:
        variance: of one graph around the line, in bytes squared.
        covariance: of (fixed, slope) per unit of variance: both variances and between.
        t: the quantile for the degrees of freedom.
    """

    variance: float
    covariance: tuple[float, float, float]
    t: float

    def half_width(self, graphs: int, tokens: int) -> float:
        """Return half the prediction interval of the sum over so many new graphs."""
        fixed, slope, both = self.covariance
        line = graphs**2 * fixed + tokens**2 * slope + 2 * graphs * tokens * both
        return self.t * sqrt(max(0.0, self.variance * (line + graphs)))


@dataclass(frozen=True, slots=True)
class PhaseLaw:
    """The law of one phase and what it rests on.

    Attributes:
        cost: the best guess.
        origin: ``learned``, ``predicted`` or ``prior``.
        bounds: the outermost laws that one observation alone would allow; no interval
            goes beyond them.
        spread: the error of the fit, None where there are too few observations.
        rounding_ratio: print rounding as a share of what was printed.
        seen: the observations.
    """

    cost: Cost
    origin: Origin
    bounds: tuple[Cost, ...] = ()
    spread: Spread | None = None
    rounding_ratio: float = 0.0
    seen: tuple[Observation, ...] = ()

    def bytes_of(self, buckets: Sequence[Bucket]) -> Estimate:
        """Return what the graphs of some buckets take, as printed if a log told of them."""
        graphs, tokens = len(buckets), tokens_of(buckets)
        if graphs == 0:
            return exactly(0.0)
        printed = self._printed(buckets)
        if printed:
            return _together(printed)
        value = self.cost.of(graphs, tokens)
        ends = [bound.of(graphs, tokens) for bound in self.bounds]
        low = min(ends) * (1 - self.rounding_ratio)
        high = max(ends) * (1 + self.rounding_ratio)
        if self.spread is not None:
            half = self.spread.half_width(graphs, tokens)
            low, high = max(low, value - half), min(high, value + half)
        return Estimate(value, max(0.0, min(low, value)), max(high, value), self.origin)

    def _printed(self, buckets: Sequence[Bucket]) -> list[Observation]:
        """Return the observations of just these buckets."""
        wanted = sorted(buckets)
        return [
            each
            for each in self.seen
            if len(each.buckets) == len(wanted) and sorted(each.buckets) == wanted
        ]


def _together(printed: Sequence[Observation]) -> Estimate:
    """Return what several starts printed of the same buckets."""
    used = [max(0, each.used_bytes) for each in printed]
    off = max(each.rounding_bytes for each in printed)
    return Estimate(fmean(used), max(0.0, min(used) - off), max(used) + off, "measured")


@dataclass(frozen=True, slots=True)
class GraphLaw:
    """The laws by phase: of prompt and decode, and of :data:`EVERY` where only that is seen."""

    phases: Mapping[str, PhaseLaw]

    def bytes_of(self, buckets: Mapping[str, Sequence[Bucket]]) -> Estimate:
        """Return what the graphs of bucket lists by phase take on one card.

        A phase of which nothing was seen alone counts by what was seen of all phases
        together, and without that by the public figures.

        Args:
            buckets: lists of the phases ``prompt`` and ``decode``.
        """
        laws = [(self.phases[phase], listed) for phase, listed in buckets.items()]
        every = self.phases.get(EVERY)
        if every is not None and any(law.origin == "prior" for law, _ in laws):
            return every.bytes_of([each for _, listed in laws for each in listed])
        return sum((law.bytes_of(listed) for law, listed in laws), exactly(0.0))


def fit(
    observations: Iterable[Observation], unseen: GraphLaw | None = None
) -> GraphLaw:
    """Return the laws that the observations of one start or several support.

    Args:
        observations: what starts of this server printed (the same model, release, card
            and number of cards).
        unseen: what stands in for phases without an observation, :func:`prior` of an
            unknown model by default.
    """
    by_phase: dict[str, list[Observation]] = {}
    for observed in observations:
        if observed.buckets:
            by_phase.setdefault(observed.phase, []).append(observed)
    fitted = {phase: _phase_law(phase, seen) for phase, seen in by_phase.items()}
    return GraphLaw({**(unseen or prior()).phases, **fitted})


@dataclass(frozen=True, slots=True)
class _Sums:
    """Sums over observations, each weighed by 1 / graphs: noise grows with the graphs."""

    graphs: float
    tokens: float
    squares: float
    used: float
    used_tokens: float

    @property
    def determinant(self) -> float:
        """Return 0 (about) where all observations have as many tokens per graph."""
        return self.graphs * self.squares - self.tokens**2


def _sums(seen: Sequence[Observation]) -> _Sums:
    rows = [(len(each.buckets), each.tokens, each.used_bytes) for each in seen]
    return _Sums(
        graphs=sum(graphs for graphs, _, _ in rows),
        tokens=sum(tokens for _, tokens, _ in rows),
        squares=sum(tokens**2 / graphs for graphs, tokens, _ in rows),
        used=sum(used for _, _, used in rows),
        used_tokens=sum(used * tokens / graphs for graphs, tokens, used in rows),
    )


def _phase_law(phase: str, seen: Sequence[Observation]) -> PhaseLaw:
    told = [each for each in seen if not each.repeats] or list(seen)
    sums = _sums(told)
    flat = sums.determinant <= 1e-9 * sums.graphs * sums.squares
    line, spread = (_guess(phase, sums), None) if flat else _least_squares(sums, told)
    printed = sum(abs(each.used_bytes) for each in told)
    rounding = sum(each.rounding_bytes for each in told) / printed if printed else 0.0
    return PhaseLaw(
        cost=line,
        origin="learned" if spread else "predicted",
        bounds=_outermost(told),
        spread=spread,
        rounding_ratio=min(1.0, rounding),
        seen=tuple(seen),
    )


def _outermost(seen: Sequence[Observation]) -> tuple[Cost, ...]:
    """Return the laws that give the whole to the graphs, and the whole to the tokens."""
    rows = [(max(0, each.used_bytes), len(each.buckets), each.tokens) for each in seen]
    per_graph = [used / graphs for used, graphs, _ in rows]
    per_token = [used / tokens for used, _, tokens in rows if tokens]
    return (
        *(Cost(end(per_graph), 0.0) for end in (min, max)),
        *(Cost(0.0, end(per_token)) for end in (min, max) if per_token),
    )


def _guess(phase: str, sums: _Sums) -> Cost:
    """Return the best guess where graphs and tokens can't be told apart."""
    used = max(0.0, sums.used)
    per_graph = used / sums.graphs
    per_token = used / sums.tokens if sums.tokens else 0.0
    if phase == PROMPT and per_token:
        return Cost(0.0, per_token)
    return Cost(per_graph / 2, per_token / 2) if per_token else Cost(per_graph, 0.0)


def _least_squares(
    sums: _Sums, told: Sequence[Observation]
) -> tuple[Cost, Spread | None]:
    """Return the line and its spread, which two observations leave open."""
    line, covariance, coefficients = _line(sums)
    freedom = len(told) - coefficients
    if len(told) < _FEWEST_FOR_SPREAD:
        return line, None
    left = sum(
        (each.used_bytes - line.of(len(each.buckets), each.tokens)) ** 2
        / len(each.buckets)
        for each in told
    )
    return line, Spread(left / freedom, covariance, _T_95[min(freedom, len(_T_95)) - 1])


def _line(sums: _Sums) -> tuple[Cost, tuple[float, float, float], int]:
    """Return the weighted least-squares line, its covariance and its free coefficients.

    Neither coefficient may be negative: the other one is then fitted alone.
    """
    det = sums.determinant
    fixed = (sums.squares * sums.used - sums.tokens * sums.used_tokens) / det
    slope = (sums.graphs * sums.used_tokens - sums.tokens * sums.used) / det
    if fixed >= 0 and slope >= 0:
        covariance = (sums.squares / det, sums.graphs / det, -sums.tokens / det)
        return Cost(fixed, slope), covariance, 2
    if fixed < 0:
        alone = max(0.0, sums.used_tokens / sums.squares)
        return Cost(0.0, alone), (0.0, 1 / sums.squares, 0.0), 1
    alone = max(0.0, sums.used / sums.graphs)
    return Cost(alone, 0.0), (1 / sums.graphs, 0.0, 0.0), 1


def prior(hidden_size: int = _HIDDEN_SIZE) -> GraphLaw:
    """Return what public figures say before any log: a guess with a very wide interval.

    A prompt's slope is taken in proportion to the hidden size of the model; nothing public
    tells the cards apart.  The interval spans the public figures, a factor of several
    hundred, and the value is their median.
    """
    slopes = [
        point.used_bytes / point.tokens * hidden_size / point.hidden_size
        for point in POINTS
        if point.phase == PROMPT
    ]
    fixed = [
        point.used_bytes / point.graphs for point in POINTS if point.phase == DECODE
    ]
    return GraphLaw(
        {
            PROMPT: _spanning([Cost(0.0, each) for each in slopes], median(slopes), 0),
            DECODE: _spanning([Cost(each, 0.0) for each in fixed], 0, median(fixed)),
        }
    )


def _spanning(public: list[Cost], token_bytes: float, fixed_bytes: float) -> PhaseLaw:
    return PhaseLaw(Cost(fixed_bytes, token_bytes), "prior", bounds=tuple(public))


@dataclass(frozen=True, slots=True)
class WarmupUse:
    """Device memory of one warm-up, in bytes.

    Attributes:
        peak_bytes: the most that was taken at any step.
        steady_bytes: what stayed taken at the end.
    """

    peak_bytes: int
    steady_bytes: int


def warmup_use(free_before_bytes: int, free_bytes: Sequence[int]) -> WarmupUse:
    """Return peak and steady use from the free memory before warm-up and at each step."""
    after = free_bytes[-1] if free_bytes else free_before_bytes
    least = min((free_before_bytes, *free_bytes))
    return WarmupUse(free_before_bytes - least, max(0, free_before_bytes - after))


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether graphs and workspace fit.

    Attributes:
        need: graphs and workspace.
        room_bytes: reserve and margin.
    """

    need: Estimate
    room_bytes: int

    @property
    def fits(self) -> bool:
        """Tell whether even the upper end fits."""
        return self.need.high <= self.room_bytes

    @property
    def is_hopeless(self) -> bool:
        """Tell whether not even the lower end fits."""
        return self.need.low > self.room_bytes

    @property
    def is_short(self) -> bool:
        """Tell whether the best guess doesn't fit."""
        return self.need.value > self.room_bytes


def feasible(
    graphs: Estimate, workspace: Estimate, reserve_bytes: int, margin_bytes: int
) -> Verdict:
    """Return whether warm-up gets through: graphs + workspace <= reserve + margin.

    The reserve is no budget for the runtime of today (fork 1.22 and later, the plugin):
    it only keeps the KV cache small, and warm-up dies where memory ends.

    Args:
        graphs: what the graphs take, see :meth:`GraphLaw.bytes_of`.
        workspace: what warm-up needs for a moment, on top.
        reserve_bytes: set aside for graphs.
        margin_bytes: free memory outside of vLLM's budget.
    """
    return Verdict(graphs + workspace, reserve_bytes + margin_bytes)
