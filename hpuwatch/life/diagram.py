"""The process machine as a drawing, for the documentation."""

from __future__ import annotations

from hpuwatch.life.machine import TRANSITIONS
from hpuwatch.life.phases import Phase


def mermaid() -> str:
    """Return the transition table as a mermaid state diagram."""
    arrows: dict[tuple[str, str], list[str]] = {}
    for (phase, fact), reached in TRANSITIONS.items():
        arrows.setdefault((phase.value, reached.value), []).append(fact.value)
    order = [phase.value for phase in Phase]
    lines = ["stateDiagram-v2", f"    [*] --> {Phase.STOPPED.value}"]
    lines += [
        f"    {start} --> {end}: {', '.join(facts)}"
        for (start, end), facts in sorted(
            arrows.items(), key=lambda each: [order.index(name) for name in each[0]]
        )
    ]
    return "\n".join(lines) + "\n"
