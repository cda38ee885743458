"""The course of a study: ask, write down, carry out, write down, until the budget is spent.

The campaign knows neither servers nor files.  Its :class:`Journal` (the store) gets every
step before it is taken, its :class:`Evaluator` (the loop) carries a trial out and answers
with an outcome, a failure being one.  So the whole course can be tested with fakes, and a
killed one goes on from the journal.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from hpuwatch.clock import Clock
from hpuwatch.errors import ConfigError, HpuwatchError, RuntimeBootError
from hpuwatch.tune.designer import Designer
from hpuwatch.tune.knobs import check_release, choose_knobs, strategy_of
from hpuwatch.tune.predict import calibrate
from hpuwatch.tune.report import nothing_compared
from hpuwatch.tune.space import Space
from hpuwatch.tune.study import Proposal, Study, propose
from hpuwatch.tune.trial import Outcome, Trial, TrialState

EXHAUSTED = (
    "The search ended early: nothing else differs enough from what was tried to be worth a "
    "restart."
)
INTERRUPTED = "The search was interrupted."


class Evaluator(Protocol):
    """Carries a trial out."""

    def evaluate(self, trial: Trial) -> Outcome:
        """Start a server with the trial's settings, measure it, stop it."""
        ...


class Journal(Protocol):
    """Where trials are written down."""

    def trials(self, study: int) -> list[Trial]:
        """Return the trials so far."""
        ...

    def plan(self, study: int, trial: Trial) -> None:
        """Write a trial down before anything is done for it."""
        ...

    def start(self, study: int, number: int, at: float) -> None:
        """Note that its server is about to be started."""
        ...

    def finish(self, study: int, number: int, outcome: Outcome, at: float) -> None:
        """Write its outcome down."""
        ...


@dataclass(frozen=True, slots=True)
class Ending:
    """How a campaign ended.

    Attributes:
        trials: all of the study, interrupted ones too.
        reason: one sentence, with a capital and a full stop.
        interrupted: somebody stopped it, so that it may go on later.
        error: what was no good end: it can't go on, or no trial beside the baseline counted.
    """

    trials: tuple[Trial, ...]
    reason: str
    interrupted: bool = False
    error: HpuwatchError | None = None


@dataclass(frozen=True, slots=True)
class Campaign:
    """One study on its way.

    Attributes:
        environment: the operator's own bucket and reserve variables.
        tell: is shown each trial when it is planned and when it is over.
    """

    study: Study
    environment: Mapping[str, str]
    journal: Journal
    evaluator: Evaluator
    designer: Designer
    clock: Clock
    tell: Callable[[Trial], None]

    def run(self) -> Ending:
        """Carry out trials until the budget is spent or nothing new is worth a restart.

        A baseline whose log has nothing to tune by, or for which a knob would change
        nothing, is an ending with an error: a server was touched by then.

        Raises:
            RuntimeBootError: the operator's own configuration failed.
        """
        while True:
            trials = self.journal.trials(self.study.id)
            reason = self._end_of(trials)
            if reason is not None:
                return _ended(trials, reason)
            try:
                proposal = self.next_proposal(trials)
            except HpuwatchError as error:
                return Ending(tuple(trials), _sentence(str(error)), error=error)
            if proposal is None:
                return _ended(trials, EXHAUSTED)
            trial = self._carry_out(proposal, len(trials))
            if trial.state is TrialState.INTERRUPTED:
                after = self.journal.trials(self.study.id)
                return Ending(tuple(after), INTERRUPTED, interrupted=True)

    def next_proposal(self, trials: list[Trial]) -> Proposal | None:
        """Return what to try next, the baseline first; None when nothing is left.

        Raises:
            StudyBroken: the baseline's log has nothing to tune by.
            UsageError: a knob would change nothing for the server that answered.
        """
        baseline = next(
            (trial for trial in trials if trial.is_baseline and trial.state.judged),
            None,
        )
        if baseline is None:
            return Proposal()
        strategy = baseline.facts.strategy or strategy_of(self.environment)
        knobs = choose_knobs(self.study.knobs, self.environment, strategy)
        check_release(knobs, baseline.facts.release)
        space = Space(knobs, calibrate(trials, self.environment))
        judged = sum(trial.state.judged for trial in trials)
        return propose(trials, space, self.designer, self.study.seed + 1000 * judged)

    def _end_of(self, trials: list[Trial]) -> str | None:
        judged = [trial for trial in trials if trial.state.judged]
        for trial in judged:
            cause = trial.outcome.cause if trial.outcome else ""
            if trial.is_baseline and trial.state is not TrialState.OK:
                raise RuntimeBootError(
                    f"your own configuration failed as the baseline, so nothing was "
                    f"tuned: {cause}"
                )
            if trial.state is TrialState.SETTING_NOT_ARRIVED:
                return (
                    f"The search ended early: a setting did not arrive ({cause}). "
                    "Something in the command sets it again, or doesn't pass it on."
                )
        if len(judged) >= self.study.trials:
            return f"All {self.study.trials} starts of the budget were used."
        return None

    def _carry_out(self, proposal: Proposal, number: int) -> Trial:
        study, now = self.study.id, self.clock.now
        trial = Trial(number, proposal.settings, proposal.origin, planned_at=now())
        self.journal.plan(study, trial)
        self.tell(trial)
        self.journal.start(study, number, now())
        outcome = self.evaluator.evaluate(trial)
        self.journal.finish(study, number, outcome, now())
        done = self.journal.trials(study)[number]
        self.tell(done)
        return done


def _ended(trials: Sequence[Trial], reason: str) -> Ending:
    """Return the end of a search; with an error where it tried settings and none counted."""
    tried = [trial for trial in trials if trial.state.judged and not trial.is_baseline]
    error: HpuwatchError | None = None
    if tried and not any(trial.state is TrialState.OK for trial in tried):
        lost = any(trial.state is TrialState.SETTING_NOT_ARRIVED for trial in tried)
        kind = ConfigError if lost else RuntimeBootError
        said = nothing_compared(trials).rstrip(".")
        error = kind(f"{said[0].lower()}{said[1:]}: see the trials above")
    return Ending(tuple(trials), reason, error=error)


def _sentence(clause: str) -> str:
    return f"{clause[0].upper()}{clause[1:]}."
