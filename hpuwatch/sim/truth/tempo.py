"""What one step costs on the simulated cards: geometry, and what a card can do at best.

A step is a sum, as if nothing overlapped::

    launch      every layer, every step
    arithmetic  two operations for each weight and token, four for each pair that attends
    memory      the weights once, and the KV blocks of the bucket
    links       the sums over cards after attention and after the feed-forward part

The card's label gives peak rates; :class:`Efficiency` says how much of them comes through.
Its six figures are fitted to half of the published throughputs (all of gaudi3) by
``tests/fidelity.py``; the other half and gaudi2 are predictions.  A graph runs at its
bucket's size, so padding costs what tokens cost.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from hpuwatch.sim.models.model import Model

_PAIR_FLOPS = 4  # scores and values, a multiplication and an addition each
_ATTENTION_SHARE = 0.5  # of the matmul rate; assumed, no published point is long enough
_ACTIVATION_BYTES = 2
_FP8_BELOW = 1.5


@dataclass(frozen=True, slots=True)
class Peak:
    """What a card can do at best, per second, from its data sheet.

    Attributes:
        bf16_flops: operations on bf16 matrices.
        fp8_flops: the same on fp8.
        memory_bytes: read from device memory.
        link_bytes: sent to the other cards of a server.
    """

    bf16_flops: float
    fp8_flops: float
    memory_bytes: float
    link_bytes: float


PEAKS = {
    "gaudi2": Peak(432e12, 865e12, 2.45e12, 300e9),
    "gaudi3": Peak(1835e12, 1835e12, 3.7e12, 600e9),
}


@dataclass(frozen=True, slots=True)
class Efficiency:
    """How much of the peak comes through; all cards and models alike.

    Attributes:
        matmul: share of the peak arithmetic.
        memory: share of the peak memory bandwidth.
        link: share of the peak link bandwidth.
        layer_seconds: launch of one layer.
        sum_seconds: start of one sum over two cards; grows with the logarithm.
        sequence_seconds: sampling and bookkeeping of one sequence.
    """

    matmul: float
    memory: float
    link: float
    layer_seconds: float
    sum_seconds: float
    sequence_seconds: float


FITTED = Efficiency(
    matmul=0.378,
    memory=0.924,
    link=0.875,
    layer_seconds=55.7e-6,
    sum_seconds=6.04e-6,
    sequence_seconds=5.02e-6,
)


@dataclass(frozen=True, slots=True)
class Work:
    """A model as arithmetic and memory see it; all cards together but for the KV cache.

    Attributes:
        parameters: all weights.
        multiplied: weights that one token meets in the layers; with experts not all.
        head_parameters: weights of the output head, met where a token is sampled.
        weight_bytes: bytes of one weight.
        layers: all layers.
        attention_width: query heads times head size, over the layers that attend.
        hidden_size: numbers of a token between two layers.
        kv_token_bytes: keys and values of one token on one card, which may repeat heads.
    """

    parameters: float
    multiplied: float
    head_parameters: float
    weight_bytes: float
    layers: int
    attention_width: int
    hidden_size: int
    kv_token_bytes: float

    @property
    def is_fp8(self) -> bool:
        """Tell whether matrices are multiplied as fp8; scales make a weight 1.1 bytes."""
        return self.weight_bytes < _FP8_BELOW

    @property
    def met(self) -> float:
        """Weights that any token may meet: the input embedding is only looked up."""
        return max(1.0, self.parameters - self.head_parameters)

    def read_bytes(self, tokens: int) -> float:
        """Return the bytes of weights that ``tokens`` tokens read.

        Without experts that is all.  With experts the more tokens, the more experts are
        met: each token leaves out the same share, another one each time.
        """
        inactive = 1 - min(1.0, (self.multiplied + self.head_parameters) / self.met)
        return self.weight_bytes * self.met * (1 - inactive ** max(1, tokens))


@dataclass(frozen=True, slots=True)
class Parts:
    """Seconds of one step by what they go into."""

    launch: float
    arithmetic: float
    memory: float
    links: float

    @property
    def seconds(self) -> float:
        """All parts together."""
        return self.launch + self.arithmetic + self.memory + self.links


@dataclass(frozen=True, slots=True)
class StepLaw:
    """Steps of one model on ``ranks`` cards."""

    work: Work
    peak: Peak
    ranks: int
    efficiency: Efficiency = FITTED

    def prompt(self, batch: int, query: int, context_tokens: int) -> Parts:
        """Return a prefill of ``batch`` prompts of ``query`` tokens behind a context.

        The kernel is causal: on average a token attends to half of its own prompt.
        """
        work, tokens = self.work, batch * query
        pairs = tokens * (query / 2 + context_tokens)
        return Parts(
            launch=self._launch(batch),
            arithmetic=self._matmul(
                work.multiplied * tokens + work.head_parameters * batch
            )
            + self._attend(pairs),
            memory=self._read(tokens, batch * context_tokens),
            links=self._sums(tokens),
        )

    def decode(self, batch: int, kv_tokens: float) -> Parts:
        """Return one token for ``batch`` sequences that hold ``kv_tokens`` together."""
        work = self.work
        return Parts(
            launch=self._launch(batch),
            arithmetic=self._matmul((work.multiplied + work.head_parameters) * batch),
            memory=self._read(batch, kv_tokens),
            links=self._sums(batch),
        )

    @property
    def _flops(self) -> float:
        peak = self.peak.fp8_flops if self.work.is_fp8 else self.peak.bf16_flops
        return peak * self.efficiency.matmul * self.ranks

    def _launch(self, batch: int) -> float:
        each = self.efficiency
        return each.layer_seconds * self.work.layers + each.sequence_seconds * batch

    def _matmul(self, products: float) -> float:
        return 2 * products / self._flops

    def _attend(self, pairs: float) -> float:
        operations = _PAIR_FLOPS * self.work.attention_width * pairs
        return operations / (self._flops * _ATTENTION_SHARE)

    def _read(self, tokens: int, kv_tokens: float) -> float:
        """Return what reading weights for some tokens, and cached keys and values, takes."""
        work = self.work
        count = work.read_bytes(tokens) / self.ranks + kv_tokens * work.kv_token_bytes
        return count / (self.peak.memory_bytes * self.efficiency.memory)

    def _sums(self, tokens: int) -> float:
        """Two sums a layer; each card sends and takes its share of the others twice."""
        ranks, each = self.ranks, self.efficiency
        if ranks == 1:
            return 0.0
        sent = (
            2 * (ranks - 1) / ranks * tokens * self.work.hidden_size * _ACTIVATION_BYTES
        )
        once = sent / (self.peak.link_bytes * each.link)
        return 2 * self.work.layers * (once + each.sum_seconds * math.log2(ranks))


def work_of(model: Model, kv_token_bytes: float, weight_bytes: float) -> Work:
    """Return what a model has to compute and to read.

    The embedding and an output head of the same size are taken to be apart.

    Args:
        model: its geometry.
        kv_token_bytes: keys and values of one token on one card.
        weight_bytes: bytes of one weight as it is served.
    """
    head = model.vocabulary * model.hidden_size
    return Work(
        parameters=model.parameters,
        multiplied=max(model.active_parameters - 2 * head, model.active_parameters / 2),
        head_parameters=head,
        weight_bytes=weight_bytes,
        layers=model.layers,
        attention_width=model.attention_layers * model.heads * model.head_dim,
        hidden_size=model.hidden_size,
        kv_token_bytes=kv_token_bytes,
    )
