"""Every scenario's log means what a person read in it, however it arrives."""

from __future__ import annotations

import json
import re
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from hpuwatch.gaudi.memory import split
from hpuwatch.state.model import Memory, Start
from hpuwatch.testing.goldens import (
    EVENTS,
    METRICS,
    STATE,
    Told,
    event_rows,
    exposition_of,
    facts,
    plain,
    read,
    samples,
    state_of,
)

pytestmark = pytest.mark.unit

FOLDER = Path(__file__).resolve().parents[1] / "golden"
SCENARIOS = sorted(log.parent.name for log in FOLDER.glob("*/log"))
FEWEST_FACTS = 5
MOST_LINES = 150
MOST_BYTES = 650_000  # of all scenarios

scenario = pytest.mark.parametrize("name", SCENARIOS)
few_examples = settings(max_examples=40)


def log_of(name: str) -> bytes:
    return (FOLDER / name / "log").read_bytes()


def kept(name: str, file: str) -> str:
    return (FOLDER / name / file).read_text(encoding="utf-8")


def written_facts(name: str) -> list[dict[str, Any]]:
    starts: list[dict[str, Any]] = yaml.safe_load(kept(name, "facts.yaml"))["starts"]
    return starts


def like(told: object, written: object) -> object:
    """Return what is told, cut to what was written: floats as far as their digits go."""
    if isinstance(told, dict) and isinstance(written, dict):
        return {key: like(told.get(key), each) for key, each in written.items()}
    if isinstance(told, list) and isinstance(written, list):
        return [like(*pair) for pair in zip(told, written, strict=False)] + told[
            len(written) :
        ]
    if isinstance(told, float) and isinstance(written, (int, float)):
        return written if told == pytest.approx(written, abs=5e-4) else told
    return told


@scenario
def test_what_a_person_read_in_the_log_is_what_it_told(name: str) -> None:
    written = written_facts(name)
    assert like(list(facts(read(log_of(name)))), written) == written


@scenario
def test_the_facts_speak_of_things_that_we_tell(name: str) -> None:
    for told, written in zip(
        facts(read(log_of(name))), written_facts(name), strict=True
    ):
        assert written.keys() <= told.keys()
    assert sum(map(len, written_facts(name))) >= FEWEST_FACTS


@scenario
def test_events_and_state_are_those_of_the_golden(name: str) -> None:
    told = read(log_of(name))
    rows = [json.loads(row) for row in kept(name, EVENTS).splitlines()]
    assert as_json(event_rows(told)) == rows
    starts = [as_json(plain(start)) for start in told.state.starts]
    assert starts == json.loads(kept(name, STATE))


def as_json(value: object) -> object:
    return json.loads(json.dumps(value))


@scenario
def test_metrics_are_those_of_the_golden(name: str) -> None:
    assert samples(exposition_of(log_of(name))) == samples(kept(name, METRICS))


@scenario
def test_no_line_of_a_golden_is_unknown(name: str) -> None:
    assert read(log_of(name)).unparsed == 0


def test_goldens_stay_small() -> None:
    for name in SCENARIOS:
        assert log_of(name).count(b"\n") <= MOST_LINES, name
    files = [path for path in FOLDER.glob("*/*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) <= MOST_BYTES


def ledgers(start: Start) -> list[Memory]:
    return [each for each in start.memory.values() if each.usable and each.reserve]


@scenario
def test_every_split_adds_up(name: str) -> None:
    """The runtime's own arithmetic, to the four digits that it prints."""
    for start in read(log_of(name)).state.starts:
        for memory in ledgers(start):
            assert memory.free is not None
            assert memory.utilisation is not None
            assert memory.reserve_ratio is not None
            dummy = memory.dummy_block.value.bytes if memory.dummy_block else 0
            made = split(
                memory.free.value.bytes,
                memory.utilisation.value,
                memory.reserve_ratio.value,
                dummy,
            )
            known = memory.amounts()
            assert known["usable"].bytes == pytest.approx(made.usable_bytes, rel=1e-3)
            assert known["reserve"].bytes == pytest.approx(made.reserve_bytes, rel=1e-3)
            if not start.kv.hybrid:
                cache = known["kv_cache"].bytes
                assert cache == pytest.approx(made.kv_cache_bytes, rel=1e-3)


def same(one: Told, other: Told) -> bool:
    return (one.events, one.state, one.lines, one.unparsed) == (
        other.events,
        other.state,
        other.lines,
        other.unparsed,
    )


@few_examples
@given(st.sampled_from(SCENARIOS), st.data())
def test_the_same_is_told_at_any_chunking(name: str, data: st.DataObject) -> None:
    log = log_of(name)
    cuts = data.draw(st.sets(st.integers(1, len(log) - 1), max_size=20))
    assert same(read(log, cuts), read(log))


@scenario
def test_the_same_is_told_byte_by_byte(name: str) -> None:
    log = log_of(name)
    assert same(read(log, range(1, len(log))), read(log))


def spoken_by(log: str, rank: int) -> list[str]:
    """Return the lines of one worker, bars left out: nobody knows who draws those."""
    prefix = f"(Worker_TP{rank} "
    return [line for line in log.splitlines(keepends=True) if line.startswith(prefix)]


@few_examples
@given(st.data())
def test_interleaving_ranks_changes_no_rank(data: st.DataObject) -> None:
    log = log_of("tensor-parallel-bad-rank").decode()
    ranks = {rank: spoken_by(log, rank) for rank in (1, 3)}
    alone = {rank: read("".join(lines).encode()) for rank, lines in ranks.items()}
    turns = data.draw(st.permutations([r for r, lines in ranks.items() for _ in lines]))
    queues = {rank: iter(lines) for rank, lines in ranks.items()}
    mixed = read("".join(next(queues[rank]) for rank in turns).encode())
    start = mixed.state.starts[-1]
    for rank, told in alone.items():
        assert values(start.memory[rank]) == values(told.state.starts[-1].memory[rank])
    assert start.kv.blocks is not None
    assert start.kv.blocks.value == 2212


def values(memory: Memory) -> dict[str, str]:
    return {name: amount.printed for name, amount in memory.amounts().items()}


@few_examples
@given(st.data())
def test_the_poorest_rank_decides_in_any_order(data: st.DataObject) -> None:
    """V0: rank 0 speaks without a prefix, the other has only a pid."""
    lines = log_of("tensor-parallel-v0").decode().splitlines(keepends=True)
    sizing = [
        line for line in lines if re.search(r"Free device memory|profiling", line)
    ]
    order = data.draw(st.permutations(sizing))
    start = read("".join(chain(lines[:5], order)).encode()).state.starts[-1]
    free = {
        rank: memory.free.value.printed
        for rank, memory in start.memory.items()
        if memory.free
    }
    assert free == {0: "27.42 GiB", 1: "25.42 GiB"}


def test_a_state_is_what_its_events_make_of_it() -> None:
    told = read(log_of("two-starts"))
    assert state_of(told.events) == told.state
