"""A start of the simulated fork (engine V0), in this process and in no time at all."""

from __future__ import annotations

import asyncio
import io
import re
from functools import cache
from itertools import groupby

import pytest

from hpuwatch.events import Event
from hpuwatch.gaudi.buckets import DECODE, PROMPT
from hpuwatch.parse.mask import mask
from hpuwatch.sim.config.options import parse_options
from hpuwatch.sim.fork.failures import engine_died, engine_killed, engine_stopped
from hpuwatch.sim.hooks import Faults, Moment
from hpuwatch.sim.serve.question import Prompt, Question
from hpuwatch.sim.serve.requestlog import RequestLog
from hpuwatch.sim.serve.schedule import Request
from hpuwatch.sim.serve.stats import Stats
from hpuwatch.sim.serve.tokens import pieces_of
from hpuwatch.sim.server import Server
from hpuwatch.sim.talk.script import releases
from hpuwatch.sim.world import EngineFailed
from hpuwatch.testing.clock import FakeClock
from hpuwatch.units import Amount
from tests.simulated import Started, events_of, kinds, only, start

pytestmark = pytest.mark.unit

_FORKS = [name for name in releases() if name.startswith("fork-")]
_SMALL = (
    *("--max-num-seqs", "4", "--max-model-len", "2048"),
    *("--block-size", "128"),
)
_BEGIN = ["simulated_server", "server_lifecycle", "engine_config"]
_LOAD = ["model_load_start", "weights_preload", "hpu_graph_wrap", "weights_total"]
_NEW_LOAD = [
    # The seconds come before the bytes, and read like a total.
    *("model_load_start", "weights_total", "weights_preload", "hpu_graph_wrap"),
    "model_compile_mem",
]
_MEMORY = ["model_profiling_run", "memory_split"]
_LISTS = ["bucket_config", "buckets_generated"]
_BLOCKS = ["kv_blocks_v0", "kv_capacity", "cache_engine_init"]
_RUN = ["warmup_bucket", "graph_budget", "graph_summary", "warmup_finished"]
_ECHO = ["bucket_env_echo", "bucket_config"]
_ORDER = {
    "fork-1.18": [
        *(*_BEGIN, "bridge_banner", *_ECHO, *_LOAD, *_MEMORY),
        *("kv_blocks_v0", "cache_engine_init", "buckets_generated", "buckets_omitted"),
        *(*_RUN, "cache_and_warmup_total"),
    ],
    "fork-1.19": [
        *(*_BEGIN, "runtime_config_dump", "bridge_banner", *_ECHO, *_LOAD),
        *(*_MEMORY, "kv_blocks_v0", "cache_engine_init"),
        *("buckets_generated", "buckets_omitted", *_RUN, "cache_and_warmup_total"),
    ],
    "fork-1.20": [
        *(*_BEGIN, "runtime_config_dump", "bridge_banner", *_ECHO, *_LOAD),
        *(*_MEMORY, *_BLOCKS),
        *("buckets_generated", "buckets_omitted", *_RUN, "engine_init_time"),
    ],
    "fork-1.21": [
        *(*_BEGIN, "runtime_config_dump", "bridge_banner", *_NEW_LOAD),
        *(*_MEMORY, *_BLOCKS, *_RUN),
        "engine_init_time",
    ],
    "fork-1.22": [
        *(*_BEGIN, "runtime_config_dump", "bridge_banner", *_NEW_LOAD),
        *(*_MEMORY, *_LISTS, *_BLOCKS),
        *("warmup_bucket", "graph_summary", "warmup_finished", "engine_init_time"),
    ],
}
_ORDER["fork-1.23"] = _ORDER["fork-1.22"]
"""The kinds of a start by release, each where it is seen first."""


@cache
def _plain(release: str) -> Started:
    return start("--release", release, *_SMALL)


def _printed(event: Event, name: str) -> str:
    value = event.fields[name]
    assert isinstance(value, Amount)
    return value.printed


def _faults(started: Started, *, unknown: int = 0) -> set[object]:
    events = events_of(started.output, unknown=unknown)
    return {event.fields["name"] for event in events if event.kind == "fault"}


@pytest.mark.parametrize("release", _FORKS)
def test_a_start_prints_the_lines_of_its_release_in_their_order(release: str) -> None:
    told = list(dict.fromkeys(kinds(events_of(_plain(release).output))))
    expected = _ORDER[release]
    assert [kind for kind in told if kind in expected] == expected
    # What another release says, this one doesn't.
    everything = {kind for order in _ORDER.values() for kind in order}
    assert not set(told) & (everything - set(expected))


@pytest.mark.parametrize("release", _FORKS)
@pytest.mark.parametrize(
    ("arguments", "env"),
    [
        (("--enforce-eager", "--enable-prefix-caching"), {}),
        ((), {"VLLM_SKIP_WARMUP": "true", "PT_HPU_LAZY_MODE": "0"}),
        (("-tp", "2"), {"VLLM_EXPONENTIAL_BUCKETING": "true"}),
        (
            ("--quantization", "inc"),
            {
                "VLLM_EXPONENTIAL_BUCKETING": "false",
                "VLLM_MERGED_PREFILL": "true",
                "VLLM_DECODE_BLOCK_BUCKET_MAX": "256",
                "VLLM_DECODE_BS_BUCKET_STEP": "2",
            },
        ),
        (
            ("--max-num-batched-tokens", "2048"),
            {
                "VLLM_PROMPT_SEQ_BUCKET_MIN": "2048",
                "VLLM_PROMPT_SEQ_BUCKET_MAX": "2048",
                "VLLM_PROMPT_BS_BUCKET_MIN": "2",
                "VLLM_DECODE_BLOCK_BUCKET_STEP": "512",
            },
        ),
    ],
)
def test_nothing_that_a_fork_prints_is_unknown(
    release: str, arguments: tuple[str, ...], env: dict[str, str]
) -> None:
    started = start("--release", release, *_SMALL, *arguments, **env)
    assert started.engine is not None
    # events_of() itself asserts that no line was unknown.
    assert "memory_split" in kinds(events_of(started.output))


def test_the_memory_lines_of_the_public_sample_come_out() -> None:
    """Llama-3.1-8B on Gaudi2 at 0.9 and 0.1 with prompts up to 4 times 1,024 tokens."""
    started = start(
        *("--release", "fork-1.18", "--gpu-memory-utilization", "0.9"),
        *("--max-num-seqs", "4", "--max-model-len", "4096", "--block-size", "128"),
        VLLM_GRAPH_RESERVED_MEM="0.1",
        VLLM_SKIP_WARMUP="true",
    )
    events = events_of(started.output)
    split = only(events, "memory_split")
    printed = [_printed(split, name) for name in ("free", "usable", "graphs", "kv")]
    assert printed == ["79.22 GiB", "71.3 GiB", "7.13 GiB", "64.17 GiB"]
    assert _printed(only(events, "weights_total"), "device_delta") == "15.05 GiB"
    blocks = only(events, "kv_blocks_v0").fields
    assert blocks["hpu"] == pytest.approx(4107, abs=1)  # from rounded figures
    assert blocks["cpu"] == 256


def test_the_budget_is_what_is_free_beyond_the_margin() -> None:
    events = events_of(_plain("fork-1.20").output)
    split, budget = only(events, "memory_split"), only(events, "graph_budget")
    free, graphs = budget.fields["free"], budget.fields["graph"]
    assert isinstance(free, Amount)
    assert isinstance(graphs, Amount)
    at_split = split.fields["free"]
    assert isinstance(at_split, Amount)
    margin = 0.1 * at_split.bytes
    assert graphs.bytes == pytest.approx(free.bytes - margin, rel=1e-3)
    for phase in (PROMPT, DECODE):
        bound = budget.fields[{PROMPT: "p", DECODE: "d"}[phase]]
        assert isinstance(bound, Amount)
        assert 0 < bound.bytes < graphs.bytes


def test_a_small_budget_captures_some_graphs_and_says_how_many() -> None:
    started = start(
        *("--release", "fork-1.20", *_SMALL, "--gpu-memory-utilization", "0.99"),
        VLLM_GRAPH_RESERVED_MEM="0.0004",
        VLLM_GRAPH_PROMPT_RATIO="0.1",
    )
    events = events_of(started.output)
    prompts, decodes = (
        event.fields for event in events if event.kind == "graph_summary"
    )
    assert (prompts["phase"], decodes["pct"]) == ("prompt", 100.0)
    share = prompts["pct"]
    assert isinstance(share, float)
    assert 0 < share < 100
    captured = re.findall(r"Graph/Prompt\]\[(\d+)/(\d+)\]", started.output)
    assert len(captured) == prompts["k"]
    assert {total for _, total in captured} == {"20"}
    # When decode is done, what it left goes to prompts in a second pass.
    order = re.findall(r"\[Warmup\]\[Graph/(\w+)\]", started.output)
    assert [phase for phase, _ in groupby(order)] == ["Prompt", "Decode", "Prompt"]


def test_since_1_22_there_is_no_budget_but_the_end_of_the_card() -> None:
    env = {"VLLM_GRAPH_RESERVED_MEM": "0.0001", "VLLM_GRAPH_PROMPT_RATIO": "0.1"}
    arguments = (*_SMALL, "--gpu-memory-utilization", "0.9995")
    started = start("--release", "fork-1.22", *arguments, **env)
    assert "VLLM_GRAPH_PROMPT_RATIO" not in started.output.partition("Free device")[2]
    assert _faults(started) == {"device_oom_devmem", "engine_dead_v0"}
    assert start("--release", "fork-1.21", *arguments, **env).failure is None


_IMAGES = ("--model", "qwen3-vl-32b", "--card", "gaudi3", *_SMALL)


def test_since_1_22_a_model_with_images_warms_its_patches() -> None:
    started = start(
        *(*_IMAGES, "--release", "fork-1.22"),
        VLLM_MULTIMODAL_BUCKETS="64,192",
        PT_COMPILE_ONLY_MODE="0",
    )
    images = [
        event.fields
        for event in events_of(started.output)
        if event.fields.get("phase") == "multimodal"
    ]
    lists, first, second, summary = images
    assert lists["mm_buckets"] == summary["mm_buckets"] == (64, 192)
    assert [each["img_args"] for each in (first, second)] == [64, 192]
    assert summary["k"] == first["n"] == 2
    assert "[Multimodal] Wrapping Visual Model" in started.output
    kept = started.server.world.truth.images.kept_bytes
    assert started.server.world.memory.held["multimodal"] == kept


@pytest.mark.parametrize(
    ("release", "value", "told"),
    [
        ("fork-1.21", "foo", []),
        ("fork-1.23", "None", ["None"]),
        ("fork-1.23", "64", ["[64]"]),
    ],
)
def test_patches_are_told_even_where_none_are_warmed(
    release: str, value: str, told: list[str]
) -> None:
    started = start(
        *(*_IMAGES, "--release", release),
        VLLM_SKIP_WARMUP="true",
        VLLM_MULTIMODAL_BUCKETS=value,
    )
    assert started.engine is not None
    assert re.findall("Multimodal bucket : (.*)", started.output) == told


def test_patches_that_are_no_numbers_end_the_engine() -> None:
    started = start(
        *(*_IMAGES, "--release", "fork-1.22"), VLLM_MULTIMODAL_BUCKETS="foo"
    )
    assert started.failure is not None
    assert started.failure.reason.startswith("ValueError: invalid literal for int()")


def test_every_bucket_is_compiled_before_any_graph_is_captured() -> None:
    phases = re.findall(r"\[Warmup\]\[([\w/]+)\]", _plain("fork-1.21").output)
    assert [phase for phase, _ in groupby(phases)] == [
        "Prompt",
        "Decode",
        "Graph/Prompt",
        "Graph/Decode",
    ]
    newer = re.findall(r"\[Warmup\]\[([\w/]+)\]", _plain("fork-1.22").output)
    assert [phase for phase, _ in groupby(newer)] == ["Graph/prompt", "Graph/decode"]


def test_compiled_mode_captures_nothing_but_warms_up() -> None:
    started = start("--release", "fork-1.20", *_SMALL, PT_HPU_LAZY_MODE="0")
    assert "[Warmup][Prompt][1/" in started.output
    assert "Graph/" not in started.output


def test_the_largest_bucket_is_compiled_first_and_the_smallest_captured_first() -> None:
    output = _plain("fork-1.20").output
    assert "[Warmup][Prompt][1/20] batch_size:2 seq_len:1024 free_mem" in output
    assert "[Warmup][Graph/Prompt][1/20] batch_size:1 seq_len:128 free_mem" in output
    assert "[Warmup][Graph/Decode][1/3] batch_size:4 num_blocks:128" in output


@pytest.mark.parametrize(
    ("release", "words"),
    [
        ("fork-1.18", "habana_executor.py:85] # HPU blocks: "),
        ("fork-1.19", "hpu_executor.py:84] # HPU blocks: "),
        ("fork-1.20", "executor_base.py:110] # HPU blocks: "),
        ("fork-1.21", "[executor_base.py:113] # hpu blocks: "),
    ],
)
def test_blocks_are_counted_in_the_words_of_the_release(
    release: str, words: str
) -> None:
    assert words in _plain(release).output


def test_several_cards_are_told_of_as_in_a_real_start() -> None:
    skip = {"VLLM_SKIP_WARMUP": "true"}
    started = start("--release", "fork-1.19", *_SMALL, "-tp", "2", **skip)
    assert "distributed_gpu_executor.py:57] # GPU blocks: " in started.output
    assert "Maximum concurrency for 2048 tokens per request: " in started.output
    prefix = r"\x1b\[1;36m\(VllmWorkerProcess pid=\d+\)\x1b\[0;0m "
    lines = [line for line in started.output.splitlines() if "Free device" in line]
    assert sorted(bool(re.match(prefix, line)) for line in lines) == [False, True]
    # Only the second rank is a process of its own.
    assert len(set(re.findall(r"VllmWorkerProcess pid=\d+", started.output))) == 1


def test_ranges_are_told_early_and_lists_only_by_a_warm_up() -> None:
    env = {"VLLM_SKIP_WARMUP": "true"}
    older = start("--release", "fork-1.20", *_SMALL, **env).output
    assert "Prompt bucket config (min, step, max_warmup) bs:[1, 32, 4]" in older
    assert "Generated" not in older
    newer = start("--release", "fork-1.22", *_SMALL, **env).output
    assert (
        "Prompt bucket config (min, step, max_warmup, limit) bs:[1, 2, 4, 3]" in newer
    )
    assert "prompt buckets [bs, query, num_blocks]: [(1, 128, 0), " in newer


def test_skipped_warm_up_forgives_ranges_that_make_no_list() -> None:
    env = {"VLLM_DECODE_BS_BUCKET_MIN": "100"}
    failed = start("--release", "fork-1.20", *_SMALL, **env)
    assert _faults(failed) == {"bucket_min_gt_max", "engine_dead_v0"}
    skip = {"VLLM_SKIP_WARMUP": "true"}
    assert start("--release", "fork-1.20", *_SMALL, **env, **skip).failure is None


def test_1_21_says_nothing_of_its_buckets_but_warnings_without_a_header() -> None:
    assert not {*_ECHO, *_LISTS} & set(kinds(events_of(_plain("fork-1.21").output)))
    arguments = (
        "--max-num-seqs",
        "4",
        "--max-model-len",
        "2048",
        "--block-size",
        "128",
    )
    env = {"VLLM_EXPONENTIAL_BUCKETING": "true", "VLLM_SKIP_WARMUP": "true"}
    budget = ("--enable-chunked-prefill", "--max-num-batched-tokens", "64")
    output = start("--release", "fork-1.21", *arguments, *budget, **env).output
    assert "\nThe current bucketing configuration (min" in output


def test_the_exponential_strategy_warns_of_what_it_ignores() -> None:
    env = {"VLLM_DECODE_BS_BUCKET_STEP": "4"}
    output = start("--release", "fork-1.22", *_SMALL, **env).output
    assert "VLLM_DECODE_BS_BUCKET_STEP=4 will be overwritten!" in output
    lines = output.splitlines()
    (at,) = [i for i, line in enumerate(lines) if "will be overwritten" in line]
    assert lines[at - 1].endswith("*" * 55)
    assert lines[at + 1].endswith("*" * 55)
    assert "Decode bucket config" in lines[at + 2]


@pytest.mark.parametrize(
    ("arguments", "env", "reason"),
    [
        ((), {"VLLM_GRAPH_RESERVED_MEM": "1.5"}, "No available memory for the cache"),
        (
            ("--max-model-len", "131072", "--gpu-memory-utilization", "0.1"),
            {},
            "The model's max seq len (131072) is larger than the maximum number of tok",
        ),
        (
            (),
            {"VLLM_GRAPH_DECODE_STRATEGY": "max_tokens"},
            "NotImplementedError: Unsupported graph allocation strategy",
        ),
        ((), {"VLLM_DECODE_BS_BUCKET_STEP": "two"}, "invalid literal for int()"),
        (("--model", "llama-3.1-70b", "-tp", "1"), {}, "MODULE:PT_DEVMEM"),
        ((), {"VLLM_PROMPT_BS_BUCKET_MAX": "0"}, "ZeroDivisionError: integer div"),
        ((), {"VLLM_DECODE_BS_BUCKET_STEP": "0"}, "range() arg 3 must not be zero"),
        (
            (),
            {"VLLM_PROMPT_SEQ_BUCKET_STEP": "-1"},
            "No buckets could be captured with following config (min, step, max_warmup)",
        ),
    ],
)
def test_bad_settings_end_the_engine_with_the_real_words(
    arguments: tuple[str, ...], env: dict[str, str], reason: str
) -> None:
    started = start("--release", "fork-1.20", *_SMALL, *arguments, **env)
    assert started.failure is not None
    assert reason in started.failure.reason
    *_, last = started.output.splitlines()
    assert last.startswith("RuntimeError: Engine process failed to start.")
    logged = [line for line in started.output.splitlines() if "engine.py:458]" in line]
    assert logged[0].startswith("ERROR ")
    assert logged[-1].endswith(started.failure.reason)


def test_bucketing_that_is_off_makes_no_lists() -> None:
    started = start("--release", "fork-1.22", *_SMALL, VLLM_ENABLE_BUCKETING="false")
    assert "Bucketing is off - skipping decode buckets generation" in started.output
    assert "Prompt captured:0 (0.0%) used_mem:0 B" in started.output
    assert kinds(events_of(started.output)).count("buckets_generated") == 0


def test_no_blocks_are_no_range_for_the_exponential_strategy() -> None:
    started = start("--release", "fork-1.22", *_SMALL, VLLM_GRAPH_RESERVED_MEM="1.5")
    assert started.failure is not None
    assert started.failure.reason == "ValueError: math domain error"


def test_the_oldest_fork_dies_in_one_process() -> None:
    started = start("--release", "fork-1.18", *_SMALL, VLLM_GRAPH_RESERVED_MEM="1.5")
    assert started.failure is not None
    assert started.output.splitlines()[-1] == started.failure.reason
    assert "SpawnProcess" not in started.output
    assert _faults(started) == {"kv_none"}


def test_a_rank_that_fails_says_so_before_the_engine_does() -> None:
    started = start(
        "--release", "fork-1.21", *_SMALL, "-tp", "2", VLLM_GRAPH_RESERVED_MEM="1.5"
    )
    words = "Error executing method initialize_cache. This might cause deadlock"
    assert words in started.output.partition("Process SpawnProcess-1:")[0]
    assert "deadlock_warning" in _faults(started)


def test_1_23_refuses_the_newer_engine_in_its_front_end() -> None:
    started = start("--release", "fork-1.23", *_SMALL, VLLM_USE_V1="1")
    assert started.failure is not None
    assert started.output.splitlines()[-1] == started.failure.reason
    assert "In-tree HPU support for v1 has been removed" in started.failure.reason
    assert "Initializing a V0" not in started.output


def _served(
    release: str, *arguments: str, count: int = 4, env: dict[str, str] | None = None
) -> str:
    """Serve a few requests at once, tell the statistics, and return the log."""
    server, output = _server(release, *arguments, env=env)

    async def serve() -> None:
        engine = await server.start()
        stats = Stats(server.world, engine)
        running = asyncio.ensure_future(engine.run())
        asked = (Request(300 + i, 900, identity=f"cmpl-{i}-0") for i in range(count))
        await asyncio.gather(*(engine.submit(each).over for each in asked))
        stats.tell()
        running.cancel()

    asyncio.run(serve())
    return output.getvalue()


@pytest.mark.parametrize(
    ("release", "cold"),
    [
        ("fork-1.18", "Configuration: (decode, 4, 1) was not warmed-up!"),
        ("fork-1.20", "Configuration: (prompt, 4, 384) was not warmed-up!"),
        ("fork-1.21", "Configuration: ('decode', 4, 1) was not warmed-up!"),
        ("fork-1.22", "Configuration: ('prompt', 4, 384) was not warmed-up!"),
    ],
)
def test_a_cold_shape_is_told_of_once_in_the_words_of_the_release(
    release: str, cold: str
) -> None:
    output = _served(release, env={"VLLM_SKIP_WARMUP": "true"})
    assert output.count(cold) == 1
    events = events_of(output)
    assert {"config_not_warmed", "engine_stats"} <= set(kinds(events))
    stats = only(events, "engine_stats")
    assert stats.fields["sw"] == 0


def test_with_cached_prefixes_a_cold_shape_is_told_of_with_its_blocks() -> None:
    env = {"VLLM_SKIP_WARMUP": "true"}
    output = _served("fork-1.21", "--enable-prefix-caching", env=env)
    assert re.search(r"\('prefill', 4, 384, \d+\) was not warmed-up!", output)
    assert "Prefix cache hit rate: GPU: " in output
    assert events_of(output)


def _logged(release: str, *arguments: str) -> str:
    """Return what a server logs of one request when it comes in."""
    server, output = _server(release, *arguments)
    text = "a secret is told, nobody else knows"
    question = Question(
        is_chat=False,
        model="m",
        prompts=(Prompt(pieces_of(text), text),),
        max_tokens=5,
        min_tokens=0,
        n=1,
        ignore_eos=False,
        echo=False,
        logprobs=None,
        stop=("end",),
        include_stop=False,
        stream=False,
        usage_at_end=False,
        usage_each=False,
    )
    RequestLog(server.world).tell("cmpl-7", question)
    return output.getvalue()


def test_requests_are_logged_with_their_prompts_as_v0_does() -> None:
    received, added = _logged("fork-1.20").splitlines()
    start_of_line = "Received request cmpl-7-0: prompt: 'a secret is told, nobody else"
    assert start_of_line in received
    assert "params: SamplingParams(n=1, stop=['end']," in received
    assert re.search(r"prompt_token_ids: \[\d+(, \d+){7,}\], lora_request: ", received)
    assert added.endswith("engine.py:310] Added request cmpl-7-0.")
    # What hpuwatch keeps of it has no prompt.
    assert "secret" not in mask(received)
    assert events_of(f"{received}\n{added}\n") == []


def test_requests_may_be_cut_short_or_left_out() -> None:
    short = _logged("fork-1.22", "--max-log-len", "8")
    assert "prompt: 'a secret', params" in short
    assert _logged("fork-1.20", "--disable-log-requests") == ""
    assert _logged("plugin-0.26", "--enable-log-requests") == ""


def test_each_step_that_compiles_is_told_where_a_variable_asks_for_it() -> None:
    env = {"VLLM_SKIP_WARMUP": "true", "VLLM_HPU_LOG_STEP_GRAPH_COMPILATION": "false"}
    events = events_of(_served("fork-1.20", env=env))
    told = [e.fields for e in events if e.kind == "graph_compilation_step"]
    assert [fields["is_prompt"] for fields in told][:2] == [True, False]
    assert {fields["num_seqs"] for fields in told} == {4}
    assert told[0]["max_context_len"] == 303
    assert told[0]["max_num_blocks"] == 3
    assert told[0]["TotalNumber"] == 1
    # Any text but "0" switches it on, "false" too.
    off = env | {"VLLM_HPU_LOG_STEP_GRAPH_COMPILATION": "0"}
    assert "STEP_GRAPH" not in _served("fork-1.20", env=off)


def test_every_step_is_told_where_all_are_asked_for() -> None:
    env = {
        "VLLM_HPU_LOG_STEP_GRAPH_COMPILATION_ALL": "1",
        "VLLM_HPU_LOG_STEP_CPU_FALLBACKS_ALL": "1",
        "PT_HPU_METRICS_GC_DETAILS": "true",
    }
    output = _served("fork-1.21", env=env)
    none = "[('TotalNumber', 0), ('TotalTime', 0), ('AvgTime', 0.0), ('recipes', [])]"
    assert f"VLLM_HPU_STEP_GRAPH_COMPILATION: {none}, is_prompt: True" in output
    assert "VLLM_HPU_STEP_CPU_FALLBACK: [('TotalNumber', 0), ('FallbackOps'" in output
    assert "graph_compilation_step" in kinds(events_of(output))


def test_every_fiftieth_preemption_is_logged_with_its_number() -> None:
    arguments = ("--num-gpu-blocks-override", "20", "--max-num-seqs", "32")
    env = {"VLLM_SKIP_WARMUP": "true"}
    output = _served("fork-1.20", *arguments, count=32, env=env)
    told = [event for event in events_of(output) if event.kind == "preemption"]
    assert [event.fields["n"] for event in told] == [1, 51]
    assert {event.fields["mode"] for event in told} == {"PreemptionMode.RECOMPUTE"}


class _Listener(Faults):
    """Takes note of every moment."""

    def __init__(self) -> None:
        super().__init__()
        self.moments: list[Moment] = []

    async def at(self, moment: Moment) -> None:
        self.now = moment
        self.moments.append(moment)


def _server(
    release: str, *arguments: str, env: dict[str, str] | None = None
) -> tuple[Server, io.StringIO]:
    output = io.StringIO()
    words = ["--release", release, *_SMALL, *arguments, "--speed", "1e12"]
    options = parse_options(words, env or {})
    streams = {"stdout": output, "stderr": output}
    return Server(options, FakeClock(), streams), output


@pytest.mark.parametrize(("release", "buckets"), [("fork-1.20", 46), ("fork-1.22", 66)])
def test_a_fault_may_strike_in_every_phase_and_at_every_bucket(
    release: str, buckets: int
) -> None:
    server, _ = _server(release)
    server.world.faults = listener = _Listener()
    asyncio.run(server.start())
    phases = [phase for phase, _ in groupby(m.phase for m in listener.moments)]
    assert phases[:5] == ["import", "engine", "load", "profile", "kv"]
    assert phases[-1] == "ready"
    warmed = [m for m in listener.moments if m.phase in {PROMPT, DECODE}]
    assert len(warmed) == len(set(warmed)) == buckets


@pytest.mark.parametrize("release", _FORKS)
def test_an_engine_dies_and_stops_in_words_that_are_known(release: str) -> None:
    server, output = _server(release)
    world = server.world
    engine_died(world, world.voice.error("device_oom", rank=0, size=1, megabytes=1))
    engine_stopped(world)
    for phase in ("load", "serve"):
        world.faults.now = Moment(phase)
        engine_killed(world, EngineFailed("", "engine"))
    faults = _faults(Started(server, output.getvalue()))
    assert {"device_oom_devmem", "engine_dead_v0"} <= faults
    assert "Engine background task failed" in output.getvalue()
    assert ("MQLLMEngine terminated" in output.getvalue()) == (release != "fork-1.18")
