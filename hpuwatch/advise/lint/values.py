"""Values that a knob doesn't take: what stops the server, and what is silently misread."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from hpuwatch.advise.lint.configuration import Configuration
from hpuwatch.advise.lint.remark import Remark
from hpuwatch.gaudi.checks import Judgement, Outcome
from hpuwatch.gaudi.dialects import dialect_of
from hpuwatch.gaudi.heeded import unread
from hpuwatch.gaudi.knobs import KNOBS
from hpuwatch.gaudi.resolve import STRATEGY, Flags
from hpuwatch.gaudi.slices import SLICE_SIZE, counts, oversized

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
            if judged is None or not _counts(judged, found):
                continue
            if judged.outcome is outcome:
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
    yield from _oversized_slices(found)


def _counts(judged: Judgement, found: Configuration) -> bool:
    return counts(judged, dialect_of(found.release.dialect), _flags(found), found.env)


def _flags(found: Configuration) -> Flags:
    """Return what chooses the strategy besides variables: a bucket file."""
    listed = found.bucket_file
    return replace(_NO_FLAGS, bucket_file=listed.text if listed else None)


def _oversized_slices(found: Configuration) -> Iterator[Remark]:
    setting = found.settings.get(SLICE_SIZE)
    if setting is None or not KNOBS[SLICE_SIZE].acts(found.at):
        return
    dialect = dialect_of(found.release.dialect)
    tokens = found.number("--max-num-batched-tokens") or 0
    why = oversized(dialect, _flags(found), found.env, tokens)
    if why is not None:
        yield Remark(setting, f"{why}.", "Set less, or unset it.")
