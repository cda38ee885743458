"""The hidden truth: repeatable, bounded by the card, and as far off as it is told."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpuwatch.gaudi.buckets import DECODE, PROMPT, Bucket
from hpuwatch.sim.config.options import parse_options
from hpuwatch.sim.truth.device import DeviceFull, Memory
from hpuwatch.sim.truth.memory import MemoryTruth
from hpuwatch.sim.truth.times import TimeTruth
from hpuwatch.units import GIB, KIB, MIB

pytestmark = pytest.mark.unit

_BUCKETS = [Bucket(1, 128 * i, i) for i in range(1, 60)]


def _truth(*arguments: str) -> MemoryTruth:
    return MemoryTruth(parse_options(arguments, {}))


def _times(*arguments: str) -> TimeTruth:
    options = parse_options(arguments, {})
    return TimeTruth(options, MemoryTruth(options))


def _graphs(truth: MemoryTruth) -> list[int]:
    return [truth.graph_bytes(PROMPT, bucket) for bucket in _BUCKETS]


def test_a_block_of_llama_8b_has_16_mib() -> None:
    assert _truth().block_bytes == 16 * MIB


def test_tensor_parallel_cards_share_weights_and_kv_heads() -> None:
    truth = _truth("--model", "llama-3.1-70b")
    assert truth.weights_bytes / GIB == pytest.approx(32.95, abs=0.01)
    assert truth.block_bytes == 2 * 80 * 2 * 128 * 128 * 2


def test_one_seed_is_one_truth() -> None:
    assert _graphs(_truth("--seed", "3")) == _graphs(_truth("--seed", "3"))
    assert _graphs(_truth("--seed", "3")) != _graphs(_truth("--seed", "4"))
    one, same = _times("--seed", "3"), _times("--seed", "3")
    durations = [
        [t.compile_seconds(PROMPT, b, first=False, cached=False) for b in _BUCKETS]
        for t in (one, same)
    ]
    assert durations[0] == durations[1]


def test_without_misfit_the_public_law_is_the_truth() -> None:
    truth = _truth("--misfit", "0", "--seed", "5")
    law = truth._options.model.graphs[PROMPT]
    for bucket in _BUCKETS:
        public = (
            law.fixed_bytes
            + law.token_bytes * bucket.query
            + law.block_bytes * bucket.context
        )
        assert abs(truth.graph_bytes(PROMPT, bucket) - public) < 64 * KIB
        assert truth.activation_bytes(PROMPT, bucket) == 0


@pytest.mark.parametrize("seed", range(5))
def test_misfit_hides_activations_and_some_heavy_graphs(seed: int) -> None:
    public = _graphs(_truth("--misfit", "0", "--seed", str(seed)))
    hidden = _graphs(_truth("--misfit", "2", "--seed", str(seed)))
    factors = [a / b for a, b in zip(hidden, public, strict=True)]
    assert max(factors) > 2 * sorted(factors)[len(factors) // 2]
    truth = _truth("--misfit", "2", "--seed", str(seed))
    assert truth.activation_bytes(PROMPT, Bucket(1, 8192, 0)) > 100 * MIB


def test_larger_buckets_take_longer_to_run() -> None:
    truth = _times("--noise", "0")
    small = truth.step_seconds(DECODE, Bucket(8, 1, 128))
    assert truth.step_seconds(DECODE, Bucket(8, 1, 256)) > small
    assert truth.step_seconds(DECODE, Bucket(16, 1, 128)) > small


def test_the_newer_card_is_faster_and_larger() -> None:
    old, new = _times("--noise", "0"), _times("--noise", "0", "--card", "gaudi3")
    bucket = Bucket(8, 1, 128)
    assert new.step_seconds(DECODE, bucket) < old.step_seconds(DECODE, bucket)
    assert _truth("--card", "gaudi3").total_bytes > _truth().total_bytes


def test_a_cached_recipe_saves_most_of_the_compilation() -> None:
    truth, bucket = _times("--noise", "0"), Bucket(1, 1024, 0)
    fresh = truth.compile_seconds(PROMPT, bucket, first=False, cached=False)
    assert truth.compile_seconds(PROMPT, bucket, first=False, cached=True) < fresh / 2


def test_the_natural_length_depends_on_the_prompt_alone() -> None:
    assert _times().natural_length("a b") == _times().natural_length("a b")


@given(st.lists(st.tuples(st.integers(0, 400), st.integers(0, 400)), max_size=20))
def test_memory_in_use_never_exceeds_the_card(graphs: list[tuple[int, int]]) -> None:
    memory = Memory(1000, 100, {})
    for graph, activation in graphs:
        if graph + activation <= memory.free_bytes:
            memory.capture(PROMPT, graph, activation)
        else:
            with pytest.raises(DeviceFull) as full:
                memory.capture(PROMPT, graph, activation)
            assert full.value.wanted_bytes % (2 * MIB) == 0
        assert memory.used_bytes == 100 + memory.graph_bytes.get(PROMPT, 0) <= 1000
