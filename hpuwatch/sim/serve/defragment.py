"""Online defragmentation: contiguous attention reads all blocks up to the highest in use.

The worker keeps a table from the scheduler's block ids to physical ones.  When the highest
physical block in use lies further above the number of blocks in use than the threshold, the
highest ones change places with the lowest free ones.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

_MOST_SWAPS = 512  # the largest of the defragmenter's own shapes


class Defragmenter:
    """Where each block of the scheduler really lies."""

    def __init__(self, first: int, threshold: int) -> None:
        """Start with every block in its own place; ids begin at ``first``."""
        self._first = first
        self._threshold = threshold
        self._place: dict[int, int] = {}  # block → place, where they differ
        self._block: dict[int, int] = {}  # place → block, where they differ
        self.moves = 0

    def highest(self, blocks: Sequence[int]) -> int:
        """Return the highest place of some blocks."""
        if not self._place:
            return max(blocks)
        place = self._place
        return max(place.get(block, block) for block in blocks)

    def compact(self, used: Collection[int]) -> None:
        """Move blocks down when those in use lie too far apart."""
        places = {self._place.get(block, block) for block in used}
        highest = max(places, default=0)
        if highest - self._threshold <= len(places):
            return
        free = self._free_places(places)
        for _, high in zip(
            range(_MOST_SWAPS), sorted(places, reverse=True), strict=False
        ):
            low = next(free)
            if low > high:
                return
            self._swap(low, high)

    def _free_places(self, places: Collection[int]) -> Iterator[int]:
        place = self._first
        while True:
            if place not in places:
                yield place
            place += 1

    def _swap(self, low: int, high: int) -> None:
        below, above = self._block.get(low, low), self._block.get(high, high)
        for block, place in ((above, low), (below, high)):
            if block == place:
                self._place.pop(block, None)
                self._block.pop(place, None)
            else:
                self._place[block] = place
                self._block[place] = block
        self.moves += 1
