"""What differs between two starts of a server: settings, sizes and release, as printed.

A setting that only one of the two logs prints counts as unset in the other, provided that
the one prints it among what was set, and the other prints what was set at all.  A log that
was cut at its head proves nothing, nor does a start that died before its memory was split.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hpuwatch.advise.compare.settings import printed, same_value
from hpuwatch.parse.mask import mask_value
from hpuwatch.records import Line
from hpuwatch.state.configured import release_text
from hpuwatch.state.model import Known, Start, value_of

READY = "ready"
RELEASE = "release"


@dataclass(frozen=True, slots=True)
class Changed:
    """A setting with another value than before; None where it isn't set.

    Attributes:
        name: a variable, a flag, or ``release``.
        before: its value in the earlier start.
        now: its value in the later one.
        lines: what printed the two.
    """

    name: str
    before: str | None
    now: str | None
    lines: tuple[Line, ...]

    def __str__(self) -> str:
        """Return it in a few words: ``NAME 0.1 → 0.4``."""
        return f"{self.name} {self.before or 'unset'} → {self.now or 'unset'}"


def same_server(one: Start, other: Start) -> bool:
    """Tell whether two starts serve the same model on the same number of like cards.

    What only one of the two logs prints tells nothing.
    """
    pairs = (
        (one.server.model, other.server.model),
        (one.server.card, other.server.card),
        (one.server.tensor_parallel, other.server.tensor_parallel),
    )
    models = value_of(one.server.model), value_of(other.server.model)
    return None not in models and all(
        a is None or b is None or a.value == b.value for a, b in pairs
    )


def last_good(start: Start, earlier: Sequence[Start]) -> Start | None:
    """Return the newest earlier start of the same server that was ready to serve."""
    good = (
        each
        for each in reversed(earlier)
        if READY in each.reached and same_server(start, each)
    )
    return next(good, None)


def changed_settings(before: Start, now: Start) -> tuple[Changed, ...]:
    """Return what is set otherwise than before, by name; the release comes first."""
    old, new = printed(before), printed(now)
    names = old.keys() & new.keys()
    if _prints_settings(before) and _prints_settings(now):
        names |= _given(before, old) | _given(now, new)
    found = [
        _changed(name, old.get(name), new.get(name))
        for name in sorted(names)
        if not _is_same(old.get(name), new.get(name))
    ]
    releases = release_text(before.server), release_text(now.server)
    if None in releases or releases[0] == releases[1]:
        return tuple(found)
    told = (before.server.version, now.server.version)
    lines = tuple(each.line for each in told if each)
    return (Changed(RELEASE, *releases, lines), *found)


def listed(changes: Sequence[Changed], most: int = 4) -> str:
    """Return the changes in one clause, the first few by name."""
    said = ", ".join(map(str, changes[:most]))
    more = len(changes) - most
    return f"{said} and {more} more" if more > 0 else said


def _is_same(old: Known[str] | None, new: Known[str] | None) -> bool:
    if old is None or new is None:
        return old is new
    return same_value(old.value, new.value)


def _changed(name: str, old: Known[str] | None, new: Known[str] | None) -> Changed:
    lines = tuple(each.line for each in (old, new) if each is not None)
    return Changed(name, _masked(name, old), _masked(name, new), lines)


def _masked(name: str, known: Known[str] | None) -> str | None:
    return None if known is None else mask_value(name, known.value)


def _given(start: Start, settings: Mapping[str, Known[str]]) -> set[str]:
    """Return the settings that a log prints as given, not as what came of them."""
    return {
        name
        for name, known in settings.items()
        if name in start.server.flags or known.line == start.server.arguments
    }


def _prints_settings(start: Start) -> bool:
    """Tell whether the log holds the lines that list what is set."""
    return start.server.arguments is not None or bool(start.server.features)
