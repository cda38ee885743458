"""The desk where steps are laid upon one another and the whole is looked at.

``gaudi.predict`` refuses what would not come up, and ``advise.lint`` knows what a release
ignores, misreads or dies of.  A step that either objects to is left out, and told.  A
server that ran disproves refusals: what is refused of the very plan that was served is no
reason against another one.

How deep a decode bucket may be releases have changed their mind about again and again, so
that alone is no reason either, unless the start itself died at its first one.  Nor is a
time-out that ended nothing: with one API server it doesn't bound a start.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from hpuwatch.advise.baseline import (
    Baseline,
    Lesson,
    baseline_of,
    captured_blocks,
)
from hpuwatch.advise.causes import code_of, root_fault
from hpuwatch.advise.checks.gaps import is_mixed
from hpuwatch.advise.checks.warmup_time import LONGEST_START_SECONDS
from hpuwatch.advise.lint.configuration import BucketFile, Configuration, Setting
from hpuwatch.advise.lint.kinds import lint
from hpuwatch.advise.lint.remark import LintFinding
from hpuwatch.advise.lint.words import of_log
from hpuwatch.advise.plan.reserve import Step
from hpuwatch.advise.plan.steps import MISSES, STARTS
from hpuwatch.errors import ConfigError
from hpuwatch.gaudi.buckets import find
from hpuwatch.gaudi.planning import (
    READY_TIMEOUT,
    UTILISATION,
    Change,
    applied,
    default_utilisation,
)
from hpuwatch.gaudi.predict import Forecast, predict, rules_make, same
from hpuwatch.gaudi.refusal import Remark, refusals
from hpuwatch.gaudi.releases import NEWEST
from hpuwatch.gaudi.repair import repair
from hpuwatch.gaudi.resolve import FILE_VARIABLE
from hpuwatch.gaudi.variables import flag_number
from hpuwatch.life.phases import Phase
from hpuwatch.state.configured import (
    printed_strategy,
    release_text,
)
from hpuwatch.state.model import DECODE, Start, value_of

DECODE_ABOVE = "decode-above-cache"
_OF_WARMUP = frozenset({DECODE_ABOVE, "graphs-above-reserve"})
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
    """A step that was looked at and left out, why, and what to do instead, if anything."""

    step: Step
    why: str
    instead: str = ""


@dataclass(slots=True)
class Desk:
    """Steps laid upon one another, and what the whole comes to.

    Attributes:
        start: the newest start.
        baseline: the running server, None where the log tells too little.
        now: what it comes to, by the same arithmetic.
        earlier: the starts before it, oldest first.
        excused: refusals that are no reason against a plan of this server.
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
        then, why = self.then, self._doubt(step) or self._untimed(step.changes)
        why = why or self._objection(changes, file)
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

    def _untimed(self, changes: Iterable[Change]) -> str | None:
        """Say why the log's times are no ground for a time-out, None where they are."""
        waits = [
            flag_number(each.value or "")
            for each in changes
            if each.name == READY_TIMEOUT
        ]
        if not waits:
            return None
        if max(each or 0 for each in waits) > LONGEST_START_SECONDS:
            return "the times of this log come to more than a week"
        if self.start.contradictions or is_mixed(self.start):
            return "lines of this log contradict each other, so nobody can tell whose times they are"
        return None

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
        return [each for each in found if not self._is_excused(each.code, forecast)]

    def _is_excused(self, code: str, forecast: Forecast) -> bool:
        """Tell whether a refusal is none, of buckets as far as they don't go deeper."""
        deeper = self.now is not None and forecast.deepest > self.now.deepest
        return code in self.excused and not (code == DECODE_ABOVE and deeper)

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

    def _as_excused(self, baseline: Baseline) -> Baseline:
        """Return the baseline for a repair, which isn't to mend what is excused."""
        printed = baseline.basis.printed
        if printed is None or self.now is None or DECODE_ABOVE not in self.excused:
            return baseline
        deepest = max(printed.captured_blocks, self.now.deepest)
        known = replace(printed, captured_blocks=deepest)
        return replace(baseline, basis=replace(baseline.basis, printed=known))

    def mend(self) -> None:
        """Add what a failed start still lacks; without a remedy there is no plan."""
        baseline, then = self.baseline, self.then
        if baseline is None or then is None or not is_mendable(self.start):
            return
        left = self.left(then)
        if not left or self._lower_utilisation():
            return
        found = _repair(then, self._as_excused(baseline))
        step = None if found is None else _mending(self.start, found[0], left)
        if (
            found is None
            or step is None
            or self.left(found[1])
            or self._untimed(step.changes) is not None
            or self._objection([*self.changes(), *step.changes], None) is not None
        ):
            self.dropped += [Dropped(each, left[0].text) for each in self.steps]
            self.steps, self.then = [], self.now
            return
        self.steps.append(step)
        self.then = found[1]

    def _lower_utilisation(self) -> bool:
        """Take back a share of the memory above the default, if that is all it takes."""
        baseline, fault = self.baseline, root_fault(self.start)
        if baseline is None or fault is None or code_of(fault) != "warmup-oom":
            return False
        usual = default_utilisation(baseline.plan.at)
        if baseline.plan.utilisation <= usual:
            return False
        step = Step(
            (Change(UTILISATION, f"{usual:g}"),),
            code_of(fault),
            "so that the server starts",
            f"{UTILISATION} {baseline.plan.utilisation:g} is above the default, and leaves "
            "warm-up too little beside the KV cache.",
            STARTS,
        )
        then, why = self._predicted(step, [*self.changes(), *step.changes])
        if then is None or why is not None:
            return False
        self.steps.append(step)
        self.then = then
        return True


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
        "so that the server starts",
        why,
        STARTS,
    )


def desk_of(starts: Sequence[Start], lessons: Sequence[Lesson] = ()) -> Desk:
    """Return the running server, looked at once; all of it may be unknown."""
    start = starts[-1]
    try:
        baseline = baseline_of(starts, lessons=lessons)
        now = predict(baseline.plan, baseline.basis) if baseline else None
        said = refusals(now, baseline.basis) if now and baseline else ()
    except ConfigError:
        baseline, now, said = None, None, ()
    excused = {each.code for each in said if _disproves(start, each.code)}
    if not died_at_first_decode(start):
        excused.add(DECODE_ABOVE)
    return Desk(start, baseline, now, tuple(starts[:-1]), frozenset(excused), then=now)


def died_at_first_decode(start: Start) -> bool:
    """Tell whether warm-up ran out of memory before it had captured one decode graph."""
    fault = root_fault(start)
    if fault is None or code_of(fault) != "warmup-oom":
        return False
    return (fault.at or "").startswith(DECODE) and not captured_blocks(start)


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
    return Configuration(
        release_text=release_text(start.server) or NEWEST,
        settings=settings,
        bucket_file=None
        if bucket_file is None
        else BucketFile(settings[FILE_VARIABLE].value, bucket_file),
        num_blocks=value_of(start.kv.blocks) or None,
        strategy=printed_strategy(start),
    )
