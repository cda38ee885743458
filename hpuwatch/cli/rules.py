"""``hpuwatch rules``: list, check and test the rules that read the log."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

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
    form: str = typer.Option("text", "--format", help="text or json."),
) -> None:
    """Show every rule: its event, severity, file and patterns."""
    from hpuwatch.errors import UsageError

    if form not in {"text", "json"}:
        raise UsageError(f"--format {form!r} is not text or json")
    rows = [
        {
            "event": rule.event,
            "severity": rule.text.severity,
            "where": _short(rule.where),
            "releases": rule.text.releases,
            "patterns": list(rule.text.patterns),
        }
        for rule in _load(path)[1]
    ]
    if form == "json":
        print(json.dumps({"schema": "hpuwatch.rules/1", "rules": rows}, indent=2))
        return
    for row in rows:
        print(f"{row['event']}  ({row['severity']}, {row['where']})")
        for pattern in row["patterns"]:
            print(f"    {pattern}")


@program.command("check")
def check(path: Path | None = _PATH) -> None:
    """Load the rules; a mistake is told with its file and line."""
    _, rules = _load(path)
    patterns = [template for rule in rules for template in rule.templates]
    for template in patterns:
        _ = template.regex
    files = {rule.where.rpartition(":")[0] for rule in rules}
    print(
        f"{len(rules)} rules with {len(patterns)} patterns in {len(files)} "
        "files are sound"
    )


@program.command("test")
def prove(path: Path | None = _PATH) -> None:
    """Prove the rules: examples must match, near misses must not."""
    from hpuwatch.errors import RuleError
    from hpuwatch.parse.proof import mistakes

    everything, rules = _load(path)
    found = mistakes(everything, rules)
    if found:
        raise RuleError(
            f"{len(found)} rules don't keep their word:\n  " + "\n  ".join(found)
        )
    examples = sum(len(rule.text.examples) for rule in rules)
    misses = sum(len(rule.text.near_misses) for rule in rules)
    print(f"{examples} examples match and {misses} near misses don't")


def _load(path: Path | None) -> tuple[RuleSet, Sequence[Rule]]:
    """Return all rules that would be in force, and those to look at."""
    from hpuwatch.app.rules import own_part, shipped_rules

    rules = shipped_rules(path)
    return rules, rules.rules if path is None else own_part(rules, path)


def _short(where: str) -> str:
    """Return ``file.yaml:12`` without its folder."""
    return Path(where).name
