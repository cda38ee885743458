"""Several processes in one stream: cut anywhere, mixed anyhow, late, broken."""

from __future__ import annotations

from functools import lru_cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpuwatch.app.rules import shipped_rules
from hpuwatch.events import Event
from hpuwatch.life.phases import Phase
from hpuwatch.parse.parser import Parser
from hpuwatch.parse.rules import RuleSet
from hpuwatch.source.assemble import Assembler
from hpuwatch.source.envelope import Unwrapper
from hpuwatch.state.model import Start, State
from hpuwatch.state.reduce import reduce

pytestmark = pytest.mark.unit

AT = "INFO 11-29 12:29:10 [hpu_worker.py:1]"
SAID = (
    "Starting to load model m...",
    "Wrapping in HPUGraph took 0.0000 GB",
    (
        "Free device memory: 80 GiB, 72 GiB usable (gpu_memory_utilization=0.9), 7.2 GiB "
        "reserved for HPUGraphs (VLLM_GRAPH_RESERVED_MEM=0.1), 16 MiB reserved for KV "
        "cache dummy block 64.78 GiB reserved for usable KV cache"
    ),
    "Skipping warmup...",
    "Warmup finished in 49 secs, allocated 12.5 GiB of device memory",
)
RAISED = (
    "Traceback (most recent call last):",
    '  File "/opt/model.py", line 7, in run',
    "    forward()",
    "RuntimeError: [Rank:1] FATAL ERROR :: MODULE:PT_DEVMEM Allocation failed for size::64",
)
ONE = [f"(Worker_TP0 pid=7) {AT} {text}" for text in SAID]
TWO = [f"(Worker_TP1 pid=8) {AT} {text}" for text in SAID] + [
    f"(Worker_TP1 pid=8) {text}" for text in RAISED
]


@lru_cache
def rules() -> RuleSet:
    return shipped_rules()


def events_of(data: bytes, *cuts: int) -> list[Event]:
    parser, assembler, unwrapper = Parser(rules()), Assembler(), Unwrapper()
    chunks = [data[a:b] for a, b in zip((0, *cuts), (*cuts, len(data)), strict=True)]
    lines = [line for chunk in chunks for line in assembler.feed(chunk)]
    lines = [i for line in [*lines, *assembler.close()] for i in unwrapper.feed(line)]
    events = [e for line in lines + unwrapper.close() for e in parser.feed(line)]
    return events + parser.close()


def state_of(events: list[Event]) -> State:
    state = State()
    for event in events:
        state = reduce(state, event)
    return state


def said_by(events: list[Event], pid: int) -> list[tuple[str, object, object]]:
    return [(e.kind, e.fields, e.context) for e in events if e.speaker.pid == pid]


def text(lines: list[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


def merged(one: list[str], two: list[str], turns: list[bool]) -> list[str]:
    """Two streams as one: each keeps its order, the turns say who is next."""
    rest = [list(one), list(two)]
    mixed = [rest[turn].pop(0) for turn in turns if rest[turn]]
    return mixed + rest[0] + rest[1]


TURNS = st.lists(st.booleans(), max_size=30)


@given(TURNS)
def test_processes_that_take_turns_are_understood_as_if_alone(
    turns: list[bool],
) -> None:
    events = events_of(text(merged(ONE, TWO, turns)))
    assert said_by(events, 7) == said_by(events_of(text(ONE)), 7)
    assert said_by(events, 8) == said_by(events_of(text(TWO)), 8)


@given(TURNS, st.lists(st.integers(0, 300), min_size=len(ONE), max_size=len(ONE)))
def test_whole_lines_between_broken_ones_are_understood(
    turns: list[bool], cuts: list[int]
) -> None:
    halves = [
        half
        for line, cut in zip(ONE, cuts, strict=True)
        for half in (line[:cut], line[cut:])
    ]
    whole = TWO[: len(SAID)]
    events = events_of(text(merged(halves, whole, turns)))
    assert said_by(events, 8) == said_by(events_of(text(whole)), 8)


@given(st.integers(0, 300), st.sampled_from(ONE), st.sampled_from(TWO[: len(SAID)]))
def test_a_line_that_begins_within_another_is_understood(
    cut: int, half: str, whole: str
) -> None:
    events = events_of(f"{half[:cut]}{whole}\n{half[cut:]}\n".encode())
    assert said_by(events, 8) == said_by(events_of(text([whole])), 8)


PIECES = st.lists(
    st.one_of(
        st.binary(max_size=40),
        st.sampled_from([line.encode() for line in TWO]),
        st.sampled_from(
            [
                *(b"\n", b"\r", b"\r\n", b"\0", b"\xff", b"\x1b[32m", b"6: ", b'{"'),
                b'{"log": "',
                b'{"message": "x", "level": "',
                b"2026-11-29T12:29:10Z stdout P ",
                b"Prompt warmup processing:  5%|# | 1/19 [00:00<00:12,  1.48item/s]",
                b"(EngineCore_DP1 pid=9) ",
                b"INFO 11-29 12:29:10 [a.py:1] ",
                b"2026-11-29 10:00:00,123 - vllm.core - INFO - ",
                b"  + Exception Group Traceback (most recent call last):",
                b"    | KeyError: 0",
            ]
        ),
    ),
    max_size=12,
)


@given(PIECES, st.lists(st.integers(0, 600), max_size=4))
def test_no_bytes_and_no_cuts_break_it(pieces: list[bytes], cuts: list[int]) -> None:
    data = b"".join(pieces)
    events = events_of(data, *sorted(min(cut, len(data)) for cut in cuts))
    assert state_of(events) == state_of(events_of(data))


def test_a_line_of_ten_megabytes_and_a_half_one() -> None:
    (huge,) = TWO[2:3]
    data = text([f"{AT} {'x' * 10_000_000}", huge]) + TWO[4].encode()
    assert [e.kind for e in events_of(data)] == ["memory_split", "warmup_finished"]


ENGINE = (
    "(EngineCore pid=9) INFO 11-29 12:29:10 [core.py:1] Initializing a V1 LLM engine "
    "(v0.26.0) with config: model='m', max_seq_len=2048, device_config=hpu"
)
STDOUT = [
    *(ONE[0], ONE[1], ONE[2]),
    *(
        f"(Worker_TP0 pid=7) [Warmup][Prompt][{n}/4] batch_size:{n} query_len:128 "
        f"num_blocks:0 free_mem:{9 - n} GiB"
        for n in range(1, 5)
    ),
    *(
        f"(Worker_TP0 pid=7) [Warmup][Decode][{n}/2] batch_size:{n} query_len:1 "
        f"num_blocks:64 free_mem:{5 - n} GiB"
        for n in range(1, 3)
    ),
    ONE[4],
]
STDERR = [
    f"{phase} warmup processing: {100 * n // of:3d}%|# | {n}/{of} [00:0{n}<00:01,  1.0s/item]"
    for phase, of in (("Prompt", 4), ("Decode", 2))
    for n in range(of + 1)
]
READY = "(APIServer pid=1) INFO:     Application startup complete."


def known(start: Start) -> tuple[object, ...]:
    progress = start.warmup.progress
    return (
        start.phase,
        {rank: ledger.amounts() for rank, ledger in start.memory.items()},
        {phase: (each.done, each.total) for phase, each in progress.items()},
        start.warmup.seconds and start.warmup.seconds.value,
        start.faults,
    )


@given(TURNS)
def test_buffered_output_that_comes_late_gives_the_same_state(
    turns: list[bool],
) -> None:
    events = events_of(text([ENGINE, *merged(STDOUT, STDERR, turns), READY]))
    (start,) = state_of(events).starts
    (usual,) = state_of(events_of(text([ENGINE, *STDOUT, *STDERR, READY]))).starts
    assert known(start) == known(usual)
    assert start.phase is Phase.READY


def test_output_that_comes_when_the_server_is_ready_opens_no_new_life() -> None:
    (start,) = state_of(events_of(text([ENGINE, *STDERR, READY, *STDOUT]))).starts
    assert start.phase is Phase.READY
    assert start.memory[0].usable is not None
    assert start.warmup.seconds is not None


def test_lines_that_bars_stand_before() -> None:
    bar = "Prompt warmup processing:  5%|# | 1/19 [00:00<00:12,  1.48item/s, 0/19]"
    data = f"{bar}\r{bar}{ONE[3]}\n{bar}{AT} {SAID[4]}\n".encode()
    kinds = [e.kind for e in events_of(data)]
    assert kinds == [
        *("warmup_progress", "warmup_progress", "warmup_skipped"),
        *("warmup_progress", "warmup_finished"),
    ]
