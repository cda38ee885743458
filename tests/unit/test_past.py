"""Starts without end take bounded memory, and no counter goes back when one is let go."""

from __future__ import annotations

import pytest

from hpuwatch.advise.render.text import render_text
from hpuwatch.advise.report import build_report
from hpuwatch.app.catalogue import shipped_findings
from hpuwatch.events import Event
from hpuwatch.life.machine import Fact
from hpuwatch.life.phases import Phase
from hpuwatch.loop.watch import Watch
from hpuwatch.metrics.collector import exposition
from hpuwatch.state.model import Past, State
from hpuwatch.state.past import KEPT_STARTS
from hpuwatch.state.reduce import fold, reduce
from hpuwatch.state.snapshot import Snapshot
from hpuwatch.testing.clock import FakeClock
from hpuwatch.testing.goldens import samples
from hpuwatch.testing.logs import rules
from hpuwatch.web.status import status_page

pytestmark = pytest.mark.unit

AT = "INFO 01-02 03:04:05 [x.py:1]"
LIFE = (
    f"{AT} vLLM API server version 0.26.0\n"
    f"{AT} Initializing a V1 LLM engine (v0.26.0) with config: model='m', "
    "max_seq_len=2048, tensor_parallel_size=1, device_config=hpu\n"
)
LIVES = KEPT_STARTS + 6


def events_of_life(model: str | None) -> list[Event]:
    """One life: it serves, misses a shape twice and breaks."""
    named = {} if model is None else {"model": model}
    return [
        Event("server_lifecycle", {"step": "version"}),
        Event("engine_config", {"ver": "1", **named}),
        Event("server_lifecycle", {"step": "ready"}),
        *2 * [Event("config_not_warmed", {"phase": "decode", "bs": 9, "seq": 1})],
        Event("fault", {"name": "dynamo_limit", "severity": "warning", "message": "m"}),
    ]


def counters(state: State) -> dict[str, float]:
    text = exposition(Snapshot("x", Phase.READY, state)).decode()
    found = samples(text)
    return {name: each for name, each in found.items() if "_total" in name}


def test_no_counter_goes_back_when_a_start_is_let_go() -> None:
    state, before = State(), dict[str, float]()
    models = ["a", "a", None, "b"]
    for number in range(LIVES):
        for event in events_of_life(models[number % 4]):
            state = reduce(state, event)
        now = counters(state)
        assert {name: max(each, now.get(name, 0)) for name, each in before.items()} == {
            name: now.get(name) for name in before
        }
        before = now
    misses = [n for name, n in before.items() if "bucket_misses_total" in name]
    assert sorted(misses) == [2 * (LIVES // 4), 2 * (LIVES - LIVES // 4)]
    assert [n for name, n in before.items() if "faults_total" in name] == [LIVES]


def test_the_newest_starts_are_kept_and_the_rest_is_counted() -> None:
    state = fold(State(), [e for _ in range(LIVES) for e in events_of_life("m")])
    assert len(state.starts) == KEPT_STARTS
    assert state.begun == LIVES
    kind = ("decode", "not_warmed_up")
    cause = ("dynamo_limit", "warning", True)
    assert state.past == Past(6, "m", {"m": {kind: 12}}, {cause: 6})


def test_what_is_no_longer_kept_is_said() -> None:
    state = fold(State(), [e for _ in range(LIVES) for e in events_of_life("m")])
    report = build_report([("s.log", state)], shipped_findings())
    (last,) = report.reports
    assert last.source.start == LIVES
    assert last.earlier[0].source.start == 7
    assert "6 earlier starts in this log were read" in render_text(report)
    assert "of the first 6 starts" in status_page(Snapshot("x", Phase.READY, state))


def test_names_without_end_are_counted_together() -> None:
    state = fold(State(), [e for n in range(300) for e in events_of_life(f"m{n}")])
    assert len(state.past.misses) == KEPT_STARTS
    total = sum(sum(each.values()) for each in state.past.misses.values())
    assert total == 2 * (300 - KEPT_STARTS)


def test_a_watch_counts_restarts_on_and_on() -> None:
    watch = Watch("x", rules(), FakeClock())
    watch.process(Fact.SPAWNED)
    watch.take((LIFE * LIVES).encode(), 1.0)
    assert watch.snapshot().restarts == LIVES - 1
    assert watch.snapshot().phase is Phase.STARTING
