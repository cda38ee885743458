"""What to do first, why, and what not to touch."""

from __future__ import annotations

from collections.abc import Iterator

from hpuwatch.advise.account.outcome import against_lines
from hpuwatch.advise.document import ProposalPart, StartReport
from hpuwatch.advise.page.glossary import Prose, Word, explained
from hpuwatch.advise.page.markup import Markup, element, joined
from hpuwatch.advise.page.parts import copyable, heading, setting_name, settings, table

_CLICK = "A click chooses a whole box."
_READY = (
    "Ready to use: the same hpuwatch suggest with --format env (systemd), docker, compose or "
    "helm."
)


def what_to_do(report: StartReport, prose: Prose, anchor: str) -> Markup:
    """Return the box that a reader in a hurry reads."""
    proposal = report.proposal
    first, end, rest = report.headline.do.partition(". ")
    parts = [
        heading(3, "What to do first", f"{anchor}-do"),
        prose.paragraph(f"{first}{end.strip()}", "lead"),
        *([prose.paragraph(rest)] if rest else []),
    ]
    if proposal is not None:
        runs = report.origin != "predicted"
        again = "and start it again" if runs else "then start it"
        how = f"Set this where the server is started, {again}. {_CLICK} {_READY}"
        parts += [
            settings(proposal, replaces=runs),
            element("p", how, class_="soft"),
            *_steps(proposal, prose, anchor),
            *_bucket_file(report),
        ]
    return element("section", *parts, class_="do")


def _steps(proposal: ProposalPart, prose: Prose, anchor: str) -> Iterator[Markup]:
    """Tell what each part of the proposal is for, where there are several."""
    if len(proposal.steps) < 2:
        return
    answers = any(step.answers for step in proposal.steps)
    rows: list[tuple[str, ...]] = []
    words: list[Word] = []
    for step in proposal.steps:
        why, new = prose.sentence(step.why)
        words += new
        typed = joined([_typed(each) for each in step.settings], between=" ")
        code = step.answers
        link = element("a", code, href=f"#{anchor}-{code}") if code else ""
        rows.append((typed, step.gain, why, *((link,) if answers else ())))
    head = ("setting", "what for", "why", *(("answers",) if answers else ()))
    yield element(
        "p", "All of it with one start; the part that brings most comes first:"
    )
    yield table(head, rows)
    yield explained(words)


def _bucket_file(report: StartReport) -> Iterator[Markup]:
    """Show the file of the buckets where the server takes them from one."""
    if report.bucket_file is not None:
        summary = element("summary", "The bucket file that goes with it")
        lines = report.bucket_file.rstrip("\n").split("\n")
        yield element("details", summary, copyable(lines))


def _typed(setting: str) -> Markup:
    """Return a setting as it is typed, as code that may be broken within its name."""
    name, joint, value = setting.partition("=")
    code = element("code", joint + value)
    return joined([setting_name(name), code]) if joint else setting_name(name)


def why(report: StartReport, prose: Prose, anchor: str) -> Markup:
    """Return the reason, and what speaks for the proposal."""
    parts = [heading(3, "Why", f"{anchor}-why"), prose.paragraph(report.headline.why)]
    proposal = report.proposal
    if proposal is not None:
        if _tells_more(proposal, report.headline.why):
            parts.append(prose.paragraph(proposal.why))
        parts += [prose.items(proposal.kept)] if proposal.kept else []
    title, *said = against_lines(report.against) or [""]
    if title:
        parts += [heading(4, title), prose.items([each.strip() for each in said])]
    return element("section", *parts)


def _tells_more(proposal: ProposalPart, told_already: str) -> bool:
    """Tell whether the proposal's reason adds to that of the finding that it answers."""
    wins = proposal.expected.get("kv_blocks_won", 0) > 0
    return not wins and proposal.why != "" and proposal.why not in told_already


def what_not_to_touch(report: StartReport, prose: Prose, anchor: str) -> Markup:
    """Return what stays as it is, and why."""
    parts = [heading(3, "What not to touch", f"{anchor}-keep")]
    if report.left:
        rows: list[tuple[str, ...]] = []
        words: list[Word] = []
        for each in report.left:
            why, new = prose.sentence(each.why)
            rows.append((setting_name(each.name), each.value or "the default", why))
            words += new
        parts += [table(("setting", "now", "why it stays"), rows), explained(words)]
    return element("section", *parts, element("p", *_rest(report, anchor)))


def _rest(report: StartReport, anchor: str) -> Iterator[str]:
    """Say of all other settings why they stay, or where to read what may change."""
    if not any(each.cure or each.helps for each in report.findings):
        yield "Whatever isn't named above stays: nothing gives a reason to change it."
        return
    yield "Whatever isn't named above stays, unless you choose to follow something of "
    yield element("a", "what was found", href=f"#{anchor}-findings")
    yield "."
