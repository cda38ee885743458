"""The log rules that ship with hpuwatch, and the operator's own."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from hpuwatch.data import data_dir
from hpuwatch.errors import ConfigError
from hpuwatch.parse.rulefile import Document, load_rules
from hpuwatch.parse.rules import Rule, RuleSet
from hpuwatch.units import format_bytes

_MOST_BYTES = 4 << 20  # of a rule file


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


def rule_documents(path: Path) -> dict[str, Document]:
    """Return what every rule file in a folder holds, or the one file named.

    Raises:
        ConfigError: there is none.
    """
    if not path.exists():
        raise ConfigError(f"there is no rule file or folder {path}")
    files = rule_files(path)
    if not files:
        raise ConfigError(f"{path} holds no rule file (*.yaml, *.yml)")
    return {str(file): _content(file) for file in files}


def _at_once(path: str, flags: int) -> int:
    """Open a file, without waiting for whoever writes where it is a pipe."""
    return os.open(path, flags | os.O_NONBLOCK)


def _content(file: Path) -> Document:
    try:
        with open(file, "rb", opener=_at_once) as opened:
            if not stat.S_ISREG(os.fstat(opened.fileno()).st_mode):
                return OSError("it is no regular file")
            content = opened.read(_MOST_BYTES + 1)
    except OSError as error:
        return error
    if len(content) > _MOST_BYTES:
        return OSError(f"it is larger than {format_bytes(_MOST_BYTES)}")
    return content


def rule_files(path: Path) -> list[Path]:
    """Return the rule files of a folder, or the one file named."""
    if not path.is_dir():
        return [path]
    return sorted([*path.glob("*.yaml"), *path.glob("*.yml")])
