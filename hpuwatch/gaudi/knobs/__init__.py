"""The knobs of a vLLM server on Gaudi, as one table of every variable and flag that matters.

Releases are written as ``gaudi.spans`` reads them: ``plugin-0.11`` and later numbers are
vllm-gaudi, ``fork-1.17`` to ``fork-1.23`` Gaudi's fork of vLLM, ``vllm-0.6`` to ``vllm-0.9``
vLLM's own code for Gaudi.  The pages ``docs/knobs.md`` and ``docs/knobs/`` are made from
this table.  What knobs do to each other stands in ``gaudi.conflicts``.
"""

from __future__ import annotations

from collections.abc import Mapping

from hpuwatch.gaudi.knob import Knob
from hpuwatch.gaudi.knobs.axes import AXES
from hpuwatch.gaudi.knobs.buckets import SELECTORS, SHAPES
from hpuwatch.gaudi.knobs.graphs import ATTENTION, GRAPHS
from hpuwatch.gaudi.knobs.machine import LOGS, OTHER
from hpuwatch.gaudi.knobs.memory import MEMORY
from hpuwatch.gaudi.knobs.starting import RESTART, WARMUP
from hpuwatch.gaudi.releases import NEWEST

__all__ = ["ALIASES", "KNOBS", "Knob", "complaints", "named"]

KNOBS: dict[str, Knob] = {
    knob.name: knob
    for knob in (
        *MEMORY,
        *SHAPES,
        *SELECTORS,
        *AXES,
        *ATTENTION,
        *GRAPHS,
        *WARMUP,
        *RESTART,
        *LOGS,
        *OTHER,
    )
}

ALIASES = {
    "-tp": "--tensor-parallel-size",
    "-pp": "--pipeline-parallel-size",
    "-dp": "--data-parallel-size",
}
"""Short spellings of vLLM's flags."""


def named(name: str) -> Knob | None:
    """Return the knob of that name, also by a member of its family or an alias."""
    name = ALIASES.get(name, name)
    if name in KNOBS:
        return KNOBS[name]
    if name.startswith("VLLM_UNIFIED_ATTN_"):
        return KNOBS["VLLM_UNIFIED_ATTN"]
    return None


def complaints(settings: Mapping[str, str], release: str = NEWEST) -> tuple[str, ...]:
    """Return what is wrong with the settings that the table knows, by name."""
    found = (
        KNOBS[name].complaint(value, release)
        for name, value in sorted(settings.items())
        if name in KNOBS
    )
    return tuple(complaint for complaint in found if complaint)
