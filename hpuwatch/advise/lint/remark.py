"""What a check of a configuration saw, and the finding that it becomes."""

from __future__ import annotations

from dataclasses import dataclass

from hpuwatch.advise.lint.configuration import Setting


@dataclass(frozen=True, slots=True)
class Remark:
    """Something about one setting.

    Attributes:
        about: the setting; one that nobody set has no place.
        happens: what the server does, in sentences.
        cure: what to do, in a sentence.
        severity: where it differs from the kind's usual one.
    """

    about: Setting
    happens: str
    cure: str
    severity: str | None = None


@dataclass(frozen=True, slots=True)
class LintFinding:
    """A remark under the code of its kind."""

    code: str
    severity: str
    remark: Remark


def unset(name: str, value: str = "") -> Setting:
    """Return a setting that nobody made, with its default where it has one."""
    return Setting(name, value, "default")
