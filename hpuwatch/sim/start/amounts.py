"""The amounts of a line that tells of device and host memory."""

from __future__ import annotations

from hpuwatch.sim.truth import host
from hpuwatch.sim.world import World
from hpuwatch.units import format_bytes


def amounts(
    world: World,
    device_bytes: int,
    host_bytes: int,
    *,
    used_bytes: int | None = None,
    left_bytes: int = 0,
) -> dict[str, str]:
    """Return the texts of such a line.

    Args:
        world: the server, whose card tells what is in use.
        device_bytes: by which the card got fuller.
        host_bytes: by which the host got fuller.
        used_bytes: of the card, where the line tells of an earlier moment.
        left_bytes: what the server holds of the host's memory.
    """
    memory = world.memory
    used = memory.used_bytes if used_bytes is None else used_bytes
    return {
        "device": format_bytes(device_bytes),
        "used": format_bytes(used),
        "total": format_bytes(memory.total_bytes),
        "host": format_bytes(host_bytes),
        "host_used": format_bytes(host.USED_BYTES + left_bytes),
        "host_total": format_bytes(host.TOTAL_BYTES),
    }
