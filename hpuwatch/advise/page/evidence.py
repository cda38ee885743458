"""What was found, with the lines that it rests on, and how the server stands."""

from __future__ import annotations

from hpuwatch.advise.document import FindingPart, StartReport
from hpuwatch.advise.page.glossary import Prose, explained
from hpuwatch.advise.page.markup import Markup, element, joined
from hpuwatch.advise.page.parts import heading, quoted, table
from hpuwatch.advise.page.quantities import (
    ORIGINS,
    interval,
    known_as,
    name_of,
    told,
)
from hpuwatch.advise.render.findings import NOT_ESTABLISHED, further_helps
from hpuwatch.advise.render.words import (
    ledger,
    ledger_title,
    load_lines,
    warmup_lines,
)
from hpuwatch.advise.render.words import name_of as file_name
from hpuwatch.units import counted


def findings(report: StartReport, prose: Prose, anchor: str) -> Markup:
    """Return every finding, the gravest first."""
    parts = [heading(3, "What was found", f"{anchor}-findings")]
    if not report.findings:
        ran = report.origin != "predicted"
        nothing = "Nothing." if ran else "There is no log yet to look at."
        parts.append(element("p", nothing))
    parts += [
        _finding(
            finding,
            prose,
            anchor,
            report.source.file,
            told=report.headline.why.startswith(finding.title),
        )
        for finding in report.findings
    ]
    return element("section", *parts)


def _finding(
    finding: FindingPart, prose: Prose, anchor: str, source: str, *, told: bool
) -> Markup:
    """Return one finding; what the headline told already is not said twice."""
    badge = element("span", finding.severity, class_=f"badge {finding.severity}")
    title = element("h4", badge, finding.title, id=f"{anchor}-{finding.code}")
    parts = [title]
    if not told:
        parts.append(prose.paragraph(finding.why))
    if finding.cure:
        said, new = prose.sentence(finding.cure)
        parts += [element("p", element("b", "What helps: "), said), explained(new)]
    parts += [_levers(finding, prose), _figures(finding)]
    folded = finding.severity == "info"
    parts.append(quoted(finding.evidence, source, folded=folded))
    known = ORIGINS[finding.confidence]
    parts.append(
        element(
            "p",
            element("code", finding.code),
            f" {finding.name} \N{MIDDLE DOT} {known}",
            class_="soft",
        )
    )
    return element("article", *parts, class_=finding.severity)


def _levers(finding: FindingPart, prose: Prose) -> Markup:
    """Return the knobs that can help, and those that can't, each with its reason."""
    lists = []
    helps = further_helps(finding)
    sides = (("Can help", helps), ("Can't help", finding.cannot_help))
    for title, levers in sides:
        if levers:
            texts = [f"{each.change} {each.knob}: {each.why}" for each in levers]
            lists += [element("p", element("b", f"{title}:")), prose.items(texts)]
    return joined(lists)


def _figures(finding: FindingPart) -> Markup:
    if not finding.figures:
        return Markup()
    rows = [
        (
            name_of(name),
            told(name, each.value),
            interval(name, each.low, each.high),
            known_as(name, each.origin),
        )
        for name, each in finding.figures.items()
    ]
    return table(("figure", "value", "likely between", "how it is known"), rows)


def unknown(report: StartReport, prose: Prose, anchor: str) -> Markup:
    """Return what the log could not tell, nothing where it told all."""
    if not report.not_established:
        return Markup()
    return element(
        "section",
        heading(3, NOT_ESTABLISHED, f"{anchor}-unknown"),
        prose.items(report.not_established),
    )


def standing(report: StartReport, prose: Prose, anchor: str) -> Markup:
    """Return what the server is and how it fares."""
    parts = [heading(3, "How this server stands", f"{anchor}-standing")]
    parts.append(table(("", "what is known"), list(_identity(report).items())))
    memory = [
        (name, f"{amount} {note}".strip()) for name, amount, note in ledger(report)
    ]
    runs = report.origin != "predicted"
    if memory:
        printed = "as the log prints it" if runs else "as it is expected"
        parts += [heading(4, ledger_title(report)), table(("", printed), memory)]
    lines = (*warmup_lines(report), *load_lines(report)) if runs else ()
    said = [line.strip() for line in lines]
    if report.source.broken_events:
        broken = counted(report.source.broken_events, "event")
        said.append(
            f"{broken} could not be taken in: a fault of hpuwatch, please report it"
        )
    for earlier in report.earlier:
        title = earlier.findings[0].title if earlier.findings else "nothing was found"
        said.append(
            f"Earlier start {earlier.source.start} in this log ended "
            f"{earlier.server.phase}: {title}"
        )
    if said:
        parts.append(prose.items(said))
    if report.trials:
        parts.append(_trials(report))
    return element("section", *parts)


def _identity(report: StartReport) -> dict[str, str]:
    server = report.server
    release = server.release or ""
    if release and server.assumed_like:
        release += f", taken to behave like {server.assumed_like}"
    cards = f"{server.tp} \N{MULTIPLICATION SIGN} " if (server.tp or 1) > 1 else ""
    longest = server.max_model_len
    source = file_name(report.source.file)
    if report.source.start > 1:
        source += f", start {report.source.start}"
    known = {
        "read from": source,
        "model": server.model,
        "cards": f"{cards}{server.card}" if server.card else "",
        "vLLM": server.version,
        "release": release,
        "longest request": f"{longest:,} tokens" if longest else "",
        "last seen": server.phase.replace("_", " "),
    }
    return {name: value for name, value in known.items() if value}


def _trials(report: StartReport) -> Markup:
    rows = []
    for trial in report.trials:
        rate = trial.tokens_per_second
        spread = (
            f" \N{PLUS-MINUS SIGN} {trial.plus_minus:,.0f}" if trial.plus_minus else ""
        )
        typed = ", ".join(f"{name}={value}" for name, value in trial.settings.items())
        rows.append(
            (
                f"{trial.number}",
                typed or "as it was",
                f"{trial.outcome} {trial.cause}".strip(),
                f"{rate:,.0f}{spread}" if rate is not None else "\N{EN DASH}",
                f"{trial.kv_blocks:,}" if trial.kv_blocks else "\N{EN DASH}",
            )
        )
    head = ("trial", "settings", "outcome", "output tokens/s", "KV blocks")
    return joined([heading(4, "Trials of the study"), table(head, rows)])
