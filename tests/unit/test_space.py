"""Knobs, the arithmetic behind the coordinates, and the way to settings and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpuwatch.errors import StudyBroken, UsageError
from hpuwatch.gaudi.buckets import DECODE, PROMPT
from hpuwatch.testing.trials import A_WASTEFUL_SERVER, failed, measured
from hpuwatch.tune.axes import Choice, Ladder, Stretch
from hpuwatch.tune.facts import RESERVE, STRATEGY
from hpuwatch.tune.knobs import KNOBS, check_release, choose_knobs, strategy_of
from hpuwatch.tune.predict import bucket_lists, calibrate
from hpuwatch.tune.space import GUESSED_SLACK, Space
from hpuwatch.tune.trial import Facts, Trial, TrialState
from hpuwatch.units import GIB

pytestmark = pytest.mark.unit

BASELINE = measured(0, {}, 1000, 1001, origin="baseline")
LIN = {STRATEGY: "lin"}


def listed(environment: Mapping[str, str]) -> Facts:
    """Return a wasteful server that also prints its limits and bucket counts."""
    facts = replace(
        A_WASTEFUL_SERVER,
        max_num_seqs=32,
        max_num_batched_tokens=2048,
        max_model_len=4096,
        strategy=strategy_of(environment),
    )
    lists = bucket_lists(environment, facts, facts.kv_blocks or 0)
    assert lists is not None
    return replace(facts, buckets={name: len(found) for name, found in lists.items()})


def space_of(
    *asked: str, environment: Mapping[str, str] | None = None, known: bool = True
) -> Space:
    environment = environment or {}
    facts = listed(environment) if known else A_WASTEFUL_SERVER
    knobs = choose_knobs(asked, environment, strategy_of(environment))
    baseline = measured(0, {}, 1000, facts=facts, origin="baseline")
    return Space(knobs, calibrate([baseline], environment))


@pytest.mark.parametrize(
    ("environment", "strategy"),
    [
        ({}, "exp"),
        ({STRATEGY: "pad"}, "pad"),
        ({STRATEGY: "pad", "VLLM_EXPONENTIAL_BUCKETING": "true"}, "exp"),
        ({"VLLM_EXPONENTIAL_BUCKETING": "ture"}, "lin"),
        ({STRATEGY: "lin", "VLLM_BUCKETING_FROM_FILE": "buckets.txt"}, "file"),
    ],
)
def test_the_strategy_that_an_environment_asks_for(
    environment: Mapping[str, str], strategy: str
) -> None:
    assert strategy_of(environment) == strategy


@pytest.mark.parametrize(
    ("strategy", "names"),
    [
        ("exp", ["strategy", "prompt-batch-max"]),
        ("lin", ["decode-block-step", "prompt-query-step"]),
        ("pad", ["decode-block-step", "prompt-query-step"]),
    ],
)
def test_buckets_stands_for_the_two_that_the_strategy_honours(
    strategy: str, names: list[str]
) -> None:
    knobs = choose_knobs(["reserve", "buckets"], {}, strategy)
    assert [knob.name for knob in knobs] == ["reserve", *names]


@pytest.mark.parametrize(
    ("asked", "environment", "strategy", "words"),
    [
        (["speed"], {}, "exp", "doesn't know 'speed'"),
        ([], {}, "exp", "names nothing to tune"),
        (["decode-block-step"], {}, "exp", "changes nothing under .* 'exp'"),
        (["decode-batch-step"], {}, "pad", "changes nothing under .* 'pad'"),
        (["buckets"], {}, "file", "VLLM_BUCKETING_FROM_FILE"),
        (["buckets"], {"VLLM_EXPONENTIAL_BUCKETING": "1"}, "exp", "unset that first"),
        (["strategy", "prompt-query-step"], {}, "lin", "means nothing under exp"),
    ],
)
def test_a_knob_that_would_change_nothing_is_not_offered(
    asked: list[str], environment: Mapping[str, str], strategy: str, words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        choose_knobs(asked, environment, strategy)


@pytest.mark.parametrize(
    ("asked", "strategy", "release"),
    [
        ("strategy", "exp", "0.17.1"),
        ("prompt-query-step", "lin", "0.9.0.1+Gaudi-1.22.0"),
        ("prompt-batch-max", "lin", "0.9.0.1+Gaudi-1.22.0"),
    ],
)
def test_a_knob_that_the_release_ignores_is_refused(
    asked: str, strategy: str, release: str
) -> None:
    with pytest.raises(UsageError, match=" ignores VLLM_"):
        check_release(choose_knobs([asked], {}, strategy), release)


@pytest.mark.parametrize(
    ("asked", "strategy", "release"),
    [
        ("strategy", "exp", "0.26.0"),
        ("prompt-batch-max", "exp", "0.17.1"),
        ("decode-block-step", "lin", "0.9.0.1+Gaudi-1.22.0"),
        ("strategy", "exp", "who knows"),
    ],
)
def test_a_knob_that_the_release_honours_or_may_honour_passes(
    asked: str, strategy: str, release: str
) -> None:
    check_release(choose_knobs([asked], {}, strategy), release)


def test_the_reserve_is_searched_as_slack_over_what_graphs_need() -> None:
    space = space_of("reserve")
    # 28 GiB are reserved; graphs took 1.5 GiB, and 0.5 are kept for activations.
    (axis,) = space.axes
    assert isinstance(axis, Stretch)
    assert axis.low == 1.05
    assert axis.high == pytest.approx(14.0)
    (own,) = space.point_of({})
    assert own == pytest.approx(14.0)
    assert space.settings_of((1.05,)) == {RESERVE: "0.030"}


def space_with_reserve(ratio: float, *more: Trial) -> Space:
    facts = replace(
        A_WASTEFUL_SERVER, reserve_ratio=ratio, reserve_bytes=round(ratio * 70 * GIB)
    )
    baseline = measured(0, {}, 1000, facts=facts, origin="baseline")
    forecast = calibrate([baseline, *more], {})
    return Space(choose_knobs(["reserve"], {}, "exp"), forecast)


@given(ratio=st.floats(0.03, 0.8), slack=st.floats(1.05, 100.0))
def test_no_reserve_above_the_operator_s_own_is_tried(
    ratio: float, slack: float
) -> None:
    # Graphs and the allowance want 2 GiB of 70, which 0.03 and more hold.
    space = space_with_reserve(ratio)
    assert float(space.settings_of((slack,))[RESERVE]) <= ratio * 1.00001


def test_a_failure_does_not_open_the_way_above_a_reserve_that_was_enough() -> None:
    space = space_with_reserve(0.09, failed(1, {RESERVE: "0.085"}))
    assert float(space.settings_of((2.0,))[RESERVE]) == 0.09


def test_buckets_that_need_more_do_not_open_it_either() -> None:
    space = space_of("reserve", "buckets", environment=LIN)
    finer = {"VLLM_DECODE_BLOCK_BUCKET_STEP": "32"}
    need = space.forecast.predict(finer).need_bytes
    assert need > space.forecast.predict({}).need_bytes
    settings = space.settings_of((14.0, 0, 0))
    assert settings["VLLM_DECODE_BLOCK_BUCKET_STEP"] == "32"
    assert float(settings[RESERVE]) == 0.4


def test_a_reserve_that_its_log_shows_to_be_short_may_grow() -> None:
    # 1.4 GiB are reserved and 2 are wanted: up to 1.3 times that, 0.038 of 70 GiB.
    space = space_with_reserve(0.02)
    assert space.largest_ratio == pytest.approx(0.038)
    assert float(space.settings_of((9.0,))[RESERVE]) == 0.038


@given(st.floats(1.05, 14.0))
def test_the_ratio_is_legal_and_never_less_than_the_slack_asks_for(
    slack: float,
) -> None:
    space = space_of("reserve", known=False)
    ratio = float(space.settings_of((slack,))[RESERVE])
    assert 0 < ratio < 1
    assert ratio * 70 * GIB >= slack * 2 * GIB * 0.999
    assert ratio == round(ratio, 3)


@given(st.floats(1.05, 14.0))
def test_a_setting_has_its_point_within_the_rounding(slack: float) -> None:
    space = space_of("reserve", known=False)
    (back,) = space.point_of(space.settings_of((slack,)))
    assert float(back) == pytest.approx(slack, abs=0.04)


def test_steps_go_along_a_ladder_that_holds_the_operator_s_own_value() -> None:
    own = {**LIN, "VLLM_DECODE_BLOCK_BUCKET_STEP": "96"}
    space = space_of("decode-block-step", environment=own)
    (axis,) = space.axes
    assert isinstance(axis, Ladder)
    assert axis.values == ("32", "64", "96", "128", "256", "512", "1024")
    assert space.point_of({}) == (2,)
    assert space.settings_of((3,)) == {"VLLM_DECODE_BLOCK_BUCKET_STEP": "128"}
    assert space.settings_of((2,)) == {}


def test_the_strategy_is_a_choice() -> None:
    (axis, _) = space_of("buckets").axes
    assert axis == Choice("strategy", ("exp", "lin", "pad"))


def test_settings_of_all_knobs_and_back() -> None:
    space = space_of("reserve", "buckets", environment=LIN)
    settings = space.settings_of((2.0, 4, 1))
    assert settings["VLLM_DECODE_BLOCK_BUCKET_STEP"] == "512"
    assert settings["VLLM_PROMPT_QUERY_BUCKET_STEP"] == "256"
    slack, block, query = space.point_of(settings)
    assert (block, query) == (4, 1)
    assert float(slack) == pytest.approx(2.0, abs=0.05)


def test_fewer_buckets_need_less_memory() -> None:
    space = space_of("decode-block-step", environment=LIN)
    need = space.forecast.predict({}).need_bytes
    coarse = space.forecast.predict({"VLLM_DECODE_BLOCK_BUCKET_STEP": "1024"})
    assert coarse.need_bytes < need
    assert coarse.buckets is not None
    assert coarse.buckets[DECODE] < space.forecast.baseline.buckets[DECODE]
    assert coarse.buckets[PROMPT] == space.forecast.baseline.buckets[PROMPT]


def test_reserves_that_differ_by_less_than_half_a_per_cent_of_the_cache_are_the_same() -> (
    None
):
    space = space_of("reserve")
    assert space.same({RESERVE: "0.030"}, {RESERVE: "0.033"})
    assert space.same({}, {RESERVE: "0.400"})
    assert not space.same({RESERVE: "0.030"}, {RESERVE: "0.040"})


def test_steps_that_make_the_same_buckets_are_the_same() -> None:
    # The decode contexts of 32 sequences of 32 blocks end at 1024, so both only double.
    space = space_of("decode-block-step", environment=LIN)
    name = "VLLM_DECODE_BLOCK_BUCKET_STEP"
    assert space.same({name: "1024"}, {name: "2048"})
    assert not space.same({name: "128"}, {name: "256"})
    unknown = replace(space.forecast, lists_known=False)
    assert not Space(space.knobs, unknown).same({name: "128"}, {name: "256"})
    assert Space(space.knobs, unknown).same({}, {name: "128"})


def test_lists_are_foretold_only_where_the_rules_give_the_log_s_own() -> None:
    facts = listed({})
    wrong = replace(facts, buckets={**facts.buckets, PROMPT: 1})
    for one, known in ((facts, True), (wrong, False)):
        baseline = measured(0, {}, 1000, facts=one, origin="baseline")
        assert calibrate([baseline], {}).lists_known is known


def test_a_warm_up_that_would_take_three_times_as_long_is_not_worth_a_restart() -> None:
    space = space_of("strategy")
    objection = space.objection({STRATEGY: "lin"})
    assert objection is not None
    assert "times as long" in objection
    assert space.objection({STRATEGY: "exp"}) is None


def test_a_warm_up_is_foretold_by_what_each_phase_took() -> None:
    facts = replace(
        listed(LIN),
        warmup_seconds=100.0,
        phase_seconds={PROMPT: 60.0, DECODE: 30.0},
        fixed_seconds=10.0,
    )
    baseline = measured(0, {}, 1000, facts=facts, origin="baseline")
    forecast = calibrate([baseline], LIN)
    assert forecast.predict({}).warmup_seconds == pytest.approx(100)
    coarse = forecast.predict({"VLLM_DECODE_BLOCK_BUCKET_STEP": "1024"})
    assert coarse.buckets is not None
    decodes = 30 * coarse.buckets[DECODE] / facts.buckets[DECODE]
    assert coarse.warmup_seconds == pytest.approx(70 + decodes)


def test_buckets_that_the_runtime_would_refuse_are_not_worth_a_restart() -> None:
    environment = {**LIN, "VLLM_PROMPT_QUERY_BUCKET_MIN": "2048"}
    space = space_of("prompt-query-step", environment=environment)
    refused = {"VLLM_PROMPT_QUERY_BUCKET_MIN": "4096"}
    assert "would refuse" in str(space.objection(refused))


def test_memory_that_ran_out_raises_the_need_above_the_reserve_that_failed() -> None:
    trials = [BASELINE, failed(1, {RESERVE: "0.10"})]
    forecast = calibrate(trials, {})
    assert forecast.predict({}).need_bytes >= 0.1 * 70 * GIB
    space = Space(choose_knobs(["reserve"], {}, "exp"), forecast)
    assert float(space.settings_of((1.05,))[RESERVE]) > 0.10


def test_what_went_well_beside_the_reserve_may_go_on_so() -> None:
    # Graphs took 10 GiB where 7 were reserved, and the server served.
    living_outside = replace(
        A_WASTEFUL_SERVER,
        reserve_ratio=0.1,
        reserve_bytes=7 * GIB,
        graph_bytes={PROMPT: 8 * GIB, DECODE: 2 * GIB},
        allowance_bytes=0,
    )
    baseline = measured(0, {}, 1000, facts=living_outside, origin="baseline")
    forecast = calibrate([baseline], {})
    assert forecast.predict({}).need_bytes == pytest.approx(7 * GIB)
    space = Space(choose_knobs(["reserve"], {}, "exp"), forecast)
    # The log shows that the reserve is short, so a little more of it may be tried.
    assert space.same(space.settings_of(space.first_guess()), {RESERVE: "0.105"})


@pytest.mark.parametrize(
    ("state", "phase"),
    [
        (TrialState.LOAD_FAILED, "ready"),
        (TrialState.OUT_OF_MEMORY, "loading"),
        (TrialState.NOT_READY, "warming"),
    ],
)
def test_other_failures_say_nothing_of_the_reserve(
    state: TrialState, phase: str
) -> None:
    trials = [BASELINE, failed(1, {RESERVE: "0.10"}, state, phase)]
    assert calibrate(trials, {}).factor == 1.0


def test_graph_memory_is_learnt_from_every_survivor() -> None:
    more = replace(A_WASTEFUL_SERVER, graph_bytes={PROMPT: 2 * GIB, DECODE: GIB})
    trials = [BASELINE, measured(1, {RESERVE: "0.2"}, 1000, facts=more)]
    assert calibrate(trials, {}).predict({}).need_bytes == 3 * GIB + GIB // 2


def test_without_a_memory_split_there_is_nothing_to_tune() -> None:
    blind = replace(A_WASTEFUL_SERVER, usable_bytes=None)
    with pytest.raises(StudyBroken, match="doesn't show how device memory was split"):
        calibrate([measured(0, {}, 1000, facts=blind, origin="baseline")], {})


def test_the_first_guess_keeps_everything_but_the_reserve() -> None:
    space = space_of("reserve", "buckets", environment=LIN)
    slack, *others = space.first_guess()
    assert slack == GUESSED_SLACK
    assert others == list(space.point_of({})[1:])


def test_every_knob_sets_a_variable_of_its_own() -> None:
    assert len({knob.variable for knob in KNOBS}) == len(KNOBS)
    assert all(knob.default in knob.values for knob in KNOBS if knob.values)
