"""What is known after each sentence of a log."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpuwatch.events import Event, Speaker, Value
from hpuwatch.life.phases import Phase
from hpuwatch.records import Line
from hpuwatch.state import serving
from hpuwatch.state.model import DECODE, MULTIMODAL, PROMPT, Miss, MissKey, Start, State
from hpuwatch.state.reduce import HANDLERS, reduce
from hpuwatch.state.times import seconds_between
from hpuwatch.testing.logs import start_of_text, state_of_text
from hpuwatch.testing.snapshots import by_key
from hpuwatch.units import GIB, Amount

pytestmark = pytest.mark.unit

AT = "INFO 01-02 03:04:05 [x.py:1]"
ENGINE = (
    f"{AT} Initializing a V1 LLM engine (v0.26.0) with config: model='m', "
    "max_seq_len=2048, tensor_parallel_size=2, device_config=hpu\n"
)
SPLIT = (
    f"{AT} Free device memory: 80 GiB, 72 GiB usable (gpu_memory_utilization=0.9), "
    "7.2 GiB reserved for HPUGraphs (VLLM_GRAPH_RESERVED_MEM=0.1), 16 MiB reserved for KV "
    "cache dummy block 64.78 GiB reserved for usable KV cache\n"
)
KV = (
    f"{AT} Initializing cache engine took 64.8 GiB of device memory (79.6 GiB/94.62 GiB "
    "used) and 0 B of host memory (50 GiB/1007 GiB used)\n"
)
READY = "INFO:     Application startup complete.\n"
SKIPPED = f"{AT} Skipping warmup...\n"


def bar(phase: str, done: int, total: int, clock: str) -> str:
    share = 100 * done // total
    index = f"{max(0, done - 1)}/{total}"
    return (
        f"{phase} warmup processing: {share:3d}%|##        | {done}/{total} "
        f"[{clock}<00:10,  1.00s/item, {index}]\n"
    )


def miss(phase: str, shape: str) -> str:
    return (
        f"WARNING 01-02 03:04:05 [common.py:1] {phase} bucket for {shape} was not "
        f"prepared. Adding new bucket: {shape}\n"
    )


def test_the_server_introduces_itself() -> None:
    start = start_of_text(
        f"{AT} vLLM API server version 0.12.0\n"
        f"{AT} non-default args: {{'model': 'org/m', 'max_model_len': 4096, "
        "'served_model_name': ['small'], 'max_num_seqs': 32, "
        "'max_num_batched_tokens': 8192}\n"
        + ENGINE
        + "INFO 01-02 03:04:05 [runtime.py:28] Environment:\n"
        "INFO 01-02 03:04:05 [runtime.py:32]     hw: gaudi3\n"
        "INFO 01-02 03:04:05 [runtime.py:32]     build: 1.24.0.460\n"
        "INFO 01-02 03:04:05 [runtime.py:32]     bridge_mode: lazy\n"
        "INFO 01-02 03:04:05 [runtime.py:28] Features:\n"
        "INFO 01-02 03:04:05 [runtime.py:32]     bucketing_strategy: exp\n"
        "INFO 01-02 03:04:05 [runtime.py:28] User flags:\n"
        "INFO 01-02 03:04:05 [runtime.py:32]     VLLM_DECODE_BS_BUCKET_MAX: 64\n"
    )
    server = start.server
    assert server.version is not None
    assert server.version.value == "0.26.0"
    assert server.version.line.number == 3
    assert server.engine is not None
    assert server.engine.value == "V1"
    assert server.plugin
    assert server.model is not None
    assert server.model.value == "org/m"
    assert server.card is not None
    assert server.card.value == "gaudi3"
    assert server.build is not None
    assert server.build.value == "1.24.0.460"
    assert server.bridge_mode is not None
    assert server.bridge_mode.value == "lazy"
    assert server.tensor_parallel is not None
    assert server.tensor_parallel.value == 2
    assert server.max_num_seqs is not None
    assert server.max_num_seqs.value == 32
    assert server.max_num_batched_tokens is not None
    assert server.max_num_batched_tokens.value == 8192
    assert server.flags["served_model_name"].value == "small"
    assert server.flags["VLLM_DECODE_BS_BUCKET_MAX"].value == "64"
    assert server.features["bucketing_strategy"] == "exp"


def test_the_card_is_told_by_its_memory_where_nothing_else_tells() -> None:
    known = start_of_text(KV).server.card
    assert known is not None
    assert known.value == "gaudi2"


def test_weights_labelled_gb_are_gib() -> None:
    start = start_of_text(f"{AT} Loading model weights took 34.7600 GB\n")
    weights = start.memory[0].weights
    assert weights is not None
    assert weights.value.bytes == round(34.76 * GIB)
    assert weights.value.printed.endswith("GiB")


def test_a_drafter_and_quantised_weights_add_to_the_weights() -> None:
    start = start_of_text(
        f"{AT} Loading model weights took 0.0000 GB\n"
        f"{AT} Preparing model with INC took 37.5000 GB\n"
        f"{AT} Loading drafter model weights took 1.2500 GB\n"
    )
    weights = start.memory[0].weights
    assert weights is not None
    assert weights.value.bytes == round(38.75 * GIB)


def test_hybrid_models_get_less_kv_cache_than_the_split_said() -> None:
    told = start_of_text(
        SPLIT
        + f"{AT} Hybrid model (standard Mamba2 + ATN): adjusted usable KV cache from "
        "64.78 GiB to 30.1 GiB (attn_page=2162688, mamba_state=2457600, ratio=0.468)\n"
    )
    assert told.memory[0].kv_cache is not None
    assert told.memory[0].kv_cache.value.printed == "30.1 GiB"
    computed = start_of_text(
        SPLIT + f"{AT} HPU hybrid cache: reducing available KV cache memory by 50.0% "
        "(factor=0.500) for separate per-spec allocations (padded_page=2.5 MiB, "
        "real_attn=512 KiB, real_mamba=3.75 MiB).\n"
    )
    assert computed.memory[0].kv_cache is not None
    assert computed.memory[0].kv_cache.value.bytes == pytest.approx(32.39 * GIB)


def test_workers_that_only_a_pid_tells_apart_get_ranks_as_they_appear() -> None:
    weights = (
        "Loading model weights took in total {} GiB of device memory (33 GiB/94.62 GiB "
        "used) and 4 GiB of host memory (127 GiB/1007 GiB used)\n"
    )
    start = start_of_text(
        "(VllmWorkerProcess pid=358) INFO 01-02 03:04:05 loader.py:1] Loading weights on "
        "hpu...\n"
        "INFO 01-02 03:04:05 m.py:1] "
        + weights.format(30)
        + "(VllmWorkerProcess pid=357) INFO 01-02 03:04:05 m.py:1] "
        + weights.format(32)
        + "(VllmWorkerProcess pid=358) INFO 01-02 03:04:05 m.py:1] "
        + weights.format(31)
        + "INFO 01-02 03:04:05 e.py:57] # GPU blocks: 4830, # CPU blocks: 409\n"
    )
    known = {rank: each.weights for rank, each in start.memory.items()}
    assert {
        rank: weights.value.bytes // GIB for rank, weights in known.items() if weights
    } == {0: 30, 1: 31, 2: 32}
    assert start.kv.blocks is not None
    assert start.kv.blocks.value == 4830
    assert start.kv.cpu_blocks is not None
    assert start.kv.cpu_blocks.value == 409


@pytest.mark.parametrize(("engine", "ranks"), [("", [1, 2]), (ENGINE, [0, 1])])
def test_rays_workers_are_all_ranks_of_v1_and_all_but_the_first_of_v0(
    engine: str, ranks: list[int]
) -> None:
    said = [f"(RayWorkerWrapper pid={pid}, ip=10.0.0.2) {SPLIT}" for pid in (70, 60)]
    assert list(start_of_text(engine + "".join(said)).memory) == ranks


def test_ranks_of_the_v1_engine_keep_ledgers_of_their_own() -> None:
    start = start_of_text(
        "(Worker_TP0 pid=5) "
        + SPLIT
        + "(Worker_TP1 pid=6) "
        + SPLIT.replace("80 GiB, 72 GiB", "80.2 GiB, 72.18 GiB")
    )
    free = [start.memory[rank].free for rank in (0, 1)]
    assert [each.value.printed for each in free if each] == ["80 GiB", "80.2 GiB"]


def test_stages_and_engines_count_the_ranks_on() -> None:
    both = ENGINE.replace(
        "parallel_size=2", "parallel_size=2, pipeline_parallel_size=2"
    )
    start = start_of_text(
        both
        + "".join(
            f"(Worker_DP{engine}_PP{stage}_TP{rank} pid=5) {SPLIT}"
            for engine in (0, 1)
            for stage in (0, 1)
            for rank in (0, 1)
        )
    )
    assert list(start.memory) == list(range(8))


def test_skipping_warm_up_twice_is_one_skip() -> None:
    start = start_of_text(SPLIT + KV + SKIPPED + SKIPPED + READY)
    skipped = start.warmup.skipped
    assert skipped is not None
    assert skipped.line.number == 3
    assert start.phase is Phase.READY


def test_the_profile_runs_own_shape_is_kept_but_is_no_traffic() -> None:
    start = start_of_text(
        ENGINE
        + f"{AT} Loading model weights took 14.5 GB\n"
        + miss("Prompt", "(1, 32768, 0)")
        + SPLIT
        + READY
        + miss("Prompt", "(1, 9000, 0)")
    )
    assert [(each.shape, each.count) for each in start.misses] == [
        ((1, 32768, 0), 0),
        ((1, 9000, 0), 1),
    ]


def test_a_shape_missed_by_every_rank_and_again_is_one_miss_with_a_count() -> None:
    said = "Configuration: ('prefill', 1, 512, 4) was not warmed-up!\n"
    text = ENGINE + READY
    text += "(Worker_TP0 pid=5) WARNING 01-02 03:04:05 [m.py:1] " + said
    text += "(Worker_TP1 pid=6) WARNING 01-02 03:04:05 [m.py:1] " + said
    text += "(Worker_TP0 pid=5) WARNING 01-02 03:04:09 [m.py:1] " + said
    (only,) = start_of_text(text).misses
    assert (only.phase, only.reason) == (PROMPT, "not_warmed_up")
    assert (only.shape, only.count) == ((1, 512, 4), 2)


def test_progress_comes_from_bars_and_ends_with_the_phase() -> None:
    text = SPLIT + KV + bar("Prompt", 0, 48, "00:00") + bar("Prompt", 3, 48, "00:25")
    now = start_of_text(text).warmup.progress[PROMPT]
    assert (now.done, now.total, now.elapsed_seconds) == (3, 48, 25.0)
    start = start_of_text(text + bar("Decode", 1, 162, "00:02"))
    assert start.warmup.progress[PROMPT].done == 48
    assert start.warmup.progress[DECODE].done == 1
    assert start.phase is Phase.WARMING


def test_a_buckets_line_comes_before_its_work() -> None:
    start = start_of_text(
        f"{AT} [Warmup][Graph/Multimodal(image)][36/36] batch_size:1 seq_len:0 "
        "resolution:320X544 free_mem:44.66 GiB\n"
    )
    progress = start.warmup.progress[MULTIMODAL]
    assert (progress.done, progress.total) == (35, 36)
    assert progress.free is not None
    assert progress.free.value.printed == "44.66 GiB"


def test_the_pass_that_captures_graphs_begins_anew() -> None:
    said = "[Warmup][{}][{}/{}] batch_size:1 {}:128 free_mem:14.96 GiB\n"
    text = "".join(
        f"INFO 01-02 03:04:05 m.py:1] {said.format(*each)}"
        for each in [
            ("Prompt", 1, 2, "seq_len"),
            ("Prompt", 2, 2, "seq_len"),
            ("Decode", 1, 1, "num_blocks"),
            ("Graph/Prompt", 1, 2, "seq_len"),
        ]
    )
    compiled = start_of_text(text.rpartition("INFO")[0]).warmup.progress
    assert {name: each.done for name, each in compiled.items()} == {
        PROMPT: 2,
        DECODE: 0,
    }
    captured = start_of_text(text).warmup.progress
    assert {name: each.done for name, each in captured.items()} == {PROMPT: 0}


def test_steps_of_warm_up_are_timed_by_their_headers() -> None:
    at = "INFO 12-31 {} [m.py:1]".format
    start = start_of_text(
        KV
        + f"{at('23:59:50')} Warming up sampler with batch sizes: [1, 2] and following "
        "configs:\n"
        + f"{at('23:59:50')} Starting sampler warmup...\n"
        + f"{at('23:59:55')} Sampler warmup completed successfully\n"
        + f"{at('23:59:55')} Warming up defragmenter with thresholds: [8, 16]\n"
        + "INFO 01-01 00:00:05 [m.py:1] Defragmenter warmup completed successfully\n"
        + bar("Prompt", 4, 4, "00:20")
        + "INFO 01-01 00:00:26 [m.py:1] Graph/Prompt captured:4 used_mem:1.5 GiB\n"
        + bar("Decode", 2, 2, "00:03")
        + "INFO 01-01 00:00:30 [m.py:1] Graph/Decode captured:2 used_mem:0 B\n"
        + "INFO 01-01 00:00:30 [m.py:1] Warmup finished in 40 secs, allocated 1.5 GiB of "
        "device memory\n"
    )
    warmup = start.warmup
    assert warmup.sampler_seconds == 5
    assert warmup.defragmenter_seconds == 10
    assert warmup.phase_seconds == {PROMPT: 21, DECODE: 4}
    assert warmup.seconds is not None
    assert warmup.seconds.value == 40
    assert start.graphs_used[PROMPT].value.printed == "1.5 GiB"


def test_over_ranks_the_slowest_and_the_largest_count() -> None:
    end = "Warmup finished in {} secs, allocated {} GiB of device memory\n"
    start = start_of_text(
        f"(Worker_TP1 pid=6) {AT} {end.format(50, 3)}"
        f"(Worker_TP0 pid=5) {AT} {end.format(60, 2)}"
    )
    assert start.warmup.seconds is not None
    assert start.warmup.seconds.value == 60
    assert start.warmup.allocated is not None
    assert start.warmup.allocated.value.printed == "3 GiB"


@pytest.mark.parametrize(
    ("said", "known"),
    [
        ("DEBUG 01-02 03:04:05 [m.py:1] Using PT_COMPILE_ONLY_MODE.\n", True),
        (
            (
                "WARNING 01-02 03:04:05 [m.py:1] Cannot use PT_COMPILE_ONLY_MODE. Warmup time "
                "will be negatively impacted. Please update Gaudi Software Suite.\n"
            ),
            False,
        ),
        ("", None),
    ],
)
def test_whether_warm_up_executed(said: str, known: bool | None) -> None:
    assert start_of_text(KV + said).warmup.compile_only is known


def stats(running: int, waiting: int, use: float, rest: str = "") -> str:
    return (
        f"{AT} Engine 000: Avg prompt throughput: {100.0 * running} tokens/s, Avg "
        f"generation throughput: {10.0 * running} tokens/s, Running: {running} reqs, "
        f"Waiting: {waiting} reqs, {rest}GPU KV cache usage: {use}%, Prefix cache hit "
        "rate: 0.0%\n"
    )


def test_traffic_keeps_its_peaks() -> None:
    text = READY + stats(4, 3, 29.9) + stats(8, 1, 66.7) + stats(0, 0, 0.0)
    text += stats(2, 5, 40.0, "Preemptions: 2, ") + stats(
        2, 0, 41.0, "Preemptions: 1, "
    )
    traffic = start_of_text(text).traffic
    assert (traffic.lines, traffic.busy_lines) == (5, 4)
    assert traffic.kv_use_peak is not None
    assert traffic.kv_use_peak.value == pytest.approx(0.667)
    assert traffic.kv_use_peak.line.number == 3
    assert traffic.running_peak is not None
    assert traffic.running_peak.value == 8
    assert traffic.waiting_peak is not None
    assert traffic.waiting_peak.value == 5
    assert traffic.waiting_lines_longest == 2
    assert traffic.preemptions == 3


def test_the_v0_engine_counts_its_preemptions_itself() -> None:
    said = (
        "WARNING 01-02 03:04:05 scheduler.py:1] Sequence group cmpl-1 is preempted by "
        "PreemptionMode.RECOMPUTE mode because there is not enough KV cache space. This "
        "can affect the end-to-end performance. Increase gpu_memory_utilization or "
        "tensor_parallel_size to provide more KV cache memory. "
        "total_num_cumulative_preemption={}\n"
    )
    assert (
        start_of_text(READY + said.format(1) + said.format(51)).traffic.preemptions
        == 51
    )


FATAL = "[Rank:0] FATAL ERROR :: MODULE:PT_DEVMEM Allocation failed for size::1073741824 (1024)MB"


def test_a_fault_knows_where_it_struck() -> None:
    start = start_of_text(
        ENGINE
        + SPLIT
        + KV
        + bar("Prompt", 2, 48, "00:05")
        + f"ERROR 01-02 03:04:05 [core.py:1] EngineCore failed to start.\n"
        f"ERROR 01-02 03:04:05 [core.py:1] Traceback (most recent call last):\n"
        f'ERROR 01-02 03:04:05 [core.py:1]   File "/x/m.py", line 1, in warmup_model\n'
        f"ERROR 01-02 03:04:05 [core.py:1]     self.run()\n"
        f"ERROR 01-02 03:04:05 [core.py:1] RuntimeError: {FATAL}\n"
    )
    assert start.phase is Phase.FAILED
    assert start.broke_in is Phase.WARMING
    fault = next(each for each in start.faults if each.name == "device_oom_devmem")
    assert fault.phase is Phase.WARMING
    assert fault.at == "prompt bucket 3 of 48"
    assert fault.wanted is not None
    assert fault.wanted.bytes == GIB
    assert fault.root


def test_the_same_exception_told_again_is_one_fault() -> None:
    line = f"ERROR 01-02 03:04:05 [core.py:1] RuntimeError: {FATAL}\n"
    assert len(start_of_text(ENGINE + line + line).faults) == 1


def test_one_death_has_one_cause() -> None:
    """The engine's, the other rank's and the front end's words follow from it."""
    told = [
        "EngineCore failed to start.",
        f"RuntimeError: {FATAL}",
        f"RuntimeError: {FATAL.replace('Rank:0', 'Rank:1')}",
        "RuntimeError: Engine core initialization failed. See root cause above.",
    ]
    start = start_of_text(
        ENGINE + "".join(f"ERROR 01-02 03:04:05 [core.py:1] {text}\n" for text in told)
    )
    fatal = [fault for fault in start.faults if fault.severity == "fatal"]
    assert len(fatal) == 4
    assert [fault.name for fault in fatal if fault.root] == ["device_oom_devmem"]
    again = state_of_text(
        ENGINE
        + f"ERROR 01-02 03:04:05 [core.py:1] RuntimeError: {FATAL}\n"
        + VERSION
        + ENGINE
        + f"ERROR 01-02 03:04:05 [core.py:1] RuntimeError: {FATAL}\n"
    )
    assert [len([f for f in each.faults if f.root]) for each in again.starts] == [1, 1]


def test_a_kv_cache_that_is_too_small_is_known_in_bytes() -> None:
    said = (
        "ERROR 01-02 03:04:05 [core.py:1] ValueError: The model's max seq len (8192) is "
        "larger than the maximum number of tokens that can be stored in KV cache (4096). "
        "Try increasing `gpu_memory_utilization`.\n"
    )
    kv = start_of_text(ENGINE + SPLIT + said).kv
    assert kv.wanted is not None
    assert kv.available is not None
    assert kv.wanted.value.bytes == pytest.approx(2 * kv.available.value.bytes)
    assert kv.fitting_len is not None
    assert kv.fitting_len.value == 4096


def lives(text: str) -> list[Start]:
    return list(state_of_text(text).starts)


VERSION = f"{AT} vLLM API server version 0.9.0\n"


@pytest.mark.parametrize(
    ("name", "text", "count"),
    [
        ("front end and engine are one life", VERSION + ENGINE + READY, 1),
        ("data-parallel engines are one life", VERSION + ENGINE + ENGINE + READY, 1),
        (
            "preamble before the banner",
            f"{AT} Bucketing is ON.\n" + VERSION + ENGINE,
            1,
        ),
        ("served, then again", VERSION + ENGINE + READY + VERSION + ENGINE, 2),
        ("killed in warm-up, then again", VERSION + ENGINE + KV + VERSION + ENGINE, 2),
        ("killed before its engine spoke", VERSION + VERSION + ENGINE, 1),
        ("no front end, two engines", ENGINE + KV + ENGINE + KV, 2),
        (
            "after a stop",
            VERSION + ENGINE + READY + "INFO:     Shutting down\n" + VERSION,
            2,
        ),
    ],
)
def test_how_many_lives_a_log_holds(name: str, text: str, count: int) -> None:
    assert len(lives(text)) == count, name


def test_a_new_life_starts_with_nothing_known() -> None:
    first, second = lives(VERSION + ENGINE + SPLIT + READY + VERSION + ENGINE)
    assert first.phase is Phase.READY
    assert first.memory[0].free is not None
    assert second.phase is Phase.STARTING
    assert second.memory == {}
    assert second.first_line.number == 5


def test_a_model_switch_is_a_start_of_the_same_server() -> None:
    first, second = lives(
        VERSION
        + ENGINE
        + SPLIT
        + READY
        + f"{AT} [gaudi_reconfigure] start: target_model=org/other\n"
        + SPLIT.replace("80 GiB, 72 GiB", "79.9 GiB, 71.9 GiB")
        + f"{AT} [gaudi_reconfigure] completed in 12.5s\n"
    )
    assert first.phase is Phase.READY
    assert second.phase is Phase.READY
    assert second.server.version == first.server.version
    assert second.server.model is not None
    assert second.server.model.value == "org/other"
    assert second.memory[0].free is not None
    assert second.memory[0].free.value.printed == "79.9 GiB"


def test_the_simulated_server_is_known_as_such() -> None:
    said = (
        "hpuwatch sim: this server is simulated, none of its figures was measured on a "
        "Gaudi\n"
    )
    assert start_of_text(said + ENGINE).server.simulated
    assert not start_of_text(ENGINE).server.simulated


def test_a_release_that_slices_attention_lists_prompts_twice_and_the_last_holds() -> (
    None
):
    listed = "Generated {} prompt buckets [bs, query, num_blocks]: {}\n"
    start = start_of_text(
        f"{AT} "
        + listed.format(2, "[(1, 128, 0), (1, 256, 0)]")
        + f"{AT} "
        + listed.format(1, "[(1, 128, 0)]")
    )
    known = start.buckets[PROMPT].value
    assert (known.count, known.shapes) == (1, ((1, 128, 0),))


def test_a_cut_list_of_buckets_keeps_its_count_only() -> None:
    start = start_of_text(
        f"{AT} Generated 9 decode buckets [bs, query, num_blocks]: [(1, 1, 128)]\n"
    )
    known = start.buckets[DECODE].value
    assert (known.count, known.shapes) == (9, ())


def test_a_phase_is_dated_by_the_line_that_began_it() -> None:
    events = [
        Event("model_load_start", line=Line("a", received_at=5.0)),
        Event("memory_split", line=Line("b", received_at=9.0)),
        Event("memory_split", line=Line("c", received_at=11.0)),
    ]
    state = State()
    for event in events:
        state = reduce(state, event)
    start = state.current
    assert start is not None
    assert (start.began_at, start.phase, start.phase_since) == (5.0, Phase.SIZING, 9.0)


@pytest.mark.parametrize(
    ("first", "then", "seconds"),
    [
        ("02-09 19:44:12", "02-09 19:44:52", 40),
        ("12-31 23:59:58", "01-01 00:00:03", 5),
        ("02-29 00:00:00", "03-01 00:00:00", 86_400),
        ("02-09 19:44:13", "02-09 19:44:12", 0),
        ("02-30 19:44:13", "02-09 19:44:12", None),
        ("nonsense", "02-09 19:44:12", None),
        (None, "02-09 19:44:12", None),
    ],
)
def test_durations_between_headers(
    first: str | None, then: str | None, seconds: float | None
) -> None:
    assert seconds_between(first, then) == seconds


VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-5, 10**6),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=6),
    st.builds(Amount, st.integers(-(2**40), 2**40), st.just("1 GiB")),
    st.tuples(st.integers(0, 9), st.integers(0, 9)),
    st.tuples(st.tuples(st.integers(0, 9)), st.text(max_size=2)),
)
NAMES = [
    "phase",
    "i",
    "n",
    "bs",
    "seq",
    "blocks",
    "requested",
    "mem",
    "pct",
    "s",
    "kv",
    "r",
    "w",
    "p",
    "preemptions",
    "usable",
    "hpu",
    "cpu",
    "tokens",
    "gb",
    "device_delta",
    "device_used",
    "device_total",
    "free",
    "graphs",
    "grm",
    "gmu",
    "dummy",
    "tuples",
    "mm_buckets",
    "step",
    "variant",
    "ver",
    "engine",
    "model",
    "args",
    "name",
    "severity",
    "message",
    "root",
    "wanted",
    "elapsed",
    "factor",
    "kv_to",
    "override",
    "e",
    "x",
    "TotalNumber",
    "is_prompt",
    "site",
    "shape",
    "key",
    "value",
    "VAR",
    "flags",
    "hw",
]
EVENTS = st.builds(
    Event,
    kind=st.sampled_from([*HANDLERS, "graph_budget", "unheard_of"]),
    fields=st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=8),
    line=st.builds(Line, st.just("text"), received_at=st.none() | st.floats(0, 1e9)),
    speaker=st.builds(
        Speaker,
        st.sampled_from(["", "Worker"]),
        st.none() | st.integers(1, 3),
        st.none() | st.integers(0, 3),
    ),
    logged_at=st.none() | st.just("01-02 03:04:05"),
)


@settings(max_examples=300)
@given(st.lists(EVENTS, max_size=12))
def test_no_event_however_odd_breaks_the_reduction(events: list[Event]) -> None:
    state = State()
    for event in events:
        before = state
        state = reduce(state, event)
        assert len(state.starts) >= max(1, len(before.starts))
        assert before.starts[:-1] == state.starts[: len(before.starts) - 1] or not (
            before.starts
        )


def test_a_traceback_that_ends_late_is_a_fault_of_the_life_that_printed_it() -> None:
    died = (
        "(EngineCore pid=5) Traceback (most recent call last):\n"
        '(EngineCore pid=5)   File "/x/m.py", line 1, in warmup_model\n'
        "(EngineCore pid=5)     self.run()\n"
        f"(EngineCore pid=5) RuntimeError: {FATAL}\n"
    )
    first, second = lives(VERSION + ENGINE + SPLIT + died + VERSION + ENGINE)
    assert [fault.name for fault in first.faults] == ["device_oom_devmem"]
    assert first.phase is Phase.FAILED
    assert second.faults == ()
    assert second.phase is Phase.STARTING


def test_a_storm_of_shapes_is_counted_in_full_but_listed_in_part() -> None:
    start = Start(Line(""), phase=Phase.READY)
    state = State((replace(start, missed=_storm(serving._MOST_SHAPES)),))
    for blocks in (9, 10):
        fields: dict[str, Value] = {
            "phase": "decode",
            "bs": -1,
            "seq": 1,
            "blocks": blocks,
        }
        state = reduce(state, Event("config_not_warmed", fields))
    assert state.current is not None
    misses = state.current.misses
    assert len(misses) == serving._MOST_SHAPES + 1
    assert (misses[-1].shape, misses[-1].count) == ((), 2)


def _storm(count: int) -> dict[MissKey, Miss]:
    return by_key(
        *(Miss("decode", "not_warmed_up", (n, 1, 1), Line("")) for n in range(count))
    )
