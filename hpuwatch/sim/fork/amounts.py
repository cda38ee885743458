"""The amounts of memory that V0's lines tell: of the card, and of the host beside it.

The host's figures are made up from what the lines of real starts show: reading the weights
leaves an eighth of them there, and the blocks for swapping are its memory.
"""

from __future__ import annotations

from hpuwatch.sim.world import World
from hpuwatch.units import GIB, format_bytes

HOST_TOTAL_BYTES = 1007 * GIB
_HOST_BASE_BYTES = 61 * GIB
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
    device: int,
    host: int,
    *,
    used: int | None = None,
    swaps: bool = False,
) -> dict[str, str]:
    """Return the texts of a line that tells of device and host memory.

    Args:
        world: the server, whose card tells what is in use.
        device: bytes by which the card got fuller.
        host: bytes by which the host got fuller.
        used: of the card, where the line tells of an earlier moment.
        swaps: the blocks for swapping are there already.
    """
    memory = world.memory
    host_used = _HOST_BASE_BYTES + len(world.speakers.ranks) * reading_leaves_bytes(
        world
    )
    return {
        "device": format_bytes(device),
        "used": format_bytes(memory.used_bytes if used is None else used),
        "total": format_bytes(memory.total_bytes),
        "host": format_bytes(host),
        "host_used": format_bytes(host_used + swaps * swap_bytes(world)),
        "host_total": format_bytes(HOST_TOTAL_BYTES),
    }
