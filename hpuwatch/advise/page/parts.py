"""Small parts that sections are made of: tables, pictures, quoted lines, settings to copy."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence

from hpuwatch.advise.document import Evidence, ProposalPart
from hpuwatch.advise.page.drawing import svg
from hpuwatch.advise.page.glossary import Prose, explained
from hpuwatch.advise.page.markup import Markup, element, joined, text_of
from hpuwatch.advise.page.picture import NARROW, WIDE, Picture, Table
from hpuwatch.advise.render.settings import quoted_for_env
from hpuwatch.advise.render.words import name_of

_LONGEST_QUOTE = 300
"""Characters of a quoted log line; the document has all of it."""
_OPEN_QUOTES = 4
"""Quoted lines that are seen at once; more are folded away."""

_SWATCH = 12


def heading(level: int, text: str, anchor: str | None = None) -> Markup:
    """Return a heading of a level from 1."""
    return element(f"h{level}", text, id=anchor)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Markup:
    """Return a table whose first column names the rows; it scrolls where it is too wide."""
    return element(
        "div",
        element(
            "table",
            element(
                "thead",
                element("tr", *(element("th", cell, scope="col") for cell in head)),
            ),
            element("tbody", *(_row(head, row) for row in rows)),
        ),
        class_="scroll",
        tabindex="0",
        role="region",
        aria_label=f"Table: {', '.join(filter(None, head))}",
    )


def _row(head: Sequence[str], cells: Sequence[str]) -> Markup:
    """Return a row; a telephone shows the names of the columns before the cells."""
    first, *others = cells
    named = zip(head[1:], others, strict=True)
    return element(
        "tr",
        element("th", first, scope="row"),
        *(element("td", cell, data_label=name or None) for name, cell in named),
    )


def setting_name(name: str) -> Markup:
    """Return the name of a setting as code: a flag whole, others in words."""
    if name.startswith("--"):
        return element("code", name, class_="flag")
    words = [text_of(word) for word in name.split("_")]
    return element("code", joined(words, Markup("_<wbr>")))


def pictured(picture: Picture, prose: Prose, anchor: str) -> Markup:
    """Return a picture with its caption and its table; nothing where none can be drawn."""
    if picture.draw is None:
        return Markup()
    name = f"{anchor}-{picture.name}"
    title = heading(4, picture.title)
    drawn = [
        element(
            "div",
            svg(
                picture.draw(width),
                title=picture.title,
                description=picture.description,
                name=f"{name}-{kind}",
            ),
            class_=kind,
        )
        for kind, width in (("wide", WIDE), ("narrow", NARROW))
    ]
    said, new = prose.sentence(picture.caption)
    told = element("figcaption", said, explained(new)) if picture.caption else ""
    return element("figure", title, *drawn, told, _in_figures(picture.table))


def _in_figures(found: Table | None) -> Markup:
    if found is None:
        return Markup()
    rows: list[Sequence[str]] = list(found.rows)
    if found.swatches:
        rows = [
            (joined([_swatch(role), row[0]]), *row[1:])
            for role, row in zip(found.swatches, found.rows, strict=True)
        ]
    summary = element("summary", "The same in figures")
    return element("details", summary, table(found.head, rows))


def _swatch(role: str) -> Markup:
    box = element("rect", width=_SWATCH, height=_SWATCH, class_=f"f-{role}")
    return element(
        "svg",
        box,
        class_="swatch",
        viewBox=f"0 0 {_SWATCH} {_SWATCH}",
        aria_hidden="true",
    )


def quoted(lines: Sequence[Evidence], source: str, *, folded: bool) -> Markup:
    """Return log lines with their places, all folded away or those after the first few.

    ``source`` is the log of the report, which is named without its folder.
    """
    shown = [_quote(line, source) for line in lines]
    seen = 0 if folded else _OPEN_QUOTES
    first, rest = shown[:seen], shown[seen:]
    parts = [element("ul", *first, class_="evidence")] if first else []
    if rest:
        words = "lines of the log" if folded else "more of these lines"
        summary = element("summary", f"{len(rest):,} {words}")
        parts.append(
            element("details", summary, element("ul", *rest, class_="evidence"))
        )
    return joined(parts)


def _quote(line: Evidence, source: str) -> Markup:
    text = line.text
    more = len(text) - _LONGEST_QUOTE
    if more > 0:
        text = (
            f"{text[:_LONGEST_QUOTE]}\N{HORIZONTAL ELLIPSIS} ({more:,} more characters)"
        )
    file = name_of(line.file)
    if line.file == source:
        file = file.rpartition("/")[2]
    # Of another log only the end was read, without counting lines.
    place = f"{file}:{line.line}" if line.line else file
    return element("li", element("code", place, class_="where"), element("code", text))


def settings(proposal: ProposalPart, *, replaces: bool) -> Markup:
    """Return what to set and what to take away, ready to be copied.

    ``replaces`` tells that the server has a command line already.
    """
    parts: list[Markup] = []
    if proposal.env:
        lines = [
            f"{name}={quoted_for_env(value)}" for name, value in proposal.env.items()
        ]
        parts += [element("p", "Environment variables of the server:"), copyable(lines)]
    if proposal.flags:
        place = ", in place of what is there:" if replaces else ":"
        parts += [
            element(
                "p",
                "On the command line, after ",
                element("code", "vllm serve MODEL"),
                place,
            ),
            copyable([shlex.join(proposal.flags)]),
        ]
    if proposal.unset:
        parts += [element("p", "No longer set:"), copyable(proposal.unset)]
    return joined(parts)


def copyable(lines: Sequence[str]) -> Markup:
    """Return lines to copy: one click chooses them all."""
    return element(
        "pre", "\n".join(lines), tabindex="0", role="group", aria_label="To copy"
    )
