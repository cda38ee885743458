"""A model's ``config.json`` becomes the sizes that memory needs, or a clear refusal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from hpuwatch.errors import ConfigError
from hpuwatch.gaudi.modellayers import GDN, MAMBA2, Latent
from hpuwatch.gaudi.modelshape import ModelShape, read_model
from hpuwatch.gaudi.weights import WeightPart
from hpuwatch.units import GIB

pytestmark = pytest.mark.unit

Config = dict[str, Any]


@pytest.fixture
def configs(checkout: Path) -> dict[str, Config]:
    text = (checkout / "tests/data/models.yaml").read_text(encoding="utf-8")
    loaded: dict[str, Config] = yaml.safe_load(text)
    return loaded


def small(**more: object) -> Config:
    return {
        "model_type": "llama",
        "num_hidden_layers": 4,
        "hidden_size": 64,
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        "max_position_embeddings": 2048,
        "vocab_size": 1000,
        "intermediate_size": 256,
        **more,
    }


def part(shape: ModelShape, name: str) -> WeightPart:
    return next(each for each in shape.weights if each.name == name)


@pytest.mark.parametrize(
    ("model", "kind", "kv_heads", "head_dim", "attending"),
    [
        ("Llama-3.1-8B", "gqa", 8, 128, 32),
        ("opt-125m", "mha", 12, 64, 12),
        ("DeepSeek-R1", "mla", 128, 56, 61),
        ("Qwen3-VL-32B-FP8", "gqa", 8, 128, 64),
        ("granite-4.0-h-small", "hybrid", 8, 128, 4),
        ("Qwen3.5-35B-A3B", "hybrid", 2, 256, 10),
    ],
)
def test_published_models(
    configs: dict[str, Config],
    model: str,
    kind: str,
    kv_heads: int,
    head_dim: int,
    attending: int,
) -> None:
    shape = read_model(configs[model])
    assert (shape.kind, shape.kv_heads, shape.head_dim) == (kind, kv_heads, head_dim)
    assert shape.attention_layers == attending


@pytest.mark.parametrize(
    ("model", "billions"),
    [
        ("Llama-3.1-8B", 8.03),
        ("Llama-3.1-70B", 70.55),
        ("Llama-3.1-405B", 405.8),
        ("Mistral-7B-v0.1", 7.24),
        ("Qwen2-7B", 7.62),
        ("Qwen3-0.6B", 0.596),
        ("DeepSeek-R1", 671.0),
        ("granite-4.0-h-small", 32.2),
        ("Qwen3.5-35B-A3B", 34.7),
    ],
)
def test_the_number_of_parameters_is_the_published_one(
    configs: dict[str, Config], model: str, billions: float
) -> None:
    assert read_model(configs[model]).parameters / 1e9 == pytest.approx(
        billions, rel=0.005
    )


def test_the_language_model_inside_a_multimodal_one(configs: dict[str, Config]) -> None:
    shape = read_model(configs["Qwen3-VL-32B-FP8"])
    assert (shape.layers, shape.hidden_size, shape.max_position) == (64, 5120, 262144)
    assert part(shape, "vision").parameter_bytes == 2
    assert part(shape, "attention").parameter_bytes == 1


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("num_hidden_layers", 10**9, "above 10,000"),
        ("hidden_size", 10**400, "above 100,000,000"),
        ("torch_dtype", "int3", "choose from bfloat16"),
        ("layer_types", 5, "is not a list of words"),
        ("full_attention_interval", 0, "full_attention_interval = 0"),
        ("full_attention_interval", -1, "is not a number of 0 or more"),
        ("hybrid_override_pattern", 9, "is not text"),
        ("num_key_value_heads", 3, "can't be shared out"),
        ("quantization_config", 5, "is not a mapping"),
        ("text_config", 5, "is not a mapping"),
        ("model_type", 5, "is not text"),
        ("architectures", 5, "is not a list of words"),
        ("mlp_only_layers", ["1"], "is not a list of whole numbers"),
    ],
)
def test_a_broken_field_is_refused(name: str, value: object, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        read_model(
            small(**{name: value}, **({"num_experts": 4} if "mlp" in name else {}))
        )


def test_null_counts_as_not_given() -> None:
    shape = read_model(small(head_dim=None, num_key_value_heads=None))
    assert (shape.head_dim, shape.kv_heads, shape.kind) == (8, 8, "mha")


def test_one_shared_head() -> None:
    bigcode = {
        "model_type": "gpt_bigcode",
        "n_layer": 4,
        "n_embd": 64,
        "n_head": 8,
        "n_positions": 2048,
        "n_inner": None,
        "vocab_size": 1000,
        "multi_query": True,
    }
    shape = read_model(bigcode)
    assert (shape.kind, shape.kv_heads, shape.max_position) == ("mqa", 1, 2048)
    # Two matrices of 64 x 256 in each of 4 layers; the tables are tied.
    assert part(shape, "feed-forward").parameters == 4 * 2 * 64 * 256
    assert "output" not in {each.name for each in shape.weights}


def test_the_latent_cache_is_read(configs: dict[str, Config]) -> None:
    assert read_model(configs["DeepSeek-R1"]).latent == Latent(rank=512, rope_dim=64)


def test_a_window_that_is_switched_off_is_none(configs: dict[str, Config]) -> None:
    assert read_model(configs["Mistral-7B-v0.1"]).sliding_window == 4096
    assert read_model(configs["Qwen2-7B"]).sliding_window is None
    assert read_model(configs["Qwen3-0.6B"]).sliding_window is None


@pytest.mark.parametrize(
    ("listed", "kind", "attending", "others"),
    [
        ({"layer_types": ["linear_attention"] * 3 + ["full_attention"]}, GDN, 1, 3),
        ({"layers_block_type": ["mamba", "attention"] * 2}, MAMBA2, 2, 2),
        ({"hybrid_override_pattern": "M-*M"}, MAMBA2, 1, 2),
        ({"attn_layer_indices": [1]}, MAMBA2, 1, 3),
        ({"full_attention_interval": 2}, GDN, 2, 2),
    ],
)
def test_the_ways_to_list_the_layers_of_a_hybrid_model(
    listed: Config, kind: str, attending: int, others: int
) -> None:
    states = {
        "mamba_n_heads": 4,
        "mamba_d_head": 16,
        "mamba_n_groups": 1,
        "mamba_d_state": 32,
        "mamba_d_conv": 4,
    }
    if kind == GDN:
        states = {
            "linear_num_value_heads": 4,
            "linear_num_key_heads": 2,
            "linear_key_head_dim": 16,
            "linear_value_head_dim": 16,
            "linear_conv_kernel_dim": 4,
        }
    shape = read_model(small(**states, **listed))
    assert shape.kind == "hybrid"
    assert shape.attention_layers == attending
    assert shape.recurrent is not None
    assert (shape.recurrent.kind, shape.recurrent.layers) == (kind, others)
    assert shape.recurrent.state_dtype_bytes == 2


@pytest.mark.parametrize(
    ("more", "complaint"),
    [
        ({"num_hidden_layers": None}, "lacks num_hidden_layers or n_layer"),
        ({"num_attention_heads": "many"}, "num_attention_heads = 'many'"),
        ({"num_attention_heads": True}, "num_attention_heads = True"),
        ({"hidden_size": -1}, "hidden_size = -1"),
        ({"vocab_size": 0}, "vocab_size = 0"),
        ({"layer_types": ["attention", "quantum"]}, "unknown kind 'quantum'"),
        ({"layer_types": ["mamba", "linear_attention"] * 2}, "mixes GDN and Mamba"),
        ({"layer_types": ["attention"] * 3}, "lists 3 layers, but has 4"),
        ({"mamba_d_state": 16}, "doesn't list which"),
        ({"global_head_dim": 512}, "different head sizes"),
        ({"num_kv_shared_layers": 2}, "share their cache"),
        ({"attn_type_list": [0, 0, 1, 1]}, "linear attention of another kind"),
        ({"quantization_config": {"quant_method": "magic"}}, "quantised by 'magic'"),
    ],
)
def test_what_is_missing_or_wrong_is_named(more: Config, complaint: str) -> None:
    with pytest.raises(ConfigError) as error:
        read_model(small(**more))
    assert complaint in str(error.value)


@given(
    st.dictionaries(
        st.sampled_from([*small(), "layer_types", "quantization_config", "head_dim"]),
        st.one_of(
            st.none(),
            st.booleans(),
            st.integers(-3, 64),
            st.text(max_size=3),
            st.lists(st.text(max_size=3), max_size=3),
            st.dictionaries(st.text(max_size=3), st.integers(0, 3), max_size=2),
        ),
    )
)
def test_any_configuration_is_read_or_refused(changes: Config) -> None:
    try:
        shape = read_model({**small(), **changes})
    except ConfigError:
        return
    assert shape.layers > 0
    assert shape.weight_bytes() >= 0


@pytest.mark.parametrize(
    ("quantised", "each"),
    [
        ({"quant_method": "fp8"}, 1),
        ({"quant_method": "gptq", "bits": 4, "group_size": 128}, 0.5 + 2 / 128),
        ({"quant_method": "awq", "bits": 4, "group_size": -1}, 0.5),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {"group_0": {"weights": {"num_bits": 8}}},
            },
            1,
        ),
    ],
)
def test_quantised_matrices_and_tables_that_are_not(
    quantised: Config, each: float
) -> None:
    shape = read_model(small(quantization_config=quantised))
    assert part(shape, "feed-forward").parameter_bytes == each
    assert part(shape, "embedding").parameter_bytes == 2


def test_experts_and_what_stays_dense() -> None:
    shape = read_model(
        small(
            num_experts=8,
            moe_intermediate_size=32,
            first_k_dense_replace=1,
            n_shared_experts=1,
        )
    )
    assert part(shape, "feed-forward").parameters == 1 * 3 * 64 * 256
    assert part(shape, "experts").parameters == 3 * 3 * 64 * 32 * 8
    assert part(shape, "shared expert").parameters == 3 * 3 * 64 * 32
    assert part(shape, "router").shares == 1


def test_every_second_layer_has_experts() -> None:
    shape = read_model(small(num_experts=8, decoder_sparse_step=2))
    assert part(shape, "experts").parameters == 2 * 3 * 64 * 256 * 8


@given(st.sampled_from([1, 2, 4, 8, 16]), st.sampled_from([1, 2, 4, 8]))
def test_more_cards_never_hold_more_each(tp: int, kv_heads: int) -> None:
    shape = read_model(small(num_key_value_heads=kv_heads))
    whole, on_card = shape.weight_bytes(), shape.weight_bytes(tp)
    assert whole / tp - 1 <= on_card <= whole
    # Nothing is kept twice while there is a KV head for each card.
    if tp <= kv_heads:
        assert on_card == pytest.approx(whole / tp, abs=1)
    else:
        assert on_card > whole / tp


def test_a_strange_field_that_says_nothing_is_no_hindrance() -> None:
    usual = small(num_kv_shared_layers=0, attn_type_list=[1] * 4, index_topk=None)
    assert read_model(usual).attention_layers == 4


def test_floats_are_served_as_bfloat16() -> None:
    assert read_model(small(torch_dtype="float32")).dtype_bytes == 2


def test_weights_of_8_billion_parameters(configs: dict[str, Config]) -> None:
    shape = read_model(configs["Llama-3.1-8B"])
    assert shape.weight_bytes() / GIB == pytest.approx(14.96, abs=0.005)
    assert shape.weight_bytes(2) * 2 == pytest.approx(shape.weight_bytes(), abs=2)
