"""The truth of memory: repeatable, bounded by the card, and as far off as it is told."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpuwatch.gaudi.buckets import DECODE, PROMPT, Bucket
from hpuwatch.sim.config.knobs import read_knobs
from hpuwatch.sim.config.options import parse_options
from hpuwatch.sim.truth.device import LEAK, DeviceFull, Memory
from hpuwatch.sim.truth.memory import MemoryTruth
from hpuwatch.units import GIB, KIB, MIB
from tests.simulated import start

pytestmark = pytest.mark.unit

_BUCKETS = [Bucket(1, 128 * i, i) for i in range(1, 60)]
_BLOCKS = ("--block-size", "128")
_LAZY = {"PT_HPU_LAZY_MODE": "1"}
_VISION = ("--model", "qwen3-vl-32b", "--card", "gaudi3", "--max-model-len", "32768")
_HYBRID = ("--model", "qwen3.6-27b", "--card", "gaudi3")


def _truth(*arguments: str, **env: str) -> MemoryTruth:
    options = parse_options(arguments, env)
    return MemoryTruth(options, read_knobs(options))


def _memory(*arguments: str, **env: str) -> Memory:
    return Memory(_truth(*arguments, **env))


def _graphs(truth: MemoryTruth) -> list[int]:
    return [truth.graph_bytes(PROMPT, bucket) for bucket in _BUCKETS]


def _free_after_each(
    memory: Memory, phase: str, buckets: Sequence[Bucket]
) -> list[int]:
    curve = []
    for bucket in buckets:
        memory.warm(phase, bucket)
        curve.append(memory.free_bytes)
    return curve


class TestHidden:
    def test_one_seed_is_one_truth(self) -> None:
        assert _graphs(_truth("--seed", "3")) == _graphs(_truth("--seed", "3"))
        assert _graphs(_truth("--seed", "3")) != _graphs(_truth("--seed", "4"))

    def test_without_misfit_the_public_law_is_the_truth(self) -> None:
        truth = _truth("--misfit", "0", "--seed", "5")
        law = truth._model.law.graphs[PROMPT]
        for bucket in _BUCKETS:
            public = (
                law.fixed_bytes
                + law.token_bytes * bucket.query
                + law.block_bytes * bucket.context
            )
            assert abs(truth.graph_bytes(PROMPT, bucket) - public) < 64 * KIB
            assert truth.activation_bytes(PROMPT, bucket) == 0

    @pytest.mark.parametrize("seed", range(5))
    def test_misfit_hides_activations_and_some_heavy_graphs(self, seed: int) -> None:
        public = _graphs(_truth("--misfit", "0", "--seed", str(seed)))
        hidden = _graphs(_truth("--misfit", "2", "--seed", str(seed)))
        factors = [a / b for a, b in zip(hidden, public, strict=True)]
        assert max(factors) > 2 * sorted(factors)[len(factors) // 2]
        truth = _truth("--misfit", "2", "--seed", str(seed))
        assert truth.activation_bytes(PROMPT, Bucket(1, 8192, 0)) > 100 * MIB

    def test_slopes_stay_within_thirty_percent(self) -> None:
        slopes = [
            _truth("--seed", str(seed)).hidden.bends[phase].slope
            for seed in range(20)
            for phase in (PROMPT, DECODE)
        ]
        assert all(0.7 <= slope <= 1.3 for slope in slopes)
        assert max(slopes) - min(slopes) > 0.4

    def test_beyond_a_kink_graphs_grow_at_another_rate(self) -> None:
        changes = []
        for seed in range(6):
            truth = _truth("--seed", str(seed))
            bend = truth.hidden.bends[PROMPT]
            below = _bytes_of_a_token(truth, range(8, bend.kink_at, 8))
            above = _bytes_of_a_token(truth, range(bend.kink_at, 16384, 64))
            assert above / below == pytest.approx(bend.beyond, rel=0.05)
            changes.append(above / below)
        assert max(changes) - min(changes) > 0.3

    def test_one_rank_needs_more_with_the_largest_misfit_only(self) -> None:
        model = ("--model", "llama-3.3-70b")
        ranks = {
            _truth(*model, "--seed", str(seed), "--misfit", "2").hidden.heavy_rank
            for seed in range(12)
        }
        assert ranks == {0, 1, 2, 3}
        assert _truth(*model).hidden.heavy_rank_factor == 1


def _bytes_of_a_token(truth: MemoryTruth, lengths: range) -> float:
    """Return what a token more takes in the graphs of these prompts that are in line."""
    usual = [
        length
        for length in lengths
        if truth.hidden.outlier("heavy", PROMPT, Bucket(1, length, 0)) == 1
    ]
    first, last = usual[0], usual[-1]
    grown = [truth.graph_bytes(PROMPT, Bucket(1, each, 0)) for each in (first, last)]
    return (grown[1] - grown[0]) / (last - first)


class TestWeights:
    def test_cards_share_weights_and_kv_heads(self) -> None:
        truth = _truth(*_BLOCKS, "--model", "llama-3.1-70b", "--release", "fork-1.19")
        assert truth.weights_bytes / GIB == pytest.approx(32.95, abs=0.005)
        assert truth.block_bytes == 2 * 80 * 2 * 128 * 128 * 2
        assert _truth().block_bytes == 16 * MIB

    def test_weights_that_do_not_fit_are_the_end_of_loading(self) -> None:
        memory = _memory("--model", "llama-3.3-70b", "--tensor-parallel-size", "1")
        with pytest.raises(DeviceFull) as full:
            memory.load()
        assert full.value.use == "weights"
        assert memory.used_bytes == 0

    def test_inc_gives_back_in_v0_and_loads_from_the_host_in_v1(self) -> None:
        inc = ("--model", "qwen2.5-32b", "--quantization", "inc")
        old = _truth(*inc, "--release", "fork-1.20")
        assert old.inc_bytes / old.weights_bytes == pytest.approx(-0.48, abs=0.02)
        memory = Memory(old)
        memory.load()
        memory.convert()
        assert memory.used_bytes == old.weights_bytes + old.inc_bytes
        new = _truth(*inc, "--release", "plugin-0.26")
        assert new.weights_bytes == 0
        assert new.inc_bytes == pytest.approx(memory.used_bytes, rel=0.01)


class TestProfile:
    @pytest.mark.parametrize(
        ("tokens", "printed"), [(4 * 1024, 355 / 1024), (64 * 1024, 5.318)]
    )
    def test_v0_runs_its_largest_prompt(self, tokens: int, printed: float) -> None:
        truth = _truth("--release", "fork-1.20")
        assert truth.profile_bytes(tokens) / GIB == pytest.approx(printed, rel=1e-3)

    def test_the_plugin_only_initialises(self) -> None:
        assert _truth("--release", "plugin-0.26").profile_bytes(0) == 0
        early = _truth("--release", "plugin-0.11").profile_bytes(0)
        assert early == 16.5 * MIB


class TestCache:
    def test_v1_allocates_a_block_of_padding(self) -> None:
        cache = _truth().cache
        assert cache.dummy_bytes == 16 * MIB
        assert cache.allocated_bytes(100) == 101 * 16 * MIB
        old = _truth("--release", "fork-1.20").cache
        assert old.dummy_bytes == 0
        assert old.allocated_bytes(100) == 100 * 16 * MIB

    def test_a_cache_beyond_the_card_is_the_end_of_its_allocation(self) -> None:
        memory = _memory()
        memory.load()
        with pytest.raises(DeviceFull) as full:
            memory.make_cache(6000)
        assert full.value.use == "cache"

    def test_an_old_fork_s_cache_counts_as_free_until_the_first_step(self) -> None:
        memory = _memory(*_BLOCKS, "--release", "fork-1.18", "--misfit", "0")
        memory.load()
        memory.profile(1, 4096)
        before = memory.free_bytes
        memory.make_cache(1519)
        assert memory.free_bytes == before
        assert memory.total_bytes - memory.used_bytes < before
        memory.rehearse(PROMPT, Bucket(1, 128, 0))
        assert before - memory.free_bytes == 1519 * 16 * MIB

    def test_a_hybrid_s_pages_and_states_fit_into_the_lowered_budget(self) -> None:
        cache = _truth(*_HYBRID).cache
        budget = 90 * GIB
        assert cache.hybrid is not None
        assert 0 < cache.hybrid.percent < 60
        blocks = cache.blocks_in(budget)
        assert cache.allocated_bytes(blocks) <= budget + 2 * cache.dummy_bytes

    def test_an_older_release_allocates_more_than_a_hybrid_s_budget(self) -> None:
        cache = _truth(*_HYBRID, "--release", "plugin-0.17").cache
        assert cache.hybrid is None
        assert cache.allocated_bytes(cache.blocks_in(90 * GIB)) > 100 * GIB

    def test_compact_states_leave_the_budget_alone(self) -> None:
        cache = _truth(*_HYBRID, VLLM_COMPACT_GDN="1").cache
        assert cache.hybrid is None
        assert cache.lowered(90 * GIB) == 90 * GIB
        assert cache.allocated_bytes(cache.blocks_in(90 * GIB)) < 90 * GIB

    def test_v0_keeps_blocks_in_the_host_s_memory(self) -> None:
        assert _truth("--release", "fork-1.20").swap_blocks == 256
        assert _truth().swap_blocks == 0


class TestWarmup:
    def test_compiled_code_drops_once_and_later_graphs_are_free(self) -> None:
        memory = _memory(*_VISION, "--misfit", "0", VLLM_CONTIGUOUS_PA="true")
        largest = Bucket(1, 20480, 0)
        smaller = [Bucket(1, query, 0) for query in range(19456, 5000, -1024)]
        start = memory.free_bytes
        first, *rest = _free_after_each(memory, PROMPT, [largest, *smaller])
        assert (start - first) / GIB == pytest.approx(11.1, abs=0.2)
        assert set(rest) == {first}
        decodes = [Bucket(batch, 1, 1189) for batch in range(64, 0, -4)]
        assert set(_free_after_each(memory, DECODE, decodes)) == {first}
        assert memory.graph_bytes[DECODE] == 0

    def test_captured_graphs_fall_and_give_their_workspace_back(self) -> None:
        executed = {**_LAZY, "PT_COMPILE_ONLY_MODE": "0"}
        memory = _memory("--misfit", "0", **executed)
        before = memory.free_bytes
        curve = _free_after_each(memory, PROMPT, _BUCKETS[::-1])
        assert sorted(curve, reverse=True) == curve
        assert curve[10] - curve[11] > 0
        memory.finish_warmup()
        graphs = sum(_graphs(memory._truth))
        assert before - memory.free_bytes == graphs == memory.warmup_bytes
        workspace = memory._truth.workspace_bytes(PROMPT, _BUCKETS[-1], 0)
        assert memory.peak_bytes == graphs + workspace

    def test_what_is_only_compiled_is_taken_by_the_first_requests(self) -> None:
        memory = _memory("--misfit", "0", **_LAZY)
        before = memory.free_bytes
        for bucket in _BUCKETS:
            memory.warm(PROMPT, bucket)
        memory.finish_warmup()
        graphs = sum(_graphs(memory._truth))
        assert memory.graph_bytes[PROMPT] == pytest.approx(0.18 * graphs, rel=1e-3)
        for bucket in (*_BUCKETS, *_BUCKETS):
            memory.run(PROMPT, bucket)
        workspace = memory._truth.workspace_bytes(PROMPT, _BUCKETS[-1], 0)
        assert before - memory.free_bytes == graphs + workspace

    def test_graphs_that_keep_their_outputs_are_heavy(self) -> None:
        """Public: 1.44 MiB per token of a prompt, and 161.9 MiB for 48 small decodes."""
        keeps = {**_LAZY, "PT_HPUGRAPH_DISABLE_TENSOR_CACHE": "false"}
        plain, heavy = _truth(**_LAZY), _truth(**keeps)
        shapes = (PROMPT, Bucket(1, 1024, 0)), (DECODE, Bucket(4, 1, 128))
        for phase, bucket in shapes:
            more = heavy.graph_bytes(phase, bucket) - plain.graph_bytes(phase, bucket)
            tokens = bucket.batch * bucket.query
            assert more / tokens / MIB == pytest.approx(1.44, abs=0.02)

    def test_images_take_free_memory_down_and_up(self) -> None:
        memory = _memory(*_VISION, "--misfit", "0")
        before = memory.free_bytes
        curve = []
        for index in range(len(memory._truth.image_sizes)):
            memory.warm_image(index)
            curve.append(memory.free_bytes)
        assert len(curve) == 36
        steps = [b - a for a, b in pairwise(curve)]
        assert min(steps) < 0 < max(steps)
        memory.finish_images()
        assert before - memory.free_bytes == memory._truth.images.kept_bytes
        assert memory.warmup_bytes == memory._truth.images.kept_bytes

    def test_images_that_are_only_compiled_take_nothing(self) -> None:
        memory = _memory(*_VISION, **_LAZY)
        before = memory.free_bytes
        memory.warm_image(0)
        memory.finish_images()
        assert memory.free_bytes == before

    def test_resolutions_can_be_named(self) -> None:
        named = _truth(*_VISION, VLLM_MULTIMODAL_RESOLUTIONS="864x480,1024x768x2")
        assert named.image_sizes == ((864, 480), (1024, 768))
        buckets = _truth(*_VISION, VLLM_MULTIMODAL_BUCKETS="196")
        assert buckets.image_sizes[1:] == (
            *((224, 224), (288, 224), (160, 224)),
            *((384, 224), (128, 224)),
        )
        assert _truth().image_sizes == ()

    def test_a_decode_gathers_its_context_unless_the_cache_is_contiguous(self) -> None:
        taken = {}
        for contiguous in ("false", "true"):
            memory = _memory("--misfit", "0", VLLM_CONTIGUOUS_PA=contiguous)
            memory.make_cache(4000)
            memory.warm(DECODE, Bucket(8, 1, 2000))
            taken[contiguous] = memory.graph_bytes[DECODE]
        pages = 2000 * 512 * KIB
        assert taken["false"] - taken["true"] == pytest.approx(0.55 * pages, rel=1e-6)

    def test_fragments_make_the_last_bytes_useless(self) -> None:
        memory = _memory("--misfit", "2", "--seed", "1")
        for bucket in _BUCKETS:
            memory.warm(PROMPT, bucket)
        with pytest.raises(DeviceFull):
            memory.lose(memory.free_bytes, LEAK)
        assert _memory("--misfit", "0")._truth.hidden.fragments == 0


class TestServing:
    def test_a_cold_shape_takes_its_graph_once(self) -> None:
        memory = _memory("--misfit", "0")
        bucket = Bucket(1, 2048, 0)
        memory.run(PROMPT, bucket)
        used = memory.used_bytes
        assert used > memory._truth.graph_bytes(PROMPT, bucket)
        memory.run(PROMPT, bucket)
        assert memory.used_bytes == used

    def test_the_first_request_may_be_the_end(self) -> None:
        memory = _memory()
        memory.load()
        memory.make_cache(memory.free_bytes // (16 * MIB) - 2)
        with pytest.raises(DeviceFull) as full:
            memory.run(PROMPT, Bucket(1, 8192, 0))
        assert full.value.use == "serving"

    def test_leaks_end_a_server_late(self) -> None:
        memory = _memory()
        memory.load()
        whole = memory.free_bytes // GIB
        for _ in range(whole):
            memory.lose(GIB, LEAK)
        with pytest.raises(DeviceFull) as full:
            memory.lose(GIB, LEAK)
        assert full.value.use == LEAK
        assert memory.held[LEAK] == whole * GIB
        memory.give_back(memory.held[LEAK], LEAK)
        assert memory.used_bytes == memory._truth.weights_bytes

    def test_without_graphs_only_workspaces_are_taken(self) -> None:
        truth = _truth("--enforce-eager")
        assert set(_graphs(truth)) == {0}


_NO_RESERVE = {"VLLM_GRAPH_RESERVED_MEM": "0"}
_ENDS = {
    "load": (("--model", "llama-3.3-70b", "--tensor-parallel-size", "1"), {}),
    "profile": (
        (
            *(*_BLOCKS, "--model", "qwen2.5-32b", "--release", "fork-1.20"),
            *("--max-num-batched-tokens", "262144"),
        ),
        {"VLLM_PROMPT_BS_BUCKET_MAX": "256"},
    ),
    "kv": ((), {"VLLM_GRAPH_RESERVED_MEM": "-0.5"}),
    "multimodal": ((*_VISION, "--gpu-memory-utilization", "0.995"), _NO_RESERVE),
    "prompt": (("--gpu-memory-utilization", "0.99"), _NO_RESERVE),
    "decode": (("--gpu-memory-utilization", "0.97"), _NO_RESERVE),
}
"""Settings of a start that runs out of memory, by the phase in which it does."""


@pytest.mark.parametrize("phase", _ENDS)
def test_memory_ends_in_the_phase_that_takes_it(phase: str) -> None:
    arguments, env = _ENDS[phase]
    started = start(*arguments, **env)
    assert started.failure is not None
    assert "Allocation failed for size::" in started.failure.reason
    assert started.server.world.faults.now.phase == phase


_EVENTS = st.one_of(
    st.tuples(
        st.sampled_from(["warm", "rehearse", "run"]),
        st.sampled_from([PROMPT, DECODE]),
        st.integers(1, 256),
        st.integers(1, 4096),
        st.integers(0, 20000),
    ),
    st.tuples(
        st.sampled_from(["leak", "cache"]),
        st.just(""),
        st.just(0),
        st.integers(1, 6000),
        st.just(0),
    ),
)


@given(
    events=st.lists(_EVENTS, max_size=12),
    misfit=st.sampled_from(["0", "1", "2"]),
    lazy=st.booleans(),
)
def test_memory_in_use_never_exceeds_the_card_and_a_refusal_books_nothing(
    events: list[tuple[str, str, int, int, int]], misfit: str, *, lazy: bool
) -> None:
    memory = _memory("--misfit", misfit, **(_LAZY if lazy else {}))
    memory.load()
    for event, phase, batch, size, context in events:
        bucket = Bucket(batch, size if phase == PROMPT else 1, context)
        before = dict(memory.held), dict(memory.graph_bytes)
        try:
            if event == "cache":
                memory.make_cache(size)
            elif event == "leak":
                memory.lose(size * MIB, LEAK)
            else:
                getattr(memory, event)(phase, bucket)
        except DeviceFull:
            assert (memory.held, memory.graph_bytes) == before
        assert 0 < memory.used_bytes <= memory.peak_bytes <= memory.total_bytes
    memory.finish_warmup()
    assert min(memory.graph_bytes.values(), default=0) >= 0
    for use in memory.held:
        memory.give_back(memory.held[use], use)
    assert memory.used_bytes == 0
