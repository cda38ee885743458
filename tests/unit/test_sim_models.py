"""The models that can be simulated: presets by any of their names, others by config.json."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from hpuwatch.errors import ConfigError
from hpuwatch.gaudi.buckets import DECODE, PROMPT
from hpuwatch.gaudi.modelshape import read_model
from hpuwatch.sim.config.knobs import read_knobs
from hpuwatch.sim.config.options import parse_options
from hpuwatch.sim.models.fromconfig import model_of
from hpuwatch.sim.models.presets import CARDS, MODELS, model_called
from hpuwatch.sim.truth.memory import MemoryTruth
from hpuwatch.units import GIB, KIB, MIB, format_bytes

pytestmark = pytest.mark.unit

Config = Mapping[str, Any]

_CONFIGS = {
    "llama-3.1-8b": "Llama-3.1-8B",
    "llama-3.3-70b": "Llama-3.1-70B",
    "llama-3.1-70b": "Llama-3.1-70B",
    "llama-3.1-405b": "Llama-3.1-405B",
    "qwen2.5-32b": "Qwen2.5-32B",
    "qwen3-0.6b": "Qwen3-0.6B",
    "qwen3-30b-a3b": "Qwen3-30B-A3B",
    "mixtral-8x7b": "Mixtral-8x7B",
    "deepseek-r1": "DeepSeek-R1",
    "qwen3.6-27b": "Qwen3.6-27B",
    "qwen3-vl-32b": "Qwen3-VL-32B-FP8",
}


@pytest.fixture(scope="module")
def configs() -> dict[str, Config]:
    path = Path(__file__).parents[1] / "data/models.yaml"
    loaded: dict[str, Config] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return loaded


@pytest.mark.parametrize("preset", _CONFIGS)
def test_a_preset_has_the_geometry_of_its_published_configuration(
    preset: str, configs: dict[str, Config]
) -> None:
    config = configs[_CONFIGS[preset]]
    shape, ours = read_model(config), MODELS[preset].shape
    # MLA keeps no heads, so that its configuration tells no size of one.
    head = ours.head_dim if ours.latent else shape.head_dim
    told = replace(shape, name=ours.name, weights=(), kind=ours.kind, head_dim=head)
    assert told == ours
    text = config.get("text_config", config)
    assert MODELS[preset].vocabulary == text["vocab_size"]
    assert MODELS[preset].parameters == pytest.approx(shape.parameters, rel=0.04)


@pytest.mark.parametrize("preset", sorted(set(_CONFIGS) - {"llama-3.1-405b"}))
def test_a_preset_weighs_what_its_configuration_makes_expect(
    preset: str, configs: dict[str, Config]
) -> None:
    model = MODELS[preset]
    estimated = read_model(configs[_CONFIGS[preset]]).weight_bytes(
        model.tensor_parallel
    )
    loaded = model.weights_on_card(model.tensor_parallel)
    assert loaded == pytest.approx(estimated, rel=0.06)


@pytest.mark.parametrize("preset", sorted(MODELS))
def test_graphs_of_a_layer_are_of_one_order_in_all_presets(preset: str) -> None:
    """Public figures lie so near to each other; only states make a layer larger."""
    model = MODELS[preset]
    factor = 4 if model.shape.recurrent else 1
    decode, prompt = model.law.graphs[DECODE], model.law.graphs[PROMPT]
    of_decode = (decode.fixed_bytes + 128 * decode.token_bytes) / model.layers / MIB
    of_prompt = (prompt.fixed_bytes + 1024 * prompt.token_bytes) / model.layers / MIB
    assert 0.05 * factor < of_decode < 0.4 * factor
    assert 0.1 < of_prompt < 1
    assert decode.block_bytes <= KIB
    assert prompt.block_bytes <= 24 * KIB


@pytest.mark.parametrize(
    ("typed", "preset"),
    [
        ("llama-3.1-8b", "llama-3.1-8b"),
        ("meta-llama/Llama-3.1-8B", "llama-3.1-8b"),
        ("meta-llama/Meta-Llama-3.1-70B-Instruct", "llama-3.1-70b"),
        ("/data/models/Llama-3.3-70B-Instruct/", "llama-3.3-70b"),
        ("neuralmagic/Meta-Llama-3.1-405B-Instruct-FP8", "llama-3.1-405b"),
        ("mistralai/Mixtral-8x7B-Instruct-v0.1", "mixtral-8x7b"),
        ("QWEN/qwen3-0.6b", "qwen3-0.6b"),
        ("hub/models--Qwen--Qwen3-VL-32B-Instruct-FP8/snapshots/1", "qwen3-vl-32b"),
        ("qwen-32b", "qwen2.5-32b"),
    ],
)
def test_names_as_people_type_them(typed: str, preset: str) -> None:
    assert model_called(typed) is MODELS[preset]


@pytest.mark.parametrize("typed", ["gpt2", "", "/", "Llama-3.1-8B-Instruct-FP8"])
def test_a_name_of_no_preset(typed: str) -> None:
    assert model_called(typed) is None


@pytest.mark.parametrize("card", CARDS)
def test_cards_print_the_memory_that_real_ones_do(card: str) -> None:
    printed = {"gaudi2": "94.62 GiB", "gaudi3": "126.5 GiB"}
    assert format_bytes(CARDS[card].total_bytes) == printed[card]


@pytest.mark.parametrize("preset", _CONFIGS)
@pytest.mark.parametrize("card", CARDS)
def test_every_preset_leaves_room_for_a_cache(preset: str, card: str) -> None:
    options = parse_options(["--model", preset, "--card", card], {})
    truth = MemoryTruth(options, read_knobs(options))
    free = truth.total_bytes - truth.base_bytes - truth.weights_bytes
    assert free > 10 * GIB
    assert truth.cache.blocks_in(int(free * 0.8)) * options.block_size > 32768


class TestFromConfig:
    def test_a_preset_s_own_configuration_gives_its_laws(
        self, configs: dict[str, Config]
    ) -> None:
        for preset, name in _CONFIGS.items():
            model = model_of(configs[name], name)
            assert model.law == MODELS[preset].law, preset
            assert model.experts == MODELS[preset].experts
            active = MODELS[preset].active_parameters
            assert model.active_parameters == pytest.approx(active, rel=0.1), preset

    def test_laws_grow_with_layers_and_width(self, configs: dict[str, Config]) -> None:
        base = {**configs["Llama-3.1-8B"]}
        wide = model_of({**base, "hidden_size": 6144, "head_dim": 128}, "wide")
        deep = model_of({**base, "num_hidden_layers": 40}, "deep")
        law, near = MODELS["llama-3.1-8b"].law, MODELS["llama-3.1-8b"]
        for phase in (PROMPT, DECODE):
            graph = law.graphs[phase]
            assert wide.law.graphs[phase].token_bytes == graph.token_bytes * 1.5
            assert wide.law.graphs[phase].fixed_bytes == graph.fixed_bytes
            assert deep.law.graphs[phase].fixed_bytes == graph.fixed_bytes * 1.25
        assert wide.law.workspace_bytes == near.law.workspace_bytes * 1.5

    @pytest.mark.parametrize(
        ("name", "near"),
        [
            ("opt-125m", "qwen3-0.6b"),
            ("Qwen2-7B", "llama-3.1-8b"),
            ("granite-4.0-h-small", "qwen3.6-27b"),
            ("Qwen3.5-35B-A3B", "qwen3.6-27b"),
        ],
    )
    def test_the_nearest_preset_lends_its_laws(
        self, name: str, near: str, configs: dict[str, Config]
    ) -> None:
        model, preset = model_of(configs[name], name), MODELS[near]
        wider = model.hidden_size / preset.hidden_size
        assert model.law.workspace_bytes == round(preset.law.workspace_bytes * wider)

    def test_scaled_positions_are_noticed(self, configs: dict[str, Config]) -> None:
        assert model_of(configs["Llama-3.1-8B"], "x").scaled_positions
        assert not model_of(configs["Qwen2-7B"], "x").scaled_positions

    def test_what_is_missing_is_said(self, configs: dict[str, Config]) -> None:
        config = dict(configs["Llama-3.1-8B"])
        del config["vocab_size"]
        with pytest.raises(ConfigError, match="vocab_size"):
            model_of(config, "broken")
