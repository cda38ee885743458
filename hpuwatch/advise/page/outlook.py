"""What a proposal brings and what it costs: figures with intervals, and the way back."""

from __future__ import annotations

from hpuwatch.advise.document import StartReport
from hpuwatch.advise.page.glossary import Prose
from hpuwatch.advise.page.markup import Markup, element, joined
from hpuwatch.advise.page.parts import copyable, heading, setting_name, table
from hpuwatch.advise.page.quantities import interval, known_as, name_of, told
from hpuwatch.advise.render.prospect import Prospect, cost_lines, prospects, way_back

_HEAD = ("figure", "now", "expected", "likely between", "how it is known")
_FIRST_HEAD = ("figure", "expected", "likely between", "how it is known")
_UNKNOWN = "\N{EN DASH}"
_UNPROVEN = (
    "Not proven under load: a log of a start shows what the warm-up took, not what real "
    "requests will need. Run real load, then run hpuwatch suggest again."
)
_BACK = "To go back, if the server then dies or becomes slower"

Row = tuple[str, ...]


def what_it_brings(report: StartReport, prose: Prose, anchor: str) -> Markup:
    """Return what is expected, with intervals, beside what is now; nothing without it."""
    proposal = report.proposal
    if proposal is None:
        return Markup()
    parts = [heading(3, "What it will bring", f"{anchor}-brings")]
    expected = prospects(report, proposal)
    if report.origin == "predicted":
        rows = [(row[0], *row[2:]) for row in map(_row, expected)]
        return element("section", *parts, table(_FIRST_HEAD, rows))
    changed = [_row(each) for each in expected if each.differs]
    others = [_row(each) for each in expected if not each.differs]
    if changed:
        parts.append(table(_HEAD, changed))
    else:
        same = "No figure that this log prints is expected to change."
        parts.append(element("p", same))
    if others:
        summary = element("summary", "Further figures, as they are expected then")
        parts.append(element("details", summary, table(_HEAD, others)))
    if not proposal.proven:
        parts.append(prose.paragraph(_UNPROVEN))
    return element("section", *parts)


def _row(each: Prospect) -> Row:
    figure, name = each.figure, each.name
    return (
        name_of(name),
        _UNKNOWN if each.now is None else told(name, each.now),
        told(name, each.value) + _change(each),
        interval(name, figure.low, figure.high) if figure else "not told",
        known_as(name, each.origin),
    )


def _change(each: Prospect) -> str:
    if not each.now:
        return ""
    share = 100 * (each.value - each.now) / each.now
    return f" ({share:+.1f} %)" if each.differs else ", as now"


def what_it_costs(report: StartReport, prose: Prose, anchor: str) -> Markup:
    """Return the price of a proposal, a restart first, and the way back."""
    parts = [heading(3, "What it costs", f"{anchor}-costs")]
    costs = list(cost_lines(report))
    if not costs:
        return Markup()
    return element("section", *parts, prose.items(costs), *_way_back(report))


def _way_back(report: StartReport) -> list[Markup]:
    """Name the settings as they were before."""
    before, added = way_back(report)
    parts = []
    if before:
        said = element("p", f"{_BACK}, set again what was set:")
        parts += [said, copyable(before)]
    if added:
        also = "Then also take away" if before else f"{_BACK}, take away"
        listed = joined([setting_name(name) for name in added], Markup(", "))
        parts.append(element("p", f"{also} what wasn't set: ", listed, "."))
    return parts
