"""What it costs to prepare a graph: trace it on the host, compile it, capture it.

A graph's seconds are those of one layer, ``trace + compile + size``, times the layers, and::

    trace     paid for every graph, cached or not
    compile   not paid where the recipe cache holds the graph
    size      part of compiling: per token of a prompt, per KV block of a decode

The rates belong to the bridge's mode and the weights' type, and none to the card: it is the
host that works.  They are set by hand from public logs, which are few; the page on fidelity
shows how well each of them comes out.  Ranks compile at once and share one host, experts
make a layer larger, and the first graphs of a process pay for what the others share.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from hpuwatch.gaudi.buckets import DECODE, PROMPT, Bucket

_EXPERT_FACTOR = 2.0  # one public point: MiniMax-M2, 4 s a prompt
_CONTENTION = 0.05  # for each further rank
_FIRST_LAYER_SECONDS = 0.1  # first graph of a phase in warm-up: 5 s too many, 64 layers
_COLD_LAYER_SECONDS = 0.45  # first graph of a process: profile runs of 39 s and of 60 s
_UNWARMED_LAYER_SECONDS = 0.6  # first graph of a phase under traffic: 62 s and 41 s


During = Literal["warmup", "rehearsal", "traffic"]
"""When a graph is met: V0 rehearses all shapes before it captures any."""


@dataclass(frozen=True, slots=True)
class Rate:
    """Seconds of one layer in one phase; ``size_seconds`` is of one token or block."""

    trace_seconds: float
    compile_seconds: float
    size_seconds: float


LAZY: Mapping[str, Rate] = {
    PROMPT: Rate(0.0156, 0.0045, 6e-6),
    DECODE: Rate(0.0103, 0.0045, 6e-6),
}
"""Lazy mode, bf16: an 8B model of which 72 graphs took 49 s, and 23 s of 66 when cached."""

LAZY_FP8: Mapping[str, Rate] = {
    PROMPT: Rate(0.0156, 0.26, 6e-6),
    DECODE: Rate(0.0103, 0.26, 6e-6),
}
"""Lazy mode, fp8: the same model took 504 s, and 34 s when cached."""

TORCH_COMPILE: Mapping[str, Rate] = {
    PROMPT: Rate(0.011, 0.0203, 1.2e-6),
    DECODE: Rate(0.0075, 0.0139, 0.0),
}
"""torch.compile: 48 prompts in 160 s and 162 decodes in 241 s, 64 layers.

What of that is tracing no log tells: the third is that of lazy mode.
"""


@dataclass(frozen=True, slots=True)
class CompileLaw:
    """Graphs of one model in one mode of the bridge.

    Attributes:
        rates: by phase.
        layers: those of the model.
        factor: what experts and other ranks make of it.
    """

    rates: Mapping[str, Rate]
    layers: int
    factor: float = 1.0

    @classmethod
    def of(
        cls, layers: int, *, lazy: bool, fp8: bool, experts: bool, ranks: int
    ) -> CompileLaw:
        """Choose the rates for a model."""
        rates = (LAZY_FP8 if fp8 else LAZY) if lazy else TORCH_COMPILE
        factor = (_EXPERT_FACTOR if experts else 1.0) * (1 + _CONTENTION * (ranks - 1))
        return cls(rates, layers, factor)

    def trace_seconds(self, phase: str) -> float:
        """Return the host's work on one graph."""
        return self.rates[phase].trace_seconds * self.layers * self.factor

    def compile_seconds(self, phase: str, bucket: Bucket) -> float:
        """Return what compiling a graph takes beside its trace."""
        rate = self.rates[phase]
        size = bucket.context if phase == DECODE else bucket.batch * bucket.query
        each = rate.compile_seconds + rate.size_seconds * size
        return each * self.layers * self.factor

    @property
    def first_seconds(self) -> float:
        """What the first graph of a phase pays for the others, in warm-up."""
        return _FIRST_LAYER_SECONDS * self.layers * self.factor

    @property
    def cold_seconds(self) -> float:
        """What the first graph of a process pays on top."""
        return _COLD_LAYER_SECONDS * self.layers

    @property
    def unwarmed_seconds(self) -> float:
        """What the first graph of a phase pays under traffic, without a warm-up before."""
        return _UNWARMED_LAYER_SECONDS * self.layers
