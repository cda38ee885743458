"""What is true of the simulated machine, and never printed: memory and time of each graph.

The public law of a preset is linear in tokens and blocks.  The truth departs from it by a
hidden seed, as far as ``misfit`` says: slopes are off by up to 30 %, one kink bends each
line, some graphs are three times as heavy, and a prefill needs transient activations that
no log line tells of.  With misfit 0 the public law is the truth.  Everything follows from
(seed, model, card) alone, so that two starts with one seed are the same.

Device memory in use never exceeds the card: a graph (with the activations of its first
run) that doesn't fit is the end of the engine, as on a real card.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from hpuwatch.gaudi.buckets import DECODE, PROMPT, Bucket
from hpuwatch.gaudi.kvcache import shared_out, token_bytes
from hpuwatch.sim.options import Options
from hpuwatch.sim.presets import GraphLaw, TimeLaw
from hpuwatch.units import GIB, MIB

_SLOPE_SPREAD = 0.3
_HEAVY_SHARE = 0.06
_HEAVY_FACTOR = 3.0
_KINK_AT = {PROMPT: (512, 4096), DECODE: (16, 128)}  # tokens; sequences
_LOGIT_BYTES = 4

_LOAD_BYTES_PER_SECOND = 2.1 * GIB
_FIRST_BUCKET_FACTOR = 6.0
_SECONDS_OF_KTOKEN = {PROMPT: 0.45, DECODE: 0.9}  # of bucket_seconds, per 1024 tokens
_CACHED_RECIPE_FACTOR = 0.35
_FIRST_USE_FACTOR = 0.15


@dataclass(frozen=True, slots=True)
class _Bend:
    """How the truth departs from a straight law in one phase."""

    slope: float
    kink_at: int
    beyond: float  # slope factor past the kink

    def tokens(self, tokens: int) -> float:
        """Return the tokens that the public slope would have to count."""
        above = max(0, tokens - self.kink_at)
        return self.slope * (tokens - above + self.beyond * above)


class Truth:
    """Memory and time of one simulated server, per card."""

    def __init__(self, options: Options) -> None:
        """Draw the hidden departures."""
        self._options = options
        self._name = f"{options.seed}/{options.model.name}/{options.card.name}"
        self._bends = {phase: self._bend(phase) for phase in (PROMPT, DECODE)}
        self._noise = dice(self._name, "noise")
        ranks = options.tensor_parallel
        self.weights_bytes = options.model.weights_bytes // ranks
        kv_heads = shared_out(options.model.kv_heads, ranks)
        self.block_bytes = (
            options.model.layers
            * token_bytes(kv_heads, options.model.head_dim, options.model.dtype_bytes)
            * options.block_size
        )

    @property
    def total_bytes(self) -> int:
        """Device memory of the card."""
        return self._options.card.total_bytes

    def graph_bytes(self, phase: str, bucket: Bucket) -> int:
        """Return what the captured graph of a bucket keeps."""
        law: GraphLaw = self._options.model.graphs[phase]
        tokens = self._bends[phase].tokens(bucket.batch * bucket.query)
        size = (
            law.fixed_bytes
            + law.token_bytes * tokens
            + law.block_bytes * bucket.context * self._bends[phase].slope
        )
        if (
            dice(self._name, "heavy", phase, *bucket).random()
            < _HEAVY_SHARE * self._options.misfit
        ):
            size *= _HEAVY_FACTOR
        return int(size) // 65536 * 65536

    def activation_bytes(self, phase: str, bucket: Bucket) -> int:
        """Return what a run of a bucket needs for a moment; no line tells of it."""
        model = self._options.model
        ranks = self._options.tensor_parallel
        logits = bucket.batch * model.vocabulary * _LOGIT_BYTES
        tokens = bucket.batch * bucket.query if phase == PROMPT else bucket.batch
        needed = (tokens * model.activation_bytes + logits) / ranks
        return int(needed * self._options.misfit)

    def load_seconds(self) -> float:
        """Return how long the weights take."""
        return self._noisy(self.weights_bytes / _LOAD_BYTES_PER_SECOND)

    def profile_seconds(self) -> float:
        """Return how long the profile run takes."""
        return self._noisy(2.0 * self._options.card.time_factor)

    def compile_seconds(
        self, phase: str, bucket: Bucket, *, first: bool, cached: bool
    ) -> float:
        """Return how long it takes to compile and capture one bucket.

        The first bucket of a phase pays for what the others share; one whose recipe is
        cached saves most of it.
        """
        tokens = bucket.batch * bucket.query
        seconds = self._options.model.bucket_seconds[phase] * (
            1 + _SECONDS_OF_KTOKEN[phase] * tokens / 1024
        )
        seconds *= self._options.card.time_factor
        if first:
            seconds *= _FIRST_BUCKET_FACTOR
        if cached:
            seconds *= _CACHED_RECIPE_FACTOR
        return self._noisy(seconds)

    def first_use_seconds(self, phase: str) -> float:
        """Return what the first request of each shape pays on top, once."""
        each = self._options.model.bucket_seconds[phase] * _FIRST_USE_FACTOR
        return self._noisy(each * self._options.card.time_factor)

    def step_seconds(self, phase: str, bucket: Bucket) -> float:
        """Return how long one run of a bucket takes, padding included."""
        model = self._options.model
        law: TimeLaw = model.steps[phase]
        tokens = bucket.batch * bucket.query
        if phase == PROMPT:
            reach = bucket.query / 2 + self._options.block_size * bucket.context
            load = law.token_seconds * tokens + law.block_seconds * tokens * reach
        else:
            load = law.token_seconds * tokens + law.block_seconds * bucket.context
        scale = model.tensor_parallel / self._options.tensor_parallel
        seconds = (law.fixed_seconds + load) * scale * self._options.card.time_factor
        return self._noisy(seconds)

    def natural_length(self, prompt: str) -> int:
        """Return after how many tokens the model would stop by itself."""
        return 24 + int(dice(self._name, "length", prompt).expovariate(1 / 320))

    def _noisy(self, seconds: float) -> float:
        return seconds * max(0.2, self._noise.gauss(1.0, self._options.noise))

    def _bend(self, phase: str) -> _Bend:
        hidden = dice(self._name, "bend", phase)
        misfit = self._options.misfit
        spread = _SLOPE_SPREAD * misfit
        low, high = _KINK_AT[phase]
        return _Bend(
            slope=max(0.1, 1 + hidden.uniform(-spread, spread)),
            kink_at=hidden.randint(low, high),
            beyond=max(0.1, 1 + hidden.uniform(-spread, 2 * spread)),
        )


def dice(*names: object) -> random.Random:
    """Return random numbers that depend on nothing but the names."""
    return random.Random("/".join(map(str, names)))  # noqa: S311  repeatable, no secret


@dataclass(slots=True)
class Memory:
    """Device memory of one card in use, and the card's end.

    Attributes:
        graph_bytes: what graphs keep, by phase.
    """

    total_bytes: int
    used_bytes: int
    graph_bytes: dict[str, int]

    @property
    def free_bytes(self) -> int:
        """What is left on the card."""
        return self.total_bytes - self.used_bytes

    def take(self, count: int) -> None:
        """Use more for good.

        Raises:
            DeviceFull: the card doesn't have it.
        """
        if count > self.free_bytes:
            raise DeviceFull(count)
        self.used_bytes += count

    def capture(self, phase: str, graph_bytes: int, activation_bytes: int) -> None:
        """Run a graph for the first time and keep it.

        Raises:
            DeviceFull: graph and activations don't fit beside the rest.
        """
        if graph_bytes + activation_bytes > self.free_bytes:
            raise DeviceFull(max(graph_bytes, activation_bytes))
        self.used_bytes += graph_bytes
        self.graph_bytes[phase] = self.graph_bytes.get(phase, 0) + graph_bytes


class DeviceFull(Exception):  # noqa: N818  the card's state, told by its allocator
    """An allocation didn't fit; ``wanted_bytes`` is rounded as the allocator rounds."""

    def __init__(self, wanted_bytes: int) -> None:
        """Take what was asked for."""
        super().__init__(wanted_bytes)
        self.wanted_bytes = -(-wanted_bytes // (2 * MIB)) * 2 * MIB
