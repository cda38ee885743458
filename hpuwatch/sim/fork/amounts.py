"""The amounts of memory that V0's lines tell, with what the server leaves on the host.

The host's part is made up from what the lines of real starts show: reading the weights
leaves an eighth of them there, and the blocks for swapping are its memory.
"""

from __future__ import annotations

from hpuwatch.sim.start.amounts import amounts as shared_amounts
from hpuwatch.sim.world import World

_WEIGHTS_PER_LEFT_BYTE = 8


def reading_leaves_bytes(world: World) -> int:
    """Return what reading the weights leaves in the host's memory, for each rank."""
    return world.truth.weights_bytes // _WEIGHTS_PER_LEFT_BYTE


def swap_bytes(world: World) -> int:
    """Return what the blocks for swapping take of the host's memory, for all ranks."""
    blocks = world.truth.swap_blocks * world.truth.block_bytes
    return blocks * len(world.speakers.ranks)


def amounts(
    world: World,
    device_bytes: int,
    host_bytes: int,
    *,
    used_bytes: int | None = None,
    swaps: bool = False,
) -> dict[str, str]:
    """Return the texts of such a line; ``swaps`` where the blocks for swapping are there."""
    left = len(world.speakers.ranks) * reading_leaves_bytes(world)
    return shared_amounts(
        world,
        device_bytes,
        host_bytes,
        used_bytes=used_bytes,
        left_bytes=left + swaps * swap_bytes(world),
    )
