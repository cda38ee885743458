"""Values that a knob doesn't take: what stops the server, and what is silently misread."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from hpuwatch.advise.lint.configuration import Configuration
from hpuwatch.advise.lint.remark import Remark
from hpuwatch.gaudi.checks import Outcome
from hpuwatch.gaudi.dialects import dialect_of
from hpuwatch.gaudi.heeded import unread
from hpuwatch.gaudi.resolve import STRATEGY, Flags

_NO_FLAGS = Flags(1, 1, 1, 1)
"""Where values are read by what lists ask for, no flag chooses the strategy."""
_CURES = {
    Outcome.FALSE: "Set true, or false if that is meant.",
    Outcome.TRUE: "Set 0, or unset it.",
}


def ending_as(outcome: Outcome) -> Callable[[Configuration], Iterator[Remark]]:
    """Return the check for values that come to this outcome under the release."""

    def check(found: Configuration) -> Iterator[Remark]:
        for setting, knob in found.known():
            if not knob.acts(found.at):
                continue
            judged = knob.judge(setting.value, found.at)
            if judged is not None and judged.outcome is outcome:
                cure = _CURES.get(outcome, f"Set a legal value: {knob.legal}.")
                yield Remark(setting, f"{judged.text}.", cure)

    return check


def other_variable(found: Configuration) -> Iterator[Remark]:
    """See a strategy where the name belongs to a variable with other values."""
    allowed = dialect_of(found.release.dialect).old_names
    setting = found.settings.get(STRATEGY)
    if setting is not None and allowed and setting.value not in allowed:
        yield Remark(
            setting,
            f"{found.release.name} has another variable of this name, which takes "
            f"{' or '.join(allowed)}; with this value the server does not start.",
            "Unset it, and set VLLM_EXPONENTIAL_BUCKETING to true or false.",
        )


def stops(found: Configuration) -> Iterator[Remark]:
    """See every value that the server does not start with."""
    dialect = dialect_of(found.release.dialect)
    for each in ending_as(Outcome.DIES)(found):
        if not unread(each.about.name, dialect, _NO_FLAGS, found.env):
            yield each
    yield from other_variable(found)
