"""The course of a study with a fake server: budget, failures, interruption, resumption."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from hpuwatch.errors import ConfigError, RuntimeBootError, UsageError
from hpuwatch.store.study import FILE_NAME, StudyStore
from hpuwatch.testing.clock import FakeClock
from hpuwatch.testing.trials import A_WASTEFUL_SERVER, failed, measured
from hpuwatch.tune.campaign import Campaign, Ending
from hpuwatch.tune.designer import Designer, RandomDesigner, SkoptDesigner
from hpuwatch.tune.facts import RESERVE
from hpuwatch.tune.objective import LEAST_NOISE, gain_of, judge
from hpuwatch.tune.study import Study
from hpuwatch.tune.trial import Facts, LoadPlan, Outcome, Trial, TrialState
from hpuwatch.units import GIB

pytestmark = pytest.mark.unit


class Killed(BaseException):
    """The process ends here."""


@dataclass
class FakeServer:
    """Faster the more KV cache it has; out of memory below a reserve of ``least``."""

    least: float = 0.035
    facts: Facts = A_WASTEFUL_SERVER
    seen: list[Trial] = field(default_factory=list)
    mishap: Callable[[Trial], Outcome | None] = lambda _trial: None

    def evaluate(self, trial: Trial) -> Outcome:
        self.seen.append(trial)
        mishap = self.mishap(trial)
        if mishap is not None:
            return mishap
        ratio = float(trial.settings.get(RESERVE, self.facts.reserve_ratio or 0))
        rate = 1000 * (1 - ratio) / 0.6
        done = (
            failed(trial.number, trial.settings)
            if ratio < self.least
            else measured(
                trial.number, trial.settings, rate, rate + 2, facts=self.facts
            )
        )
        assert done.outcome is not None
        return done.outcome


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StudyStore]:
    opened = StudyStore(tmp_path / FILE_NAME)
    yield opened
    opened.close()


def a_study(store: StudyStore, trials: int = 8, *knobs: str) -> Study:
    return store.create(
        Study(
            "f",
            ("cmd",),
            knobs or ("reserve",),
            7,
            trials,
            LoadPlan(),
            "http://h:1",
            0.0,
        )
    )


def run(
    store: StudyStore,
    study: Study,
    server: FakeServer,
    designer: Designer | None = None,
    tell: Callable[[Trial], None] = lambda _trial: None,
) -> Ending:
    return Campaign(
        study, {}, store, server, designer or RandomDesigner(), FakeClock(), tell
    ).run()


def test_a_study_begins_with_the_baseline_and_spends_its_budget(
    store: StudyStore,
) -> None:
    server = FakeServer()
    ending = run(store, a_study(store, 5), server)
    assert server.seen[0].settings == {}
    assert [trial.number for trial in ending.trials] == [0, 1, 2, 3, 4]
    assert [trial.origin for trial in ending.trials[:3]] == [
        "baseline",
        "first guess",
        "designer",
    ]
    assert ending.reason == "All 5 starts of the budget were used."
    assert ending.error is None


def test_a_better_reserve_is_found(store: StudyStore) -> None:
    pytest.importorskip("skopt", reason="the extra 'tune' is not installed")
    ending = run(store, a_study(store), FakeServer(), SkoptDesigner())
    verdict = judge(ending.trials)
    assert verdict is not None
    # From 40 % reserved to less than 6 %: at least 56 % more of the cache.
    gains = [gain_of(trial, verdict.baseline) for trial in ending.trials]
    assert max(gains) > 0.56
    # A larger reserve that ties with the fastest may be chosen.
    assert verdict.gain > max(gains) - 2 * LEAST_NOISE
    assert not verdict.within_noise


def test_a_trial_is_written_down_before_its_server_is_touched(
    store: StudyStore,
) -> None:
    study = a_study(store, 2)
    states: list[TrialState] = []

    def look(trial: Trial) -> Outcome | None:
        states.append(store.trials(study.id)[trial.number].state)
        return None

    run(store, study, FakeServer(mishap=look))
    assert states == [TrialState.RUNNING, TrialState.RUNNING]


def test_a_failing_baseline_ends_everything(store: StudyStore) -> None:
    with pytest.raises(
        RuntimeBootError, match=r"your own configuration failed .*it failed"
    ):
        run(store, a_study(store), FakeServer(least=1.0))


def test_a_setting_that_does_not_arrive_ends_the_study(store: StudyStore) -> None:
    def lose(trial: Trial) -> Outcome | None:
        if not trial.settings:
            return None
        return Outcome(
            TrialState.SETTING_NOT_ARRIVED, "0.038 was set, the log shows 0.4"
        )

    ending = run(store, a_study(store), FakeServer(mishap=lose))
    assert len(ending.trials) == 2
    assert "the log shows 0.4" in ending.reason
    # Nothing was compared, which is no good end.
    assert isinstance(ending.error, ConfigError)
    assert "0 of 1 trial counted (1 setting_not_arrived)" in str(ending.error)
    assert judge(ending.trials) is None


def test_failures_count_against_the_budget(store: StudyStore) -> None:
    def fail(trial: Trial) -> Outcome | None:
        return Outcome(TrialState.LOAD_FAILED, "HTTP 500") if trial.settings else None

    ending = run(store, a_study(store, 4), FakeServer(mishap=fail))
    assert len(ending.trials) == 4
    assert judge(ending.trials) is None
    assert isinstance(ending.error, RuntimeBootError)
    assert "0 of 3 trials counted (3 load_failed)" in str(ending.error)


def test_a_reserve_that_cannot_be_cut_is_a_good_end_without_a_trial(
    store: StudyStore,
) -> None:
    # Graphs and activations want 2 GiB, of 70.
    tight = replace(A_WASTEFUL_SERVER, reserve_ratio=0.03, reserve_bytes=21 * GIB // 10)
    ending = run(store, a_study(store, 4), FakeServer(least=0.0, facts=tight))
    assert len(ending.trials) == 1
    assert ending.error is None
    assert ending.reason.startswith("The search ended early")


def test_an_interrupted_campaign_stops_and_the_trial_is_not_counted(
    store: StudyStore,
) -> None:
    def interrupt(trial: Trial) -> Outcome | None:
        return Outcome(TrialState.INTERRUPTED) if trial.number == 2 else None

    study = a_study(store, 4)
    ending = run(store, study, FakeServer(mishap=interrupt))
    assert ending.interrupted
    assert ending.error is None
    assert [trial.state.judged for trial in ending.trials] == [True, True, False]
    resumed = run(store, study, FakeServer())
    assert len(resumed.trials) == 5
    # The same point comes back, under a number of its own.
    assert resumed.trials[3].settings == ending.trials[2].settings


@pytest.mark.parametrize("at", range(4))
def test_a_killed_campaign_ends_where_an_undisturbed_one_does(
    at: int, tmp_path: Path
) -> None:
    def kill(trial: Trial) -> Outcome | None:
        if trial.number == at:
            raise Killed
        return None

    results = []
    for name, server in (("a", FakeServer()), ("b", FakeServer(mishap=kill))):
        opened = StudyStore(tmp_path / name)
        study = a_study(opened, 5)
        try:
            run(opened, study, server)
        except Killed:
            for trial in opened.trials(study.id):
                if not trial.state.judged:
                    lost = Outcome(TrialState.INTERRUPTED)
                    opened.finish(study.id, trial.number, lost, 0.0)
            again = FakeServer()
            run(opened, study, again)
            assert len(again.seen) == 5 - at
        done = [t for t in opened.trials(study.id) if t.state.judged]
        results.append([(t.settings, t.state) for t in done])
        opened.close()
    assert results[0] == results[1]


def test_a_knob_that_the_log_s_strategy_ignores_is_refused_after_the_baseline(
    store: StudyStore,
) -> None:
    server = FakeServer(facts=replace(A_WASTEFUL_SERVER, strategy="exp"))
    study = a_study(store, 8, "decode-block-step")
    ending = run(store, study, server)
    assert isinstance(ending.error, UsageError)
    assert "changes nothing under" in ending.reason
    assert len(server.seen) == 1


def test_each_trial_is_told_when_it_is_planned_and_when_it_is_over(
    store: StudyStore,
) -> None:
    told: list[tuple[int, TrialState]] = []
    run(
        store,
        a_study(store, 2),
        FakeServer(),
        tell=lambda trial: told.append((trial.number, trial.state)),
    )
    assert told == [
        (0, TrialState.PLANNED),
        (0, TrialState.OK),
        (1, TrialState.PLANNED),
        (1, TrialState.OK),
    ]
