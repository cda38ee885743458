"""``hpuwatch tune``: a study from its first trial to the server that is left running.

Everything that can be refused is refused before the first restart.  The name's lock is held
during the campaign; it is given back only for the final server, which ``hpuwatch run``
keeps under the same name after we are gone.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Protocol

from hpuwatch.app.final_server import FinalServer, Served
from hpuwatch.app.rules import shipped_rules
from hpuwatch.app.tune_order import (
    Order,
    check_order,
    new_study,
    study_to_resume,
    tuned_variables,
)
from hpuwatch.clock import Clock
from hpuwatch.errors import (
    HpuwatchError,
    ResourceError,
    RuntimeBootError,
)
from hpuwatch.loop.trials import (
    Glance,
    TrialRunner,
    check_port,
    drain,
    stop_left,
    trial_name,
)
from hpuwatch.runtime.instance import Instance
from hpuwatch.runtime.instance import fingerprint as command_print
from hpuwatch.store.study import FILE_NAME, StudyStore
from hpuwatch.tune.campaign import Campaign, Ending
from hpuwatch.tune.designer import SkoptDesigner
from hpuwatch.tune.objective import Verdict, judge
from hpuwatch.tune.report import env_text
from hpuwatch.tune.study import Study, fingerprint
from hpuwatch.tune.trial import Outcome, Trial, TrialState

ENV_FILE_NAME = "best.env"


class Audience(Protocol):
    """Who is told what goes on."""

    def say(self, text: str) -> None:
        """Take a sentence."""
        ...

    def show(self, glance: Glance) -> None:
        """Take a look at the running trial."""
        ...

    def tell(self, trial: Trial) -> None:
        """Take a trial that was planned, or that is over."""
        ...


@dataclass(frozen=True, slots=True)
class Result:
    """What a campaign came to.

    Attributes:
        study: as it is stored.
        ending: how it ended; with an error also where the env file can't be written.
        verdict: before and after, None where nothing was compared.
        env_file: where the best setting was written, if it was.
        signal: what interrupted the campaign, or 0.
    """

    study: Study
    ending: Ending
    verdict: Verdict | None
    env_file: Path | None
    signal: int = 0


class Tuning:
    """One call of ``hpuwatch tune``, checked; making one changes nothing."""

    def __init__(
        self,
        order: Order,
        environment: Mapping[str, str],
        clock: Clock,
        audience: Audience,
    ) -> None:
        """Check all that can be checked before anything is touched.

        Raises:
            UsageError: the command or a flag makes no sense.
            ResourceError: the command doesn't exist.
            ExtraMissing: scikit-optimize is not installed.
        """
        self.order = order
        self.environment = dict(environment)
        self.clock = clock
        self.audience = audience
        self.stop = threading.Event()
        self.signal = 0
        self.begun = False
        self.instance = Instance(order.settings.state_root(), order.settings.name)
        self.endpoint = check_order(order, self.environment)
        SkoptDesigner.require()

    @property
    def fingerprint(self) -> str:
        """Return what the study belongs to."""
        return fingerprint(self.order.command, self.environment)

    def run(self) -> Result:
        """Carry the study out, from its beginning or from where it was left.

        Raises:
            BusyError: another hpuwatch owns the name.
            MissingFileError: there is no study to go on with.
            StudyBroken: the study can't be continued, or has nothing to tune by.
            RuntimeBootError: the original configuration failed.
            ResourceError: somebody else listens on the port, or the disk is full.
        """
        if self.order.resume:
            study_to_resume(self.order, self.environment)
        taken = self._take_over()
        try:
            return self._owned()
        except HpuwatchError as error:
            # A baseline that failed would fail again.
            lost = taken or (self.begun and not isinstance(error, RuntimeBootError))
            if lost and self.order.serve:
                self._give_back()
            raise

    def _owned(self) -> Result:
        """Carry the study out while the name is ours."""
        self.instance.acquire(self.order.command)
        try:
            self._stop_what_was_left()
            store = StudyStore(self.instance.dir / FILE_NAME)
            try:
                self._sweep(store)
                check_port(self.endpoint)
                study = self._study(store)
                with self._interruptible():
                    return self._campaign(store, study)
            finally:
                store.close()
        finally:
            self.instance.release()

    def _give_back(self) -> None:
        """Start the server again that was stopped for a study which came to nothing."""
        self.audience.say("starting the server again that was stopped for the trials")
        # Whatever stops it is said by the error that brought us here.
        with suppress(HpuwatchError):
            served = self.serve({})
            self.audience.say(
                f"the server runs as {served.name!r} on its original configuration; stop "
                f"it with: kill {served.keeper_pid}"
            )

    def _take_over(self) -> bool:
        """Drain and stop the server of this very command that runs under our name.

        Another command's server is left alone: the name is busy then.
        """
        facts = self.instance.read()
        if not facts.keeper_alive() or facts.fingerprint != command_print(
            self.order.command
        ):
            return False
        self.audience.say(
            f"the server that runs as {self.instance.name!r} is drained and stopped: each "
            "trial starts it anew"
        )
        drain(self.endpoint, self.order.limits.drain_seconds, self.clock)
        return stop_left(self.instance, self.order.limits.stop_seconds, self.clock)

    def _study(self, store: StudyStore) -> Study:
        """Return the study to carry out: the newest to go on with, or a new one."""
        newest = next(reversed(store.studies()), None)
        if newest is not None and self.order.resume:
            store.extend(newest.id, self.order.trials or newest.trials)
            return store.study(newest.id)
        if newest is not None and newest.ended_at is None and self._is_ours(newest):
            self.audience.say(
                f"study {newest.id} of this command is unfinished: --resume would have "
                "gone on with it, this is a new one"
            )
        return store.create(
            new_study(self.order, self.environment, self.endpoint, self.clock)
        )

    def _is_ours(self, study: Study) -> bool:
        return study.fingerprint == self.fingerprint

    def _stop_what_was_left(self) -> None:
        """Stop the servers that killed campaigns left, whatever their study says of them."""
        for facts in sorted(self.instance.dir.glob("trials/*/*/facts")):
            left = Instance(facts.parent.parent, facts.parent.name)
            if stop_left(left, self.order.limits.stop_seconds, self.clock):
                self.audience.say(
                    f"the server of {left.name.replace('-', ' ')}, which a killed "
                    "campaign had left, was stopped"
                )

    def _sweep(self, store: StudyStore) -> None:
        """Mark what a killed campaign left as interrupted."""
        for study in store.studies():
            for trial in store.trials(study.id):
                if trial.state not in (TrialState.PLANNED, TrialState.RUNNING):
                    continue
                outcome = Outcome(TrialState.INTERRUPTED, "hpuwatch was killed")
                store.finish(study.id, trial.number, outcome, self.clock.now())

    def _trials_of(self, study: Study) -> Path:
        return self.instance.dir / "trials" / str(study.id)

    def _campaign(self, store: StudyStore, study: Study) -> Result:
        runner = TrialRunner(
            command=self.order.command,
            environment=self.environment,
            endpoint=self.endpoint,
            folder=self._trials_of(study),
            rules=shipped_rules(),
            load=study.load,
            limits=self.order.limits,
            clock=self.clock,
            stop=self.stop,
            show=self.audience.show,
        )
        campaign = Campaign(
            study=study,
            environment=tuned_variables(self.environment),
            journal=store,
            evaluator=runner,
            designer=SkoptDesigner(),
            clock=self.clock,
            tell=self.audience.tell,
        )
        self.begun = True
        try:
            ending = campaign.run()
        except RuntimeBootError as error:
            store.end(study.id, self.clock.now(), f"The search ended early: {error}.")
            last = store.trials(study.id)[-1].number
            spool = self._trials_of(study) / trial_name(last) / "spool"
            raise RuntimeBootError(
                f"{error}; for what helps: hpuwatch suggest {spool}"
            ) from error
        at = None if ending.interrupted else self.clock.now()
        store.end(study.id, at, ending.reason)
        verdict = judge(ending.trials)
        file = None
        try:
            file = self._write_env(study, verdict) if verdict else None
        except ResourceError as error:
            ending = replace(ending, error=ending.error or error)
        return Result(study, ending, verdict, file, self.signal)

    def _write_env(self, study: Study, verdict: Verdict) -> Path:
        path = self.order.out or self.instance.dir / ENV_FILE_NAME
        try:
            path.write_text(env_text(study, verdict, self.clock.now()), "utf-8")
        except OSError as error:
            raise ResourceError(
                f"{path} can't be written ({error.strerror}): give another --out, and "
                "--resume to write it"
            ) from error
        return path

    @contextmanager
    def _interruptible(self) -> Iterator[None]:
        """Let SIGINT, SIGTERM and SIGHUP end the running trial in good order."""

        def note(number: int, _frame: FrameType | None) -> None:
            self.signal = number
            self.stop.set()

        numbers = [signal.SIGINT, signal.SIGTERM]
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as nohup wants it
            numbers.append(signal.SIGHUP)
        before = {number: signal.signal(number, note) for number in numbers}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def serve(self, settings: Mapping[str, str]) -> Served:
        """Start the server that stays, and wait until it is ready.

        Raises:
            RuntimeBootError: it ended, or stood still, before it was ready.
        """
        return FinalServer(
            command=self.order.command,
            environment={**self.environment, **settings},
            instance=self.instance,
            endpoint=self.endpoint,
            rules=shipped_rules(),
            limits=self.order.limits,
            clock=self.clock,
        ).start(self.order.settings.state_root())
