"""The stages of a V0 start at which the real one dies of a wrong setting."""

from __future__ import annotations

from hpuwatch.sim.config.knobs import KnobError
from hpuwatch.sim.world import EngineFailed, World

_OF_FRONT_END = {"import", "front"}


def check(world: World, stage: str, where: str) -> None:
    """End the start where a setting is one that the release dies of at this stage.

    Args:
        world: the server.
        stage: one of those that ``knobs`` tells.
        where: the function that the traceback ends in.

    Raises:
        EngineFailed: there is such a setting.
    """
    try:
        world.knobs.check(stage)
    except KnobError as error:
        process = "front" if stage in _OF_FRONT_END else "engine"
        raise EngineFailed(str(error), where, process) from None
