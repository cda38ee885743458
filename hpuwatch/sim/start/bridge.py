"""The banner of the bridge to the card: native code, which writes past every prefix."""

from __future__ import annotations

from hpuwatch.sim.truth import host
from hpuwatch.sim.world import World
from hpuwatch.units import GIB, KIB

_MODE = "PT_HPU_LAZY_MODE"


def tell_bridge(world: World, rank: int) -> None:
    """Print what the bridge of a rank tells: its variables, as they are set, and the host."""
    say, env = world.voice.say, world.options.env
    say("", "bridge", rank=rank)
    for name, default in world.voice.script.bridge.items():
        value = str(int(world.knobs.lazy)) if name == _MODE else env.get(name, default)
        say("", "bridge_setting", name=name, value=value)
    say("", "bridge_system")
    say("", "bridge_cores", cores=host.CORES)
    total = host.TOTAL_BYTES
    say("", "bridge_ram", gigabytes=total // GIB, kilobytes=total // KIB)
    say("", "bridge_end")
