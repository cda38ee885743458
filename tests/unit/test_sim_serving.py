"""Serving in simulated time: what costs time, what runs out, and what is counted."""

from __future__ import annotations

import asyncio
import io
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from hpuwatch.sim.config.options import parse_options
from hpuwatch.sim.pace import Pace
from hpuwatch.sim.serve.engine import Engine
from hpuwatch.sim.serve.metrics import exposition
from hpuwatch.sim.serve.schedule import Request
from hpuwatch.sim.serve.stats import Stats
from hpuwatch.sim.server import Server
from hpuwatch.sim.truth.device import DeviceFull
from hpuwatch.sim.world import EngineFailed
from hpuwatch.testing.clock import FakeClock

pytestmark = pytest.mark.unit

_LONG = ("--max-num-seqs", "128", "--max-model-len", "8192", "--noise", "0")


@dataclass(frozen=True)
class Served:
    """What a load did to a server."""

    server: Server
    engine: Engine
    stats: Stats
    stream: io.StringIO
    seconds: float
    tokens: int
    taken_bytes: int  # of device memory, while serving

    @property
    def output(self) -> str:
        return self.stream.getvalue()

    @property
    def tokens_per_second(self) -> float:
        return self.tokens / self.seconds


def _server(
    arguments: Sequence[str], env: dict[str, str]
) -> tuple[Server, io.StringIO]:
    output = io.StringIO()
    options = parse_options([*arguments, "--speed", "1e12"], env)
    return Server(options, FakeClock(), {"stdout": output, "stderr": output}), output


async def _serve(
    arguments: Sequence[str],
    env: dict[str, str],
    asked: Sequence[Request],
    at_once: int,
) -> Served:
    server, output = _server(arguments, env)
    engine = await server.start()
    running = asyncio.ensure_future(engine.run())
    gate = asyncio.Semaphore(at_once)
    stats = Stats(server.world, engine)

    async def one(asked: Request) -> None:
        async with gate:
            await engine.submit(asked).over

    began, memory = server.world.pace.passed, server.world.memory
    used_bytes = memory.used_bytes
    await asyncio.gather(*(one(each) for each in asked))
    stats.tell()
    engine.gauges()
    running.cancel()
    seconds = server.world.pace.passed - began
    tokens = sum(each.end_tokens for each in asked)
    taken_bytes = memory.used_bytes - used_bytes
    return Served(server, engine, stats, output, seconds, tokens, taken_bytes)


def _load(
    *arguments: str,
    env: dict[str, str] | None = None,
    sizes: Sequence[tuple[int, int]] = ((300, 20),) * 8,
    asked: Sequence[Request] = (),
    at_once: int = 8,
) -> Served:
    asked = asked or [Request(prompt, end) for prompt, end in sizes]
    return asyncio.run(_serve([*_LONG, *arguments], env or {}, asked, at_once))


def _heavy(count: int = 250) -> list[tuple[int, int]]:
    dice = random.Random(1)  # noqa: S311  a repeatable load
    return [(dice.randint(1000, 5000), dice.randint(500, 2500)) for _ in range(count)]


def test_more_kv_blocks_serve_more_tokens_when_many_ask() -> None:
    wasteful = _load(
        env={"VLLM_GRAPH_RESERVED_MEM": "0.4"}, sizes=_heavy(), at_once=192
    )
    lean = _load(env={"VLLM_GRAPH_RESERVED_MEM": "0.03"}, sizes=_heavy(), at_once=192)
    assert lean.tokens_per_second > 1.1 * wasteful.tokens_per_second
    assert wasteful.engine.scheduler.preemptions > lean.engine.scheduler.preemptions


def test_when_few_ask_more_kv_blocks_change_nothing() -> None:
    wasteful = _load(env={"VLLM_GRAPH_RESERVED_MEM": "0.4"})
    lean = _load(env={"VLLM_GRAPH_RESERVED_MEM": "0.03"})
    assert lean.tokens_per_second == pytest.approx(wasteful.tokens_per_second, rel=0.01)


def test_padding_costs_time() -> None:
    """Coarse buckets pad more than fine ones; traffic of 600 tokens shows it."""
    short = ("--max-model-len", "2048")
    lin = {"VLLM_BUCKETING_STRATEGY": "lin"}
    rough = lin | {"VLLM_PROMPT_QUERY_BUCKET_STEP": "1024"}
    sizes = [(600, 2)] * 200
    fine = _load(*short, env=lin, sizes=sizes)
    coarse = _load(*short, env=rough, sizes=sizes)
    assert coarse.seconds > 1.15 * fine.seconds
    assert (
        coarse.server.world.memory.graph_bytes["prompt"]
        < (fine.server.world.memory.graph_bytes["prompt"])
    )


def test_merged_prefills_run_as_one_graph() -> None:
    """A cold server tells each shape that it runs."""
    cold = {"VLLM_SKIP_WARMUP": "true"}
    single = _load(env=cold, sizes=[(100, 2)] * 4)
    merged = _load(env=cold | {"VLLM_PROMPT_BS_BUCKET_MAX": "4"}, sizes=[(100, 2)] * 4)
    assert "('prompt', 1, 128, 0) was not warmed-up!" in single.output
    assert "('prompt', 4, 128, 0) was not warmed-up!" in merged.output
    assert "('prompt', 1, 128, 0) was not" not in merged.output


def test_first_traffic_is_slower_than_later_traffic() -> None:
    once = _load(sizes=[(300, 20)] * 8)
    twice = _load(sizes=[(300, 20)] * 16)
    assert twice.seconds < 1.9 * once.seconds


def test_a_cold_shape_is_told_once_and_costs_its_compilation() -> None:
    cold = _load(env={"VLLM_SKIP_WARMUP": "true"})
    warm = _load()
    assert cold.seconds > 3 * warm.seconds
    lines = [line for line in cold.output.splitlines() if "was not warmed-up!" in line]
    assert lines
    assert len({line.partition("Configuration")[2] for line in lines}) == len(lines)
    assert "was not warmed-up!" not in warm.output
    assert cold.taken_bytes > warm.taken_bytes


def test_eager_mode_compiles_nothing_and_is_slower() -> None:
    sizes = [(300, 150)] * 64
    eager = _load("--enforce-eager", sizes=sizes)
    assert "was not warmed-up!" not in eager.output
    assert eager.seconds > 1.2 * _load(sizes=sizes).seconds


def test_a_graph_that_does_not_fit_kills_the_engine() -> None:
    env = {"VLLM_SKIP_WARMUP": "true", "VLLM_GRAPH_RESERVED_MEM": "0"}

    async def die() -> Engine:
        server, _ = _server([*_LONG, "--gpu-memory-utilization", "0.9995"], env)
        engine = await server.start()
        engine.submit(Request(2048, 5))
        with pytest.raises(DeviceFull):
            await engine.run()
        return engine

    engine = asyncio.run(die())
    assert engine.broken
    assert engine.abort("error") == 1


def test_a_client_that_hangs_up_frees_its_place() -> None:
    async def hang_up() -> Engine:
        server, _ = _server(_LONG, {})
        engine = await server.start()
        running = asyncio.ensure_future(engine.run())
        gone, stays = engine.submit(Request(100, 500)), engine.submit(Request(100, 50))
        await asyncio.sleep(0)
        engine.cancel(gone)
        await gone.over
        assert gone.finish_reason == "abort"
        await stays.over
        running.cancel()
        return engine

    engine = asyncio.run(hang_up())
    assert engine.tally.finished == {"abort": 1, "length": 1}
    assert engine.scheduler.pool.used == 0


def test_everything_is_counted_under_vllms_names() -> None:
    served = _load(sizes=[(300, 20)] * 8)
    page = exposition(served.engine.tally).decode()
    samples = {
        sample.name: sample
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }
    labels = {"model_name": "meta-llama/Llama-3.1-8B-Instruct", "engine": "0"}
    assert samples["vllm:generation_tokens_total"].value == 160
    assert samples["vllm:prompt_tokens_total"].value == 2400
    assert samples["vllm:num_requests_running"].labels == labels
    assert samples["vllm:kv_cache_usage_perc"].value == 0
    assert samples["vllm:time_to_first_token_seconds_count"].value == 8
    assert samples["vllm:e2e_request_latency_seconds_count"].value == 8
    assert samples["vllm:inter_token_latency_seconds_count"].value == 152
    assert samples["vllm:cache_config_info"].labels["num_gpu_blocks"] == str(
        served.engine.scheduler.pool.count + 1
    )
    assert samples["hpuwatch_simulated"].value == 1
    finished = [
        sample
        for family in text_string_to_metric_families(page)
        for sample in family.samples
        if sample.name == "vllm:request_success_total" and sample.value
    ]
    assert [sample.labels["finished_reason"] for sample in finished] == ["length"]


def test_a_client_that_is_slow_to_ask_again_changes_nothing() -> None:
    async def serve(turns: int) -> tuple[float, float]:
        server, _ = _server(_LONG, {})
        engine = await server.start()
        running = asyncio.ensure_future(engine.run())

        async def client(end: int) -> None:
            for _ in range(4):
                for _ in range(turns):
                    await asyncio.sleep(0)
                await engine.submit(Request(300, end)).over

        await asyncio.gather(client(20), client(35), client(50))
        engine.gauges()
        running.cancel()
        made = engine.tally.histograms["iteration_tokens_total"].total
        return engine.tally.gauges["busy_seconds"], made

    assert asyncio.run(serve(turns=60)) == asyncio.run(serve(turns=0))


def test_waiting_for_clients_is_no_busy_time() -> None:
    """A busy machine makes clients slow, which must not make the server slow."""

    async def serve(idle_seconds: float) -> tuple[float, float]:
        output, clock = io.StringIO(), FakeClock()
        options = parse_options([*_LONG, "--speed", "1e12"], {})
        server = Server(options, clock, {"stdout": output, "stderr": output})
        engine = await server.start()
        running = asyncio.ensure_future(engine.run())
        server.world.pace.change_speed(50.0)
        began = server.world.pace.passed
        for _ in range(2):
            await engine.submit(Request(300, 5)).over
            clock.wait(idle_seconds)
        engine.gauges()
        running.cancel()
        gauges = engine.tally.gauges
        return gauges["busy_seconds"], gauges["simulated_seconds"] - began

    busy, passed = asyncio.run(serve(100.0))
    assert busy == pytest.approx(asyncio.run(serve(0.0))[0])
    assert 0 < busy < 10
    assert passed > 199 * 50


def test_the_engine_line_tells_throughput_in_simulated_seconds() -> None:
    served = _load(sizes=[(300, 20)] * 8)
    (line,) = [row for row in served.output.splitlines() if "Engine 000:" in row]
    expected = served.tokens / served.seconds
    assert f"Avg generation throughput: {expected:.1f} tokens/s" in line
    assert "Running: 0 reqs, Waiting: 0 reqs, GPU KV cache usage: 0.0%" in line


def test_preemptions_stand_in_the_engine_line() -> None:
    served = _load(
        env={"VLLM_GRAPH_RESERVED_MEM": "0.4"}, sizes=_heavy(150), at_once=150
    )
    count = served.engine.scheduler.preemptions
    assert count
    assert f"Preemptions: {count}, GPU KV cache usage" in served.output


def test_simulated_time_never_runs_ahead_of_the_clock() -> None:
    async def measure() -> tuple[float, float]:
        clock = FakeClock()
        pace = Pace(clock, speed=1e6)
        await pace.spend(50.0)
        clock.wait(1.0)
        pace.pass_idle()
        return pace.passed, pace.stamp() - (clock.now() - 1.0)

    passed, stamped = asyncio.run(measure())
    assert passed == 1e6
    assert stamped == pytest.approx(1e6)


def test_the_present_lies_in_the_midst_of_what_is_spent() -> None:
    async def before_the_end(real_seconds: float) -> float:
        clock = FakeClock()
        pace = Pace(clock, speed=100.0)
        clock.wait(0.1)
        pace.pass_idle()
        spending = asyncio.ensure_future(pace.spend(1.0))
        await asyncio.sleep(0)
        clock.wait(real_seconds)
        spending.cancel()
        return pace.passed - pace.present

    assert asyncio.run(before_the_end(0.0)) == pytest.approx(1.0)
    assert asyncio.run(before_the_end(0.005)) == pytest.approx(0.5, abs=0.001)
    assert asyncio.run(before_the_end(0.02)) == 0


def test_who_comes_during_a_step_waits_for_its_end() -> None:
    async def wait() -> float:
        server, _ = _server(_LONG, {})
        engine = await server.start()
        running = asyncio.ensure_future(engine.run())
        made = asyncio.Event()
        engine.submit(Request(100, 50), lambda _job, _tokens: made.set())
        await made.wait()  # and the next step begins
        late = engine.submit(Request(100, 1))
        await late.over
        running.cancel()
        assert late.started is not None
        return late.started - late.arrived

    assert asyncio.run(wait()) > 0


def test_a_long_lag_is_forgotten() -> None:
    async def lag() -> float:
        clock = FakeClock()
        pace = Pace(clock, speed=1.0)
        clock.wait(100.0)  # computing took far longer than the step
        await pace.spend(0.1)
        pace.pass_idle()
        return pace.passed

    assert asyncio.run(lag()) == pytest.approx(0.1)


def test_another_speed_goes_on_from_here() -> None:
    clock = FakeClock()
    pace = Pace(clock, speed=100.0)
    clock.wait(1.0)
    pace.pass_idle()
    pace.change_speed(10.0)
    clock.wait(1.0)
    pace.pass_idle()
    assert pace.passed == pytest.approx(110.0)
    assert pace.real_seconds(10.0) == pytest.approx(1.0)


def _shared_prefix(count: int) -> list[Request]:
    beginning = list(range(1500))
    return [
        Request(1600, 4, content=[*beginning, *[n] * 100])
        for n in range(10_000, 10_000 + count)
    ]


def test_a_shared_beginning_is_computed_once() -> None:
    on = _load(asked=_shared_prefix(40), at_once=4)
    off = _load("--no-enable-prefix-caching", asked=_shared_prefix(40), at_once=4)
    assert on.seconds < 0.6 * off.seconds
    assert on.engine.tally.prefix_hits > 0.8 * on.engine.tally.prefix_queries
    assert off.engine.tally.prefix_queries == 0
    rate = 100 * on.engine.scheduler.prefix.recent_rate
    assert f"Prefix cache hit rate: {rate:.1f}%" in on.output


def test_contiguous_attention_caches_no_prefix() -> None:
    served = _load(env={"VLLM_CONTIGUOUS_PA": "true"}, asked=_shared_prefix(8))
    assert served.engine.tally.prefix_hits == 0


def test_contiguous_attention_reads_up_to_the_highest_block() -> None:
    """Blocks are taken in turns, so that few requests soon lie far up, unless tidied."""
    env = {"VLLM_CONTIGUOUS_PA": "true", "VLLM_DEFRAG": "false"}
    sizes = [(1500, 40)] * 150
    loose = _load(env=env, sizes=sizes, at_once=4)
    tidy = _load(env=env | {"VLLM_DEFRAG": "true"}, sizes=sizes, at_once=4)
    assert tidy.seconds < 0.9 * loose.seconds


def test_a_line_tells_of_its_own_interval_only() -> None:
    served = _load(
        env={"VLLM_GRAPH_RESERVED_MEM": "0.4"}, sizes=_heavy(150), at_once=150
    )
    for _ in range(3):  # an idle engine says so once, then nothing
        served.stats.tell()
    lines = [row for row in served.output.splitlines() if "Engine 000:" in row]
    assert ["Preemptions:" in line for line in lines] == [True, False]
    assert "Avg generation throughput: 0.0 tokens/s" in lines[-1]


@pytest.mark.parametrize(("release", "lines"), [("fork-1.18", 4), ("fork-1.22", 2)])
def test_old_servers_tell_of_zeros(release: str, lines: int) -> None:
    served = _load("--release", release, sizes=[(300, 20)] * 2)
    for _ in range(3):
        served.stats.tell()
    assert served.output.count("Avg prompt throughput:") == lines


def test_the_fork_serves_with_its_own_scheduler() -> None:
    env = {"VLLM_CONTIGUOUS_PA": "false"}
    served = _load("--release", "fork-1.21", env=env, sizes=[(300, 20)] * 16)
    (line,) = [row for row in served.output.splitlines() if "Avg prompt" in row]
    assert "Swapped: 0 reqs, Pending: 0 reqs, GPU KV cache usage: 0.0%" in line
    assert served.engine.tally.finished == {"length": 16}


def test_who_can_never_run_keeps_nobody_busy() -> None:
    async def starve() -> tuple[str | None, str | None]:
        server, _ = _server(_LONG, {})
        engine = await server.start()
        running = asyncio.ensure_future(engine.run())
        blocks = engine.scheduler.pool.count
        hopeless = engine.submit(Request(blocks * 128 + 1, 5))
        for _ in range(20_000):  # chunk by chunk it takes all blocks there are
            await asyncio.sleep(0)
        steps = engine.steps
        for _ in range(100):
            await asyncio.sleep(0)
        assert engine.steps == steps
        engine.cancel(hopeless)
        later = engine.submit(Request(100, 5))
        await later.over
        running.cancel()
        return hopeless.finish_reason, later.finish_reason

    assert asyncio.run(starve()) == ("abort", "length")


def test_full_warmup_dies_of_a_shape_that_nobody_prepared(tmp_path: Path) -> None:
    buckets = tmp_path / "buckets.txt"
    buckets.write_text("(1, 128, 0)\n(1, 1, 8)\n", encoding="utf-8")
    env = {"VLLM_FULL_WARMUP": "true", "VLLM_BUCKETING_FROM_FILE": str(buckets)}

    async def die() -> str:
        server, _ = _server(_LONG, env)
        engine = await server.start()
        engine.submit(Request(2000, 5))
        with pytest.raises(EngineFailed) as failure:
            await engine.run()
        assert engine.broken
        return failure.value.reason

    assert "skip_guard_eval_unsafe" in asyncio.run(die())


def test_a_fallback_that_is_too_deep_is_cut_and_told(tmp_path: Path) -> None:
    buckets = tmp_path / "buckets.txt"
    buckets.write_text("(1, 128, 0)\n(1, 1, 8)\n", encoding="utf-8")
    env = {"VLLM_BUCKETING_FROM_FILE": str(buckets)}
    served = _load("--no-enable-chunked-prefill", env=env, sizes=[(1000, 3)] * 4)
    assert "Prompt bucket for (1, 1000, 0) was not prepared." in served.output
    assert "exceeds max prepared decode bucket ctx 8, capping." in served.output
