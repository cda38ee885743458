"""The log rules that ship with hpuwatch, and the operator's own."""

from __future__ import annotations

from pathlib import Path

from hpuwatch.data import data_dir
from hpuwatch.errors import ConfigError
from hpuwatch.parse.rules import RuleSet, load_rules


def shipped_rules(extra: Path | None = None) -> RuleSet:
    """Load the shipped rules and, after them, those of a folder.

    Raises:
        RuleError: a rule file is wrong; every mistake is told with file and line.
        ConfigError: the rules or the folder are not there.
    """
    documents = rule_documents(data_dir("rules") / "parse")
    if extra is not None:
        documents |= rule_documents(extra)
    return load_rules(documents)


def rule_documents(folder: Path) -> dict[str, str]:
    """Return the text of every rule file in a folder, or of the one file named.

    Raises:
        ConfigError: there is none, or one can't be read.
    """
    files = sorted(folder.glob("*.yaml")) if folder.is_dir() else [folder]
    if not files:
        raise ConfigError(f"{folder} holds no rule file (*.yaml)")
    try:
        return {str(file): file.read_text(encoding="utf-8") for file in files}
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"a rule file can't be read: {error}") from error
