"""Bytes of the KV cache: per token, per block and per sequence, on one card."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from hpuwatch.errors import ConfigError
from hpuwatch.gaudi.kvcache import (
    KvLayout,
    blocks_of,
    blocks_per_sequence,
    dummy_block_bytes,
    hybrid_factor,
    kv_block_bytes,
    kv_bytes_per_token,
    kv_dtype_bytes,
    scale_bytes_per_block,
    shared_out,
    state_bytes,
    token_bytes,
)
from hpuwatch.gaudi.modellayers import GDN, MAMBA2, Latent, Recurrent
from hpuwatch.gaudi.modelshape import ModelShape, read_model
from hpuwatch.units import GIB, KIB, MIB

pytestmark = pytest.mark.unit


@pytest.fixture
def shapes(checkout: Path) -> dict[str, ModelShape]:
    text = (checkout / "tests/data/models.yaml").read_text(encoding="utf-8")
    return {name: read_model(config) for name, config in yaml.safe_load(text).items()}


def plain(kv_heads: int = 8, head_dim: int = 128, layers: int = 4) -> ModelShape:
    return ModelShape(
        name="plain",
        layers=layers,
        attention_layers=layers,
        hidden_size=4096,
        heads=32,
        kv_heads=kv_heads,
        head_dim=head_dim,
        max_position=8192,
    )


def recurrent(kind: str, layers: int, state_dtype_bytes: int = 2) -> Recurrent:
    return Recurrent(kind, layers, 32, 64, 4, 128, 4, state_dtype_bytes)


def hybrid(kind: str, attention: int, others: int) -> ModelShape:
    return replace(
        plain(),
        layers=attention + others,
        attention_layers=attention,
        kind="hybrid",
        recurrent=recurrent(kind, others),
    )


@pytest.mark.parametrize(
    ("model", "tp", "token_bytes", "block_bytes"),
    [
        ("Llama-3.1-8B", 1, 128 * KIB, 16 * MIB),
        ("Llama-3.1-8B", 2, 64 * KIB, 8 * MIB),
        ("Llama-3.1-70B", 4, 80 * KIB, 10 * MIB),
        ("Llama-3.1-405B", 8, 63 * KIB, 7.875 * MIB),
        ("Qwen3-VL-32B-FP8", 1, 256 * KIB, 32 * MIB),
        ("Mistral-7B-v0.1", 1, 128 * KIB, 16 * MIB),
        ("opt-125m", 1, 36 * KIB, 4.5 * MIB),
        ("Qwen3-0.6B", 1, 112 * KIB, 14 * MIB),
        ("DeepSeek-R1", 8, 61 * 576 * 2, 61 * 576 * 2 * 128),
    ],
)
def test_published_models(
    shapes: dict[str, ModelShape],
    model: str,
    tp: int,
    token_bytes: int,
    block_bytes: float,
) -> None:
    shape = shapes[model]
    assert kv_bytes_per_token(shape, tp) == token_bytes
    assert kv_block_bytes(KvLayout(shape, tp)) == block_bytes
    assert dummy_block_bytes(KvLayout(shape, tp)) == block_bytes


@given(
    st.sampled_from([1, 2, 4, 8, 16]),
    st.sampled_from([1, 2, 4, 8, 16]),
    st.sampled_from([64, 128, 256]),
)
def test_heads_are_divided_while_there_are_enough_and_then_kept_several_times(
    kv_heads: int, tp: int, head_dim: int
) -> None:
    whole = kv_bytes_per_token(plain(kv_heads, head_dim))
    on_card = kv_bytes_per_token(plain(kv_heads, head_dim), tp)
    assert on_card * min(tp, kv_heads) == whole
    # What all cards hold together is a copy of each head, or several.
    assert on_card * tp == whole * max(1, tp // kv_heads)


@given(st.integers(1, 64), st.integers(1, 64))
def test_sharing_out_is_even_or_refused(heads: int, tp: int) -> None:
    if heads % tp == 0 or tp % heads == 0:
        assert shared_out(heads, tp) == max(1, heads // tp)
    else:
        with pytest.raises(ConfigError, match="can't be shared out evenly"):
            shared_out(heads, tp)


def test_no_cards_are_refused() -> None:
    with pytest.raises(ConfigError, match="is no number of cards"):
        shared_out(8, 0)


def test_the_latent_cache_is_whole_on_every_card() -> None:
    shape = replace(plain(), kind="mla", latent=Latent(rank=512, rope_dim=64))
    assert kv_bytes_per_token(shape, 8) == kv_bytes_per_token(shape, 1) == 4 * 576 * 2


@given(st.sampled_from([16, 128, 256, 512]), st.integers(1, 2))
def test_a_block_is_its_tokens(block_size: int, dtype_bytes: int) -> None:
    layout = KvLayout(plain(), kv_dtype_bytes=dtype_bytes, block_size=block_size)
    token = kv_bytes_per_token(plain(), 1, dtype_bytes)
    assert kv_block_bytes(layout) == token * block_size


def test_fp8_halves_the_block_and_brings_scales_that_nobody_counts() -> None:
    shape = plain()
    half = KvLayout(shape, kv_dtype_bytes=kv_dtype_bytes("fp8_inc", shape))
    assert kv_block_bytes(half) * 2 == kv_block_bytes(KvLayout(shape))
    # 4 layers, 8 heads, 2 bytes: keys and values of 128 tokens, 128 channels of values.
    assert scale_bytes_per_block(half) == 4 * 8 * (2 * 128 + 128) * 2
    assert scale_bytes_per_block(replace(half, tp=16)) == 4 * 1 * (2 * 128 + 128) * 2
    latent = replace(shape, latent=Latent(512, 64))
    assert scale_bytes_per_block(replace(half, shape=latent)) == 0


def test_the_names_of_kv_cache_dtype() -> None:
    assert kv_dtype_bytes("auto", plain()) == 2
    assert kv_dtype_bytes("bfloat16", plain()) == 2
    with pytest.raises(ConfigError, match="--kv-cache-dtype int3 is unknown"):
        kv_dtype_bytes("int3", plain())


def test_a_sliding_window_saves_nothing() -> None:
    windowed = KvLayout(replace(plain(), sliding_window=1024))
    assert kv_block_bytes(windowed) == kv_block_bytes(KvLayout(plain()))
    assert blocks_per_sequence(8192, windowed) == 64


@given(st.integers(-GIB, 100 * GIB), st.integers(0, GIB))
def test_more_memory_never_holds_fewer_blocks(kv_bytes: int, more: int) -> None:
    for shape in (plain(), hybrid(GDN, 2, 6), hybrid(MAMBA2, 2, 6)):
        layout = KvLayout(shape)
        assert 0 <= blocks_of(kv_bytes, layout) <= blocks_of(kv_bytes + more, layout)


def test_a_state_is_a_matrix_and_the_tail_of_a_convolution() -> None:
    state = recurrent(GDN, 6, state_dtype_bytes=4)
    matrix, channels = 32 * 64 * 128, 32 * 64 + 2 * 4 * 128
    assert state_bytes(state, 1, 2) == matrix * 4 + 3 * channels * 2
    assert state_bytes(state, 4, 2) * 4 == state_bytes(state, 1, 2)
    # More cards than key heads: each card keeps one of them.
    wide = 4 * 64 + 2 * 128
    assert state_bytes(state, 8, 2) == 4 * 64 * 128 * 4 + 3 * wide * 2


def test_value_heads_must_divide() -> None:
    with pytest.raises(ConfigError, match="32 value heads can't be divided"):
        state_bytes(recurrent(GDN, 6), 5, 2)


@pytest.mark.parametrize(
    ("model", "tp", "alignment", "block_size"),
    [
        ("granite-4.0-h-small", 1, 16, 528),
        ("granite-4.0-h-small", 1, 256, 768),
        ("Qwen3.5-35B-A3B", 4, 128, 640),
    ],
)
def test_block_sizes_that_hybrid_models_are_known_to_get(
    shapes: dict[str, ModelShape],
    model: str,
    tp: int,
    alignment: int,
    block_size: int,
) -> None:
    """The plugin makes 528 and 768 of it; a public issue shows 640 (vllm-gaudi#1485).

    A block has the fewest tokens, in steps of the alignment, whose keys and values in one
    layer are no smaller than a state.
    """
    shape = shapes[model]
    assert shape.recurrent is not None
    heads = shared_out(shape.kv_heads, tp)
    state = state_bytes(shape.recurrent, tp, shape.dtype_bytes)
    step = alignment * token_bytes(heads, shape.head_dim, shape.dtype_bytes)
    assert alignment * -(-state // step) == block_size


def test_a_hybrid_block_holds_a_page_of_one_layer_of_each_group() -> None:
    layout = KvLayout(hybrid(GDN, 2, 6))
    page = max(2 * 8 * 128 * 2 * 128, state_bytes(recurrent(GDN, 6), 1, 2))
    assert kv_block_bytes(layout) == 2 * page
    assert dummy_block_bytes(layout) == 8 * page
    # One group of attention layers, three of recurrent ones.
    assert blocks_per_sequence(1280, layout) == 10 + 3


def test_layer_counts_that_are_nearly_equal_make_one_group_each() -> None:
    layout = KvLayout(hybrid(GDN, 8, 9))
    assert kv_block_bytes(layout) % 9 == 0
    assert blocks_per_sequence(1280, layout) == 10 + 1


def test_pages_and_states_that_lie_apart_lower_the_cache() -> None:
    """Both kinds: gated delta nets weigh the real page, Mamba the padded one."""
    state = state_bytes(recurrent(GDN, 6), 1, 2)
    small = KvLayout(hybrid(GDN, 2, 6), block_size=16)
    page = 2 * 8 * 128 * 2 * 16
    assert page < state
    assert hybrid_factor(small) == state / (page + state)
    assert hybrid_factor(replace(small, compact_gdn=True)) == 1
    mamba = replace(small, shape=hybrid(MAMBA2, 2, 6))
    assert hybrid_factor(mamba) == 0.5
    assert hybrid_factor(replace(mamba, compact_gdn=True)) == 0.5
    assert hybrid_factor(KvLayout(plain())) == 1


@given(st.sampled_from([GDN, MAMBA2]), st.sampled_from([16, 128, 512, 4096]))
def test_a_hybrid_model_keeps_at_least_half(kind: str, block_size: int) -> None:
    layout = KvLayout(hybrid(kind, 2, 6), block_size=block_size)
    assert 0.5 <= hybrid_factor(layout) <= 1
    assert blocks_of(10 * GIB, layout) == int(10 * GIB * hybrid_factor(layout)) // (
        kv_block_bytes(layout)
    )


def test_a_model_of_recurrent_layers_only() -> None:
    layout = KvLayout(hybrid(MAMBA2, 0, 6))
    assert hybrid_factor(layout) == 1
    assert blocks_per_sequence(100_000, layout) == 1
