"""What people read of a study."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hpuwatch.app.tune_order import Order
from hpuwatch.cli.tune import resume_command
from hpuwatch.cli.tune_screen import sentence_of
from hpuwatch.settings import Settings
from hpuwatch.testing.trials import A_WASTEFUL_SERVER, failed, measured
from hpuwatch.tune.facts import RESERVE
from hpuwatch.tune.objective import Verdict, judge
from hpuwatch.tune.report import (
    align,
    before_and_after,
    env_text,
    study_text,
    trial_table,
    verdict_text,
)
from hpuwatch.tune.study import Study
from hpuwatch.tune.trial import LoadPlan, Trial, TrialState

pytestmark = pytest.mark.unit

BASELINE = measured(0, {}, 1000, 1000, origin="baseline")
BETTER = measured(1, {RESERVE: "0.05"}, 1250, 1250)
STUDY = Study("f", ("cmd",), ("reserve",), 7, 8, LoadPlan(), "http://h:1", 0.0, id=3)


def verdict_of(*trials: Trial) -> Verdict:
    verdict = judge(trials)
    assert verdict is not None
    return verdict


def test_the_table_shows_before_after_and_the_change() -> None:
    rows = {row[0]: row[1:] for row in before_and_after(verdict_of(BASELINE, BETTER))}
    assert rows[""] == ("before", "after", "change")
    assert rows["output tokens/s"] == ("1,000.0", "1,250.0", "+25.0 %")
    assert rows[RESERVE] == ("0.4", "0.05", "-87.5 %")
    assert rows["graph reserve"] == ("28 GiB", "3.5 GiB", "-87.5 %")
    assert rows["errors"] == ("0", "0", "")
    # Figures that nobody has are left out.
    assert "TTFT p50" not in rows
    assert "preemptions" not in rows


def test_the_verdict_says_how_many_windows_it_rests_on() -> None:
    text = verdict_text(verdict_of(BASELINE, BETTER))
    assert text == "+25.0 % output tokens/s with trial 1, by 2 windows of each."


def test_no_gain_beyond_the_noise_means_change_nothing() -> None:
    text = verdict_text(verdict_of(BASELINE, measured(1, {RESERVE: "0.05"}, 990, 1020)))
    assert text.endswith("change nothing.")


def test_a_cache_that_was_never_short_is_said_to_be_why() -> None:
    found = BASELINE.measurement
    assert found is not None
    assert BASELINE.outcome is not None
    idle = replace(found, kv_use_peak=0.52, preemptions=0)
    baseline = replace(BASELINE, outcome=replace(BASELINE.outcome, measurement=idle))
    text = verdict_text(verdict_of(baseline, measured(1, {RESERVE: "0.05"}, 1001)))
    assert "peaked at 52 %" in text
    assert "--load" in text


def test_a_gain_within_the_spread_is_called_noise() -> None:
    wide = measured(1, {RESERVE: "0.05"}, 1000, 1300)
    text = verdict_text(Verdict(BASELINE, wide, 0.15, within_noise=True))
    assert "within noise: windows differ by up to 300 tokens/s" in text


def test_failures_are_listed_with_their_cause_and_without_a_score() -> None:
    table = trial_table([BASELINE, failed(1, {RESERVE: "0.01"})])
    assert table[2] == (
        "1",
        "VLLM_GRAPH_RESERVED_MEM=0.01",
        "out_of_memory",
        "-",
        "-",
        "it failed",
    )


def test_simulated_figures_say_so_everywhere() -> None:
    verdict = verdict_of(BASELINE, BETTER)
    assert "SIMULATED" in env_text(STUDY, verdict, 0.0)
    text = study_text(STUDY, [BASELINE, BETTER], "ended")
    assert text.startswith("Study 3 (SIMULATED): ended.")
    assert "Before and after (SIMULATED):" in text
    assert sentence_of(BASELINE).endswith("output tokens/s, simulated")
    real = replace(A_WASTEFUL_SERVER, simulated=False)
    measured_one = measured(0, {}, 1000, facts=real, origin="baseline")
    assert "SIMULATED" not in env_text(STUDY, verdict_of(measured_one), 0.0)


def test_the_env_file_holds_the_best_settings_and_where_they_come_from() -> None:
    text = env_text(STUDY, verdict_of(BASELINE, BETTER), 86400.0 * 365)
    lines = text.splitlines()
    assert lines[0].startswith("# hpuwatch tune, study 3, 1971-01-01")
    assert "model a-model, release 0.26.0" in lines[1]
    assert lines[-1] == "VLLM_GRAPH_RESERVED_MEM=0.05"
    assert all(line.startswith("#") for line in lines[:-1])


def test_an_env_file_without_a_gain_sets_nothing() -> None:
    text = env_text(STUDY, verdict_of(BASELINE), 0.0)
    assert all(line.startswith("#") for line in text.splitlines())


def test_columns_are_aligned_without_trailing_blanks() -> None:
    text = align([("a", "long", ""), ("longer", "b", "c")], "  ")
    assert text == "  a       long\n  longer  b     c"


@pytest.mark.parametrize(
    ("trial", "words"),
    [
        (
            Trial(2, {RESERVE: "0.05"}, "designer"),
            "(VLLM_GRAPH_RESERVED_MEM=0.05): starting",
        ),
        (
            failed(2, {}, TrialState.LOAD_FAILED),
            "(the original): load_failed: it failed",
        ),
    ],
)
def test_news_of_a_trial_in_a_line(trial: Trial, words: str) -> None:
    assert words in sentence_of(trial)


def test_the_command_that_goes_on_with_a_study() -> None:
    order = Order(
        ("vllm", "serve", "m", "--seed", "3", "--api-key", "abc123secret"),
        Settings(name="llama"),
        trials=4,
        knobs=("reserve",),
        seed=3,
        load=LoadPlan(),
        keep_best=True,
        serve=False,
    )
    assert resume_command(order) == (
        "hpuwatch tune --resume --name llama --trials 4 --keep-best --then stop -- "
        "vllm serve m --seed 3 --api-key ***"
    )
