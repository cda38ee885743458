"""What the lines of a warm-up tell: buckets, what was captured, how long it took."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hpuwatch.gaudi.model import DECODE, PROMPT, Bucket
from hpuwatch.gaudi.warmuptime import RECIPES, learn
from hpuwatch.state.model import MULTIMODAL, Known, Start
from hpuwatch.state.warmup_timed import timed_start
from hpuwatch.testing.logs import start_of_text, state_of_text

pytestmark = pytest.mark.unit


def at(clock: str, said: str, speaker: str = "") -> str:
    return f"{speaker}INFO {clock} [hpu_model_runner.py:1] {said}\n"


def bucket(clock: str, phase: str, place: str, sizes: str, speaker: str = "") -> str:
    said = f"[Warmup][{phase}][{place}] {sizes} free_mem:9 GiB"
    return at(clock, said, speaker)


TWO_PASSES = (
    bucket("07-18 10:00:00", "Prompt", "1/2", "batch_size:2 seq_len:256")
    + bucket("07-18 10:00:04", "Prompt", "2/2", "batch_size:1 seq_len:128")
    + bucket("07-18 10:00:07", "Decode", "1/1", "batch_size:4 num_blocks:128")
    + bucket("07-18 10:00:09", "Graph/Prompt", "1/2", "batch_size:1 seq_len:128")
    + bucket("07-18 10:00:10", "Graph/Prompt", "2/2", "batch_size:2 seq_len:256")
    + bucket("07-18 10:00:12", "Graph/Decode", "1/1", "batch_size:4 num_blocks:128")
)
ENDED = (
    at(
        "07-18 10:00:15",
        "Graph/Prompt captured:2 (100.0%) used_mem:9 MiB buckets:[(1, 128), (2, 256)]",
    )
    + at(
        "07-18 10:00:15",
        "Graph/Decode captured:1 (100.0%) used_mem:9 MiB buckets:[(4, 128)]",
    )
    + at(
        "07-18 10:00:15",
        "Warmup finished in 15 secs, allocated 20 MiB of device memory",
    )
)


def listed(start: Start) -> dict[str, tuple[int, tuple[tuple[int, ...], ...]]]:
    return {
        phase: (known.value.count, known.value.shapes)
        for phase, known in start.buckets.items()
    }


def test_where_nobody_lists_the_buckets_their_warm_up_does() -> None:
    found = listed(start_of_text(TWO_PASSES))
    assert found == {
        PROMPT: (2, ((1, 128), (2, 256))),
        DECODE: (1, ((4, 128),)),
    }


def test_half_a_warm_up_tells_how_many_there_will_be() -> None:
    first = TWO_PASSES.splitlines(keepends=True)[0]
    assert listed(start_of_text(first)) == {PROMPT: (2, ())}


def test_what_a_list_says_is_left_alone() -> None:
    said = "Generated 2 prompt buckets [bs, seq]: [(1, 128), (8, 1024)]\n"
    assert listed(start_of_text(said + TWO_PASSES))[PROMPT] == (
        2,
        ((1, 128), (8, 1024)),
    )


@pytest.mark.parametrize(("count", "shapes"), [(2, ((1, 128), (2, 256))), (3, ())])
def test_a_cut_list_is_filled_by_a_warm_up_of_as_many_buckets(
    count: int, shapes: tuple[tuple[int, ...], ...]
) -> None:
    said = f"Generated {count} prompt buckets [bs, seq]: [(1, 128), ...\n"
    assert listed(start_of_text(said + TWO_PASSES))[PROMPT] == (count, shapes)


@pytest.mark.parametrize(
    ("said", "ratio"),
    [
        ("Graph/Prompt captured:15 (62.5%) used_mem:14 GiB buckets:[(1, 128)]", 0.625),
        ("Graph/Prompt captured:24 (100.0%) used_mem:14 GiB buckets:[(1, 128)]", 1.0),
        ("Prompt captured:36 (100.0%) used_mem:3.2 GiB", None),
        ("Graph/Prompt captured:48 used_mem:11 GiB", None),
    ],
)
def test_only_a_release_that_names_its_graphs_tells_how_many_it_captured(
    said: str, ratio: float | None
) -> None:
    captured = start_of_text(at("07-18 10:00:00", said)).captured
    assert {phase: known.value for phase, known in captured.items()} == (
        {} if ratio is None else {PROMPT: ratio}
    )


def test_of_ranks_the_one_that_captured_least_counts() -> None:
    shares = ("80.0", "62.5", "90.0")
    text = "".join(
        at(
            "07-18 10:00:00",
            f"Graph/Prompt captured:9 ({share}%) used_mem:9 MiB buckets:[(1, {rank})]",
            f"(Worker_TP{rank} pid={rank + 5}) ",
        )
        for rank, share in enumerate(shares)
    )
    start = start_of_text(text)
    assert start.captured[PROMPT].value == 0.625
    assert start.captured_shapes[PROMPT] == ((1, 1),)


def test_bucket_lines_time_their_phases_over_both_passes() -> None:
    warmup = start_of_text(TWO_PASSES + ENDED).warmup
    assert warmup.phase_seconds == {PROMPT: 7 + 3, DECODE: 2 + 3}
    assert warmup.seconds is not None
    assert warmup.seconds.value == sum(warmup.phase_seconds.values())


def test_only_the_first_ranks_lines_are_timed() -> None:
    other = bucket(
        "07-18 11:00:00",
        "Prompt",
        "2/2",
        "batch_size:1 seq_len:128",
        "(Worker_TP1 pid=6) ",
    )
    lines = TWO_PASSES.splitlines(keepends=True)
    text = "".join([*lines[:2], other, *lines[2:]]) + ENDED
    assert start_of_text(text).warmup.phase_seconds == {PROMPT: 10, DECODE: 5}


def test_a_warm_up_over_new_year_takes_no_negative_time() -> None:
    text = bucket("12-31 23:59:58", "Prompt", "1/2", "batch_size:2 seq_len:256")
    text += bucket("01-01 00:00:03", "Prompt", "2/2", "batch_size:1 seq_len:128")
    text += at(
        "01-01 00:00:05", "Warmup finished in 7 secs, allocated 20 MiB of device memory"
    )
    assert start_of_text(text).warmup.phase_seconds == {PROMPT: 7}


def test_images_are_timed_until_the_sampler_begins() -> None:
    sizes = "batch_size:1 seq_len:0 resolution:448X448"
    text = bucket("07-18 10:00:00", "Graph/Multimodal(image)", "1/2", sizes)
    text += bucket("07-18 10:00:05", "Graph/Multimodal(image)", "2/2", sizes)
    text += at(
        "07-18 10:00:09",
        "Warming up sampler with batch sizes: [1] and following configs:",
    )
    text += at("07-18 10:01:00", "Sampler warmup completed successfully")
    assert start_of_text(text).warmup.phase_seconds == {MULTIMODAL: 9}


def test_a_late_data_parallel_engine_is_no_new_life() -> None:
    def engine(number: int) -> str:
        return (
            f"(EngineCore_DP{number} pid={number + 3}) INFO 01-02 03:04:05 [core.py:1] "
            "Initializing a V1 LLM engine (v0.26.0) with config: model='m', "
            "max_seq_len=2048, tensor_parallel_size=1, device_config=hpu\n"
        )

    sized = at(
        "01-02 03:04:09",
        "Initializing cache engine took 64.8 GiB of device memory (79.6 GiB/94.62 GiB used)"
        " and 0 B of host memory (50 GiB/1007 GiB used)",
        "(EngineCore_DP0 pid=3) ",
    )
    assert len(state_of_text(engine(0) + sized + engine(1)).starts) == 1
    assert len(state_of_text(engine(0) + sized + engine(1) + engine(0)).starts) == 2


def test_the_slowest_engine_says_how_long_all_took() -> None:
    said = "init engine (profile, create kv cache, warmup model) took {} s"
    text = "".join(
        at("07-18 10:00:00", said.format(s)) for s in ("50.00", "52.00", "51.00")
    )
    seconds = start_of_text(text).warmup.init_seconds
    assert seconds is not None
    assert seconds.value == 52


def test_a_start_is_timed_as_its_lines_say() -> None:
    timed = timed_start(start_of_text(TWO_PASSES + ENDED))
    assert timed is not None
    assert timed.counts == {PROMPT: 2, DECODE: 1}
    assert timed.is_split
    assert timed.bucket_seconds == 15
    assert not timed.had_recipes
    assert learn([timed]).of_counts({PROMPT: 2, DECODE: 1}).value == 15


def test_a_bars_thirds_are_timed() -> None:
    ends = (0, 10, 18, 24, 28, 30, 31)
    text = "".join(
        f"Prompt warmup processing: {100 * done // 6:3d}%|##        | {done}/6 "
        f"[00:{end:02d}<00:09,  1.00s/item, {done}/6]\n"
        for done, end in enumerate(ends)
    )
    text += at(
        "07-18 10:00:31",
        "Warmup finished in 31 secs, allocated 20 MiB of device memory",
    )
    timed = timed_start(start_of_text(text + "Generated 6 prompt buckets: [(1, 1)]\n"))
    assert timed is not None
    assert timed.thirds == {PROMPT: (1.5, 9.0)}


def test_a_warm_up_that_did_not_end_is_not_timed() -> None:
    assert timed_start(start_of_text(TWO_PASSES)) is None


def test_a_warm_up_that_was_skipped_is_not_timed() -> None:
    start = start_of_text(TWO_PASSES + ENDED)
    skipped = Known(value=True, line=start.first_line)
    warmup = replace(start.warmup, skipped=skipped)
    assert timed_start(replace(start, warmup=warmup)) is None


def test_graphs_are_counted_where_they_are_not_the_list_s() -> None:
    graphs = {PROMPT: (Bucket(1, 128, 0),) * 3}
    timed = timed_start(start_of_text(TWO_PASSES + ENDED), graphs)
    assert timed is not None
    assert timed.counts == {PROMPT: 3, DECODE: 1}
    assert timed.buckets == graphs


def test_what_is_no_bucket_is_the_rest_of_a_warm_up_that_was_split() -> None:
    text = TWO_PASSES + ENDED.replace("in 15 secs", "in 20 secs")
    timed = timed_start(start_of_text(text))
    assert timed is not None
    assert timed.fixed_seconds == 20 - timed.bucket_seconds == 5


@pytest.mark.parametrize(
    ("value", "had"),
    [
        ("/data/r,false,1024", True),
        ("/data/r,true,1024", False),
        (",false,1024", False),
    ],
)
def test_a_recipe_cache_is_known_by_the_bridges_banner(
    value: str, *, had: bool
) -> None:
    timed = timed_start(start_of_text(f" {RECIPES} = {value}\n" + TWO_PASSES + ENDED))
    assert timed is not None
    assert timed.had_recipes is had
