"""The table of lint's findings: each kind has a stable code, and is declared only here.

The conflicts of knobs bring their codes with them, from ``gaudi.conflicts``.
:func:`lint` runs every check over a configuration and returns what was found, the gravest
first.  ``docs/linting.md`` is compared with :func:`documentation` by a test.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from hpuwatch.advise.finding import ERROR, INFO, SEVERITIES, WARNING
from hpuwatch.advise.lint import names, origin, shapes, sizes, start, values
from hpuwatch.advise.lint.configuration import Configuration
from hpuwatch.advise.lint.interplay import conflicting
from hpuwatch.advise.lint.remark import LintFinding, Remark
from hpuwatch.gaudi.checks import Outcome
from hpuwatch.gaudi.conflict import Conflict
from hpuwatch.gaudi.conflicts import CONFLICTS

WRONG_SERVER = "wrong-server"
_KNOB_IGNORED, _STRATEGY_IGNORES = "knob-ignored", "strategy-ignores"


class LintKind(NamedTuple):
    """A kind of finding: its code, usual severity, what it means, and who looks for it."""

    code: str
    severity: str
    when: str
    check: Callable[[Configuration], Iterator[Remark]]


def _interplay() -> tuple[LintKind, ...]:
    rows: dict[str, list[Conflict]] = {}
    for each in CONFLICTS:
        rows.setdefault(each.code, []).append(each)
    return tuple(
        LintKind(
            code,
            alike[0].severity,
            " Or: ".join(dict.fromkeys(each.happens for each in alike)),
            conflicting(code),
        )
        for code, alike in rows.items()
    )


LINT_KINDS: tuple[LintKind, ...] = (
    LintKind(
        WRONG_SERVER,
        ERROR,
        "The env file's head names another release, card, model, number of cards or base.",
        origin.other_server,
    ),
    LintKind(
        "value-stops-server", ERROR, "The server does not start with it.", values.stops
    ),
    LintKind(
        "value-reads-false",
        WARNING,
        "A boolean that the release silently takes for false.",
        values.ending_as(Outcome.FALSE),
    ),
    LintKind(
        "value-reads-true",
        WARNING,
        "A boolean that the release silently takes for true.",
        values.ending_as(Outcome.TRUE),
    ),
    LintKind(
        "value-replaced",
        WARNING,
        "The release takes a default instead, with a warning.",
        values.ending_as(Outcome.DEFAULT),
    ),
    LintKind(
        "value-odd",
        WARNING,
        "A value outside of what is legal, which acts all the same.",
        sizes.odd,
    ),
    LintKind(
        "flag-unknown",
        ERROR,
        "A flag of other releases; this one refuses its command line.",
        names.refused,
    ),
    LintKind(
        _KNOB_IGNORED, WARNING, "The release passes over it silently.", names.ignored
    ),
    LintKind(
        "knob-renamed",
        WARNING,
        "The release passes over this name and heeds a newer one.",
        names.renamed,
    ),
    LintKind(
        "knob-deprecated",
        INFO,
        "The older of two names that both act.",
        names.deprecated,
    ),
    LintKind(
        "knob-internal",
        WARNING,
        "A variable that the server sets by itself.",
        names.set_by_server,
    ),
    LintKind(
        "name-misspelt",
        WARNING,
        "A name that nobody knows, and that is nearly a known one: a variable, which does "
        "nothing, or a flag, with which the server does not start (error).",
        names.misspelt,
    ),
    LintKind(
        _STRATEGY_IGNORES,
        WARNING,
        "A bound of an axis that the strategy doesn't ask for.",
        shapes.unheeded_axes,
    ),
    LintKind(
        "bound-acts-anyway",
        INFO,
        "The batch of a prefill, of which the log says that it will be overwritten.",
        shapes.acting_batch,
    ),
    LintKind(
        "bound-cut",
        INFO,
        "Decode contexts that contiguous attention cuts at the KV blocks.",
        shapes.capped_decodes,
    ),
    LintKind(
        "minimum-above-maximum",
        ERROR,
        "The minimum of an axis exceeds its maximum.",
        shapes.minimum_above_maximum,
    ),
    LintKind(
        "bucket-file-unreadable",
        ERROR,
        "The bucket file is not there for the server.",
        shapes.unreadable_file,
    ),
    LintKind(
        "bucket-file",
        WARNING,
        "A line of the bucket file that stops the server (error), is passed over or means "
        "something else; or shapes that no line covers.",
        shapes.bucket_file,
    ),
    LintKind(
        "no-buckets",
        ERROR,
        "The server stops while it makes its buckets.",
        shapes.no_buckets,
    ),
    LintKind(
        "sizes-refused",
        ERROR,
        "Sizes with which the server doesn't come up, as `hpuwatch predict` says too.",
        sizes.refused,
    ),
    LintKind(
        "ready-timeout",
        WARNING,
        "The front end may give the engine less time than warm-up takes.",
        start.ready_timeout,
    ),
    LintKind(
        "too-few-cards",
        ERROR,
        "Fewer cards are named than the flags want.",
        start.too_few_cards,
    ),
    LintKind(
        "recipe-cache",
        WARNING,
        "The recipe cache is missing, or lies where it can't work.",
        start.recipe_cache,
    ),
    LintKind(
        "secret-on-command-line",
        WARNING,
        "A key or token stands on the command line.",
        start.secrets,
    ),
    LintKind(
        "open-to-all",
        WARNING,
        "The server listens on every address and asks for no key.",
        start.open_to_all,
    ),
    *_interplay(),
)


def lint(configuration: Configuration) -> tuple[LintFinding, ...]:
    """Return every finding, the gravest first, by kind and name.

    Raises:
        ConfigError: the release is unknown.
    """
    found = [
        LintFinding(kind.code, remark.severity or kind.severity, remark)
        for kind in LINT_KINDS
        for remark in kind.check(configuration)
    ]
    stopping = {each.remark.about.name for each in found if each.severity == ERROR}
    kept = (
        each
        for each in found
        # What ends the start was looked at, even if it would change nothing.
        if each.code not in {_KNOB_IGNORED, _STRATEGY_IGNORES}
        or each.remark.about.name not in stopping
    )
    return tuple(sorted(kept, key=lambda each: -SEVERITIES.index(each.severity)))


def documentation() -> str:
    """Return the table of kinds for ``docs/linting.md``."""
    rows = ["| code | severity | when |", "| --- | --- | --- |"]
    rows += [
        f"| `{kind.code}` | {kind.severity} | {kind.when} |" for kind in LINT_KINDS
    ]
    return "\n".join(rows) + "\n"
