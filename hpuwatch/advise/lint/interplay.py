"""Knobs that don't go together, by the table of ``gaudi.conflicts``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from hpuwatch.advise.lint.configuration import Configuration, reads_true
from hpuwatch.advise.lint.remark import Remark
from hpuwatch.gaudi.conflict import Conflict, If, Test
from hpuwatch.gaudi.conflicts import CONFLICTS
from hpuwatch.gaudi.knobs import named
from hpuwatch.gaudi.spans import covers


def conflicting(code: str) -> Callable[[Configuration], Iterator[Remark]]:
    """Return the check for the conflicts of one code."""
    rows = [each for each in CONFLICTS if each.code == code]

    def check(found: Configuration) -> Iterator[Remark]:
        for conflict in rows:
            if covers(conflict.releases, found.at):
                yield from _of(found, conflict)

    return check


def _of(found: Configuration, conflict: Conflict) -> Iterator[Remark]:
    first, *others = conflict.when
    if not all(
        any(_holds(found, name, each) for name in each.knobs) for each in others
    ):
        return
    for name in first.knobs:
        if name in found.settings and _holds(found, name, first):
            with_whom = _partners(found, name, others)
            yield Remark(
                found.settings[name], conflict.happens + with_whom, conflict.cure
            )


def _partners(found: Configuration, about: str, others: list[If]) -> str:
    """Say which other settings it is about, and where they were made."""
    set_by = [
        found.settings[name]
        for each in others
        for name in each.knobs
        if name in found.settings and name != about and _holds(found, name, each)
    ]
    if not set_by:
        return ""
    told = (f"{each.name}={each.value} ({each.where})" for each in set_by)
    return f" The other: {', '.join(dict.fromkeys(told))}."


def _holds(found: Configuration, name: str, condition: If) -> bool:
    return _TESTS[condition.test](found, name, condition.values)


def _given(found: Configuration, name: str, _values: tuple[str, ...]) -> bool:
    setting = found.settings.get(name)
    return setting is not None and reads_true(named(name), setting.value, found.at)


_TESTS: Mapping[Test, Callable[[Configuration, str, tuple[str, ...]], bool]] = {
    "set": lambda found, name, _: name in found.settings,
    "unset": lambda found, name, _: name not in found.settings,
    "given": _given,
    "on": lambda found, name, _: found.is_on(name),
    "off": lambda found, name, _: not found.is_on(name),
    "several": lambda found, name, _: (found.number(name) or 0) > 1,
    "equals": lambda found, name, values: (found.value(name) or "").upper() in values,
    "differs": lambda found, name, values: found.value(name) not in values,
}
