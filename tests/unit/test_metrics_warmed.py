"""How far a warm-up is, from whatever its log told."""

from __future__ import annotations

import pytest

from hpuwatch.metrics.readings import warmed
from hpuwatch.records import Line
from hpuwatch.state.model import BucketList, Known, Progress, Start, Warmup
from hpuwatch.testing.snapshots import known

pytestmark = pytest.mark.unit

LISTED: dict[str, Known[BucketList]] = {
    "prompt": known(BucketList(24)),
    "decode": known(BucketList(48)),
}


def start(warmup: Warmup, buckets: dict[str, Known[BucketList]] = LISTED) -> Start:
    return Start(Line(""), warmup=warmup, buckets=buckets)


def test_what_is_announced_is_planned_and_not_done() -> None:
    assert warmed(start(Warmup())) == {"prompt": (0, 24), "decode": (0, 48)}


def test_a_bar_knows_better_than_the_list() -> None:
    warmup = Warmup(progress={"prompt": Progress(3, 20)})

    assert warmed(start(warmup)) == {"prompt": (3, 20), "decode": (0, 48)}


def test_a_bar_without_a_total_takes_that_of_the_list() -> None:
    warmup = Warmup(progress={"prompt": Progress(3, 0)})

    assert warmed(start(warmup))["prompt"] == (3, 24)


def test_a_phase_that_was_never_announced_counts_too() -> None:
    warmup = Warmup(progress={"multimodal": Progress(3, 36)})

    assert warmed(start(warmup, {})) == {"multimodal": (3, 36)}


def test_a_finished_warmup_without_bars_is_done() -> None:
    warmup = Warmup(seconds=known(49.0))

    assert warmed(start(warmup)) == {"prompt": (24, 24), "decode": (48, 48)}


def test_a_warmup_that_stopped_early_is_not_done() -> None:
    """Old releases stop when the reserve is full, and say that they finished."""
    warmup = Warmup(seconds=known(49.0), progress={"prompt": Progress(15, 24)})

    assert warmed(start(warmup))["prompt"] == (15, 24)


def test_a_skipped_warmup_plans_nothing() -> None:
    assert warmed(start(Warmup(skipped=known(value=True)))) == {}


def test_a_server_that_told_nothing_plans_nothing() -> None:
    assert warmed(start(Warmup(), {})) == {}
