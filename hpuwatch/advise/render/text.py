"""A report for people: text for a terminal, markdown for a ticket.

Both are drawn from the document alone, so whatever a person reads stands in the JSON too.
What to do and why comes first, then what is expected of it and what is left alone, then the
ledger, the warm-up, and the findings with the lines that they rest on.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from hpuwatch.advise.account.outcome import accountability_lines, against_lines
from hpuwatch.advise.document import FindingPart, ProposalPart, Report, StartReport
from hpuwatch.advise.render.escaping import code, fenced, safe
from hpuwatch.advise.render.findings import NOT_ESTABLISHED, notes
from hpuwatch.advise.render.prospect import back_line, cost_lines, expected_rows
from hpuwatch.advise.render.words import (
    heading,
    ledger,
    ledger_title,
    left_rows,
    load_lines,
    proposal_lines,
    quoted_line,
    trial_lines,
    warmup_lines,
)

WORDS_LINE = "A word that says nothing to you? hpuwatch explain WORD"


Emphasis = Callable[[str], str]


def render_text(
    report: Report,
    *,
    width: int | None = None,
    wrap: int | None = None,
    emphasis: Emphasis = str,
) -> str:
    """Return the report for a terminal, or for whoever reads a pipe.

    Args:
        report: the document.
        width: shorten quoted log lines to this many columns; None never shortens.
        wrap: break sentences at this many columns; None never breaks them.
        emphasis: makes a headline stand out.
    """
    page = _Page(width, wrap, emphasis)
    blocks = ["\n".join(page.of_start(each)) for each in report.reports]
    return "\n\n".join([*blocks, WORDS_LINE]) + "\n"


def render_markdown(report: Report) -> str:
    """Return the report as markdown."""
    return "\n\n".join("\n".join(_markdown(each)) for each in report.reports) + "\n"


@dataclass(frozen=True, slots=True)
class _Page:
    """How wide a text is, and what makes a headline stand out."""

    width: int | None
    wrap: int | None
    emphasis: Emphasis

    def told(self, text: str, indent: str = "", hang: str | None = None) -> list[str]:
        """Return a sentence in lines, those after the first behind ``hang``."""
        if self.wrap is None:
            return [f"{indent}{text}"]
        return textwrap.wrap(
            text,
            self.wrap,
            initial_indent=indent,
            subsequent_indent=indent if hang is None else hang,
            break_long_words=False,
            break_on_hyphens=False,
        )

    def of_start(self, each: StartReport) -> Iterator[str]:
        for line in heading(each):
            yield from self.told(line, hang="  ")
        yield ""
        for line in self.told(each.headline.do):
            yield self.emphasis(line)
        yield from self._costs(each)
        yield from self.told(each.headline.why, "  ")
        if each.proposal is not None:
            yield from self._plan(each, each.proposal)
        yield from self._accountability(each)
        yield from self._left(each)
        yield from self._ledger(each)
        if each.origin != "predicted":
            yield ""
            yield from self._lines((*warmup_lines(each), *load_lines(each)))
            yield from self._findings(each)
        yield from self._lines(trial_lines(each))

    def _lines(self, lines: Iterable[str]) -> Iterator[str]:
        """Print lines at their own indentation, what is broken two columns deeper."""
        for line in lines:
            indent = line[: len(line) - len(line.lstrip())]
            yield from self.told(line.lstrip(), indent, f"{indent}  ") or [""]

    def _costs(self, each: StartReport) -> Iterator[str]:
        lines = [*cost_lines(each), back_line(each)]
        for line in filter(None, lines):
            yield from self.told(line, "  - ", "    ")
        if any(lines):
            yield ""

    def _plan(self, each: StartReport, proposal: ProposalPart) -> Iterator[str]:
        for line in proposal_lines(proposal):
            if line != each.headline.why:
                yield from self.told(line, "  ")
        if len(proposal.steps) > 1:
            yield ""
            yield "Steps, all with one restart, the most gain first"
            for number, step in enumerate(proposal.steps, 1):
                text = f"{number}. {', '.join(step.settings)}: {step.gain}. {step.why}"
                yield from self.told(text, "  ", "     ")
        rows = expected_rows(each)
        if rows:
            yield ""
            yield "Expected with it"
            yield from self._table(rows)

    def _accountability(self, each: StartReport) -> Iterator[str]:
        for lines in (
            against_lines(each.against),
            accountability_lines(each.accountability),
        ):
            for number, line in enumerate(lines):
                if number == 0:
                    yield ""
                yield from self.told(line.lstrip(), "  " if number else "", "    ")

    def _left(self, each: StartReport) -> Iterator[str]:
        rows = left_rows(each)
        if not rows:
            return
        yield ""
        yield "Left as it is"
        for name, why in rows:
            yield from self.told(f"{name}: {why}.", "  ", "    ")

    def _ledger(self, each: StartReport) -> Iterator[str]:
        rows = ledger(each)
        if rows:
            yield ""
            yield ledger_title(each)
            yield from self._table(rows)

    def _table(self, rows: Iterable[tuple[str, str, str]]) -> Iterator[str]:
        rows = list(rows)
        name_width = max(len(name) for name, _, _ in rows)
        for name, amount, note in rows:
            row = f"  {name:<{name_width}}  {amount:>12}"
            yield from self.told(note, f"{row}  ", " " * (len(row) + 2)) or [row]

    def _findings(self, each: StartReport) -> Iterator[str]:
        yield ""
        yield "Findings"
        for finding in each.findings:
            told = each.headline.why.startswith(finding.title)
            yield from self._finding(finding, told=told)
        if not each.findings:
            yield "  none"
        if each.not_established:
            yield ""
            yield NOT_ESTABLISHED
        for said in each.not_established:
            yield from self.told(said, "  ", "    ")

    def _finding(self, finding: FindingPart, *, told: bool) -> Iterator[str]:
        """Print a finding; the one that the headline told keeps its lines only."""
        title = f"[{finding.severity}] {finding.code} {finding.name}: {finding.title}"
        yield from self.told(title, "  ", "      ")
        if not told:
            yield from self.told(finding.why, "      ")
            if finding.cure:
                yield from self.told(f"> {finding.cure}", "      ", "        ")
        for note in notes(finding):
            yield from self.told(note, "      ", "        ")
        for line in finding.evidence:
            quoted = f"      {quoted_line(line)}"
            is_long = self.width is not None and len(quoted) > self.width
            yield f"{quoted[: (self.width or 1) - 1]}…" if is_long else quoted


def _markdown(each: StartReport) -> Iterator[str]:
    head, *more = [safe(line) for line in heading(each)]
    yield from (f"## {head}", *more, "", f"**{safe(each.headline.do)}**")
    if each.proposal is not None:
        yield from _markdown_settings(each, each.proposal)
    yield from ("", safe(each.headline.why))
    if each.proposal is not None:
        yield from _markdown_plan(each, each.proposal)
    for lines in (
        against_lines(each.against),
        accountability_lines(each.accountability),
    ):
        title, *told = lines or [""]
        if title:
            yield from (
                "",
                safe(title),
                "",
                *(f"- {safe(line.strip())}" for line in told),
            )
    yield from _markdown_ground(each)
    for finding in each.findings:
        yield from _markdown_finding(finding)
    if each.not_established:
        yield from ("", NOT_ESTABLISHED, "")
        yield from (f"- {safe(said)}" for said in each.not_established)
    trials = list(trial_lines(each))
    if trials:
        yield from fenced("text", trials)


def _markdown_ground(each: StartReport) -> Iterator[str]:
    """Print what stays as it is, and the figures of the start."""
    left = left_rows(each)
    if left:
        yield from ("", "Left as it is", "")
        yield from (f"- {code(name)}: {safe(why)}." for name, why in left)
    rows = ledger(each)
    if rows:
        yield from ("", ledger_title(each), "", "| | | |", "|---|---:|---|")
        yield from (f"| {' | '.join(map(safe, row))} |" for row in rows)
    if each.origin != "predicted":
        yield ""
        yield from (f"- {safe(line.strip())}" for line in warmup_lines(each))
        yield from (f"- {safe(line)}" for line in load_lines(each))


def _markdown_settings(each: StartReport, proposal: ProposalPart) -> Iterator[str]:
    """Print what to set, what that costs, and what leads back."""
    settings = [f"{name}={value}" for name, value in proposal.env.items()]
    settings += [f"unset {name}" for name in proposal.unset]
    file = proposal.bucket_file
    settings += [f"{file.variable}={file.path}"] if file is not None else []
    settings += [" ".join(proposal.flags)] if proposal.flags else []
    yield from (*fenced("", settings), "")
    costs = filter(None, (*cost_lines(each), back_line(each)))
    yield from (f"- {safe(line)}" for line in costs)


def _markdown_plan(each: StartReport, proposal: ProposalPart) -> Iterator[str]:
    told = each.headline.why
    yield from (safe(line) for line in proposal_lines(proposal) if line != told)
    if len(proposal.steps) > 1:
        yield from ("", "Steps, all with one restart, the most gain first", "")
        for number, step in enumerate(proposal.steps, 1):
            typed = ", ".join(map(code, step.settings))
            yield f"{number}. {typed}: {safe(f'{step.gain}. {step.why}')}"
    rows = expected_rows(each)
    if rows:
        yield from ("", "Expected with it", "", "| | | |", "|---|---:|---|")
        yield from (f"| {' | '.join(map(safe, row))} |" for row in rows)


def _markdown_finding(finding: FindingPart) -> Iterator[str]:
    title = safe(finding.title)
    yield ""
    yield f"### `{finding.code}` {finding.name} ({finding.severity}): {title}"
    yield ""
    yield safe(f"{finding.why} {finding.cure}".strip())
    known = [*notes(finding)]
    yield from ("", *(f"- {safe(note)}" for note in known)) if known else ()
    if finding.evidence:
        quoted = [quoted_line(line) for line in finding.evidence]
        yield from fenced("text", quoted)
