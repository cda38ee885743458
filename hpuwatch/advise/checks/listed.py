"""Where the bucket lists of a log are not those that the rules of its release give.

The log is right.  The rules were compared with the releases' own code, so a difference
means that this build runs other code, or that the log leaves a setting out; whatever is
predicted for this server from its configuration is then to be doubted.
"""

from __future__ import annotations

from hpuwatch.advise.finding import Case, Sighting
from hpuwatch.state.configured import Difference, configured, differences
from hpuwatch.units import counted


def differ(case: Case) -> Sighting | None:
    """Return the phases whose list is another than predicted."""
    start = case.start
    found = differences(start)
    known = configured(start)
    if not found or known is None:
        return None
    phases = " and ".join(each.phase for each in found)
    numbers: dict[str, float | str] = {}
    for each in found:
        numbers |= {
            f"{each.phase}_buckets": each.listed.value.count,
            f"{each.phase}_buckets_predicted": each.predicted,
            f"{each.phase}_buckets_only_in_log": each.added,
            f"{each.phase}_buckets_only_predicted": each.removed,
        }
    return Sighting(
        numbers=numbers,
        words={
            "phases": phases,
            "release": known.release.name,
            "said": " ".join(map(_said, found)),
        },
        lines=tuple(each.listed.line for each in found),
    )


def _said(each: Difference) -> str:
    listed = each.listed.value
    buckets = counted(listed.count, f"{each.phase} bucket")
    said = f"The log lists {buckets}, the rules give "
    said += f"{each.predicted:,}"
    if listed.shapes:
        said += f"; {each.added:,} stand in the log only, {each.removed:,} in the rules"
    if each.like:
        said += f". The rules of {', '.join(each.like)} give exactly the log's list"
    return f"{said}."
