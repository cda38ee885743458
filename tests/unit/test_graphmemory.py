"""What a log printed of its graphs' memory becomes observations for the law."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpuwatch.advise.graphmemory import observations_of, warmup_use_of
from hpuwatch.gaudi.graphlaw import fit
from hpuwatch.gaudi.graphseen import EVERY
from hpuwatch.gaudi.model import DECODE, PROMPT, Bucket
from hpuwatch.state.configured import printed_lists
from hpuwatch.state.model import Start
from hpuwatch.testing.logs import start_of_text
from hpuwatch.units import GIB, MIB

_PROMPTS = [Bucket(1, 128 * n, 0) for n in (1, 2, 3, 4)]
_DECODES = [Bucket(n, 1, 128) for n in (1, 2)]
_HEADER = "INFO 11-29 12:29:10 [hpu_model_runner.py:100] "


def log_of(*messages: str) -> Start:
    return start_of_text("".join(f"{_HEADER}{message}\n" for message in messages))


def generated(phase: str, buckets: list[Bucket]) -> str:
    shapes = ", ".join(str(tuple(bucket)) for bucket in buckets)
    return (
        f"Generated {len(buckets)} {phase} buckets [bs, query, num_blocks]: [{shapes}]"
    )


def stepped(phase: str, buckets: list[Bucket], frees: list[float]) -> list[str]:
    return [
        f"[Warmup][{phase}][{n}/{len(buckets)}] batch_size:{bucket.batch} "
        f"query_len:{bucket.query} num_blocks:{bucket.context} free_mem:{free:g} GiB"
        for n, (bucket, free) in enumerate(zip(buckets, frees, strict=True), 1)
    ]


LISTS = [generated("prompt", _PROMPTS), generated("decode", _DECODES)]
TOTALS = [
    "Graph/Prompt captured:4 used_mem:2.5 GiB",
    "Graph/Decode captured:2 used_mem:512 MiB",
]
STEPS = stepped("Graph/Prompt", _PROMPTS, [10, 9.75, 9.25, 8.5])


def test_totals_of_the_phases() -> None:
    start = log_of(*LISTS, *TOTALS)
    prompt, decode = observations_of(start)
    assert (prompt.phase, prompt.used_bytes) == (PROMPT, 5 * GIB // 2)
    assert prompt.buckets == tuple(_PROMPTS)
    assert (decode.phase, decode.used_bytes) == (DECODE, 512 * MIB)


def test_steps_say_more_than_a_total_which_tells_the_last_one() -> None:
    *single, whole = observations_of(log_of(*LISTS, *STEPS, TOTALS[0]))
    assert [each.used_bytes / GIB for each in single] == [0.25, 0.5, 0.75, 1.0]
    assert [each.buckets for each in single] == [(each,) for each in _PROMPTS]
    assert whole.repeats
    law = fit([*single, whole])
    more = law.bytes_of({PROMPT: [*_PROMPTS, Bucket(1, 1024, 0)]})
    assert more.value / GIB == pytest.approx(4.5, rel=1e-6)
    assert more.origin == "learned"


def test_a_warm_up_that_broke_off_still_tells_its_steps() -> None:
    single = observations_of(log_of(*LISTS, *STEPS[:3]))
    assert [each.used_bytes / GIB for each in single] == [0.25, 0.5]


def test_a_total_of_more_buckets_than_steps_answers_for_itself() -> None:
    *single, whole = observations_of(log_of(*LISTS, *STEPS[:3], TOTALS[0]))
    assert [each.used_bytes / GIB for each in single] == [0.25, 0.5]
    assert (whole.buckets, whole.repeats) == (tuple(_PROMPTS), True)
    found = fit([*single, whole]).bytes_of({PROMPT: _PROMPTS})
    assert (found.value / GIB, found.origin) == (2.5, "measured")


def test_a_pass_that_compiles_and_captures_nothing_tells_nothing() -> None:
    compiling = stepped("Prompt", _PROMPTS, [79.2, 55.4, 55.4, 55.4])
    assert observations_of(log_of(*LISTS, *compiling)) == ()


def test_a_line_that_comes_twice_and_another_rank_count_once() -> None:
    rank = f"(Worker_TP1 pid=9) {_HEADER}{STEPS[1].replace('9.75', '3.25')}\n"
    lines = [f"(Worker_TP0 pid=8) {_HEADER}{each}\n" for each in STEPS]
    start = start_of_text("".join([lines[0], lines[0], lines[1], rank, *lines[2:]]))
    assert [free.printed for _, free in start.warmup.progress[PROMPT].steps] == [
        "10 GiB",
        "9.75 GiB",
        "9.25 GiB",
        "8.5 GiB",
    ]


def test_a_budget_that_ran_out_counts_what_was_captured() -> None:
    captured = "(1, 128), (1, 256), (1, 384)"
    summary = f"Graph/Prompt captured:3 (75.0%) used_mem:1.5 GiB buckets:[{captured}]"
    (seen,) = observations_of(log_of(*LISTS, summary))
    assert seen.buckets == tuple(_PROMPTS[:3])


def test_only_what_warm_up_allocated_in_all() -> None:
    done = "Warmup finished in 49 secs, allocated 3 GiB of device memory"
    (seen,) = observations_of(log_of(*LISTS, done))
    assert (seen.phase, seen.used_bytes) == (EVERY, 3 * GIB)
    assert seen.buckets == (*_PROMPTS, *_DECODES)


def test_lists_that_the_log_lacks_can_be_given() -> None:
    start = log_of(*TOTALS)
    assert observations_of(start) == ()
    given = observations_of(start, {PROMPT: _PROMPTS})
    assert [each.buckets for each in given] == [tuple(_PROMPTS)]


def test_the_log_s_own_lists_come_first() -> None:
    start = log_of(LISTS[0], TOTALS[0])
    (seen,) = observations_of(start, {PROMPT: _PROMPTS[:1]})
    assert seen.buckets == tuple(_PROMPTS)


def test_nothing_printed_is_nothing_seen() -> None:
    start = log_of(*LISTS)
    assert observations_of(start) == ()
    assert warmup_use_of(start) is None


def test_peak_and_steady_use_of_a_warm_up() -> None:
    cache = (
        "Initializing cache engine took 40 GiB of device memory (80 GiB/90 GiB used) "
        "and 4 MiB of host memory (75 GiB/100 GiB used)"
    )
    done = "Warmup finished in 49 secs, allocated 3 GiB of device memory"
    start = log_of(
        cache, *LISTS, *stepped("Graph/Prompt", _PROMPTS, [10, 4, 6, 8]), done
    )
    use = warmup_use_of(start)
    assert use is not None
    assert (use.peak_bytes, use.steady_bytes) == (6 * GIB, 3 * GIB)


def test_the_simulated_log_is_measured(checkout: Path) -> None:
    log = (checkout / "tests/data/logs/llama8b-gaudi2.log").read_text(encoding="utf-8")
    start = start_of_text(log)
    found = fit(observations_of(start)).bytes_of(printed_lists(start))
    assert found.origin == "measured"
    assert found.value == sum(used.value.bytes for used in start.graphs_used.values())
