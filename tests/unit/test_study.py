"""What a study proposes next, and that a killed one proposes the same again."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpuwatch.testing.trials import failed, measured
from hpuwatch.tune.axes import Axis, Point, Told
from hpuwatch.tune.designer import RandomDesigner, SkoptDesigner
from hpuwatch.tune.facts import RESERVE
from hpuwatch.tune.knobs import choose_knobs
from hpuwatch.tune.predict import calibrate
from hpuwatch.tune.space import Space
from hpuwatch.tune.study import (
    DESIGNER,
    FIRST_GUESS,
    RANDOM,
    Proposal,
    difference,
    fingerprint,
    parts_of,
    propose,
    told,
)
from hpuwatch.tune.trial import Trial, TrialState

pytestmark = pytest.mark.unit

BASELINE = measured(0, {}, 1000, 1001, origin="baseline")
GUESS = measured(1, {RESERVE: "0.038"}, 1500, 1501, origin=FIRST_GUESS)


class Stubborn:
    """A designer that always says the same, and notes what it was told."""

    def __init__(self, *point: float) -> None:
        self.point = point
        self.told: Sequence[Told] = ()

    def suggest(
        self, axes: Sequence[Axis], history: Sequence[Told], seed: int
    ) -> Point:
        del axes, seed
        self.told = history
        return self.point


def space_after(trials: Sequence[Trial]) -> Space:
    return Space(choose_knobs(["reserve"], {}, "exp"), calibrate(trials, {}))


def test_after_the_baseline_comes_the_first_guess() -> None:
    proposal = propose([BASELINE], space_after([BASELINE]), Stubborn(3.0), 7)
    # Graphs and activations need 2 GiB of 70: 1.3 times that, rounded up.
    assert proposal == Proposal({RESERVE: "0.038"}, FIRST_GUESS)


def test_then_the_designer_is_asked() -> None:
    trials = [BASELINE, GUESS]
    proposal = propose(trials, space_after(trials), Stubborn(3.0), 7)
    assert proposal == Proposal({RESERVE: "0.086"}, DESIGNER)


def test_a_designer_that_repeats_itself_is_replaced_by_chance() -> None:
    trials = [BASELINE, GUESS]
    proposal = propose(trials, space_after(trials), Stubborn(1.3), 7)
    assert proposal is not None
    assert proposal.origin == RANDOM
    assert not space_after(trials).same(proposal.settings, GUESS.settings)


def test_chance_three_times_in_a_row_ends_the_study() -> None:
    trials = [
        BASELINE,
        GUESS,
        measured(2, {RESERVE: "0.1"}, 1400, origin=RANDOM),
        measured(3, {RESERVE: "0.2"}, 1300, origin=RANDOM),
        measured(4, {RESERVE: "0.3"}, 1200, origin=RANDOM),
    ]
    assert propose(trials, space_after(trials), Stubborn(1.3), 7) is None


def test_what_was_interrupted_is_proposed_again() -> None:
    lost = Trial(2, {RESERVE: "0.086"}, DESIGNER, TrialState.INTERRUPTED)
    trials = [BASELINE, GUESS]
    space = space_after(trials)
    first = propose(trials, space, RandomDesigner(), 7)
    assert propose([*trials, lost], space, RandomDesigner(), 7) == first


def test_the_designer_is_told_failures_as_failures() -> None:
    trials = [BASELINE, GUESS, failed(2, {RESERVE: "0.031"})]
    designer = Stubborn(3.0)
    propose(trials, space_after(trials), designer, 7)
    assert [each.score for each in designer.told] == [1000.5, 1500.5, None]
    assert [each.designed for each in designer.told] == [False, False, True]


def test_old_trials_are_told_in_today_s_coordinates() -> None:
    trials = [BASELINE, GUESS]
    before = told(trials, space_after(trials))[1].point[0]
    trials.append(failed(2, {RESERVE: "0.036"}))
    after = told(trials, space_after(trials))[1].point[0]
    # The failure showed that graphs need more, so the same reserve is less slack.
    assert float(after) < float(before)


@settings(max_examples=25)
@given(seed=st.integers(0, 1000), ceiling=st.floats(0.03, 0.3))
def test_a_study_never_repeats_a_setting_nor_a_reserve_that_was_too_small(
    seed: int, ceiling: float
) -> None:
    trials = [BASELINE]
    while len(trials) < 9:
        space = space_after(trials)
        proposal = propose(trials, space, RandomDesigner(), seed)
        if proposal is None:
            break
        ratio = float(proposal.settings[RESERVE])
        too_small = [
            float(trial.settings[RESERVE])
            for trial in trials
            if trial.state is TrialState.OUT_OF_MEMORY
        ]
        assert ratio > max(too_small, default=0.0)
        assert not any(space.same(proposal.settings, t.settings) for t in trials)
        number = len(trials)
        trials.append(
            failed(number, proposal.settings)
            if ratio < ceiling
            else measured(number, proposal.settings, 1000, origin=proposal.origin)
        )


def test_the_same_history_and_seed_give_the_same_proposal() -> None:
    pytest.importorskip("skopt", reason="the extra 'tune' is not installed")
    trials = [BASELINE, GUESS, measured(2, {RESERVE: "0.2"}, 1200)]
    space = space_after(trials)
    first = propose(trials, space, SkoptDesigner(), 7)
    assert first is not None
    assert propose(trials, space, SkoptDesigner(), 7) == first


def test_what_differs_between_two_starts_is_named() -> None:
    command = ["vllm", "serve", "m", "--api-key", "hidden"]
    own = {RESERVE: "0.4", "VLLM_API_KEY": "hidden", "PT_HPU_LAZY_MODE": "1"}
    then = parts_of(command, {**own, "HOME": "/root"})
    assert "hidden" not in str(then)
    assert difference(then, parts_of(command, own)) == ""
    now = parts_of(
        [*command, "-q"],
        {RESERVE: "0.3", "VLLM_API_KEY": "other", "HPU_X": "1"},
    )
    assert difference(then, now) == (
        "the command is another, PT_HPU_LAZY_MODE is not set now, VLLM_API_KEY has "
        "another value now, VLLM_GRAPH_RESERVED_MEM was 0.4 and is 0.3 now, "
        "HPU_X was not set then"
    )


def test_the_fingerprint_changes_with_what_the_server_sees() -> None:
    command = ["vllm", "serve", "m"]
    plain = fingerprint(command, {"VLLM_GRAPH_RESERVED_MEM": "0.4", "HOME": "/root"})
    assert plain == fingerprint(command, {"VLLM_GRAPH_RESERVED_MEM": "0.4"})
    assert plain != fingerprint(command, {"VLLM_GRAPH_RESERVED_MEM": "0.5"})
    assert plain != fingerprint([*command, "-q"], {"VLLM_GRAPH_RESERVED_MEM": "0.4"})
    assert plain != fingerprint(["vllm", "serve m"], {"VLLM_GRAPH_RESERVED_MEM": "0.4"})
