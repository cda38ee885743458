"""The process machine: every transition, what is impossible, and what the log says of it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpuwatch.life.diagram import mermaid
from hpuwatch.life.machine import TRANSITIONS, Fact, advance, fact_of
from hpuwatch.life.phases import Phase
from hpuwatch.testing.logs import events_of_text

pytestmark = pytest.mark.unit

EXPECTED = """
    stopped      spawned -> starting, exited_unasked -> failed
    failed       spawned -> starting
    backing_off  spawned -> starting
    starting     weights -> loading, sizing -> sizing, warming -> warming
    starting     serving -> ready, broke -> failed, stop_asked -> stopping
    starting     closing -> stopping, exited_as_asked -> stopped, exited_unasked -> failed
    loading      sizing -> sizing, warming -> warming
    loading      serving -> ready, broke -> failed, stop_asked -> stopping
    loading      closing -> stopping, exited_as_asked -> stopped, exited_unasked -> failed
    sizing       warming -> warming
    sizing       serving -> ready, broke -> failed, stop_asked -> stopping
    sizing       closing -> stopping, exited_as_asked -> stopped, exited_unasked -> failed
    warming      serving -> ready, broke -> failed, stop_asked -> stopping
    warming      closing -> stopping, exited_as_asked -> stopped, exited_unasked -> failed
    ready        switching -> switching, broke -> failed, stop_asked -> draining
    ready        closing -> stopping, exited_as_asked -> stopped, exited_unasked -> failed
    switching    serving -> ready, broke -> failed, stop_asked -> draining
    switching    closing -> stopping, exited_as_asked -> stopped, exited_unasked -> failed
    degraded     serving -> ready, broke -> failed, stop_asked -> draining
    degraded     closing -> stopping, exited_as_asked -> stopped, exited_unasked -> failed
    draining     closing -> stopping, exited_as_asked -> stopped, exited_unasked -> failed
    stopping     exited_as_asked -> stopped, exited_unasked -> failed
"""


def expected() -> dict[tuple[Phase, Fact], Phase]:
    table = {}
    for line in EXPECTED.strip().splitlines():
        phase, moves = line.split(maxsplit=1)
        for move in moves.split(", "):
            fact, reached = move.split(" -> ")
            table[Phase(phase), Fact(fact)] = Phase(reached)
    return table


@pytest.mark.parametrize("phase", list(Phase))
@pytest.mark.parametrize("fact", list(Fact))
def test_every_phase_takes_every_fact_as_the_table_says(
    phase: Phase, fact: Fact
) -> None:
    assert advance(phase, fact) is expected().get((phase, fact), phase)


def test_nothing_reaches_a_phase_that_only_our_own_decisions_make() -> None:
    reached = set(TRANSITIONS.values())
    assert reached.isdisjoint({Phase.HALTED, Phase.BACKING_OFF, Phase.DEGRADED})


@given(st.lists(st.sampled_from(list(Fact)), max_size=40))
def test_a_life_never_goes_back_unless_it_is_spawned_anew(facts: list[Fact]) -> None:
    order = [
        Phase.STARTING,
        Phase.LOADING,
        Phase.SIZING,
        Phase.WARMING,
        Phase.READY,
        Phase.DRAINING,
        Phase.STOPPING,
        Phase.STOPPED,
        Phase.FAILED,
    ]
    phase = Phase.STARTING
    for fact in facts:
        after = advance(phase, fact)
        moves_on = {phase, after} <= set(order) and order.index(after) >= order.index(
            phase
        )
        switches = Phase.SWITCHING in {phase, after}
        assert moves_on or switches or fact is Fact.SPAWNED
        phase = after


@given(st.lists(st.sampled_from(list(Fact)), max_size=40))
def test_a_process_that_ended_is_not_ready(facts: list[Fact]) -> None:
    phase = Phase.STARTING
    for fact in [*facts, Fact.EXITED_UNASKED]:
        phase = advance(phase, fact)
    assert phase in {Phase.FAILED, Phase.BACKING_OFF}


SAID = [
    ("INFO 01-02 03:04:05 [api_server.py:1] vLLM API server version 0.9.0", "spawned"),
    (
        (
            "INFO 01-02 03:04:05 [core.py:1] Initializing a V1 LLM engine (v0.26.0) with "
            "config: model='m', max_seq_len=1"
        ),
        "spawned",
    ),
    ("INFO 01-02 03:04:05 [loader.py:1] Loading weights on hpu...", "weights"),
    (
        "Loading safetensors checkpoint shards:  50% Completed | 1/2 [00:01<00:01, 1.0s/it]",
        "weights",
    ),
    ("INFO 01-02 03:04:05 [m.py:1] Loading model weights took 14.5 GB", "weights"),
    ("INFO 01-02 03:04:05 [m.py:1] Wrapping in HPUGraph took 0.0000 GB", "sizing"),
    ("INFO 01-02 03:04:05 [m.py:1] Starting sampler warmup...", "warming"),
    (
        "Decode warmup processing:   5%|#  | 1/19 [00:00<00:12,  1.48item/s, 0/19]",
        "warming",
    ),
    ("INFO:     Application startup complete.", "serving"),
    (
        (
            "INFO 01-02 03:04:05 [l.py:1] Engine 000: Avg prompt throughput: 1.0 tokens/s, "
            "Avg generation throughput: 1.0 tokens/s, Running: 1 reqs, Waiting: 0 reqs, "
            "GPU KV cache usage: 1.0%, Prefix cache hit rate: 0.0%"
        ),
        "serving",
    ),
    (
        "INFO 01-02 03:04:05 [l.py:1] [shutdown] API server: shutdown triggered",
        "stop_asked",
    ),
    (
        (
            "INFO 01-02 03:04:05 [l.py:1] [shutdown] EngineCore: draining in-flight requests "
            "count=3 timeout=30s"
        ),
        "stop_asked",
    ),
    ("INFO:     Shutting down", "closing"),
    ("INFO:     Finished server process [7]", "exited_as_asked"),
    (
        "INFO 01-02 03:04:05 [w.py:1] [gaudi_reconfigure] start: target_model=other",
        "switching",
    ),
    ("INFO 01-02 03:04:05 [w.py:1] [gaudi_reconfigure] completed in 12.5s", "serving"),
    (
        "ERROR 01-02 03:04:05 [w.py:1] [gaudi_reconfigure] failed: ValueError: no",
        "broke",
    ),
    ("ERROR 01-02 03:04:05 [c.py:1] EngineCore failed to start.", "broke"),
    (
        (
            "ERROR 01-02 03:04:05 [w.py:1] Error executing method load. This might cause "
            "deadlock in distributed execution."
        ),
        None,
    ),
    ("INFO 01-02 03:04:05 [x.py:1] Bucketing is ON.", None),
]


@pytest.mark.parametrize(("line", "fact"), SAID)
def test_a_line_tells_its_fact(line: str, fact: str | None) -> None:
    facts = [fact_of(event) for event in events_of_text(line + "\n")]
    told = {each.value for each in facts if each is not None}
    assert told == ({fact} if fact else set())


def test_the_diagram_in_the_documentation_is_the_table(checkout: Path) -> None:
    page = (checkout / "docs/states.md").read_text(encoding="utf-8")
    found = re.search(r"```mermaid\n(.*?)```", page, re.DOTALL)
    assert found is not None
    assert found[1] == mermaid()
    for fact in Fact:
        assert f"`{fact.value}`" in page
    for phase in Phase:
        assert f"`{phase.value}`" in page
