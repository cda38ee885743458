"""The log rules that ship with hpuwatch, and the operator's own."""

from __future__ import annotations

from pathlib import Path

from hpuwatch.data import data_dir
from hpuwatch.errors import ConfigError
from hpuwatch.parse.rulefile import load_rules
from hpuwatch.parse.rules import Rule, RuleSet


def shipped_rules(extra: Path | None = None) -> RuleSet:
    """Load the shipped rules and, after them, those of a folder or file.

    Raises:
        RuleError: a rule file is wrong; every mistake is told with file and line.
        ConfigError: the rules or the folder are not there.
    """
    own = {} if extra is None else rule_documents(extra)
    same = {Path(file).resolve() for file in own}
    shipped = rule_documents(data_dir("rules") / "parse")
    documents = {
        file: text for file, text in shipped.items() if Path(file).resolve() not in same
    }
    return load_rules(documents | own)


def own_part(rules: RuleSet, path: Path) -> tuple[Rule, ...]:
    """Return the rules of a set that stand in an operator's folder or file."""
    files = tuple(f"{file}:" for file in rule_files(path))
    return tuple(rule for rule in rules.rules if rule.where.startswith(files))


def rule_documents(path: Path) -> dict[str, str]:
    """Return the text of every rule file in a folder, or of the one file named.

    Raises:
        ConfigError: there is none, or one can't be read.
    """
    files = rule_files(path)
    if not files:
        raise ConfigError(f"{path} holds no rule file (*.yaml)")
    try:
        return {str(file): file.read_text(encoding="utf-8") for file in files}
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"a rule file can't be read: {error}") from error


def rule_files(path: Path) -> list[Path]:
    """Return the rule files of a folder, or the one file named."""
    return sorted(path.glob("*.yaml")) if path.is_dir() else [path]
