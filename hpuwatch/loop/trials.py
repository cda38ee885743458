"""One trial: a controlled restart of the server, and a load that is always the same.

    start → (progress moves the deadline) → ready → arrived? → one pass thrown away
          → measured windows → drain → stop

The server runs under a keeper of its own, in a folder of its own, so that a killed ``tune``
leaves facts by which the next one finds it.  No start has a fixed time limit: a warm-up may
take an hour, and only standing still is a failure.  Whatever happens, the server is stopped
at the end: drained first, since a server with requests in flight may never end by itself.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hpuwatch.clock import Clock
from hpuwatch.errors import ResourceError
from hpuwatch.life.machine import Fact
from hpuwatch.life.phases import Phase
from hpuwatch.load import endpoint as http
from hpuwatch.load.endpoint import Endpoint
from hpuwatch.load.target import Target
from hpuwatch.load.window import run_load
from hpuwatch.loop.watch import Watch
from hpuwatch.parse.rules import RuleSet
from hpuwatch.runtime.instance import Instance
from hpuwatch.runtime.kept import Kept, find_kept, start_kept
from hpuwatch.runtime.last_exit import how
from hpuwatch.source.follow import Follower
from hpuwatch.state.model import Start
from hpuwatch.state.snapshot import Snapshot
from hpuwatch.tune.facts import during, facts_of, failure_of, missing_arrival
from hpuwatch.tune.trial import (
    LoadPlan,
    Measurement,
    Outcome,
    Trial,
    TrialState,
    Window,
)

SIMULATED_SECONDS = "hpuwatch_simulated_busy_seconds_total"
_LOOK_SECONDS = 0.1
_SAMPLE_SECONDS = 0.25
_DEATH_SECONDS = 5.0
_LAST_BREATH_SECONDS = 1.0  # an engine that died is well for a moment still


@dataclass(frozen=True, slots=True)
class Limits:
    """How long a trial waits for what.

    Attributes:
        no_progress_seconds: without a new word in the log before the server is ready.
        drain_seconds: for requests in flight before a stop.
        stop_seconds: for the server to end by itself, once asked.
    """

    no_progress_seconds: float = 900.0
    drain_seconds: float = 60.0
    stop_seconds: float = 120.0


@dataclass(frozen=True, slots=True)
class Glance:
    """What a trial is doing now, for people.

    Attributes:
        doing: in a few words.
        snapshot: what the log has come to, where it says more.
    """

    trial: Trial
    doing: str
    snapshot: Snapshot | None = None


@dataclass(frozen=True, slots=True)
class TrialRunner:
    """Carries trials out (an ``Evaluator``).

    Attributes:
        command: the server's command line.
        environment: its whole environment, without the trial's settings.
        folder: where each trial gets a folder of its own.
        stop: set to interrupt the running trial.
        show: is shown what goes on.
    """

    command: Sequence[str]
    environment: Mapping[str, str]
    endpoint: Endpoint
    folder: Path
    rules: RuleSet
    load: LoadPlan
    limits: Limits
    clock: Clock
    stop: threading.Event
    show: Callable[[Glance], None]

    def evaluate(self, trial: Trial) -> Outcome:
        """Start the server with the trial's settings, measure it, stop it.

        Raises:
            ResourceError: somebody else listens on the server's port.
        """
        check_port(self.endpoint)
        instance = Instance(self.folder, trial_name(trial.number))
        instance.acquire(self.command)
        try:
            kept = start_kept(
                instance,
                self.command,
                {**self.environment, **trial.settings},
                stop_wait_seconds=self.limits.stop_seconds,
                clock=self.clock,
            )
            run = _Run(self, trial, instance, kept)
            try:
                return run.judge()
            finally:
                run.end()
        finally:
            instance.release()


def check_port(endpoint: Endpoint) -> None:
    """Check that nobody listens where the server will.

    Raises:
        ResourceError: somebody does.
    """
    if http.is_listening(endpoint):
        raise ResourceError(
            f"{endpoint.url} is in use already: stop what listens there, since each trial "
            "starts the server anew"
        )


def trial_name(number: int) -> str:
    """Return the name that a trial's server runs under."""
    return f"trial-{number}"


class Log:
    """The output of one server, read as it comes.

    Attributes:
        quiet_seconds: how long nothing new has come.
    """

    def __init__(self, instance: Instance, rules: RuleSet, clock: Clock) -> None:
        """Begin with the first byte of the instance's newest run."""
        self._path = instance.spool
        self._clock = clock
        self._spool: Follower | None = None
        self._watch = Watch(instance.name, rules, clock)
        self._watch.process(Fact.SPAWNED)
        self._moved = clock.boottime()

    @property
    def quiet_seconds(self) -> float:
        """Return how long nothing new has come."""
        return self._clock.boottime() - self._moved

    def read(self) -> Start | None:
        """Read what is new and return the newest start, None before its first word."""
        if self._spool is None and self._path.exists():
            self._spool = Follower(self._path)
        while self._spool is not None and (chunk := self._spool.read()):
            self._watch.take(chunk, self._clock.now())
            self._moved = self._clock.boottime()
        return self.snapshot().state.current

    def snapshot(self) -> Snapshot:
        """Return what is known so far."""
        return self._watch.snapshot()

    def end(self) -> Start | None:
        """Read to the end of a server that is gone; return what is known then."""
        self.read()
        self._watch.close()
        return self.snapshot().state.current

    def close(self) -> None:
        """Stop reading."""
        if self._spool is not None:
            self._spool.close()


class _Run:
    """One server on trial."""

    def __init__(
        self, runner: TrialRunner, trial: Trial, instance: Instance, kept: Kept
    ) -> None:
        self.runner = runner
        self.trial = trial
        self.kept = kept
        self.clock = runner.clock
        self.log = Log(instance, runner.rules, runner.clock)
        self.began = runner.clock.boottime()
        self.was_ready = False

    def judge(self) -> Outcome:
        """See the server through its start and its load."""
        failure = self._until_ready()
        if failure is not None:
            return failure
        self.was_ready = True
        ready_seconds = self.clock.boottime() - self.began
        measured = self._measure()
        if isinstance(measured, Outcome):
            return measured
        start = self.log.read()
        if start is None:
            return failure_of(None, "the log is empty")
        facts = facts_of(start)
        missing = missing_arrival(self.trial.settings, facts)
        if missing is not None:
            return Outcome(TrialState.SETTING_NOT_ARRIVED, missing, "ready", facts)
        return Outcome(TrialState.OK, "", "", facts, measured, ready_seconds)

    def _until_ready(self) -> Outcome | None:
        """Wait for readiness; return the failure if it doesn't come."""
        limit = self.runner.limits.no_progress_seconds
        while True:
            start = self.log.read()
            snapshot = self.log.snapshot()
            self.runner.show(Glance(self.trial, "starting", snapshot))
            over = self._cut_short(start) or self._death()
            if over is not None:
                return over
            if snapshot.phase is Phase.READY and self._healthy():
                return None
            if self.log.quiet_seconds > limit:
                return failure_of(
                    start, f"no word for {limit:g} s {during(snapshot.phase)}"
                )
            self.clock.wait(_LOOK_SECONDS)

    def _cut_short(self, start: Start | None) -> Outcome | None:
        """Return why there is no point in waiting on, None when there is."""
        if self.runner.stop.is_set():
            return Outcome(TrialState.INTERRUPTED, "hpuwatch was asked to stop")
        if start is None:
            return None
        facts = facts_of(start)
        wrong = missing_arrival(self.trial.settings, facts, so_far=True)
        if wrong is not None:
            return Outcome(
                TrialState.SETTING_NOT_ARRIVED, wrong, start.phase.value, facts
            )
        return None

    def _death(self) -> Outcome | None:
        ended = self.kept.exit()
        if ended is None:
            return None
        return failure_of(self.log.end(), f"the server {how(ended)}")

    def _healthy(self) -> bool:
        return http.get(self.runner.endpoint, "/health") is not None

    def _measure(self) -> Measurement | Outcome:
        """Run the load: one pass to be thrown away, then the windows."""
        endpoint, plan = self.runner.endpoint, self.runner.load
        target = Target(endpoint, http.model_name(endpoint) or "")
        windows: list[Window] = []
        uses: list[float] = []
        misses, preempted, number = 0, None, 0
        while number <= plan.windows or _wants_more(windows, plan):
            whole = max(number, plan.windows)
            doing = f"window {number} of {whole}" if number else "warm pass"
            self.runner.show(Glance(self.trial, doing))
            window = self._window(target, number, uses)
            if self.runner.stop.is_set():
                return Outcome(TrialState.INTERRUPTED, "hpuwatch was asked to stop")
            if window.errors:
                return self._load_failure(window)
            if number:
                windows.append(window)
            else:
                misses, preempted = self._misses(), http.preemptions(endpoint)
            number += 1
        after = http.preemptions(endpoint)
        known = after is not None and preempted is not None
        return Measurement(
            tuple(windows),
            preemptions=(after or 0) - (preempted or 0) if known else None,
            bucket_misses=self._misses() - misses,
            kv_use_peak=max(uses, default=None),
        )

    def _window(self, target: Target, number: int, uses: list[float]) -> Window:
        """Run one window, in the server's own time if that is simulated.

        ``uses`` gets the shares of the KV cache that are seen in use meanwhile.
        """
        endpoint, due = self.runner.endpoint, self.clock.boottime()

        def look() -> bool:
            nonlocal due
            if self.clock.boottime() >= due:
                use = http.kv_use(endpoint)
                if use is not None:
                    uses.append(use)
                due = self.clock.boottime() + _SAMPLE_SECONDS
            return self.runner.stop.is_set()

        before = http.scrape(endpoint) or {}
        window = run_load(
            target, self.runner.load, self.clock, window=number, look=look
        )
        after = http.scrape(endpoint) or {}
        if SIMULATED_SECONDS not in before or SIMULATED_SECONDS not in after:
            return window
        passed = after[SIMULATED_SECONDS] - before[SIMULATED_SECONDS]
        return window.stretched(passed / window.seconds)

    def _load_failure(self, window: Window) -> Outcome:
        """Say why a window failed; a server that dies gets a moment to say it itself."""
        failed_at = self.clock.boottime()
        while self.kept.exit() is None:
            patience = _LAST_BREATH_SECONDS if self._healthy() else _DEATH_SECONDS
            if self.clock.boottime() - failed_at > patience:
                break
            self.clock.wait(_LOOK_SECONDS)
        ended, start = self.kept.exit(), self.log.read()
        cause = f"the load failed ({window.first_error})"
        if ended is not None:
            start = self.log.end()
            cause += f", the server {how(ended)}"
        return failure_of(start, cause, TrialState.LOAD_FAILED)

    def _misses(self) -> int:
        start = self.log.read()
        return sum(miss.count for miss in start.misses) if start else 0

    def end(self) -> None:
        """Drain the server and stop it, whatever state it is in, and whoever watches."""
        try:
            self.runner.show(Glance(self.trial, "stopping"))
            if self.kept.exit() is None and not self.runner.stop.is_set():
                seconds = self.runner.limits.drain_seconds
                drain(self.runner.endpoint, seconds, self.clock)
        finally:
            seconds = self.runner.limits.stop_seconds
            stop_kept(self.kept, seconds, self.clock, hears=self.was_ready)
            self.log.close()


def _wants_more(windows: Sequence[Window], plan: LoadPlan) -> bool:
    """Tell whether the planned windows differ so much that one more is worth its time."""
    return len(windows) == plan.windows and Measurement(tuple(windows)).is_unsteady


def drain(endpoint: Endpoint, seconds: float, clock: Clock) -> None:
    """Wait until no request is in flight, the server doesn't say, or time is up."""
    deadline = clock.boottime() + seconds
    while http.requests_in_flight(endpoint) and clock.boottime() < deadline:
        clock.wait(_LOOK_SECONDS)


def stop_kept(kept: Kept, seconds: float, clock: Clock, *, hears: bool = True) -> None:
    """Stop a server: its keeper asks, and insists after ``seconds``; else we do.

    A server that is not ready doesn't hear: it swallows SIGTERM and starts on, perhaps for
    an hour.  It has no requests to finish either, so it is killed at once.
    """
    for ask in (kept.stop, kept.kill) if hears else (kept.kill,):
        if kept.exit() is not None:
            return
        ask()
        deadline = clock.boottime() + seconds + _DEATH_SECONDS
        while kept.exit() is None and clock.boottime() < deadline:
            clock.wait(_LOOK_SECONDS)


def stop_left(instance: Instance, seconds: float, clock: Clock) -> bool:
    """Stop the server that a killed owner left under this name; tell if there was one."""
    kept = find_kept(instance, clock)
    if kept is None:
        return False
    stop_kept(kept, seconds, clock)
    return True
