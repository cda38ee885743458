"""A start of the simulated server of the plugin, in every release and manner."""

from __future__ import annotations

import errno
import io
import re
from collections.abc import Mapping
from functools import lru_cache

import pytest

from hpuwatch.events import Event
from hpuwatch.gaudi.buckets import Bucket
from hpuwatch.sim.families import family_of
from hpuwatch.sim.talk.script import releases
from hpuwatch.sim.talk.voice import Voice
from hpuwatch.units import GIB, Amount
from tests.simulated import Started, events_of, kinds, only
from tests.simulated import start as _start

pytestmark = pytest.mark.unit

_RELEASES = [name for name in releases() if name.startswith("plugin-")]
_SMALL = ("--max-num-seqs", "8", "--max-model-len", "2048")
_TINY = (
    *("--max-num-seqs", "2", "--max-model-len", "512"),
    *("--max-num-batched-tokens", "256"),
)
_SAMPLE = (
    *("--max-num-seqs", "128", "--max-model-len", "4096"),
    *("--max-num-batched-tokens", "8192", "--gpu-memory-utilization", "0.9"),
)
_ORDER = [
    "simulated_server",
    "runtime_config_dump",
    "bucketing_switch",
    "model_load_start",
    "weights_total",
    "hpu_graph_wrap",
    "model_compile_mem",
    "model_profiling_run",
    "memory_split",
    "kv_capacity",
    "kv_alloc_v1",
    "cache_engine_init",
    "bucket_config",
    "buckets_generated",
    "warmup_misc",
    "warmup_progress",
    "graph_summary",
    "warmup_finished",
    "engine_init_time",
]
"""The kinds of every start with graphs, by their last event."""


@lru_cache
def _sample() -> Started:
    return _start(*_SAMPLE)


def _amount(event: Event, name: str) -> Amount:
    value = event.fields[name]
    assert isinstance(value, Amount)
    return value


def _in_order(started: Started, expected: list[str]) -> bool:
    seen = kinds(events_of(started.output))
    assert set(expected) <= set(seen), sorted(set(expected) - set(seen))
    last = {kind: at for at, kind in enumerate(seen)}
    return sorted(expected, key=last.__getitem__) == expected


@pytest.mark.parametrize("release", _RELEASES)
def test_each_release_starts_in_the_real_order(release: str) -> None:
    assert _in_order(_start("--release", release, *_TINY), _ORDER)


@pytest.mark.parametrize("release", _RELEASES)
@pytest.mark.parametrize(
    ("arguments", "env", "kind", "count"),
    [
        ((), {"VLLM_DEVELOPER_MODE": "1"}, "warmup_bucket", None),
        (("-tp", "2"), {}, "memory_split", 2),
        ((), {"VLLM_SKIP_WARMUP": "true"}, "warmup_skipped", 2),
        (("--enforce-eager",), {}, "warmup_finished", 2),
        ((), {"VLLM_EXPONENTIAL_BUCKETING": "false"}, "bucket_env_echo", None),
        ((), {"VLLM_CONTIGUOUS_PA": "1", "VLLM_DEFRAG": "1"}, "warmup_misc", None),
        ((), {"VLLM_LOGGING_LEVEL": "DEBUG"}, "kv_capacity", 3),
        (("--model", "qwen3-vl-32b"), {}, "warmup_bucket", 36),
        (("--model", "qwen3.6-27b", "-tp", "1"), {}, "memory_split", 1),
        ((), {"VLLM_MERGED_PREFILL": "true"}, "merged_prefill_override", None),
        ((), {"PT_HPU_SDPA_QKV_SLICE_MODE_FWD": "1"}, "buckets_generated", 3),
        ((), {"VLLM_ENABLE_BUCKETING": "no"}, "bucketing_switch", 5),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, (tuple, dict)) else "",
)
def test_each_manner_of_a_start_is_understood(
    release: str,
    arguments: tuple[str, ...],
    env: Mapping[str, str],
    kind: str,
    count: int | None,
) -> None:
    started = _start("--release", release, *_TINY, *arguments, **env)
    assert started.engine is not None
    found = kinds(events_of(started.output)).count(kind)
    assert found if count is None else found == count


@pytest.mark.parametrize(
    ("release", "prefix", "words"),
    [
        ("plugin-0.11", "EngineCore_DP0", "took 1 seconds"),
        ("plugin-0.19", "EngineCore", "took 1 seconds"),
        ("plugin-0.21", "EngineCore", "took 1 s"),
    ],
)
def test_releases_differ_in_words_and_prefixes(
    release: str, prefix: str, words: str
) -> None:
    output = _start("--release", release, *_TINY).output
    plain = re.sub(r"\x1b\[[\d;]*m", "", output)
    assert f"({prefix} pid=" in plain
    assert re.search(words.replace("1", r"[\d.]+") + "$", plain, re.MULTILINE)


def test_the_settings_dump_is_that_of_the_release() -> None:
    older = _start("--release", "plugin-0.16", *_TINY, VLLM_EXPONENTIAL_BUCKETING="0")
    dump = {
        e.fields["key"]: e.fields["value"]
        for e in events_of(older.output)
        if e.kind == "runtime_config_dump" and "key" in e.fields
    }
    assert dump["bucketing_strategy"] == "linear_bucketing"
    assert dump["unified_attn"] == "False"
    assert dump["VLLM_EXPONENTIAL_BUCKETING"] == "False"
    assert "row_parallel_chunks" not in dump
    newer = _start(*_TINY, VLLM_BUCKETING_STRATEGY="pad").output
    assert "    bucketing_strategy: pad\n" in newer
    assert "unified_attn" not in newer


def test_the_memory_lines_of_the_public_sample_come_out() -> None:
    """Llama-3.1-8B on Gaudi2 at 0.9 and 0.1: 79.22, 71.3, 7.13 and 64.17 GiB, 4107 blocks.

    The sample is of the fork, whose model tables are smaller; what this engine prints
    follows from its own free memory by the same law.
    """
    events = events_of(_sample().output)
    split = only(events, "memory_split")
    free, usable = _amount(split, "free").bytes, _amount(split, "usable").bytes
    assert free / GIB == pytest.approx(79.22, abs=0.4)
    assert usable == pytest.approx(0.9 * free, rel=1e-3)
    assert _amount(split, "graphs").bytes == pytest.approx(0.1 * usable, rel=1e-3)
    assert _amount(split, "dummy").printed == "16 MiB"
    cache = _amount(split, "kv").bytes
    blocks = only(events, "kv_alloc_v1").fields["usable"]
    assert blocks == pytest.approx(cache / 2**24, abs=2)


def test_each_phase_ends_at_its_last_bucket() -> None:
    events = events_of(_sample().output)
    lists = {
        event.fields["phase"]: event.fields["n"]
        for event in events
        if event.kind == "buckets_generated"
    }
    assert lists == {"prompt": 70, "decode": 45}
    bars = [e.fields for e in events if e.kind == "warmup_progress"]
    for phase, total in lists.items():
        last = [bar for bar in bars if bar["phase"] == phase][-1]
        assert (last["i"], last["n"]) == (total, total)


def test_one_seed_prints_one_log() -> None:
    first = _start(*_SMALL)
    assert first.output == _start(*_SMALL).output
    assert _start(*_SMALL, "--seed", "1").output != first.output


def test_every_rank_prints_its_own_memory_lines() -> None:
    started = _start("--model", "llama-3.1-70b", *_SMALL)
    events = events_of(started.output)
    speakers = [e.speaker.rank for e in events if e.kind == "memory_split"]
    assert sorted(speakers, key=str) == [0, 1, 2, 3]
    assert "(Worker_TP3 pid=" in started.output
    assert started.output.count("GPU KV cache size") == 1
    assert started.output.count("Loading weights took") == 1


def test_ranks_write_into_each_others_lines_as_real_ones_do() -> None:
    output = _start("-tp", "2", *_TINY, VLLM_DEVELOPER_MODE="1").output
    # The bar of one rank has begun a line on which the other goes on.
    assert re.search(r"0/\d+ \[00:00<\?, \?item/s\]\(Worker_TP\d pid=\d+\) \r", output)
    # A line past a bar comes behind a wiped bar, with the prefix of its own stream.
    assert re.search(r"\r +\r\(Worker_TP1 pid=\d+\) \[Warmup\]\[Prompt\]\[1/", output)
    ranks = {e.speaker.rank for e in events_of(output) if e.kind == "warmup_bucket"}
    assert ranks == {0, 1}


def test_bars_are_drawn_in_place_and_end_their_line_with_the_phase() -> None:
    output = _start(*_TINY).output
    (line,) = [x for x in output.split("\n") if "Prompt warmup processing" in x]
    assert line.startswith("(EngineCore pid=")
    assert line.count("\r") > 4
    assert "\rPrompt warmup processing: 100%|██████████| " in line


def test_developer_mode_tells_each_bucket_and_what_is_left() -> None:
    started = _start(*_SMALL, VLLM_DEVELOPER_MODE="1")
    rows = [e for e in events_of(started.output) if e.kind == "warmup_bucket"]
    first = rows[0].fields
    assert (first["phase"], first["i"], first["bs"]) == ("prompt", 1, 1)
    assert started.engine is not None
    free = [_amount(row, "free").bytes for row in rows]
    assert free == sorted(free, reverse=True)


def test_the_largest_bucket_is_warmed_first() -> None:
    started = _start(*_SMALL, VLLM_DEVELOPER_MODE="1")
    events = events_of(started.output)
    first = next(e for e in events if e.kind == "warmup_bucket").fields
    made = next(e for e in events if e.kind == "buckets_generated").fields["tuples"]
    shape = Bucket(*(int(str(first[n])) for n in ("bs", "query_len", "num_blocks")))
    assert isinstance(made, tuple)
    assert shape == made[-1]


def test_skipped_warmup_says_so_and_leaves_every_shape_cold() -> None:
    started = _start(*_SMALL, VLLM_SKIP_WARMUP="true")
    assert kinds(events_of(started.output)).count("buckets_generated") == 4
    assert "warmup processing" not in started.output
    assert started.server.world.memory.graph_bytes == {}


def test_eager_mode_reserves_nothing_and_captures_nothing() -> None:
    started = _start(*_SMALL, "--enforce-eager")
    split = only(events_of(started.output), "memory_split")
    assert _amount(split, "graphs").printed == "0 B"
    assert "(VLLM_GRAPH_RESERVED_MEM=0)" in started.output
    assert "captured:" not in started.output


def test_a_bad_reserve_is_a_warning_and_was_an_exception() -> None:
    warned = _start(*_TINY, VLLM_GRAPH_RESERVED_MEM="a lot")
    assert "using default 0.1" in warned.output
    died = _start("--release", "plugin-0.16", *_TINY, VLLM_GRAPH_RESERVED_MEM="a lot")
    assert died.failure is not None
    assert "could not convert string to float: 'a lot'" in died.failure.reason
    assert "Model profiling run took" in died.output


def test_too_little_memory_for_the_graphs_ends_the_warmup() -> None:
    env = {"VLLM_GRAPH_RESERVED_MEM": "0.01"}
    arguments = ("--gpu-memory-utilization", "0.99", "--max-num-seqs", "512")
    started = _start(*arguments, "--max-num-batched-tokens", "16384", **env)
    assert started.failure is not None
    assert "MODULE:PT_DEVMEM Allocation failed" in started.failure.reason
    assert "Engine core initialization failed" in started.output
    # The bar has ended its line before the traceback begins.
    assert re.search(
        r"item/s?(?:, \d+/\d+)?\]\n\(EngineCore pid=\d+\) ERROR", started.output
    )


@pytest.mark.parametrize(
    ("arguments", "env", "reason"),
    [
        ((), {"VLLM_BUCKETING_STRATEGY": "linear"}, "ucketing"),
        (
            (),
            {"VLLM_PROMPT_BS_BUCKET_STEP": "two"},
            "VLLM_PROMPT_BS_BUCKET_STEP: failed to process environment variable",
        ),
        (
            (),
            {"VLLM_BUCKETING_STRATEGY": "lin", "VLLM_DECODE_BS_BUCKET_MIN": "999"},
            "AssertionError: Min. batch size cannot be greater than max. batch size",
        ),
        (
            (),
            {"VLLM_BUCKETING_STRATEGY": "lin", "VLLM_PROMPT_QUERY_BUCKET_MIN": "4096"},
            "",
        ),
        ((), {"VLLM_GRAPH_RESERVED_MEM": "1.5"}, "No available memory for the cache"),
        (
            ("--model", "qwen2.5-32b", "--max-model-len", "32768"),
            {"VLLM_GRAPH_RESERVED_MEM": "0.9"},
            "the estimated maximum model length is",
        ),
    ],
)
def test_bad_settings_end_the_engine_with_the_real_words(
    arguments: tuple[str, ...], env: dict[str, str], reason: str
) -> None:
    started = _start(*_SMALL, *arguments, **env)
    assert started.failure is not None
    assert reason in started.failure.reason
    assert "EngineCore failed to start." in started.output


@pytest.mark.parametrize(
    ("release", "words"),
    [
        ("plugin-0.11", "models's max seq len (2048), (0.50 GiB KV cache is needed"),
        ("plugin-0.17", "models's max seq len (2048), (0.5 GiB KV cache is needed"),
        ("plugin-0.26", "model's max seq len (2048), (0.5 GiB KV cache is needed"),
    ],
)
def test_a_cache_too_small_is_told_in_the_words_of_the_release(
    release: str, words: str
) -> None:
    arguments = ("--model", "qwen2.5-32b", "--max-model-len", "2048")
    env = {"VLLM_GRAPH_RESERVED_MEM": "0.99"}
    started = _start("--release", release, *arguments, **env)
    assert started.failure is not None
    assert words in started.failure.reason


def test_a_death_with_several_ranks_is_told_by_each() -> None:
    env = {"VLLM_DECODE_BS_BUCKET_STEP": "x"}
    output = _start("-tp", "2", *_TINY, **env).output
    assert output.count("WorkerProc hit an exception.") == 2
    assert output.count("EngineCore failed to start.") == 1
    assert "Process EngineCore:" in output


def test_exponential_warns_of_what_it_ignores() -> None:
    output = _start(*_SMALL, VLLM_DECODE_BS_BUCKET_STEP="4").output
    warning = "VLLM_DECODE_BS_BUCKET_STEP=4 will be overwritten!"
    assert output.index(warning) < output.index("Decode bucket config")
    assert warning not in _start(*_SMALL, VLLM_PROMPT_QUERY_BUCKET_STEP="4").output


def test_the_older_strategy_switch_is_told_once_per_phase() -> None:
    output = _start(*_SMALL, VLLM_EXPONENTIAL_BUCKETING="false").output
    assert output.count("VLLM_EXPONENTIAL_BUCKETING is deprecated") == 2
    assert "Prompt bucket config (min, step, max_warmup) bs:" in output
    older = _start("--release", "plugin-0.19", *_TINY, VLLM_EXPONENTIAL_BUCKETING="no")
    assert "is deprecated and will be removed in a future" not in older.output


def test_every_strategy_with_every_setting_prints_known_lines() -> None:
    env = {
        "VLLM_CONTIGUOUS_PA": "true",
        "VLLM_PROMPT_SEQ_BUCKET_STEP": "256",
        "VLLM_DECODE_BLOCK_BUCKET_MAX": "100000",
        "VLLM_DECODE_BLOCK_BUCKET_STEP": "1024",
    }
    for strategy in ("exp", "lin", "pad"):
        started = _start(*_SMALL, VLLM_BUCKETING_STRATEGY=strategy, **env)
        assert started.engine is not None
        assert events_of(started.output)  # which asserts that no line was unknown


def test_larger_steps_make_fewer_buckets_and_a_shorter_warmup() -> None:
    lin = {"VLLM_BUCKETING_STRATEGY": "lin"}
    fine = _start(*_SMALL, **lin)
    coarse = _start(*_SMALL, **lin, VLLM_PROMPT_QUERY_BUCKET_STEP="512")
    seconds = [
        only(events_of(s.output), "warmup_finished").fields["s"] for s in (fine, coarse)
    ]
    assert isinstance(seconds[0], float)
    assert isinstance(seconds[1], float)
    assert seconds[1] < seconds[0] / 1.5


def test_what_is_simulated_says_so_whatever_is_logged() -> None:
    for env in ({"VLLM_LOGGING_LEVEL": "ERROR"}, {"VLLM_CONFIGURE_LOGGING": "0"}):
        assert "this server is simulated" in _start(*_TINY, **env).output


def test_one_front_end_waits_for_the_engine_as_long_as_it_takes() -> None:
    """The variable bounds the wait of further API servers only, as vLLM's users measured."""
    assert _start(*_SMALL, VLLM_ENGINE_READY_TIMEOUT_S="30").engine is not None


def test_a_number_of_blocks_may_be_given() -> None:
    output = _start(*_TINY, "--num-gpu-blocks-override", "100").output
    assert re.search(
        r"Overriding num_gpu_blocks=\d+ with num_gpu_blocks_override=100", output
    )
    assert "Usable num_blocks: 100, " in output


class TestLength:
    """``--max-model-len auto``: the length is cut to what the cache holds."""

    def test_it_is_cut_where_the_cache_is_too_small(self) -> None:
        started = _auto("0.2")
        cut = events_of(started.output)
        (event,) = (e for e in cut if e.fields.get("variant") == "auto_fit")
        assert event.fields["len_from"] == 131072
        fitting = event.fields["len_to"]
        assert started.server.world.options.max_model_len == fitting
        tokens = [e.fields["tokens"] for e in cut if "tokens" in e.fields]
        assert started.engine is not None
        assert fitting in tokens  # all of the cache, and not a block more

    def test_it_stays_where_it_fits(self) -> None:
        started = _auto("0.9")
        assert "full model context length 131072 fits in" in started.output
        assert started.server.world.options.max_model_len == 131072

    def test_without_any_cache_there_is_no_length(self) -> None:
        failure = _auto("0.0001").failure
        assert failure is not None
        assert failure.reason.startswith(
            "ValueError: No available memory for the cache"
        )


def _auto(utilisation: str) -> Started:
    words = ("--max-model-len", "auto", "--gpu-memory-utilization", utilisation)
    return _start(*words, VLLM_SKIP_WARMUP="true")


class TestBridge:
    """The banner of the bridge tells the variables as they are set."""

    @pytest.mark.parametrize("release", ["plugin-0.26", "fork-1.22"])
    def test_it_tells_what_is_set(self, release: str) -> None:
        words = ("--release", release, *_SMALL)
        env = {"PT_HPU_MAX_COMPOUND_OP_SIZE": "17", "PT_CACHE_FOLDER_DELETE": "1"}
        env |= {"PT_HPU_LAZY_MODE": "1", "VLLM_SKIP_WARMUP": "true"}
        output = _start(*words, **env).output
        assert " PT_HPU_MAX_COMPOUND_OP_SIZE = 17\n" in output
        told = " PT_CACHE_FOLDER_DELETE = 1\n" in output
        assert told is (release == "fork-1.22")  # the newer bridge doesn't tell it


@pytest.mark.parametrize(
    ("release", "python"), [("plugin-0.26", "3.12"), ("fork-1.21", "3.10")]
)
def test_a_taken_port_ends_it_in_the_words_of_the_family(
    release: str, python: str
) -> None:
    started = _start("--release", release, *_TINY, VLLM_SKIP_WARMUP="true")
    world, output = started.server.world, io.StringIO()
    world.voice = Voice(world.voice.script, lambda: 0.0, {"stderr": output})
    error = OSError(errno.EADDRINUSE, "Address already in use")
    family_of(world.options.point).no_port(world, error)
    frames = re.findall(
        r'File ".*/python([\d.]+)/.*create_server_socket', output.getvalue()
    )
    assert frames == [python]
    assert output.getvalue().endswith("OSError: [Errno 98] Address already in use\n")
