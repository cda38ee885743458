"""What a state keeps of a life beyond its figures: the lines that moved it, its processes."""

from __future__ import annotations

import pytest

from hpuwatch.life.phases import Phase
from hpuwatch.state.model import State
from hpuwatch.state.reduce import fold, reduce
from hpuwatch.testing.lives import Told
from hpuwatch.testing.logs import events_of_text, start_of_text

pytestmark = pytest.mark.unit


def stats(running: int, tokens: float, pid: int = 11) -> str:
    return (
        f"(APIServer pid={pid}) INFO 03-04 11:00:00 [loggers.py:1] Engine 000: Avg prompt "
        f"throughput: 0.0 tokens/s, Avg generation throughput: {tokens} tokens/s, "
        f"Running: {running} reqs, Waiting: 0 reqs, GPU KV cache usage: 4.0%, Prefix "
        "cache hit rate: 0.0%\n"
    )


def test_each_phase_has_the_line_that_brought_it() -> None:
    start = start_of_text(Told().ended("stopped"))
    phases = ["loading", "sizing", "warming", "ready", "draining"]
    assert [*start.reached] == phases
    assert "Starting to load model" in start.reached["loading"].text
    assert "startup complete" in start.reached["ready"].text
    assert "shutdown triggered" in start.reached["draining"].text
    assert start.phase is Phase.DRAINING


def test_the_first_line_of_a_phase_counts() -> None:
    text = Told().text()
    start = start_of_text(text + "INFO:     Application startup complete.\n")
    assert start.reached["ready"].number == text.count("\n")


def test_front_ends_are_known_by_pid_and_port() -> None:
    start = start_of_text(Told(pid=7, address="http://[::1]:9001").text())
    assert [*start.fronts] == [7]
    assert [*start.ports] == [9001]
    assert start.server.address is not None
    assert start.server.address.value == "http://[::1]:9001"
    assert start.server.arguments is not None
    assert "non-default args" in start.server.arguments.text


def test_folding_finds_the_same_front_ends_and_stalls() -> None:
    work = stats(4, 0.0) * 3 + stats(4, 9.0) + stats(4, 0.0, pid=12) * 2
    events = events_of_text(Told().text() + work)
    one_by_one = State()
    for event in events:
        one_by_one = reduce(one_by_one, event)
    folded = fold(State(), events)
    assert folded == one_by_one
    start = folded.starts[-1]
    assert [*start.fronts] == [11, 12]
    longest = start.traffic.stalled_longest
    assert longest is not None
    assert longest.value == 3
    assert start.traffic.stalled_lines == 2


def test_two_splits_of_one_rank_are_kept_as_a_contradiction() -> None:
    text = Told().text()
    split = next(line for line in text.splitlines() if "Free device memory" in line)
    again = split.replace("80 GiB, 72 GiB usable", "60 GiB, 54 GiB usable")
    again = again.replace("7.2 GiB", "5.4 GiB")
    (only,) = start_of_text(f"{text}{again}\n").contradictions
    assert only.figure == "free"
    assert (only.first.value.printed, only.then.value.printed) == ("80 GiB", "60 GiB")
    assert not start_of_text(f"{text}{split}\n").contradictions, (
        "said twice is one thing"
    )


@pytest.mark.parametrize(
    ("real", "impossible"),
    [
        ("gpu_memory_utilization=0.9", "gpu_memory_utilization=9.0"),
        ("gpu_memory_utilization=0.9", "gpu_memory_utilization=-0.9"),
        ("gpu_memory_utilization=0.9", "gpu_memory_utilization=0"),
        ("Free device memory: 80 GiB", "Free device memory: 80 MiB"),
        ("MEM=0.1)", "MEM=1.5)"),
        ("MEM=0.1)", "MEM=99999999999999999999)"),
        ("7.2 GiB reserved for HPUGraphs", "72 GiB reserved for HPUGraphs"),
    ],
)
def test_a_split_that_cannot_be_is_noted_and_not_used(
    real: str, impossible: str
) -> None:
    text = Told().text()
    assert real in text
    start = start_of_text(text.replace(real, impossible))
    (only,) = start.contradictions
    assert only.share is not None
    assert only.first.line == only.then.line
    memory = start.memory[0]
    assert (memory.free, memory.usable, memory.utilisation) == (None, None, None)
    assert (memory.reserve, memory.reserve_ratio) == (None, None)


def test_no_graphs_are_set_aside_in_eager_mode() -> None:
    text = Told().text().replace("7.2 GiB reserved for HPUG", "0 B reserved for HPUG")
    start = start_of_text(text)
    assert not start.contradictions
    assert start.memory[0].reserve is not None


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("", ""),
        (",false,1024,false", ""),
        ("/var/cache/r,false,1024", "/var/cache/r,false,1024"),
    ],
)
def test_a_recipe_cache_without_a_folder_is_known_to_be_none(
    said: str, kept: str
) -> None:
    start = start_of_text(Told(recipes=said).text())
    assert start.server.flags["PT_HPU_RECIPE_CACHE_CONFIG"].value == kept


def test_a_rank_that_prints_no_folder_takes_none_away() -> None:
    named = Told(recipes="/var/cache/r,false,1024").text()
    start = start_of_text(f"{named} PT_HPU_RECIPE_CACHE_CONFIG = \n")
    assert start.server.flags["PT_HPU_RECIPE_CACHE_CONFIG"].value.startswith("/var")
