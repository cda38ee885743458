"""The scheduler of vLLM's V0 engine, which the fork's releases run.

A step computes whole prompts or decodes, never both, and prompts come first.  A share of
the blocks is kept free when prompts are admitted.  When no block is free for a decode, the
newest running request gives way: it starts over later; one that was asked for several
answers has its blocks swapped to the host instead, and they come back when there is room.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from hpuwatch.sim.serve.schedule import Request, Scheduler

_WATERMARK = 0.01  # of all blocks, kept free when a prompt is admitted
_PREEMPTIONS_PER_LINE = 50  # every fiftieth is told


@dataclass(frozen=True, slots=True)
class Preempted:
    """A preemption that the log tells of; ``count`` is how many there were so far."""

    request: Request
    mode: str
    count: int


@dataclass(slots=True)
class OlderScheduler(Scheduler):
    """The queues of a V0 engine.

    Attributes:
        swap_blocks: blocks on the host.
        swapped: requests whose blocks lie on the host, with their number.
        refused: requests that could never run, for the engine to end.
        told: preemptions for the log, for the engine to print.
    """

    swap_blocks: int = 0
    swapped: deque[tuple[Request, int]] = field(default_factory=deque)
    refused: list[Request] = field(default_factory=list)
    told: list[Preempted] = field(default_factory=list)

    @property
    def has_work(self) -> bool:
        """Tell whether any request is running or waiting."""
        return bool(self.running or self.waiting or self.swapped)

    @property
    def swapped_blocks(self) -> int:
        """Blocks in use on the host."""
        return sum(blocks for _, blocks in self.swapped)

    @property
    def host_usage(self) -> float:
        """Share of the host's blocks in use, 0 to 1."""
        return self.swapped_blocks / self.swap_blocks if self.swap_blocks else 0.0

    def drop(self, request: Request) -> None:
        """Forget a request, wherever it is."""
        Scheduler.drop(self, request)
        self.swapped = deque(row for row in self.swapped if row[0] is not request)

    def _choose(self) -> tuple[list[tuple[Request, int]], list[Request]]:
        prefills = [] if self.swapped else self._admit_prompts()
        if prefills:
            return prefills, []
        before = self.preemptions
        decodes: list[Request] = []
        index = 0
        while index < len(self.running):
            request = self.running[index]
            if not self._make_room(request, 1):
                break
            decodes.append(request)
            index += 1
        if self.preemptions == before:
            decodes += self._swap_in()
        return [], decodes

    def _admit_prompts(self) -> list[tuple[Request, int]]:
        limits, pool = self.limits, self.pool
        most = limits.max_num_prefill_seqs or limits.max_num_seqs
        admitted: list[tuple[Request, int]] = []
        longest = used = 0
        while self.waiting and len(admitted) < most:
            request = self.waiting[0]
            blocks = -(-request.tokens // pool.block_size)
            watermark = int(_WATERMARK * pool.count)
            if blocks > pool.count - watermark:
                # Nothing that others give back would ever be enough.
                self.refused.append(self.waiting.popleft())
                continue
            found = self._cached_blocks(request)
            tokens = request.tokens - len(found) * pool.block_size
            longest = max(longest, tokens)
            padded = longest * (len(admitted) + 1)
            total = padded if limits.padding_aware else used + tokens
            if (
                total > limits.max_num_batched_tokens
                or len(self.running) >= limits.max_num_seqs
                or blocks - len(found) + pool.dormant(found) + watermark > pool.free
                or not self._begin(request, found, tokens)
            ):
                break
            self.running.append(self.waiting.popleft())
            admitted.append((request, tokens))
            used += tokens
        return admitted

    def _preempt(self, request: Request) -> None:
        blocks = len(request.blocks)
        fits = self.swapped_blocks + blocks <= self.swap_blocks
        swaps = request.siblings > 1 and fits
        if self.preemptions % _PREEMPTIONS_PER_LINE == 0:
            mode = "SWAP" if swaps else "RECOMPUTE"
            self.told.append(Preempted(request, mode, self.preemptions + 1))
        if not swaps:
            self._start_over(request)
            return
        self.running.remove(request)
        self._free(request)
        self.preemptions += 1
        self.swapped.append((request, blocks))

    def _swap_in(self) -> list[Request]:
        """Take back who was swapped out, as far as there is room for a step of each."""
        back: list[Request] = []
        pool = self.pool
        while self.swapped and len(self.running) < self.limits.max_num_seqs:
            request, blocks = self.swapped[0]
            needed = max(blocks, -(-(request.computed + 1) // pool.block_size))
            if needed + int(_WATERMARK * pool.count) > pool.free:
                break
            self.swapped.popleft()
            request.blocks = pool.take(needed)
            self.running.append(request)
            back.append(request)
        return back
