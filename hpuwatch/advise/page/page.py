"""The report as one HTML page, for someone who has never seen a Gaudi.

What to do comes first, with settings to copy, and what that costs; then why, what it brings,
and what not to touch; then findings with the lines that they rest on, pictures, and the glossary.
The page is made of the document alone, holds no script, loads nothing, and its policy forbids
both.  The same document always gives the same page.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence

from hpuwatch import __version__
from hpuwatch.advise.document import Report, StartReport
from hpuwatch.advise.page.accountability import predictions
from hpuwatch.advise.page.advice import what_not_to_touch, what_to_do, why
from hpuwatch.advise.page.bucketmap import bucket_map
from hpuwatch.advise.page.evidence import findings, standing, unknown
from hpuwatch.advise.page.freememory import free_memory
from hpuwatch.advise.page.glossary import Prose, glossary
from hpuwatch.advise.page.markup import Markup, element, joined
from hpuwatch.advise.page.memorybar import memory_bars
from hpuwatch.advise.page.outlook import what_it_brings, what_it_costs
from hpuwatch.advise.page.parts import heading, pictured
from hpuwatch.advise.page.picture import NOT_DRAWN, Picture
from hpuwatch.advise.page.style import STYLE
from hpuwatch.advise.page.warmupcost import warmup_cost
from hpuwatch.advise.render.words import name_of as file_of

_ORIGINS = {
    "measured": ("Measured", "read from the log of a real server"),
    "simulated": ("SIMULATED", "none of these figures was measured on a Gaudi"),
    "predicted": ("PREDICTED", "no server has been started with this yet"),
}
_SECTIONS = {
    "do": "what to do first",
    "costs": "what it costs",
    "why": "why",
    "brings": "what it will bring",
    "keep": "what not to touch",
    "pictures": "pictures",
    "findings": "what was found",
    "standing": "how this server stands",
}


_OF_A_PROPOSAL = frozenset({"brings", "costs"})


def render_page(report: Report) -> str:
    """Return the report as one HTML page."""
    several = len(report.reports) > 1
    parts = [
        _server(each, f"r{number}", number if several else None)
        for number, each in enumerate(report.reports, start=1)
    ]
    if not parts:
        parts = [element("p", "There is no start of a server in what was read.")]
    names = [name_of(each) for each in report.reports]
    title = f"What to change: {', '.join(names[:3])}" if names else "Nothing to report"
    headline = _headline(report.reports) if names else title
    contents = _servers(names) if several else Markup()
    body = joined(
        [
            element(
                "header", element("h1", headline), _opening(), contents, class_="top"
            ),
            element(
                "main", joined(parts, Markup('\n<hr class="between">\n')), _words()
            ),
            _footer(),
        ],
        Markup("\n"),
    )
    return f"<!DOCTYPE html>\n{element('html', _head(title), body, lang='en')}\n"


def pictures(report: StartReport) -> tuple[Picture, ...]:
    """Return the pictures of a report, those that lack figures among them."""
    return (
        memory_bars(report),
        free_memory(report),
        bucket_map(report),
        warmup_cost(report),
        predictions(report),
    )


def name_of(report: StartReport) -> str:
    """Return what server a report is about."""
    server = report.server
    model = server.model or "unknown model"
    if not server.card:
        return model
    cards = f"{server.tp} \N{MULTIPLICATION SIGN} " if (server.tp or 1) > 1 else ""
    return f"{model} on {cards}{server.card}"


def origin_of(report: StartReport) -> str:
    """Return where the figures come from, in a sentence."""
    word, meaning = _ORIGINS[report.origin]
    return f"{word}: {meaning}."


def _head(title: str) -> Markup:
    digest = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    return element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("meta", name="referrer", content="no-referrer"),
        element("link", rel="icon", href="data:,"),
        element("title", title),
        element("style", Markup(STYLE)),
    )


def _headline(reports: Sequence[StartReport]) -> str:
    if all(each.origin == "predicted" for each in reports):
        return "How to start this server, and why"
    servers = f"these {len(reports)} servers" if len(reports) > 1 else "this server"
    return f"What to change on {servers}, and why"


def _opening() -> Markup:
    return element(
        "p",
        "What hpuwatch advises for a vLLM server on Intel Gaudi cards. Words of the field "
        "are explained where they first come, and again at the end.",
        class_="soft",
    )


def _servers(names: Sequence[str]) -> Markup:
    rows = [
        element("li", element("a", f"{number}. {name}", href=f"#r{number}"))
        for number, name in enumerate(names, start=1)
    ]
    return element("nav", element("ul", *rows), aria_label="Servers")


def _server(report: StartReport, anchor: str, number: int | None) -> Markup:
    """Return all of one report, under the label that says where its figures come from."""
    prose = Prose()
    title = f"{number}. {name_of(report)}" if number else name_of(report)
    contents = [
        element("li", element("a", words, href=f"#{anchor}-{key}"))
        for key, words in _SECTIONS.items()
        if report.proposal is not None or key not in _OF_A_PROPOSAL
    ]
    return element(
        "section",
        heading(2, title, anchor),
        _origin(report),
        what_to_do(report, prose, anchor),
        what_it_costs(report, prose, anchor),
        element("nav", element("ul", *contents), aria_label=f"Contents of {title}"),
        why(report, prose, anchor),
        what_it_brings(report, prose, anchor),
        what_not_to_touch(report, prose, anchor),
        _pictures(report, prose, anchor),
        findings(report, prose, anchor),
        unknown(report, prose, anchor),
        standing(report, prose, anchor),
        aria_labelledby=anchor,
    )


def _pictures(report: StartReport, prose: Prose, anchor: str) -> Markup:
    found = pictures(report)
    drawn = [pictured(each, prose, anchor) for each in found]
    lacking = " ".join(
        f"{each.title}: {each.description.removeprefix(NOT_DRAWN)}"
        for each in found
        if each.draw is None
    )
    rest = element("p", f"{NOT_DRAWN}{lacking}", class_="soft") if lacking else ""
    return element(
        "section", heading(3, "Pictures", f"{anchor}-pictures"), *drawn, rest
    )


def _origin(report: StartReport) -> Markup:
    word, meaning = _ORIGINS[report.origin]
    source = file_of(report.source.file).rpartition("/")[2]
    start = f", start {report.source.start}" if report.source.start > 1 else ""
    return element(
        "p",
        element("b", word),
        f": {meaning} \N{MIDDLE DOT} {source}{start}",
        class_=f"origin {report.origin}",
    )


def _words() -> Markup:
    summary = element("summary", "All words of the field that this page uses")
    folded = element("details", summary, glossary())
    return element("section", heading(2, "Words", "words"), folded)


def _footer() -> Markup:
    said = (
        f"Made by hpuwatch {__version__}. The same with all figures as JSON: hpuwatch "
        "suggest --format json. What a code means: hpuwatch explain CODE."
    )
    return element("footer", element("hr"), element("p", said))
