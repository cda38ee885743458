"""How long things take on the simulated machine: starting, compiling, steps.

Each duration follows a public law (``tempo`` for steps, ``compiling`` for graphs, constants
here for the rest), and the truth departs from it as ``truth.hidden`` says.  Besides there
are terms that no planner knows of: compiling grows with the layers that attend times the
logarithm of the size, and a decode with the logarithm of its batch.  With
misfit 0 the laws are the truth.  Noise comes on top of everything, from the seed alone.

The public figures that the constants are set from stand beside what comes out in
``docs/explanation/simulator.md``.
"""

from __future__ import annotations

import math

from hpuwatch.gaudi.buckets import DECODE, PROMPT, Bucket
from hpuwatch.sim.config.options import Options
from hpuwatch.sim.truth.compiling import CompileLaw, During
from hpuwatch.sim.truth.dice import dice
from hpuwatch.sim.truth.memory import MemoryTruth
from hpuwatch.sim.truth.tempo import PEAKS, StepLaw, work_of
from hpuwatch.units import GIB

_IMPORT_SECONDS = 3.2
_ENGINE_START_SECONDS = 8.5
_LOAD_BYTES_PER_SECOND = 4.2 * GIB  # of one rank; all together load a tenth faster each
_LOAD_RANK_SHARE = 0.1
_LOAD_FIXED_SECONDS = 0.3
_PROFILE_SECONDS = 0.3
_KV_CACHE_SECONDS = 0.6
_SAMPLER_BATCH_SECONDS = 0.28
_DEFRAGMENTER_SECONDS = 4.0
_IMAGE_SECONDS = 0.4
_FIRST_IMAGE_SECONDS = 6.0
_REPEATED_SECONDS = 0.05
_FIRST_USE_LAYER_SECONDS = 0.012

_SLOW_SHAPE_FACTOR = 1.25
_LOG_COMPILE_SECONDS = 0.0003  # per attending layer and doubling of the size
_LOG_BATCH = 0.02  # of a decode, per doubling of its batch


class TimeTruth:
    """Durations of one simulated server, in simulated seconds."""

    eager_factor = 1.4
    """How much longer steps take without graphs: 512 and 365 tokens/s have been reported."""

    def __init__(self, options: Options, memory: MemoryTruth, *, lazy: bool) -> None:
        """Draw the hidden departures.

        Args:
            options: the server; its seed, misfit and noise above all.
            memory: what it keeps on each card.
            lazy: the bridge runs in lazy mode, not in that of ``torch.compile``.
        """
        ranks, model = options.tensor_parallel, options.model
        served_bytes = (memory.weights_bytes + memory.inc_bytes) * ranks
        work = work_of(
            model,
            memory.block_bytes / options.block_size,
            served_bytes / model.parameters,
        )
        self._options = options
        self._memory = memory
        self._hidden = memory.hidden
        self._noise = dice(self._hidden.name, "noise")
        self._steps = StepLaw(work, PEAKS[options.card.name], ranks)
        self._graphs = CompileLaw.of(
            model.layers,
            lazy=lazy,
            fp8=work.is_fp8,
            experts=model.experts > 0,
            ranks=ranks,
        )
        self._step_seconds: dict[tuple[str, Bucket], float] = {}
        self._cold = 1.0  # share that the process has not paid for its first graph

    def import_seconds(self) -> float:
        """Return how long the front end needs to its first line of its own."""
        return self._noisy(_IMPORT_SECONDS)

    def engine_start_seconds(self) -> float:
        """Return how long the engine needs until it loads weights."""
        return self._noisy(_ENGINE_START_SECONDS)

    def load_seconds(self) -> float:
        """Return how long the weights take."""
        ranks = self._options.tensor_parallel
        rate = _LOAD_BYTES_PER_SECOND * (1 + _LOAD_RANK_SHARE * (ranks - 1))
        loaded = self._memory.weights_bytes * ranks
        return self._noisy(_LOAD_FIXED_SECONDS + loaded / rate)

    def profile_seconds(self, batch: int = 0, query: int = 0) -> float:
        """Return how long the profile run takes.

        Args:
            batch: of the prefill that it runs; 0 where it only initialises.
            query: tokens of each of its prompts.
        """
        seconds = _PROFILE_SECONDS
        if batch:
            run = self._steps.prompt(batch, query, 0)
            size = batch * query
            seconds += self._cold_share(1.0)
            seconds += self._hidden.tempi[PROMPT].seconds(run, size)
        return self._noisy(seconds)

    def kv_cache_seconds(self) -> float:
        """Return how long making the KV cache takes."""
        return self._noisy(_KV_CACHE_SECONDS)

    def image_seconds(self, index: int) -> float:
        """Return one multimodal step of the warm-up, counted from 0."""
        return self._noisy(_IMAGE_SECONDS if index else _FIRST_IMAGE_SECONDS)

    def sampler_seconds(self, batches: int) -> float:
        """Return the warm-up of the sampler with so many batch sizes.

        Where no profile run came before, it pays for half of what a first graph costs:
        22 s instead of 5 in two logs of one model.
        """
        return self._noisy(_SAMPLER_BATCH_SECONDS * batches + self._cold_share(0.5))

    def defragmenter_seconds(self) -> float:
        """Return the warm-up of the defragmenter."""
        return self._noisy(_DEFRAGMENTER_SECONDS)

    def compile_seconds(
        self,
        phase: str,
        bucket: Bucket,
        *,
        first: bool,
        cached: bool,
        during: During = "warmup",
    ) -> float:
        """Return how long it takes to compile, trace and capture one bucket.

        Args:
            phase: ``prompt`` or ``decode``.
            bucket: the shape.
            first: no other graph of the phase has been made.
            cached: its recipe only has to be loaded.
            during: a rehearsal compiles and doesn't capture; the first graph that traffic
                meets pays for all that a skipped warm-up left.
        """
        law, tempo = self._graphs, self._hidden.tempi[phase]
        seconds = tempo.trace * law.trace_seconds(phase)
        if during == "rehearsal":
            seconds = 0.0
        if not cached:
            seconds += tempo.compile * self._compiled(phase, bucket)
        if first and during == "traffic":
            seconds += law.unwarmed_seconds
        elif first:
            seconds += self._cold_share(1.0) + (0.0 if cached else law.first_seconds)
        return self._noisy(seconds)

    def repeated_seconds(self) -> float:
        """Return what warm-up spends on a bucket whose shape has a graph already."""
        return self._noisy(_REPEATED_SECONDS)

    def first_use_seconds(self, phase: str, bucket: Bucket) -> float:
        """Return what the first request of each shape pays on top, once."""
        slow = self._hidden.outlier("first use", phase, bucket)
        each = _FIRST_USE_LAYER_SECONDS * self._options.model.layers
        return self._noisy(each * slow)

    def step_seconds(self, phase: str, bucket: Bucket) -> float:
        """Return how long one run of a bucket takes, padding included."""
        key = (phase, bucket)
        seconds = self._step_seconds.get(key)
        if seconds is None:
            seconds = self._step_seconds[key] = self._step(phase, bucket)
        return self._noisy(seconds)

    def natural_length(self, prompt: str) -> int:
        """Return after how many tokens the model would stop by itself."""
        return 24 + int(dice(self._hidden.name, "length", prompt).expovariate(1 / 320))

    def _step(self, phase: str, bucket: Bucket) -> float:
        options, tempo = self._options, self._hidden.tempi[phase]
        held = options.block_size * bucket.context
        if phase == PROMPT:
            parts = self._steps.prompt(bucket.batch, bucket.query, held)
            seconds = tempo.seconds(parts, bucket.batch * bucket.query)
        else:
            parts = self._steps.decode(bucket.batch, held)
            gather = 1 + _LOG_BATCH * options.misfit * math.log2(max(1, bucket.batch))
            seconds = tempo.seconds(parts, bucket.batch) * gather
        slow = self._hidden.outlier("step", phase, bucket, _SLOW_SHAPE_FACTOR)
        return seconds * slow

    def _compiled(self, phase: str, bucket: Bucket) -> float:
        """Return what compiling takes by law, and what no law tells."""
        size = bucket.context if phase == DECODE else bucket.batch * bucket.query
        doublings = math.log2(1 + size)
        unknown = _LOG_COMPILE_SECONDS * self._options.misfit * doublings
        seconds = self._graphs.compile_seconds(phase, bucket)
        slow = self._hidden.outlier("compile", phase, bucket)
        return seconds * slow + unknown * self._options.model.attention_layers

    def _cold_share(self, share: float) -> float:
        """Return that share of what the process pays for its first graph, if it is left."""
        paid = min(share, self._cold)
        self._cold -= paid
        return paid * self._graphs.cold_seconds

    def _noisy(self, seconds: float) -> float:
        return seconds * max(0.2, self._noise.gauss(1.0, self._options.noise))
