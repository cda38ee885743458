"""When silence is a suspicion: before a server is ready, or while requests wait."""

from __future__ import annotations

import pytest

from hpuwatch.app.rules import shipped_rules
from hpuwatch.life.machine import Fact
from hpuwatch.life.phases import Phase
from hpuwatch.loop.watch import Watch
from hpuwatch.records import Line
from hpuwatch.state.hang import seems_to_hang
from hpuwatch.state.model import Progress, Start, Traffic, Warmup
from hpuwatch.testing.clock import FakeClock

pytestmark = pytest.mark.unit

BEGUN = Start(Line(""))
WAITING = Start(Line(""), traffic=Traffic(waiting_lines=2))
SLOW = Start(
    Line(""),
    warmup=Warmup(progress={"prompt": Progress(2, 9, points=((1, 5.0), (2, 905.0)))}),
)


@pytest.mark.parametrize(
    ("start", "phase", "silent_seconds", "hangs"),
    [
        (BEGUN, Phase.LOADING, 599, False),
        (BEGUN, Phase.LOADING, 601, True),
        (BEGUN, Phase.WARMING, 601, True),
        (SLOW, Phase.WARMING, 899, False),
        (SLOW, Phase.WARMING, 901, True),
        (BEGUN, Phase.READY, 90_000, False),
        (WAITING, Phase.READY, 601, True),
        (WAITING, Phase.READY, 11, False),
        (WAITING, Phase.FAILED, 90_000, False),
        (WAITING, Phase.STOPPED, 90_000, False),
    ],
)
def test_silence(
    start: Start, phase: Phase, silent_seconds: float, *, hangs: bool
) -> None:
    assert seems_to_hang(start, phase, silent_seconds) is hangs


def test_who_asks_why_a_server_isnt_ready_is_told() -> None:
    clock = FakeClock()
    watch = Watch("main", shipped_rules(), clock)
    watch.process(Fact.SPAWNED)
    said = b"INFO 01-02 03:04:05 [x.py:1] Starting to load model m...\n"
    watch.take(said, clock.now())
    assert watch.snapshot().reason == "the server loads its weights"
    clock.wait(720)
    assert watch.snapshot().reason == (
        "the server loads its weights, but printed nothing for 12 minutes: it may hang"
    )
    watch.take(b"Loading safetensors checkpoint shards:  50% Completed\r", clock.now())
    assert watch.snapshot().reason == "the server loads its weights"
