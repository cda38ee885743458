"""How long things take on the simulated machine: loading, compiling, steps."""

from __future__ import annotations

from hpuwatch.gaudi.buckets import DECODE, PROMPT, Bucket
from hpuwatch.sim.config.options import Options
from hpuwatch.sim.truth.dice import dice
from hpuwatch.sim.truth.memory import MemoryTruth
from hpuwatch.sim.truth.presets import TimeLaw
from hpuwatch.units import GIB

_LOAD_BYTES_PER_SECOND = 2.1 * GIB
_FIRST_BUCKET_FACTOR = 6.0
_SECONDS_OF_KTOKEN = {PROMPT: 0.45, DECODE: 0.9}  # of bucket_seconds, per 1024 tokens
_CACHED_RECIPE_FACTOR = 0.35
_FIRST_USE_FACTOR = 0.15


class TimeTruth:
    """Durations of one simulated server, in simulated seconds."""

    def __init__(self, options: Options, memory: MemoryTruth) -> None:
        """Draw the noise."""
        self._options = options
        self._memory = memory
        self._name = f"{options.seed}/{options.model.name}/{options.card.name}"
        self._noise = dice(self._name, "noise")

    def load_seconds(self) -> float:
        """Return how long the weights take."""
        return self._noisy(self._memory.weights_bytes / _LOAD_BYTES_PER_SECOND)

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
