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

from dataclasses import dataclass

from hpuwatch.gaudi.buckets import DECODE, PROMPT, Bucket
from hpuwatch.gaudi.kvcache import shared_out, token_bytes
from hpuwatch.sim.config.options import Options
from hpuwatch.sim.truth.dice import dice
from hpuwatch.sim.truth.presets import GraphLaw

_SLOPE_SPREAD = 0.3
_HEAVY_SHARE = 0.06
_HEAVY_FACTOR = 3.0
_KINK_AT = {PROMPT: (512, 4096), DECODE: (16, 128)}  # tokens; sequences
_LOGIT_BYTES = 4


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


class MemoryTruth:
    """Memory of one simulated server, per card."""

    def __init__(self, options: Options) -> None:
        """Draw the hidden departures."""
        self._options = options
        self._name = f"{options.seed}/{options.model.name}/{options.card.name}"
        self._bends = {phase: self._bend(phase) for phase in (PROMPT, DECODE)}
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
