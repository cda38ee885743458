"""Device memory of one card: what is in use, and the card's end."""

from __future__ import annotations

from dataclasses import dataclass

from hpuwatch.units import MIB


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
