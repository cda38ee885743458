"""``hpuwatch rules``: list, check and test the rules that read the log."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from hpuwatch.cli.options import JSON_OR_TEXT, OWN_RULES, Format, check_choice

if TYPE_CHECKING:
    from hpuwatch.parse.rules import Rule, RuleSet

program = typer.Typer(
    help="List, check and test the rules that read the log.", no_args_is_help=True
)

_PATH = typer.Argument(
    None,
    metavar="[PATH]",
    help="A rule file or folder of your own, beside the shipped ones; else all of these.",
)


@program.command("list")
def list_rules(
    path: Path | None = _PATH,
    own: Path | None = OWN_RULES,
    form: Format = "text",
) -> None:
    """Show every rule: its event, severity, file and patterns."""
    check_choice("--format", form, JSON_OR_TEXT)
    rows = [
        {
            "event": rule.event,
            "severity": rule.text.severity,
            "where": _short(rule.where),
            "releases": rule.text.releases,
            "patterns": list(rule.text.patterns),
        }
        for rule in _load(path, own)[1]
    ]
    if form == "json":
        print(json.dumps({"schema": "hpuwatch.rules/1", "rules": rows}, indent=2))
        return
    for row in rows:
        print(f"{row['event']}  ({row['severity']}, {row['where']})")
        for pattern in row["patterns"]:
            print(f"    {pattern}")


@program.command("check")
def check(path: Path | None = _PATH, own: Path | None = OWN_RULES) -> None:
    """Load the rules; a mistake is told with its file and line.

    Whether they find what they are meant for only their examples tell: `rules test`.
    """
    from hpuwatch.units import counted

    _, rules = _load(path, own)
    patterns = [template for rule in rules for template in rule.templates]
    for template in patterns:
        _ = template.regex
    files = {rule.where.rpartition(":")[0] for rule in rules}
    print(
        f"{counted(len(rules), 'rule')} with {counted(len(patterns), 'pattern')} in "
        f"{counted(len(files), 'file')}: no mistake"
    )


@program.command("test")
def prove(path: Path | None = _PATH, own: Path | None = OWN_RULES) -> None:
    """Prove the rules: examples must match, near misses must not."""
    from hpuwatch.errors import RuleError
    from hpuwatch.parse.proof import mistakes
    from hpuwatch.units import counted

    everything, rules = _load(path, own)
    found = mistakes(everything, rules)
    if found:
        raise RuleError(
            f"{counted(len(found), 'mistake')} in examples:\n  " + "\n  ".join(found)
        )
    examples = sum(len(rule.text.examples) for rule in rules)
    misses = sum(len(rule.text.near_misses) for rule in rules)
    print(f"examples: {examples} match; near misses: {misses} don't")


def _load(path: Path | None, own: Path | None) -> tuple[RuleSet, Sequence[Rule]]:
    """Return all rules that would be in force, and those to look at."""
    from hpuwatch.app.rules import own_part, shipped_rules
    from hpuwatch.errors import UsageError

    if path is not None and own is not None:
        raise UsageError("name your rules once: PATH and --rules PATH mean the same")
    path = path or own
    rules = shipped_rules(path)
    return rules, rules.rules if path is None else own_part(rules, path)


def _short(where: str) -> str:
    """Return ``file.yaml:12`` without its folder."""
    return Path(where).name
