"""What people read of a study."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hpuwatch.advise.envheader import read_header
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
    verdict_lines,
)
from hpuwatch.tune.study import Study
from hpuwatch.tune.trial import LoadPlan, Trial, TrialState
from hpuwatch.units import GIB

pytestmark = pytest.mark.unit

BASELINE = measured(0, {}, 1000, 1000, origin="baseline")
BETTER = measured(1, {RESERVE: "0.05"}, 1250, 1250)
STUDY = Study("f", ("cmd",), ("reserve",), 7, 8, LoadPlan(), "http://h:1", 0.0, id=3)


def verdict_of(*trials: Trial) -> Verdict:
    verdict = judge(trials)
    assert verdict is not None
    return verdict


def verdict_text(verdict: Verdict) -> str:
    return " ".join(verdict_lines(verdict))


def test_the_table_shows_before_after_and_the_change() -> None:
    rows = {row[0]: row[1:] for row in before_and_after(verdict_of(BASELINE, BETTER))}
    assert rows[""] == ("before", "after", "change")
    assert rows["output tokens/s"] == ("1,000.0", "1,250.0", "+25.0 %")
    assert rows[RESERVE] == ("0.4", "0.05", "")
    assert rows["graph reserve"] == ("28 GiB", "3.5 GiB", "-87.5 %")
    assert rows["errors"] == ("0", "0", "")
    assert rows["KV blocks"] == ("2,688", "2,688", "")
    # Figures that nobody has are left out.
    assert "TTFT p50" not in rows
    assert "preemptions" not in rows


def test_the_verdict_says_how_many_windows_it_rests_on() -> None:
    text = verdict_text(verdict_of(BASELINE, BETTER))
    assert text == (
        "Best: trial 1 (VLLM_GRAPH_RESERVED_MEM=0.05), +25.0 % output tokens/s, by 2 "
        "windows of each."
    )
    more = measured(1, {RESERVE: "0.05"}, 1250, 1250, 1250)
    assert "by 3 windows against 2." in verdict_text(verdict_of(BASELINE, more))


def test_a_choice_that_is_not_the_fastest_is_explained() -> None:
    fastest = measured(1, {RESERVE: "0.02"}, 1255, 1255)
    text = verdict_text(verdict_of(BASELINE, fastest, nearer(2)))
    assert "Best: trial 2 (VLLM_GRAPH_RESERVED_MEM=0.2)" in text
    assert (
        "Trials 1 and 2 tie within the noise, so it is trial 2, which deviates least "
        "from your own configuration." in text
    )


def nearer(number: int) -> Trial:
    return measured(number, {RESERVE: "0.2"}, 1250, 1250)


def test_a_share_changes_by_points() -> None:
    both = [
        replace(
            trial,
            outcome=trial.outcome
            and replace(
                trial.outcome,
                measurement=trial.measurement
                and replace(trial.measurement, kv_use_peak=peak, preemptions=count),
            ),
        )
        for trial, peak, count in ((BASELINE, 1.0, 90), (BETTER, 0.75, 0))
    ]
    rows = {row[0]: row[1:] for row in before_and_after(verdict_of(*both))}
    assert rows["KV use, peak"] == ("100 %", "75 %", "-25 points")
    assert rows["preemptions"] == ("90", "0", "-100.0 %")


def test_no_gain_beyond_the_noise_means_change_nothing() -> None:
    same = measured(1, {RESERVE: "0.05"}, 990, 1020)
    text = study_text(STUDY, [BASELINE, same], "All 2 starts were used.")
    assert "beyond the noise: change nothing." in text
    assert (
        "Trials 0 and 1 tie within the noise, so it is trial 0, which is your" in text
    )
    # Two columns of the same figures would tell nothing.
    assert "Before and after" not in text


@pytest.mark.parametrize(
    ("trials", "said"),
    [
        (
            [BASELINE, failed(1, {RESERVE: "0.3"}, TrialState.SETTING_NOT_ARRIVED)],
            "Nothing was compared: 0 of 1 trial counted (1 setting_not_arrived).",
        ),
        (
            [BASELINE, failed(1, {RESERVE: "0.3"}), failed(2, {RESERVE: "0.35"})],
            "Nothing was compared: 0 of 2 trials counted (2 out_of_memory).",
        ),
        ([BASELINE], "Nothing was compared: no other setting was tried."),
        (
            [failed(0, {}, TrialState.INTERRUPTED)],
            "Nothing was compared: your own configuration was not measured.",
        ),
    ],
)
def test_where_nothing_was_compared_nothing_is_recommended(
    trials: list[Trial], said: str
) -> None:
    lines = study_text(STUDY, trials, "That is why.").splitlines()
    assert lines[1:3] == [said, "That is why."]
    assert not any("change nothing" in line for line in lines)
    assert not any("Before and after" in line for line in lines)


def idle() -> Trial:
    """Return a baseline whose KV cache was never short."""
    found = BASELINE.measurement
    assert found is not None
    assert BASELINE.outcome is not None
    idle = replace(found, kv_use_peak=0.52, preemptions=0)
    return replace(BASELINE, outcome=replace(BASELINE.outcome, measurement=idle))


NO_HELP = (
    "a larger KV cache could not help under this load: KV use peaked at 52 %; whatever "
    "differs is not the setting's doing."
)


def test_a_cache_that_was_never_short_is_said_to_be_why() -> None:
    same = measured(1, {RESERVE: "0.05"}, 1001, 1001)
    text = verdict_text(verdict_of(idle(), same))
    assert "beyond the noise: change nothing." in text
    assert NO_HELP[1:] in text
    assert "--load" in text


def test_a_gain_without_a_cause_is_not_sold() -> None:
    verdict = verdict_of(idle(), BETTER)
    text = verdict_text(verdict)
    assert text.startswith(
        "Change nothing: trial 1 (VLLM_GRAPH_RESERVED_MEM=0.05) measured +25.0 % output "
        f"tokens/s, but {NO_HELP}"
    )
    assert text.count("could not help") == 1
    assert "Best:" not in text
    assert_no_values(env_text(STUDY, verdict, 0.0))
    assert "Before and after" not in study_text(STUDY, [idle(), BETTER], "")


def test_one_window_proves_nothing_and_sets_nothing() -> None:
    before = measured(0, {}, 1000, origin="baseline")
    after = measured(1, {RESERVE: "0.05"}, 1250)
    verdict = verdict_of(before, after)
    text = verdict_text(verdict)
    assert text.startswith("Not proven by one window: trial 1 (")
    assert "measured +25.0 % output tokens/s, but one window shows no spread." in text
    assert "--load windows=2" in text
    assert_no_values(env_text(STUDY, verdict, 0.0))


def assert_no_values(env: str) -> None:
    assert all(line.startswith("#") for line in env.splitlines())


def test_the_price_of_a_gain_stands_in_the_verdict() -> None:
    both = []
    for trial, seconds in ((BASELINE, 1.0), (BETTER, 2.26)):
        assert trial.outcome is not None
        assert trial.measurement is not None
        windows = tuple(
            replace(window, ttft_p99_seconds=seconds, itl_p99_seconds=seconds / 50)
            for window in trial.measurement.windows
        )
        found = replace(trial.measurement, windows=windows)
        both.append(replace(trial, outcome=replace(trial.outcome, measurement=found)))
    assert (
        "+25.0 % output tokens/s at the price of TTFT p99 +126 % and ITL p99 +126 %, by 2 "
        "windows of each." in verdict_text(verdict_of(*both))
    )


def test_windows_that_differ_much_are_flagged() -> None:
    wild = measured(0, {}, 690, 268, 685, origin="baseline")
    (_, row, steady) = trial_table([wild, BETTER])
    assert row[3:5] == ("685.0", "211.0")
    assert row[6] == "unsteady: windows differ by 62 %"
    assert steady[3:5] == ("1,250.0", "0.0")
    assert steady[6] == ""
    text = verdict_text(verdict_of(wild, BETTER))
    assert "The windows of trial 0 differ by more than 10 %" in text
    assert "differ by" not in verdict_text(verdict_of(BASELINE, BETTER))


def test_a_single_window_has_no_noise_to_show() -> None:
    assert trial_table([measured(0, {}, 1000)])[1][4] == "-"


def test_larger_reserves_than_the_operator_s_are_explained() -> None:
    short = replace(A_WASTEFUL_SERVER, reserve_ratio=0.02, reserve_bytes=7 * GIB // 5)
    own = measured(0, {}, 1000, facts=short, origin="baseline")
    text = study_text(STUDY, [own, BETTER], "")
    assert "Your own reserve (1.4 GiB) is less than graphs" in text
    assert "(2 GiB): larger ones were allowed too." in text
    assert "Your own reserve" not in study_text(STUDY, [BASELINE, BETTER], "")


def test_failures_are_listed_with_their_cause_and_without_a_score() -> None:
    table = trial_table([BASELINE, failed(1, {RESERVE: "0.01"})])
    assert table[2] == (
        "1",
        "VLLM_GRAPH_RESERVED_MEM=0.01",
        "out_of_memory",
        "-",
        "-",
        "-",
        "it failed",
    )


def test_simulated_figures_say_so_everywhere() -> None:
    verdict = verdict_of(BASELINE, BETTER)
    assert "SIMULATED" in env_text(STUDY, verdict, 0.0)
    text = study_text(STUDY, [BASELINE, BETTER], "The search ended early.")
    head, said, reason, *_ = text.splitlines()
    assert head == "Study 3 (SIMULATED)"
    # The verdict first, then why it went no further.
    assert said.startswith("Best: trial 1")
    assert reason == "The search ended early."
    assert "Before and after (SIMULATED):" in text
    assert sentence_of(BASELINE).endswith("output tokens/s, simulated")
    real = replace(A_WASTEFUL_SERVER, simulated=False)
    both = [
        measured(0, {}, 1000, facts=real, origin="baseline"),
        measured(1, {RESERVE: "0.05"}, 1250, facts=real),
    ]
    assert "SIMULATED" not in env_text(STUDY, verdict_of(*both), 0.0)


def test_the_env_file_holds_the_best_settings_and_where_they_come_from() -> None:
    text = env_text(STUDY, verdict_of(BASELINE, BETTER), 86400.0 * 365)
    lines = text.splitlines()
    assert lines[0].startswith("# hpuwatch tune, study 3, 1971-01-01")
    header = read_header(text)
    assert header is not None
    assert (header.model, header.release) == ("a-model", "plugin-0.26")
    assert header.base == STUDY.fingerprint
    assert lines[-1] == "VLLM_GRAPH_RESERVED_MEM=0.05"
    assert all(line.startswith("#") for line in lines[:-1])


def test_an_env_file_without_a_gain_sets_nothing() -> None:
    slower = measured(1, {RESERVE: "0.05"}, 900)
    text = env_text(STUDY, verdict_of(BASELINE, slower), 0.0)
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
    environment = {
        RESERVE: "0.4",
        "PT_HPU_LAZY_MODE": "a b",
        "VLLM_API_KEY": "abc123secret",
        "HOME": "/root",
    }
    assert resume_command(order, environment) == (
        "PT_HPU_LAZY_MODE='a b' VLLM_GRAPH_RESERVED_MEM=0.4 hpuwatch tune --resume --name llama --trials 4 --keep-best --then stop -- "
        "vllm serve m --seed 3 --api-key ***"
    )
