"""Names that the release doesn't act on: ignored, renamed, unknown, or misspelt."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches

from hpuwatch.advise.lint.configuration import Configuration
from hpuwatch.advise.lint.remark import Remark
from hpuwatch.gaudi.knob import PREFIXES
from hpuwatch.gaudi.knobs import KNOBS, Knob, named
from hpuwatch.gaudi.spans import prose

_ALIKE = 0.9
"""From this similarity on, a name that nobody knows counts as another one, misspelt."""


def refused(found: Configuration) -> Iterator[Remark]:
    """See flags that this release's command line doesn't know."""
    for setting, knob in found.known():
        if knob.is_refused(found.at):
            yield Remark(
                setting,
                f"{found.release.name} does not know this flag; the server does not "
                "start (exit code 2).",
                f"Leave it out. {knob.beware}".strip(),
            )


def ignored(found: Configuration) -> Iterator[Remark]:
    """See knobs that the release passes over, and that no other name stands for."""
    for setting, knob in found.known():
        if not _is_passed_over(found, knob) or _acting_successor(found, knob):
            continue
        older = _predecessor(found, knob)
        if older is not None:
            cure = f"Set {older.name} instead: it is the name in this release."
        else:
            cure = f"Unset it. {knob.beware}".strip()
        acts = prose(knob.honoured)
        yield Remark(
            setting,
            f"{found.release.name} does not look at it."
            + (f" It acts in {acts}." if acts != "none" else ""),
            cure,
        )


def renamed(found: Configuration) -> Iterator[Remark]:
    """See names that the release passes over since the knob has another one."""
    for setting, knob in found.known():
        newer = _acting_successor(found, knob)
        if newer is not None and _is_passed_over(found, knob):
            yield Remark(
                setting,
                f"{found.release.name} does not look at this name.",
                f"Set {newer.name} instead.",
            )


def deprecated(found: Configuration) -> Iterator[Remark]:
    """See names that still act, but have a successor."""
    for setting, knob in found.known():
        newer = _acting_successor(found, knob)
        if newer is not None and knob.acts(found.at):
            yield Remark(
                setting,
                "It still acts, under a name that is to go.",
                f"Set {newer.name} instead.",
            )


def set_by_server(found: Configuration) -> Iterator[Remark]:
    """See variables that are the server's own business."""
    for setting, knob in found.known():
        if knob.internal:
            yield Remark(
                setting, "The server sets it itself while it warms up.", "Unset it."
            )


def misspelt(found: Configuration) -> Iterator[Remark]:
    """See names that nobody knows and that are nearly one that we know."""
    for name, setting in sorted(found.settings.items()):
        if named(name) is not None:
            continue
        meant = _meant(name)
        if meant is not None:
            yield Remark(
                setting,
                "vLLM has no such flag and does not start."
                if name.startswith("-")
                else "Nothing reads a variable of this name.",
                f"Set {meant}, if that is meant.",
                "error" if name.startswith("-") else None,
            )


def _meant(name: str) -> str | None:
    is_flag = name.startswith("--")
    known = [each for each in KNOBS if each.startswith("--") == is_flag]
    asked = name.lower() if is_flag else name.upper()
    if not is_flag and not asked.startswith(PREFIXES) and asked not in KNOBS:
        return None
    close = get_close_matches(asked, known, 1, _ALIKE)
    return close[0] if close else None


def _is_passed_over(found: Configuration, knob: Knob) -> bool:
    return not knob.acts(found.at) and not knob.is_refused(found.at)


def _acting_successor(found: Configuration, knob: Knob) -> Knob | None:
    newer = KNOBS.get(knob.successor)
    return newer if newer is not None and newer.acts(found.at) else None


def _predecessor(found: Configuration, knob: Knob) -> Knob | None:
    """Return the older name of a knob that the release still goes by."""
    return next(
        (
            older
            for older in KNOBS.values()
            if older.successor == knob.name and older.acts(found.at)
        ),
        None,
    )
