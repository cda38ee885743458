"""The environment variables of vLLM's core; it warns of every other that looks like its own.

The warning came with vLLM 0.17 or little before: a log of 0.15 has none, those of 0.26 name
every variable of the plugin.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from hpuwatch.gaudi.spans import Point, covers

_WARNS = "plugin-0.17.."
_NAMES = Path(__file__).with_name("core_variables.txt")


def unknown_to_core(env: Mapping[str, str], at: Point) -> tuple[str, ...]:
    """Return the variables that the release's vLLM warns that it doesn't know."""
    if not covers(_WARNS, at):
        return ()
    return tuple(
        name for name in env if name.startswith("VLLM_") and name not in _core()
    )


@cache
def _core() -> frozenset[str]:
    return frozenset(_NAMES.read_text(encoding="utf-8").split())
