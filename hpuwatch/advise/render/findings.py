"""What a text says of a finding beyond its sentences: figures, how they are known, knobs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hpuwatch.advise.document import FindingPart, LeverPart
from hpuwatch.advise.page.quantities import interval, known_as, name_of, told

NOT_ESTABLISHED = "What this log could not tell"


def notes(finding: FindingPart) -> Iterator[str]:
    """Yield the figures that no line prints, then what can help and what can't."""
    for name, figure in finding.figures.items():
        between = interval(name, figure.low, figure.high)
        yield (
            f"{name_of(name)}: {told(name, figure.value)} ({between}), "
            f"{known_as(name, figure.origin)}"
        )
    helps = further_helps(finding)
    if helps:
        yield f"can help: {_moves(helps)}"
    for each in finding.cannot_help:
        yield f"can't help: {each.change} {each.knob}. {each.why}"


def further_helps(finding: FindingPart) -> list[LeverPart]:
    """Return the knobs that can help beyond those that its cure names already."""
    return [each for each in finding.helps if each.knob not in finding.cure]


def _moves(levers: Sequence[LeverPart]) -> str:
    return "; ".join(f"{each.change} {each.knob}" for each in levers)
