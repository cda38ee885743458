"""What other logs of this machine say, added to a report over a server that we own.

Only the spool of a run of this machine tells which other logs are its server's: beside it lie
the facts of its process and, once it has ended, the last words with what was quoted then.
Any other log may come from anywhere, so nothing is looked up for it.
"""

from __future__ import annotations

from pathlib import Path

from hpuwatch.advise.document import Evidence, FindingPart, Report, StartReport
from hpuwatch.advise.finding import ERROR
from hpuwatch.clock import Clock
from hpuwatch.runtime.elsewhere import OtherLogs, log_environment
from hpuwatch.runtime.facts import read_facts
from hpuwatch.runtime.instance import Instance, before_of
from hpuwatch.runtime.last_exit import stored_last_exit
from hpuwatch.runtime.quote import Quote


def with_other_logs(report: Report, clock: Clock) -> Report:
    """Return the report with what other logs say of each server's failure as evidence."""
    reports = [_with_quotes(each, clock) for each in report.reports]
    return report.model_copy(update={"reports": reports})


def _with_quotes(report: StartReport, clock: Clock) -> StartReport:
    place = next(
        (n for n, each in enumerate(report.findings) if each.severity == ERROR), None
    )
    if place is None or not any(fault.severity == "fatal" for fault in report.faults):
        return report
    evidence = [
        Evidence(file=quote.source, line=0, text=text)
        for quote in _quotes(Path(report.source.file), clock)
        for text in quote.lines or _unread(quote)
    ]
    if not evidence:
        return report
    findings: list[FindingPart] = list(report.findings)
    told = findings[place]
    findings[place] = told.model_copy(update={"evidence": [*told.evidence, *evidence]})
    return report.model_copy(update={"findings": findings})


def _unread(quote: Quote) -> tuple[str, ...]:
    return (f"not looked into: {quote.unread}",) if quote.unread else ()


def _quotes(log: Path, clock: Clock) -> tuple[Quote, ...]:
    """Return what was quoted when the server ended, or what can be quoted of a live one."""
    instance = Instance(log.absolute().parent.parent, log.absolute().parent.name)
    if log.absolute() == instance.spool:
        facts = instance.read()
    elif log.absolute() == before_of(instance.spool):
        facts = read_facts(before_of(instance.facts))
    else:
        return ()
    ended = stored_last_exit(instance.last_exit)
    if ended is not None and ended.run == facts.run:
        return ended.elsewhere
    if facts.server is None or facts.started_at is None or not facts.server_alive():
        return ()
    env = log_environment(facts.server.pid)
    return OtherLogs(env, facts.started_at, clock).quotes()
