"""Which graphs a budget holds: how the forks up to 1.21 chose what they captured.

After a pass that only compiles, what is free beyond the margin is the budget::

    graphs = free now - (1 - utilisation) * free after the profile run
    prompt = VLLM_GRAPH_PROMPT_RATIO * graphs, and decode the rest

Each phase goes through its buckets in the order of its strategy.  What a graph will take is
estimated from what those before it took, in proportion to tokens (decode: sequences); a
graph whose estimate doesn't lie below what is left is passed over.  When one phase captured
everything and memory is left, the other goes through its buckets a second time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from hpuwatch.gaudi.buckets import PROMPT, Bucket

_NO_WEIGHT = 0.001
"""What the estimate divides by before anything is captured."""


def _length(bucket: Bucket) -> int:
    """Return the second number of a pair: tokens of a prompt, blocks of a decode."""
    return max(bucket.query, bucket.context)


ORDERS: Mapping[str, Callable[[Bucket], tuple[int, ...]]] = {
    "min_tokens": lambda b: (b.batch * _length(b), _length(b), b.batch),
    "max_bs": lambda b: (-b.batch, _length(b)),
}
"""The strategies by which buckets are ordered, as VLLM_GRAPH_PROMPT_STRATEGY spells them."""


@dataclass(frozen=True, slots=True)
class Budget:
    """Device memory for graphs, in bytes; negative where the margin is used up already."""

    graph_bytes: float
    prompt_bytes: float
    decode_bytes: float

    @classmethod
    def of(cls, free_bytes: float, margin_bytes: float, prompt_ratio: float) -> Budget:
        """Divide what is free beyond the margin between the phases."""
        graphs = free_bytes - margin_bytes
        prompt = prompt_ratio * graphs
        return cls(graphs, prompt, graphs - prompt)


@dataclass(slots=True)
class Captures:
    """The graphs of one phase: those that are captured, and what they took.

    Attributes:
        buckets: the candidates, in the order of the strategy.
        captured: those that have a graph.
        complete: the last pass left nothing out for want of memory.
    """

    phase: str
    buckets: list[Bucket]
    taken_bytes: int = 0
    captured: set[Bucket] = field(default_factory=set)
    complete: bool = False
    _weight: float = _NO_WEIGHT

    @classmethod
    def ordered(cls, phase: str, buckets: Iterable[Bucket], order: str) -> Captures:
        """Take the candidates of a phase in the order of a strategy.

        Raises:
            KeyError: no strategy is called ``order``.
        """
        return cls(phase, sorted(buckets, key=ORDERS[order]))

    @property
    def percent(self) -> float:
        """The share of candidates that are captured; 0 where there are none."""
        return 100 * len(self.captured) / max(1, len(self.buckets))

    def due(self, budget_bytes: float) -> Iterator[tuple[int, Bucket]]:
        """Go through the candidates once and yield (number from 1, bucket) of each to capture.

        Say with :meth:`took` what one took before asking for the next.
        """
        self.complete = True
        ceiling = self.taken_bytes + budget_bytes
        for number, bucket in enumerate(self.buckets, 1):
            if self._estimate_bytes(bucket) >= ceiling - self.taken_bytes:
                self.complete = False
            elif bucket not in self.captured:
                yield number, bucket

    def took(self, bucket: Bucket, graph_bytes: int) -> None:
        """Take note of a captured graph."""
        self.captured.add(bucket)
        self.taken_bytes += graph_bytes
        self._weight += self._weight_of(bucket)

    def _estimate_bytes(self, bucket: Bucket) -> float:
        return self._weight_of(bucket) / self._weight * self.taken_bytes

    def _weight_of(self, bucket: Bucket) -> int:
        return bucket.batch * (bucket.query if self.phase == PROMPT else 1)
