"""Durations of the simulated machine: their laws, their fit, and what is hidden of them."""

from __future__ import annotations

import asyncio
import io
from dataclasses import astuple, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpuwatch.gaudi.buckets import DECODE, PROMPT, Bucket
from hpuwatch.sim.config.options import parse_options
from hpuwatch.sim.models.presets import MODELS
from hpuwatch.sim.serve.schedule import Request
from hpuwatch.sim.server import Server
from hpuwatch.sim.truth.compiling import CompileLaw
from hpuwatch.sim.truth.tempo import FITTED, PEAKS, StepLaw, work_of
from hpuwatch.sim.truth.times import TimeTruth
from hpuwatch.testing.clock import FakeClock
from tests.throughput_points import figures, fit, law, points

pytestmark = pytest.mark.unit

_BATCHES, _LENGTHS = st.integers(1, 512), st.integers(1, 16384)


def _times(*arguments: str, **env: str) -> TimeTruth:
    options = parse_options(arguments, env)
    return Server(options, FakeClock(), {}).world.times


def _exact(*arguments: str, **env: str) -> TimeTruth:
    return _times("--noise", "0", "--misfit", "0", *arguments, **env)


def _law(preset: str, ranks: int = 1, card: str = "gaudi2") -> StepLaw:
    model = MODELS[preset]
    weight_bytes = model.checkpoint_bytes / model.parameters
    return StepLaw(work_of(model, 131072, weight_bytes), PEAKS[card], ranks)


def _compiled(times: TimeTruth, phase: str, bucket: Bucket, **told: Any) -> float:
    return times.compile_seconds(
        phase, bucket, **{"first": False, "cached": False} | told
    )


@given(_BATCHES, _LENGTHS)
def test_a_larger_bucket_never_runs_faster(batch: int, tokens: int) -> None:
    steps = _law("llama-3.1-8b")
    decode = steps.decode(batch, tokens).seconds
    assert steps.decode(batch + 1, tokens).seconds > decode
    assert steps.decode(batch, tokens + 128).seconds > decode
    prompt = steps.prompt(batch, tokens, 0).seconds
    assert steps.prompt(batch + 1, tokens, 0).seconds > prompt
    assert steps.prompt(batch, tokens + 1, 0).seconds > prompt
    assert steps.prompt(batch, tokens, 128).seconds > prompt


def test_a_small_decode_is_bound_by_reading_and_a_long_prompt_by_arithmetic() -> None:
    steps = _law("llama-3.1-8b")
    decode, prompt = steps.decode(8, 8192), steps.prompt(1, 8192, 0)
    assert decode.memory > 0.5 * decode.seconds
    assert prompt.arithmetic > 0.9 * prompt.seconds
    assert decode.links == 0


def test_attention_makes_one_long_prompt_dearer_than_many_short_ones() -> None:
    steps = _law("llama-3.1-8b")
    assert steps.prompt(1, 65536, 0).seconds > 1.3 * steps.prompt(32, 2048, 0).seconds


def test_cards_share_the_work_and_pay_for_their_links() -> None:
    one, four = _law("llama-3.1-70b"), _law("llama-3.1-70b", ranks=4)
    assert four.prompt(1, 4096, 0).links > 0
    speedup = one.prompt(1, 4096, 0).seconds / four.prompt(1, 4096, 0).seconds
    assert 2 < speedup < 4


def test_the_newer_card_is_faster() -> None:
    old, new = _law("llama-3.1-8b"), _law("llama-3.1-8b", card="gaudi3")
    assert new.decode(64, 65536).seconds < old.decode(64, 65536).seconds
    assert new.prompt(1, 4096, 0).seconds < old.prompt(1, 4096, 0).seconds


def test_fp8_is_read_in_half_the_time_and_multiplied_faster_on_gaudi2() -> None:
    model = MODELS["llama-3.1-8b"]
    bf16, fp8 = (
        StepLaw(work_of(model, 0, weight_bytes), PEAKS["gaudi2"], 1)
        for weight_bytes in (2, 1)
    )
    assert fp8.decode(1, 0).memory == pytest.approx(bf16.decode(1, 0).memory / 2)
    assert fp8.prompt(1, 512, 0).arithmetic < 0.6 * bf16.prompt(1, 512, 0).arithmetic


def test_the_more_tokens_the_more_experts_are_read() -> None:
    model = MODELS["qwen3-30b-a3b"]
    work = work_of(model, 0, 2)
    one, many = work.read_bytes(1), work.read_bytes(512)
    assert one == pytest.approx(2 * (work.multiplied + work.head_parameters))
    assert many == pytest.approx(2 * work.met, rel=0.01)
    dense = work_of(MODELS["llama-3.1-8b"], 0, 2)
    assert dense.read_bytes(1) == pytest.approx(dense.read_bytes(512), rel=0.08)


def test_the_efficiency_is_what_the_fitted_half_gives() -> None:
    known = [point for point in points() if point.is_fitted]
    assert len(known) == len(points()) / 2
    assert figures(fit(known)) == pytest.approx(astuple(FITTED), rel=0.01)


def test_the_other_half_is_predicted_within_a_quarter() -> None:
    errors = {
        (point.model, point.cards, point.input_tokens, point.output_tokens): abs(
            law(point) / point.tokens_per_second - 1
        )
        for point in points()
        if not point.is_fitted
    }
    assert max(errors.values()) < 0.25, errors
    assert sorted(errors.values())[len(errors) // 2] < 0.12, errors


def test_a_recipe_saves_the_compilation_and_leaves_the_trace() -> None:
    bf16, fp8 = (
        CompileLaw.of(32, lazy=True, fp8=fp8, experts=False, ranks=1)
        for fp8 in (False, True)
    )
    bucket = Bucket(1, 1024, 0)
    assert fp8.trace_seconds(PROMPT) == bf16.trace_seconds(PROMPT)
    assert fp8.compile_seconds(PROMPT, bucket) > 8 * bf16.compile_seconds(
        PROMPT, bucket
    )
    times = _exact()
    assert _compiled(times, PROMPT, bucket, cached=True) < 0.5 * _compiled(
        times, PROMPT, bucket
    )


def test_graphs_cost_more_with_layers_experts_and_ranks() -> None:
    bucket = Bucket(8, 1, 128)

    def seconds(layers: int = 32, ranks: int = 1, *, experts: bool = False) -> float:
        told = CompileLaw.of(layers, lazy=True, fp8=False, experts=experts, ranks=ranks)
        return told.compile_seconds(DECODE, bucket)

    assert seconds(layers=64) == pytest.approx(2 * seconds())
    assert seconds(ranks=8) > 1.3 * seconds()
    assert seconds(experts=True) > 1.5 * seconds()


def test_the_first_graph_of_a_phase_is_dearer_and_of_the_process_dearest() -> None:
    bucket, times = Bucket(1, 1024, 0), _exact()
    process, phase, usual = (
        _compiled(times, PROMPT, bucket, first=first) for first in (True, True, False)
    )
    assert process > phase + 5 > usual + 5
    traffic = _compiled(times, PROMPT, bucket, first=True, during="traffic")
    assert traffic > process


def test_whoever_runs_first_pays_for_the_cold_process() -> None:
    profiled, idle = _exact(), _exact()
    assert profiled.profile_seconds(1, 8192) > 10
    assert idle.profile_seconds() < 1
    assert idle.sampler_seconds(9) > 2 * profiled.sampler_seconds(9)


def test_the_first_use_of_a_shape_costs_much_more_than_its_later_ones() -> None:
    times, bucket = _exact(), Bucket(8, 1, 128)
    first = times.first_use_seconds(DECODE, bucket)
    assert first > 10 * times.step_seconds(DECODE, bucket)


def test_lazy_mode_and_torch_compile_are_not_alike() -> None:
    bucket = Bucket(64, 1, 4096)
    modes = {
        mode: _compiled(_exact(PT_HPU_LAZY_MODE=mode), DECODE, bucket) for mode in "01"
    }
    assert modes["1"] > 1.3 * modes["0"]


def test_one_seed_is_one_truth_and_noise_is_repeatable() -> None:
    shapes = [Bucket(1, 128 * n, n) for n in range(1, 40)]

    def told(seed: int) -> list[float]:
        times = _times("--seed", str(seed))
        return [_compiled(times, PROMPT, shape) for shape in shapes]

    assert told(3) == told(3)
    assert told(3) != told(4)


def test_noise_is_a_parameter() -> None:
    times = _times("--noise", "0.1")
    steps = [times.step_seconds(DECODE, Bucket(8, 1, 128)) for _ in range(500)]
    mean = sum(steps) / len(steps)
    spread = (sum((step - mean) ** 2 for step in steps) / len(steps)) ** 0.5
    assert 0.08 < spread / mean < 0.12
    exact = _exact()
    assert len({exact.step_seconds(DECODE, Bucket(8, 1, 128)) for _ in range(9)}) == 1


@pytest.mark.parametrize("misfit", [0, 1, 2])
def test_misfit_decides_how_far_the_truth_departs_from_the_law(misfit: int) -> None:
    """Slopes up to 30 % off each, and slow graphs and shapes besides."""
    shapes = [Bucket(batch, 1, 16 * batch) for batch in range(1, 121)]
    public, off = _exact(), 0.0
    for seed in range(4):
        words = ("--noise", "0", "--misfit", str(misfit), "--seed", str(seed))
        times = _times(*words)
        steps = [
            times.step_seconds(DECODE, s) / public.step_seconds(DECODE, s)
            for s in shapes
        ]
        off = max(off, *(abs(ratio - 1) for ratio in steps))
        graphs = [
            _compiled(times, DECODE, s) / _compiled(public, DECODE, s) for s in shapes
        ]
        slow = sum(ratio > 1.5 * sorted(graphs)[60] for ratio in graphs)
        assert (slow > 0) == (misfit > 0)
    assert off == pytest.approx(0) if not misfit else 0.15 * misfit < off < 1.2 * misfit


def test_beyond_a_kink_steps_slow_down_at_another_rate() -> None:
    changes = []
    for seed in range(6):
        times = _times("--noise", "0", "--seed", str(seed))
        bend = times._hidden.tempi[PROMPT].arithmetic
        below = _seconds_of_a_prompt(times, range(1, bend.kink_at // 128 + 1))
        above = _seconds_of_a_prompt(times, range(bend.kink_at // 128 + 1, 256))
        assert above / below == pytest.approx(bend.beyond, rel=0.05)
        changes.append(above / below)
    assert max(changes) - min(changes) > 0.3


def _seconds_of_a_prompt(times: TimeTruth, batches: range) -> float:
    """Return what a prompt of 128 tokens more takes, in batches that are in line."""
    usual = [
        batch
        for batch in batches
        if times._hidden.outlier("step", PROMPT, Bucket(batch, 128, 0)) == 1
    ]
    first, last = usual[0], usual[-1]
    spent = [times.step_seconds(PROMPT, Bucket(each, 128, 0)) for each in (first, last)]
    return (spent[1] - spent[0]) / (last - first)


@pytest.mark.parametrize("misfit", [0, 1, 2])
def test_a_decode_grows_with_the_logarithm_of_its_batch_as_no_planner_knows(
    misfit: int,
) -> None:
    times = _times("--noise", "0", "--misfit", str(misfit), "--seed", "5")
    for batch in (1, 4, 64):
        shape = Bucket(batch, 1, 8 * batch)
        assert times._hidden.outlier("step", DECODE, shape) == 1
        parts = times._steps.decode(batch, 128 * shape.context)
        by_law = times._hidden.tempi[DECODE].seconds(parts, batch)
        more = times.step_seconds(DECODE, shape) / by_law - 1
        assert more == pytest.approx(0.02 * misfit * (batch.bit_length() - 1))


def test_compiling_grows_with_the_logarithm_of_the_size_as_no_planner_knows() -> None:
    """The law of torch.compile's decodes is flat in their blocks; the truth is not."""
    flat, hidden = _exact(), _times("--noise", "0", "--seed", "2")
    small, large = Bucket(4, 1, 16), Bucket(4, 1, 4096)
    assert _compiled(flat, DECODE, small) == _compiled(flat, DECODE, large)
    assert _compiled(hidden, DECODE, large) > 1.05 * _compiled(hidden, DECODE, small)


def test_loading_follows_the_size_of_the_whole_model() -> None:
    """Public logs: 4.1 s for 15 GiB, 7.6 s for 34.8 GiB, 72 s for 635 GiB on 8 cards."""
    small, large = (_exact("--model", name) for name in ("llama-3.1-8b", "deepseek-r1"))
    assert 3 < small.load_seconds() < 6
    assert 50 < large.load_seconds() < 110


def test_the_natural_length_depends_on_the_prompt_alone() -> None:
    assert _times().natural_length("a b") == _times().natural_length("a b")


def test_a_model_of_half_the_layers_runs_in_half_the_launch_time() -> None:
    work = _law("llama-3.1-8b").work
    half = StepLaw(replace(work, layers=work.layers // 2), PEAKS["gaudi2"], 1)
    saved = _law("llama-3.1-8b").decode(1, 0).launch - half.decode(1, 0).launch
    assert saved == pytest.approx(work.layers / 2 * FITTED.layer_seconds)


def test_first_traffic_is_slower_than_later_traffic() -> None:
    """Published: 9.1 s to the first token at the 99th percentile, and 0.9 s later."""
    server = Server(
        parse_options((*_SMALL, "--noise", "0"), {}),
        FakeClock(),
        {"stdout": io.StringIO(), "stderr": io.StringIO()},
    )
    first, later = asyncio.run(_two_bursts(server))
    assert first > 3 * later


_SMALL = ("--max-num-seqs", "8", "--max-model-len", "2048", "--speed", "1e12")


async def _two_bursts(server: Server) -> list[float]:
    """Return the mean time to the first token of two equal bursts."""
    engine = await server.start()
    running, means = asyncio.ensure_future(engine.run()), []
    for _ in range(2):
        began = server.world.pace.passed
        jobs = [engine.submit(Request(700, 40)) for _ in range(8)]
        await asyncio.wait([job.over for job in jobs])
        means.append(sum((job.first_token or 0) - began for job in jobs) / 8)
    running.cancel()
    return means
