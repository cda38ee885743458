"""``hpuwatch tune --dry-run``: what a study would do and cost, said without touching anything."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from statistics import median

from hpuwatch.app.rules import shipped_rules
from hpuwatch.app.tune_order import Order, new_study, study_to_resume
from hpuwatch.clock import Clock
from hpuwatch.errors import HpuwatchError
from hpuwatch.load.endpoint import Endpoint
from hpuwatch.parse.parser import Parser
from hpuwatch.runtime.instance import Instance
from hpuwatch.source.files import read_lines
from hpuwatch.state.model import State, value_of
from hpuwatch.state.reduce import outlasted
from hpuwatch.store.study import FILE_NAME, StudyStore
from hpuwatch.tune.knobs import choose_knobs, strategy_of
from hpuwatch.tune.study import Study
from hpuwatch.tune.trial import Trial


def plan_text(
    order: Order, environment: Mapping[str, str], endpoint: Endpoint, clock: Clock
) -> str:
    """Return the plan of a study, or of the rest of one, and what it costs in downtime.

    Raises:
        MissingFileError: there is no study to go on with.
        StudyBroken: the study can't be continued.
    """
    done = 0
    study = new_study(order, environment, endpoint, clock)
    if order.resume:
        stored, trials = study_to_resume(order, environment)
        done = sum(trial.state.judged for trial in trials)
        study = replace(stored, trials=order.trials or stored.trials, url=endpoint.url)
    left = max(0, study.trials - done)
    instance = Instance(order.settings.state_root(), order.settings.name)
    knobs = choose_knobs(study.knobs, environment, strategy_of(environment))
    load = study.load
    last = "the best" if order.keep_best else "the original"
    end = (
        f"one more start, on {last} settings, stays"
        if order.serve
        else "no server stays"
    )
    window = (
        f"{load.requests} requests, {load.concurrency} at a time, about "
        f"{load.prompt_tokens} tokens in, {load.output_tokens} out"
    )
    lines = [
        f"Plan for {' '.join(study.command)}",
        f"  server     {study.url}, under the name {instance.name!r}",
        "  tuned      " + ", ".join(knob.variable for knob in knobs),
        f"  starts     {_starts(study, done, left)}; {end}",
        f"  each       drain, stop, start, ready, one pass thrown away, {load.windows} windows",
        f"  window     {window}",
        f"  downtime   {_downtime(left + order.serve, study, instance)}",
        "Nothing was changed.",
    ]
    return "\n".join(lines) + "\n"


def _starts(study: Study, done: int, left: int) -> str:
    if not done:
        return f"at most {left}, the first on your own configuration"
    if not left:
        return f"none: all {done} of study {study.id} are finished, unless --trials allows more"
    return f"at most {left} more: {done} of {study.trials} of study {study.id} are finished"


def _downtime(starts: int, study: Study, instance: Instance) -> str:
    if not starts:
        return "none"
    seconds = _seconds_of_trials(study, instance)
    if seconds is not None:
        return (
            f"about {duration(starts * seconds)}: {starts} starts, of {duration(seconds)} "
            "each in an earlier study of this command"
        )
    seconds = _seconds_of_start(instance)
    if seconds is not None:
        return (
            f"{duration(starts * seconds)} and more: {starts} starts; the last one under "
            f"this name took {duration(seconds)} without loading weights and without load"
        )
    return f"unknown: {starts} starts, and no earlier start of this command is known"


def _seconds_of_trials(study: Study, instance: Instance) -> float | None:
    """Return the median length of an earlier trial of the same command."""
    path = instance.dir / FILE_NAME
    if not path.exists():
        return None
    store = StudyStore(path, read_only=True)
    try:
        lengths = [
            trial.ended_at - trial.started_at
            for earlier in store.studies()
            if earlier.fingerprint == study.fingerprint
            for trial in store.trials(earlier.id)
            if _is_whole(trial) and trial.ended_at and trial.started_at
        ]
    finally:
        store.close()
    return median(lengths) if lengths else None


def _is_whole(trial: Trial) -> bool:
    return trial.measurement is not None


def _seconds_of_start(instance: Instance) -> float | None:
    """Return how long the engine of the last run under this name took to begin."""
    if not instance.spool.exists():
        return None
    state, parser = State(), Parser(shipped_rules())
    try:
        for line in read_lines(str(instance.spool), parser):
            state = outlasted(state, parser.feed(line))
    except HpuwatchError:
        # An empty or broken log tells nothing; the plan says "unknown" then.
        return None
    warmup = state.current.warmup if state.current else None
    return value_of(warmup.init_seconds or warmup.seconds) if warmup else None


def duration(seconds: float) -> str:
    """Return a length of time for people: ``42 s``, ``7 min``, ``2.5 h``."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    if seconds < 6000:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
