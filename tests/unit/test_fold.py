"""Many events at once come to the same state as one after the other."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpuwatch.advise.document import Report
from hpuwatch.advise.render.text import render_text
from hpuwatch.advise.report import build_report
from hpuwatch.app.catalogue import shipped_findings
from hpuwatch.events import Event, Speaker, Value
from hpuwatch.life.phases import Phase
from hpuwatch.records import Line
from hpuwatch.state import reduce as module
from hpuwatch.state.model import Miss, Start, State
from hpuwatch.state.reduce import fold, outlasted, reduce

pytestmark = pytest.mark.unit

COUNT = st.none() | st.integers(-1, 3)
RATE = st.none() | st.sampled_from([0.0, 0.5, 7, math.inf, "much"])
SPEAKERS = st.sampled_from(
    [
        Speaker(),
        Speaker("Worker", 5, 1),
        *[Speaker("VllmWorkerProcess", n, None) for n in (1, 2)],
    ]
)
STATISTICS = st.fixed_dictionaries(
    {
        "r": COUNT,
        "w": COUNT,
        "p": COUNT,
        "preemptions": COUNT,
        "pt": RATE,
        "gt": RATE,
        "kv": RATE,
    }
).map(lambda fields: ("engine_stats", fields))
MISSES = st.fixed_dictionaries(
    {"phase": st.sampled_from([None, "prompt", "decode"]), "bs": COUNT, "seq": COUNT}
).map(lambda fields: ("config_not_warmed", fields))
FALLBACKS = st.fixed_dictionaries(
    {
        "phase": st.just("prompt"),
        "requested": st.tuples(st.integers(1, 2), st.integers(1, 2)),
    }
).map(lambda fields: ("bucket_fallback", fields))
OTHERS = st.sampled_from(
    [
        ("server_lifecycle", {"step": "ready"}),
        ("server_lifecycle", {"step": "version"}),
        ("engine_config", {"ver": "1"}),
        ("preemption", {"n": 50}),
        ("fault", {"name": "x", "severity": "fatal", "message": "m"}),
        ("sleep_and_model_switch", {"step": "switch_begin"}),
    ]
)
SENTENCES = st.lists(
    st.tuples(STATISTICS | MISSES | FALLBACKS | OTHERS, SPEAKERS), max_size=30
)


Said = Sequence[tuple[tuple[str, Mapping[str, Value]], Speaker]]


def events_of(said: Said) -> list[Event]:
    return [
        Event(kind, dict(fields), Line("x", number * 10, number), speaker)
        for number, ((kind, fields), speaker) in enumerate(said, 1)
    ]


def one_by_one(events: list[Event]) -> State:
    state = State()
    for event in events:
        state = reduce(state, event)
    return state


@given(SENTENCES, st.integers(0, 30))
def test_folding_is_reducing(said: Said, cut: int) -> None:
    events = events_of(said)
    expected = one_by_one(events)
    assert fold(State(), events) == expected
    assert fold(fold(State(), events[:cut]), events[cut:]) == expected


def test_a_late_event_of_the_life_before_is_not_taken_for_this_one() -> None:
    ready = ("server_lifecycle", {"step": "ready"})
    begin = ("server_lifecycle", {"step": "version"})
    config = ("engine_config", {"ver": "1"})
    events = events_of([(each, Speaker()) for each in (config, ready, begin, ready)])
    late = Event("engine_stats", {"r": 3}, Line("late", 25, 2))
    state = fold(State(), [*events, late])
    assert [start.traffic.lines for start in state.starts] == [1, 0]


def test_a_storm_of_shapes_costs_the_same_one_by_one() -> None:
    """So many shapes end this test only if a miss costs the same however many came."""
    state = one_by_one(
        [
            Event("config_not_warmed", {"phase": "decode", "bs": n, "seq": 1})
            for n in range(1, 20_001)
        ]
    )
    assert state.current is not None
    assert sum(miss.count for miss in state.current.misses) == 20_000
    assert len(state.current.misses) == 4_097


def test_an_event_that_breaks_the_reduction_costs_itself_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(start: Start, event: Event) -> Start:
        raise KeyError(start, event)

    monkeypatch.setattr(module, "HANDLERS", {**module.HANDLERS, "preemption": broken})
    said: list[tuple[str, Mapping[str, Value]]] = [
        ("server_lifecycle", {"step": "ready"}),
        ("engine_stats", {"r": 1}),
        ("preemption", {"n": 50}),
        ("engine_stats", {"r": 2}),
    ]
    events = events_of([(each, Speaker()) for each in said])
    with pytest.raises(KeyError):
        fold(State(), events)
    state = outlasted(State(), events)
    without = fold(State(), [each for each in events if each.kind != "preemption"])
    assert state == replace(without, broken=1)
    (report,) = build_report([("s.log", state)], shipped_findings()).reports
    assert report.source.broken_events == 1
    assert "1 event of this log could not" in render_text(Report(reports=[report]))


def test_a_storm_keeps_one_entry_for_the_shapes_beyond_its_bound() -> None:
    ready = Event("server_lifecycle", {"step": "ready"}, Line("x", 0, 1))
    storm = [
        Event(
            "config_not_warmed", {"phase": "decode", "bs": n, "seq": 1}, Line("x", n, n)
        )
        for n in range(1, 5_001)
    ]
    state = fold(State(), [ready, *storm, *storm[:2]])
    assert state.current is not None
    assert state.current.phase is Phase.READY
    misses = state.current.misses
    assert len(misses) == 4_097
    assert misses[0] == Miss("decode", "not_warmed_up", (1, 1), storm[0].line, 2)
    assert misses[-1].shape == ()
    assert misses[-1].count == 5_000 - 4_096
