"""Predictions from logs of real servers and of the plugin's own code without a card."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from hpuwatch.advise.baseline import Baseline, baseline_of
from hpuwatch.app.report import state_of
from hpuwatch.app.rules import shipped_rules
from hpuwatch.gaudi.buckets import DECODE, PROMPT
from hpuwatch.gaudi.planning import RESERVE, Change, applied
from hpuwatch.gaudi.predict import predict
from hpuwatch.gaudi.refusal import refusals
from hpuwatch.units import GIB

TRAFFIC = "gaudi3-qwen3vl32b-plugin-0.15-start-and-traffic.log.gz"


def baseline(path: Path) -> Baseline:
    found = baseline_of(state_of(str(path), shipped_rules()).starts)
    assert found is not None
    return found


@pytest.fixture(scope="module")
def served(shared: Path) -> Baseline:
    return baseline(shared / "corpus" / TRAFFIC)


def test_a_server_that_ran_is_not_refused(served: Baseline) -> None:
    found = predict(served.plan, served.basis)
    assert refusals(found, served.basis) == ()
    assert found.num_blocks == 1189
    assert {phase: len(each) for phase, each in found.lists.items()} == {
        PROMPT: 48,
        DECODE: 162,
    }
    assert found.warmup is not None
    assert found.warmup.value == 429


def test_only_what_the_variables_don_t_give_is_taken_from_the_features(
    served: Baseline,
) -> None:
    flags = served.plan.flags
    assert flags.strategy is None
    assert flags.contiguous_pa is True
    assert served.plan.shapes(1189).strategy == "lin"


def test_half_the_reserve_is_a_third_more_cache(served: Baseline) -> None:
    """62.03 GiB usable: a fifth of them are 397 blocks of 32 MiB."""
    plan = applied(served.plan, [Change(RESERVE, "0.2")])
    found = predict(plan, served.basis)
    assert abs(found.num_blocks - (1189 + round(0.2 * 62.03 * 1024 / 32))) <= 1
    assert found.room is not None
    assert found.room.fits
    assert found.room.need.value == pytest.approx(11.11 * GIB, rel=1e-3)
    # The pool ends each row of decode buckets, so those with the old pool are gone.
    assert found.deepest == found.num_blocks
    assert found.warmup is not None
    assert found.warmup.low < 429 < found.warmup.high
    assert found.lists_origin == "predicted"


def test_what_traffic_held(served: Baseline) -> None:
    """66.7 % of 152,192 tokens, and at most 8 requests ran at once."""
    assert served.observed_tokens == pytest.approx(0.667 * 152192 / 8, abs=1)


def test_a_skipped_warm_up_takes_no_time(shared: Path) -> None:
    log = shared / "corpus/gaudi2-llama70b-tp4-fork-0.6.3-skip-warmup.log.gz"
    found = baseline(log)
    forecast = predict(found.plan, found.basis)
    assert forecast.warmup is not None
    assert forecast.warmup.value == 0
    assert forecast.num_blocks == 4830


def test_thirds_of_bars_lie_as_near_to_the_mean_as_the_law_says(shared: Path) -> None:
    ratios = []
    folder = shared / "corpus"
    for log in (folder / TRAFFIC, *sorted(folder.glob("plugin-on-stand-in/*.log"))):
        for start in state_of(str(log), shipped_rules()).starts:
            for progress in start.warmup.progress.values():
                points = progress.points
                if len(points) < 6:
                    continue
                cuts = [points[len(points) * n // 3 - (n == 3)] for n in range(4)]
                rates = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in pairwise(cuts)]
                mean = (cuts[3][1] - cuts[0][1]) / (cuts[3][0] - cuts[0][0])
                ratios += [rate / mean for rate in rates]
    assert len(ratios) == 8 * 3
    assert min(ratios) == pytest.approx(0.59, abs=0.005)
    assert max(ratios) == pytest.approx(1.44, abs=0.005)
