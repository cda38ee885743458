"""The designers: legal points, repeatable, and the very calls of scikit-optimize."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpuwatch.errors import ExtraMissing
from hpuwatch.tune import designer as designers
from hpuwatch.tune.axes import Axis, Choice, Ladder, Point, Stretch, Told
from hpuwatch.tune.designer import Designer, RandomDesigner, SkoptDesigner

pytestmark = pytest.mark.unit

AXES: tuple[Axis, ...] = (
    Stretch("reserve", 1.05, 400.0),
    Ladder("step", ("32", "64", "128", "256")),
    Choice("strategy", ("exp", "lin", "pad")),
)
HISTORY = [
    Told((300.0, 2, "exp"), 1000.0, designed=False),
    Told((20.0, 0, "lin"), 1100.0),
    Told((1.06, 1, "pad"), None),
    Told((5.0, 3, "pad"), 1150.0),
]


def assert_inside(axes: Sequence[Axis], point: Point) -> None:
    assert len(point) == len(axes)
    for axis, coordinate in zip(axes, point, strict=True):
        match axis:
            case Stretch(_, low, high):
                assert isinstance(coordinate, float)
                assert low <= coordinate <= high
            case Ladder(_, values):
                assert isinstance(coordinate, int)
                assert 0 <= coordinate < len(values)
            case Choice(_, values):
                assert coordinate in values


@given(seed=st.integers(0, 2**40), told=st.integers(0, 4))
def test_random_points_lie_inside_and_repeat(seed: int, told: int) -> None:
    point = RandomDesigner().suggest(AXES, HISTORY[:told], seed)
    assert_inside(AXES, point)
    assert RandomDesigner().suggest(AXES, HISTORY[:told], seed) == point


@pytest.mark.parametrize("told", range(5))
@pytest.mark.parametrize("initial", [1, 3, None])
def test_skopt_points_lie_inside_and_repeat(told: int, initial: int | None) -> None:
    pytest.importorskip("skopt", reason="the extra 'tune' is not installed")
    point = SkoptDesigner(initial).suggest(AXES, HISTORY[:told], 7)
    assert_inside(AXES, point)
    assert SkoptDesigner(initial).suggest(AXES, HISTORY[:told], 7) == point


def test_skopt_points_can_be_stored_as_json() -> None:
    pytest.importorskip("skopt", reason="the extra 'tune' is not installed")
    json.dumps(SkoptDesigner(1).suggest(AXES, HISTORY, 7))


def test_the_hypercube_spreads_the_first_points() -> None:
    pytest.importorskip("skopt", reason="the extra 'tune' is not installed")
    axes = (Stretch("reserve", 1.0, 10_000.0),)
    history = [Told((9000.0,), 1.0, designed=False)]
    quarters = set()
    for _ in range(4):
        point = SkoptDesigner(4).suggest(axes, history, 3)
        quarters.add(int(math.log10(float(point[0]))))
        history.append(Told(point, 1.0))
    assert quarters == {0, 1, 2, 3}


def test_skopt_finds_the_good_end_and_shuns_the_failing_one() -> None:
    pytest.importorskip("skopt", reason="the extra 'tune' is not installed")
    axes = (Stretch("reserve", 1.05, 400.0),)

    def truth(slack: float) -> float | None:
        return None if slack < 1.3 else 1200 - 40 * math.log(slack)

    history = [Told((400.0,), truth(400.0), designed=False)]
    for _ in range(12):
        point = SkoptDesigner().suggest(axes, history, 11)
        history.append(Told(point, truth(float(point[0]))))
    scores = [told.score for told in history if told.score is not None]
    # The best of the stretch is 1189.5; the middle of it, on the log scale, 1079.
    assert max(scores) > 1180
    assert sum(told.score is None for told in history) <= 3


@settings(max_examples=20)
@given(
    st.lists(
        st.none() | st.floats(min_value=0, max_value=1e6, allow_nan=False), max_size=8
    )
)
def test_a_failure_is_told_as_worse_than_every_success(
    scores: list[float | None],
) -> None:
    losses = designers._losses([Told((1.0,), score) for score in scores])
    good = [
        loss for loss, score in zip(losses, scores, strict=True) if score is not None
    ]
    bad = [loss for loss, score in zip(losses, scores, strict=True) if score is None]
    if good and bad:
        assert min(bad) > max(good)


def test_a_missing_extra_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(designers, "find_spec", lambda _name: None)
    with pytest.raises(ExtraMissing, match=r"pip install 'hpuwatch\[tune\]'") as caught:
        SkoptDesigner().suggest(AXES, [], 0)
    assert caught.value.exit_code == 78


def test_importing_the_designer_does_not_import_skopt() -> None:
    code = "import sys, hpuwatch.tune.designer; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert not {"skopt", "sklearn", "scipy", "numpy"} & set(done.stdout.split())


@pytest.mark.parametrize("designer", [RandomDesigner(), SkoptDesigner()])
def test_designers_fit_the_seam(designer: Designer) -> None:
    assert callable(designer.suggest)
