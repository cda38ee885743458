"""The KV blocks of one engine: who holds which, and what their content can be used for again.

Blocks have physical ids.  Free ones queue up, the longest free at the front, and are taken
from there; with prefix caching a block keeps its content while it waits, under a hash that
chains the tokens of all blocks before it, and a prompt that begins alike takes it back.

vLLM's V1 keeps block 0 for itself, so one block fewer than the log tells can be used.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Protocol


class FreeBlocks(Protocol):
    """The blocks that nobody holds."""

    def __len__(self) -> int:
        """Return how many there are."""

    def pop(self) -> int:
        """Take the next one."""

    def push(self, block: int) -> None:
        """Give one back."""

    def remove(self, block: int) -> None:
        """Take this one, for its content."""


class LongestFree:
    """Hands out the block that has been free for the longest time."""

    def __init__(self, blocks: Iterable[int]) -> None:
        """Take the free blocks in their order."""
        self._queue: OrderedDict[int, None] = OrderedDict.fromkeys(blocks)

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._queue)

    def pop(self) -> int:
        """Take the next one."""
        return self._queue.popitem(last=False)[0]

    def push(self, block: int) -> None:
        """Give one back."""
        self._queue[block] = None

    def remove(self, block: int) -> None:
        """Take this one, for its content."""
        del self._queue[block]


class LowestFree:
    """Hands out the lowest id, as the fork does for contiguous paged attention."""

    def __init__(self, blocks: Iterable[int]) -> None:
        """Take the free blocks."""
        self._heap = sorted(blocks)

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._heap)

    def pop(self) -> int:
        """Take the next one."""
        return heapq.heappop(self._heap)

    def push(self, block: int) -> None:
        """Give one back."""
        heapq.heappush(self._heap, block)

    def remove(self, block: int) -> None:
        """Take this one, for its content."""
        self._heap.remove(block)
        heapq.heapify(self._heap)


class BlockPool:
    """All blocks that requests may hold.

    Attributes:
        block_size: tokens of a block.
        caches: content outlives its request and is found again.
        first: the lowest id that is handed out.
        count: how many can be handed out.
    """

    def __init__(
        self,
        count: int,
        block_size: int,
        *,
        first: int = 0,
        caches: bool = False,
        lowest: bool = False,
    ) -> None:
        """Start with all blocks free; ``lowest`` hands out the lowest id first."""
        ids = range(first, first + count)
        self.block_size = block_size
        self.caches = caches
        self.first = first
        self.count = count
        self._free: FreeBlocks = LowestFree(ids) if lowest else LongestFree(ids)
        self._holders = [0] * (first + count)
        self._known: dict[int, int] = {}  # hash of content → block
        self._content: dict[int, int] = {}  # block → hash of content

    @property
    def free(self) -> int:
        """Blocks that can be handed out."""
        return len(self._free)

    @property
    def used(self) -> int:
        """Blocks that somebody holds."""
        return self.count - len(self._free)

    def known(self, hashes: Sequence[int]) -> list[int]:
        """Return the blocks of the longest beginning whose content is here."""
        found: list[int] = []
        for key in hashes:
            block = self._known.get(key)
            if block is None:
                break
            found.append(block)
        return found

    def dormant(self, blocks: Sequence[int]) -> int:
        """Return how many of these are free, so that sharing them costs free blocks."""
        return sum(not self._holders[block] for block in blocks)

    def share(self, blocks: Sequence[int]) -> None:
        """Hold blocks for their content, beside others or alone."""
        for block in blocks:
            if not self._holders[block]:
                self._free.remove(block)
            self._holders[block] += 1

    def take(self, count: int) -> list[int]:
        """Hold that many new blocks, whose old content is forgotten.

        There must be as many free.
        """
        taken = [self._free.pop() for _ in range(count)]
        for block in taken:
            self._holders[block] = 1
            key = self._content.pop(block, None)
            if key is not None:
                del self._known[key]
        return taken

    def give_back(self, blocks: Sequence[int]) -> None:
        """Let go of a request's blocks; the last is the first to be used again."""
        for block in reversed(blocks):
            self._holders[block] -= 1
            if not self._holders[block]:
                self._free.push(block)

    def remember(self, block: int, key: int) -> None:
        """Make the content of a full block findable."""
        if key not in self._known and block not in self._content:
            self._known[key] = block
            self._content[block] = key
