"""The desk where steps are laid upon one another and the whole is looked at.

``gaudi.predict`` refuses what would not come up, and ``advise.lint`` knows what a release
ignores, misreads or dies of.  A step that either objects to is left out, and told.  A
server that ran disproves refusals: what is refused of the very plan that was served is no
reason against another one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from hpuwatch.advise.baseline import Baseline, baseline_of
from hpuwatch.advise.causes import code_of, root_fault
from hpuwatch.advise.lint.configuration import BucketFile, Configuration, Setting
from hpuwatch.advise.lint.kinds import lint
from hpuwatch.advise.lint.remark import LintFinding
from hpuwatch.advise.lint.words import of_log
from hpuwatch.advise.plan.reserve import Step
from hpuwatch.advise.plan.steps import MISSES, STARTS
from hpuwatch.errors import ConfigError
from hpuwatch.gaudi.buckets import find
from hpuwatch.gaudi.dialects import dialect_of
from hpuwatch.gaudi.planning import Change, applied
from hpuwatch.gaudi.predict import Forecast, predict, rules_make, same
from hpuwatch.gaudi.refusal import Remark, refusals
from hpuwatch.gaudi.releases import NEWEST, release_of
from hpuwatch.gaudi.repair import repair
from hpuwatch.gaudi.resolve import EXPONENTIAL, FILE_VARIABLE, STRATEGY
from hpuwatch.life.phases import Phase
from hpuwatch.state.configured import (
    acting_variables,
    printed_strategy,
    release_text,
)
from hpuwatch.state.model import Start, value_of

_OF_WARMUP = frozenset({"decode-above-cache", "graphs-above-reserve", "start-timeout"})
"""Refusals that a start only disproves by getting through its warm-up."""
_MENDED = frozenset({"kv-short", "kv-none", "warmup-oom", "warmup-timeout"})
"""Deaths that settings of memory, sizes and times can mend."""
_OUR_OWN = frozenset({"--strategy", "--contiguous-pa", "--mamba-chunk-size"})
"""Words of hpuwatch or of the model, which no server takes as flags."""
_HOLES = "bucket-file"
"""What lint says of shapes that a file leaves out, which other lists leave out too."""
_PREDICTED = frozenset({"sizes-refused", "no-buckets", "ready-timeout"})
"""What lint says by predictions of its own, where ours rest on the log."""


@dataclass(frozen=True, slots=True)
class Dropped:
    """A step that was looked at and left out, and why."""

    step: Step
    why: str


@dataclass(slots=True)
class Desk:
    """Steps laid upon one another, and what the whole comes to.

    Attributes:
        start: the newest start.
        baseline: the running server, None where the log tells too little.
        now: what it comes to, by the same arithmetic.
        earlier: the starts before it, oldest first.
        excused: refusals that the start itself disproves.
        steps: those that hold.
        then: what they come to together, None without a baseline.
        dropped: those that don't.
    """

    start: Start
    baseline: Baseline | None = None
    now: Forecast | None = None
    earlier: tuple[Start, ...] = ()
    excused: frozenset[str] = frozenset()
    steps: list[Step] = field(default_factory=list)
    then: Forecast | None = None
    dropped: list[Dropped] = field(default_factory=list)

    def lay(self, step: Step) -> None:
        """Add a step if the whole still holds; else say why not."""
        changes = [*self.changes(), *step.changes]
        file = step.bucket_file or self.bucket_file
        then, why = self.then, self._doubt(step) or self._objection(changes, file)
        if why is not None:
            self.dropped.append(Dropped(step, why))
            return
        if self.baseline is not None:
            then, why = self._predicted(step, changes)
        # What is refused of a start that failed goes on to the repair.
        if why is None or (then is not None and is_mendable(self.start)):
            self.steps.append(step)
            self.then = then
        else:
            self.dropped.append(Dropped(step, why))

    def _doubt(self, step: Step) -> str | None:
        """Say why nobody can tell what buckets a step would make, None where one can."""
        printed = self.baseline.basis.printed if self.baseline else None
        made = rules_make(self.baseline.basis) if self.baseline else None
        if printed is None or not any("_BUCKET_" in each.name for each in step.changes):
            return None
        if made is not None and all(
            same(made[phase], listed) for phase, listed in printed.lists.items()
        ):
            return None
        return (
            "the log lists other buckets than the rules of its release give, so nobody can "
            "tell which ones this would make"
        )

    def _objection(
        self, changes: Sequence[Change], bucket_file: str | None
    ) -> str | None:
        passed_over = frozenset() if self.baseline is None else _PREDICTED
        return objection(self.start, changes, bucket_file, passed_over)

    @property
    def bucket_file(self) -> str | None:
        """Return the text of the bucket file that a step wants to be written."""
        texts = (step.bucket_file for step in reversed(self.steps))
        return next((text for text in texts if text is not None), None)

    def changes(self) -> list[Change]:
        """Return what all steps set, in their order; the last of one name holds."""
        return [change for step in self.steps for change in step.changes]

    def left(self, forecast: Forecast) -> list[Remark]:
        """Return the refusals that count."""
        baseline = self.baseline
        found = refusals(forecast, baseline.basis) if baseline else ()
        return [each for each in found if each.code not in self.excused]

    def _predicted(
        self, step: Step, changes: Iterable[Change]
    ) -> tuple[Forecast | None, str | None]:
        baseline = self.baseline
        if baseline is None:
            return None, None
        try:
            plan = applied(baseline.plan, changes)
            file = step.bucket_file or self.bucket_file
            if file is not None:
                plan = replace(
                    plan, flags=replace(plan.flags, bucket_file=file, strategy=None)
                )
            then = predict(plan, baseline.basis)
            refused = next((each.text for each in self.left(then)), None)
            return then, refused or self._vain(step, then)
        except ConfigError as error:
            return None, str(error)

    def _vain(self, step: Step, then: Forecast) -> str | None:
        """Say of a step for missed shapes that none of them gets another bucket by it."""
        now, baseline = self.then, self.baseline
        if step.answers != MISSES or now is None or baseline is None:
            return None
        for phase, shape in baseline.misses:
            had = find(now.lists.get(phase, ()), shape)
            if find(then.lists.get(phase, ()), shape) not in (None, had):
                return None
        return (
            "the shapes that were missed would still have no bucket: something else ends "
            "the range"
        )

    def mend(self) -> None:
        """Add what a failed start still lacks; without a remedy there is no plan."""
        baseline, then = self.baseline, self.then
        if baseline is None or then is None or not is_mendable(self.start):
            return
        left = self.left(then)
        if not left:
            return
        found = _repair(then, baseline)
        step = None if found is None else _mending(self.start, found[0], left)
        if (
            found is None
            or step is None
            or self.left(found[1])
            or self._objection([*self.changes(), *step.changes], None) is not None
        ):
            self.dropped += [Dropped(each, left[0].text) for each in self.steps]
            self.steps, self.then = [], self.now
            return
        self.steps.append(step)
        self.then = found[1]


def is_mendable(start: Start) -> bool:
    """Tell whether the start died of something that settings can mend."""
    fault = root_fault(start)
    return fault is not None and code_of(fault) in _MENDED


def _repair(
    forecast: Forecast, baseline: Baseline
) -> tuple[tuple[Change, ...], Forecast] | None:
    try:
        found = repair(forecast, baseline.basis)
    except ConfigError:  # the search was cut, too
        return None
    if found is None or any(each.name in _OUR_OWN for each in found.changes):
        return None
    return found.changes, found.forecast


def _mending(
    start: Start, changes: tuple[Change, ...], left: Sequence[Remark]
) -> Step | None:
    fault, why = root_fault(start), left[0].text
    if fault is None or not changes:
        return None
    return Step(
        changes,
        code_of(fault),
        "the whole comes up, by what is known of it",
        why,
        STARTS,
    )


def desk_of(starts: Sequence[Start]) -> Desk:
    """Return the running server, looked at once; all of it may be unknown."""
    start = starts[-1]
    try:
        baseline = baseline_of(starts)
        now = predict(baseline.plan, baseline.basis) if baseline else None
        said = refusals(now, baseline.basis) if now and baseline else ()
    except ConfigError:
        baseline, now, said = None, None, ()
    excused = frozenset(each.code for each in said if _disproves(start, each.code))
    return Desk(start, baseline, now, tuple(starts[:-1]), excused, then=now)


def _disproves(start: Start, code: str) -> bool:
    """Tell whether the start came further than a refusal says."""
    warmed = start.warmup.seconds is not None or start.warmup.skipped is not None
    if warmed or Phase.READY.value in start.reached:
        return True
    return bool(start.warmup.progress or start.buckets) and code not in _OF_WARMUP


def objection(
    start: Start,
    changes: Sequence[Change],
    bucket_file: str | None = None,
    passed_over: frozenset[str] = frozenset(),
) -> str | None:
    """Return what lint objects to that it did not before; None for nothing.

    Whatever it says of a changed setting counts, mere information aside; of other settings
    only what stops the server.  A release that nobody knows has no rules to object by.
    """
    names = {change.name for change in changes}
    try:
        before = {_kind(each) for each in lint(_configuration(start, (), None))}
        after = lint(_configuration(start, changes, bucket_file))
    except ConfigError:
        return None
    for each in after:
        if each.code in passed_over:
            continue
        told_anyway = each.severity == "info" or each.code == _HOLES
        mine = each.remark.about.name in names and not told_anyway
        if (mine or each.severity == "error") and _kind(each) not in before:
            return each.remark.happens
    return None


def _kind(found: LintFinding) -> tuple[str, str, str]:
    about = found.remark.about
    return found.code, about.name, about.value


def _configuration(
    start: Start, changes: Iterable[Change], bucket_file: str | None
) -> Configuration:
    settings = of_log(start, "the log")
    for change in changes:
        settings.pop(change.name, None)
        if change.value is not None:
            settings[change.name] = Setting(change.name, change.value, "proposed")
    release = release_text(start.server) or NEWEST
    for name, value in _chosen(start, release).items():
        settings.setdefault(name, Setting(name, value, "the log"))
    return Configuration(
        release_text=release,
        settings=settings,
        bucket_file=None
        if bucket_file is None
        else BucketFile(settings[FILE_VARIABLE].value, bucket_file),
        num_blocks=value_of(start.kv.blocks) or None,
    )


def _chosen(start: Start, release: str) -> dict[str, str]:
    """Return the variable that makes the printed strategy, where none is printed itself."""
    strategy = printed_strategy(start)
    rule = dialect_of(release_of(release).dialect).strategy_rule
    set_by_hand = {STRATEGY, EXPONENTIAL} & acting_variables(start.server).keys()
    if strategy is None or set_by_hand or rule == "fixed":
        return {}
    if rule == "named":
        return {STRATEGY: strategy}
    return {EXPONENTIAL: "true" if strategy == "exp" else "false"}
