"""A start of the simulated server, in this process and in no time at all."""

from __future__ import annotations

import asyncio
import io
import re
from dataclasses import dataclass

import pytest

from hpuwatch.app.rules import shipped_rules
from hpuwatch.events import Event
from hpuwatch.gaudi.buckets import Bucket
from hpuwatch.parse.parser import Parser
from hpuwatch.sim.config.options import parse_options
from hpuwatch.sim.pace import Stopped
from hpuwatch.sim.serve.engine import Engine
from hpuwatch.sim.server import Server
from hpuwatch.sim.talk.failures import engine_failed
from hpuwatch.sim.world import EngineFailed
from hpuwatch.source.assemble import Assembler
from hpuwatch.testing.clock import FakeClock
from hpuwatch.units import GIB, Amount

pytestmark = pytest.mark.unit

_SMALL = ("--max-num-seqs", "8", "--max-model-len", "2048")
_SAMPLE = (
    *("--max-num-seqs", "128", "--max-model-len", "4096"),
    *("--max-num-batched-tokens", "8192", "--gpu-memory-utilization", "0.9"),
)


@dataclass(frozen=True)
class Started:
    """What one start printed and became."""

    server: Server
    output: str
    engine: Engine | None = None
    failure: EngineFailed | None = None

    @property
    def pieces(self) -> list[str]:
        return [piece for piece in re.split(r"[\r\n]+", self.output) if piece.strip()]


def _start(*arguments: str, **env: str) -> Started:
    output = io.StringIO()  # both streams, as in a file with 2>&1
    # Waits shorter than a moment are not waited for: a start takes no real time.
    options = parse_options([*arguments, "--speed", "1e12"], env)
    server = Server(options, FakeClock(), {"stdout": output, "stderr": output})
    try:
        engine = asyncio.run(server.start())
    except EngineFailed as failure:
        engine_failed(server.world, failure)
        return Started(server, output.getvalue(), failure=failure)
    return Started(server, output.getvalue(), engine=engine)


def _events(output: str) -> list[Event]:
    parser, assembler = Parser(shipped_rules()), Assembler()
    lines = [*assembler.feed(output.encode(), None), *assembler.close()]
    events = [event for line in lines for event in parser.feed(line)]
    events += parser.close()
    assert parser.unparsed == 0
    return events


def _only(events: list[Event], kind: str) -> Event:
    (event,) = [event for event in events if event.kind == kind]
    return event


def _amount(event: Event, name: str) -> Amount:
    value = event.fields[name]
    assert isinstance(value, Amount)
    return value


def test_the_memory_lines_of_the_public_sample_come_out() -> None:
    """Llama-3.1-8B on Gaudi2 at 0.9 and 0.1: 79.22, 71.3, 7.13 and 64.17 GiB, 4107 blocks.

    The sample is of the older engine.  This one takes one dummy block off the cache, so
    that the cache and one block make the sample's figures.
    """
    events = _events(_start(*_SAMPLE).output)
    split = _only(events, "memory_split")
    assert _amount(split, "free").printed == "79.22 GiB"
    assert _amount(split, "usable").printed == "71.3 GiB"
    assert _amount(split, "graphs").printed == "7.13 GiB"
    assert _amount(split, "dummy").printed == "16 MiB"
    cache = _amount(split, "kv").bytes + _amount(split, "dummy").bytes
    assert cache / GIB == pytest.approx(64.17, abs=0.01)
    assert _only(events, "kv_alloc_v1").fields["usable"] == 4107 - 1


def test_every_figure_of_a_start_is_understood() -> None:
    events = _events(_start(*_SAMPLE).output)
    kinds = [event.kind for event in events]
    order = [
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
        "warmup_progress",
        "graph_summary",
        "warmup_finished",
        "engine_init_time",
    ]
    assert set(order) <= set(kinds)
    last = {kind: at for at, kind in enumerate(kinds)}
    assert sorted(order, key=last.__getitem__) == order


def test_each_phase_ends_at_its_last_bucket() -> None:
    started = _start(*_SAMPLE)
    lists = {
        event.fields["phase"]: event.fields["n"]
        for event in _events(started.output)
        if event.kind == "buckets_generated"
    }
    assert lists == {"prompt": 70, "decode": 45}
    bars = [e.fields for e in _events(started.output) if e.kind == "warmup_progress"]
    for phase, total in lists.items():
        last = [bar for bar in bars if bar["phase"] == phase][-1]
        assert (last["i"], last["n"]) == (total, total)


def test_one_seed_prints_one_log() -> None:
    first, second = _start(*_SMALL), _start(*_SMALL)
    assert first.output == second.output
    assert _start(*_SMALL, "--seed", "1").output != first.output


def test_every_rank_prints_its_own_memory_lines() -> None:
    started = _start("--model", "llama-3.1-70b", *_SMALL)
    speakers = [
        event.speaker.rank
        for event in _events(started.output)
        if event.kind == "memory_split"
    ]
    assert speakers == [0, 1, 2, 3]
    assert "(Worker_TP3 pid=" in started.output
    assert started.output.count("GPU KV cache size") == 1


def test_developer_mode_tells_each_bucket_and_what_is_left() -> None:
    started = _start(*_SMALL, VLLM_DEVELOPER_MODE="1")
    rows = [p for p in started.pieces if "[Warmup][Prompt]" in p]
    assert re.search(
        r"\[Warmup\]\[Prompt\]\[1/\d+\] batch_size:1 query_len:2048 num_blocks:\d+"
        r" free_mem:\d",
        rows[0],
    )
    free = [
        _amount(event, "free").bytes
        for event in _events(started.output)
        if event.kind == "warmup_bucket"
    ]
    assert free == sorted(free, reverse=True)


def test_skipped_warmup_says_so_and_leaves_every_shape_cold() -> None:
    started = _start(*_SMALL, VLLM_SKIP_WARMUP="true")
    kinds = [event.kind for event in _events(started.output)]
    assert kinds.count("warmup_skipped") == 2
    assert kinds.count("buckets_generated") == 4
    assert "warmup processing" not in started.output
    assert started.server.world.memory.graph_bytes == {}


def test_eager_mode_reserves_nothing_and_captures_nothing() -> None:
    started = _start(*_SMALL, "--enforce-eager")
    split = _only(_events(started.output), "memory_split")
    assert _amount(split, "graphs").printed == "0 B"
    assert "captured:" not in started.output


def test_a_bad_reserve_is_a_warning() -> None:
    started = _start(*_SMALL, VLLM_GRAPH_RESERVED_MEM="a lot")
    assert "Invalid VLLM_GRAPH_RESERVED_MEM value, using default 0.1" in started.output
    split = _only(_events(started.output), "memory_split")
    assert split.fields["grm"] == 0.1


def test_the_smaller_the_reserve_the_more_blocks() -> None:
    few = _start(*_SMALL, VLLM_GRAPH_RESERVED_MEM="0.4").engine
    many = _start(*_SMALL, VLLM_GRAPH_RESERVED_MEM="0.05").engine
    assert few is not None
    assert many is not None
    assert many.scheduler.num_blocks > 1.5 * few.scheduler.num_blocks


def test_warmup_dies_of_memory_when_reserve_and_margin_are_too_small() -> None:
    arguments = (*_SAMPLE[:-1], "0.995")
    started = _start(*arguments, VLLM_GRAPH_RESERVED_MEM="0.001")
    assert started.failure is not None
    faults = [e for e in _events(started.output) if e.kind == "fault"]
    roots = [event for event in faults if event.fields["root"]]
    assert {event.fields["name"] for event in roots} == {"device_oom_devmem"}
    assert "Engine core initialization failed" in started.pieces[-1]
    # A larger reserve is all that it needs.
    assert _start(*arguments, VLLM_GRAPH_RESERVED_MEM="0.04").failure is None


def test_a_model_that_does_not_fit_dies_while_loading() -> None:
    started = _start("--model", "llama-3.1-70b", "--tensor-parallel-size", "1")
    assert started.failure is not None
    assert "PT_DEVMEM" in started.failure.reason
    assert "memory_split" not in [e.kind for e in _events(started.output)]


@pytest.mark.parametrize(
    ("arguments", "env", "reason"),
    [
        ((), {"VLLM_BUCKETING_STRATEGY": "linear"}, "Invalid bucketing strategy"),
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
            ("--model", "qwen-32b", "--max-model-len", "200000"),
            {},
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


def test_exponential_warns_of_what_it_ignores() -> None:
    output = _start(*_SMALL, VLLM_DECODE_BS_BUCKET_STEP="4").output
    warning = "VLLM_DECODE_BS_BUCKET_STEP=4 will be overwritten!"
    assert warning in output
    assert warning not in _start(*_SMALL, VLLM_PROMPT_QUERY_BUCKET_STEP="4").output


def test_the_older_strategy_switch_is_told() -> None:
    output = _start(*_SMALL, VLLM_EXPONENTIAL_BUCKETING="false").output
    assert "VLLM_EXPONENTIAL_BUCKETING is deprecated" in output
    assert "Overriding bucketing strategy exp with lin" in output
    assert "Prompt bucket config (min, step, max_warmup) bs:" in output


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
        # _events() itself asserts that no line was unknown.
        assert _events(started.output)


def test_larger_steps_make_fewer_buckets_and_a_shorter_warmup() -> None:
    lin = {"VLLM_BUCKETING_STRATEGY": "lin"}
    fine = _start(*_SMALL, **lin)
    coarse = _start(*_SMALL, **lin, VLLM_PROMPT_QUERY_BUCKET_STEP="512")
    seconds = [
        _only(_events(s.output), "warmup_finished").fields["s"] for s in (fine, coarse)
    ]
    assert isinstance(seconds[0], float)
    assert isinstance(seconds[1], float)
    assert seconds[1] < seconds[0] / 1.5


def test_the_largest_bucket_is_warmed_first() -> None:
    started = _start(*_SMALL, VLLM_DEVELOPER_MODE="1")
    first = next(e for e in _events(started.output) if e.kind == "warmup_bucket")
    assert started.engine is not None
    largest = started.engine._shapes.buckets["prompt"][-1]
    fields = first.fields
    shape = Bucket(*(int(str(fields[n])) for n in ("bs", "query_len", "num_blocks")))
    assert shape == largest


def test_a_stop_ends_the_start_at_its_next_wait() -> None:
    async def stop_early(server: Server) -> None:
        server.ask_stop()
        await server.start()

    output = io.StringIO()
    options = parse_options(["--speed", "1e12"], {})
    server = Server(options, FakeClock(), {"stdout": output, "stderr": output})
    with pytest.raises(Stopped):
        asyncio.run(stop_early(server))
    assert "Starting to load model" not in output.getvalue()
