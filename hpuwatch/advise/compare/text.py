"""A comparison for people: text for a terminal, markdown for a ticket."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from hpuwatch.advise.compare.changes import ChangePart
from hpuwatch.advise.compare.document import Comparison, FaultRow, ListRow, Side
from hpuwatch.advise.compare.figures import Difference
from hpuwatch.advise.render.escaping import safe
from hpuwatch.advise.render.figures import figure_text, figure_words
from hpuwatch.advise.render.words import name_of

_LONGEST = 160
"""Characters of a fault's own words; the document has all of them."""
_MOST_PERCENT = 1000
"""From there on a share of A says less than the two figures."""
_WHERE = {"a": "only in A", "b": "only in B", "both": "in both"}


def render_text(found: Comparison, wrap: int | None = 80) -> str:
    """Return the comparison as text.

    Args:
        found: the document.
        wrap: where sentences are broken; None never breaks them.
    """
    lines: list[str] = []
    for name, side in (("A", found.a), ("B", found.b)):
        lines += _told(f"{name}: {_side(side)}", wrap, hang="   ")
    lines += [""] if found.said else []
    for sentence in found.said:
        lines += _told(sentence, wrap, hang="  ")
    for title, rows in _sections(found):
        if rows:
            lines += ["", title]
            for row in rows:
                indent = row[: len(row) - len(row.lstrip())]
                lines += _told(row.lstrip(), wrap, f"  {indent}", f"  {indent}    ")
    return "\n".join(lines).strip() + "\n"


def render_markdown(found: Comparison) -> str:
    """Return the comparison as markdown."""
    lines = ["## A and B", ""]
    lines += [
        f"- {name}: {safe(_side(side))}"
        for name, side in (("A", found.a), ("B", found.b))
    ]
    lines += ["", *(f"**{safe(sentence)}**\n" for sentence in found.said)]
    for title, rows in _sections(found):
        if rows:
            lines += [f"### {title}", ""]
            lines += [
                f"{row[: len(row) - len(row.lstrip())]}- {safe(row.lstrip())}"
                for row in rows
            ]
            lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def _told(text: str, wrap: int | None, indent: str = "", hang: str = "  ") -> list[str]:
    if wrap is None:
        return [f"{indent}{text}"]
    return textwrap.wrap(
        text,
        wrap,
        initial_indent=indent,
        subsequent_indent=hang,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _side(side: Side) -> str:
    parts = [
        side.model or "an unknown model",
        side.release or "an unknown release",
        f"{side.tp or 1} x {side.card}" if side.card else "",
        f"began {side.began}" if side.began else "",
        f"last seen {side.phase}",
        "SIMULATED" if side.origin == "simulated" else "",
    ]
    return f"{name_of(side.label)}: {', '.join(filter(None, parts))}"


def _sections(found: Comparison) -> Iterator[tuple[str, Sequence[str]]]:
    yield "Changed", [_change(each) for each in found.changes]
    yield (
        "Different, and what explains it",
        [line for each in found.differences for line in _difference(each)],
    )
    yield "Bucket lists", [_list(each) for each in found.lists]
    yield "Faults", [_fault(each) for each in found.faults]
    same = ", ".join(figure_words(figure) for figure in found.same)
    yield "The same in both", [f"{same}."] if same else []


def _change(each: ChangePart) -> str:
    kind = {"default": " (a default; nobody set it)", "heed": ""}.get(each.kind, "")
    if each.kind == "heed":
        return f"{each.name}={each.a}: {each.note}"
    note = f" ({each.note})" if each.note else ""
    return f"{each}{kind}{note}"


def _difference(each: Difference) -> Iterator[str]:
    one, other = (
        "unknown" if value is None else figure_text(each.figure, value)
        for value in (each.a, each.b)
    )
    percent = each.change_percent
    tells = percent is not None and abs(percent) < _MOST_PERCENT
    share = f", {percent:+.1f} %" if tells else ""
    note = f"; {each.note}" if each.note else ""
    change = _signed(each.figure, each.change or 0.0)
    yield f"{figure_words(each.figure)}: {one} → {other} ({change}{share}{note})"
    for part in each.explained:
        yield f"  {_signed(each.figure, part.amount)} by {part.by}"
    if each.unexplained:
        yield f"  {_signed(each.figure, each.unexplained)} is not explained by arithmetic"
    if each.suspects:
        yield f"  may come of: {', '.join(each.suspects)}"
    elif each.unexplained != 0:
        yield "  nothing that the two logs show was changed that could move it"


def _signed(figure: str, amount: float) -> str:
    return f"{'+' if amount > 0 else '-'}{figure_text(figure, abs(amount))}"


def _list(each: ListRow) -> str:
    if each.same:
        return f"{each.phase}: the same {each.a:,} buckets"
    text = f"{each.phase}: {each.a:,} → {each.b:,} buckets"
    if each.largest_a and each.largest_b and each.largest_a != each.largest_b:
        text += (
            f", the largest of each axis (batch, query, blocks) {each.largest_a} → "
            f"{each.largest_b}"
        )
    elif each.same is None:
        text += ", of which the logs don't print both lists"
    return text


def _fault(each: FaultRow) -> str:
    text = " ".join(each.text.split())
    if len(text) > _LONGEST:
        text = f"{text[:_LONGEST]}…"
    return f"{_WHERE[each.where]}: {each.fault_class} in {each.phase}: {text}"
