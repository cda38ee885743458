"""A model from its ``config.json``: geometry as it says, laws from the nearest preset.

The *nearest* preset is of the same build (hybrid, MLA, experts, images or plain: the first
that fits) and has the closest number of parameters.  Its laws are scaled by a plain rule:
what a graph keeps at the least grows with the layers, everything per token or block with
the width of a token (hidden size), and what images take stays as it is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from hpuwatch.gaudi.modelfields import Fields
from hpuwatch.gaudi.modelshape import ModelShape, read_model
from hpuwatch.sim.models.model import GraphLaw, MemoryLaw, Model
from hpuwatch.sim.models.presets import MODELS

_SHARD_BYTES = 5_000_000_000
_SCALED_POSITIONS = "llama3"


def model_of(config: Mapping[str, object], name: str) -> Model:
    """Return the model of a parsed ``config.json``.

    Args:
        config: the whole file.
        name: what to call the model.

    Raises:
        ConfigError: a field is missing or wrong, or the layers are of a kind whose memory
            isn't known; says which.
    """
    shape = replace(read_model(config), name=name)
    fields = Fields(config)
    experts = fields.number("experts", 0)
    near = _nearest(shape, experts, sees=fields.mapping("vision_config") is not None)
    weights = shape.weight_bytes()
    return Model(
        name=name,
        kind=str(config.get("model_type") or near.kind),
        architecture=_architecture(config) or near.architecture,
        shape=shape,
        checkpoint_bytes=weights,
        parameters=shape.parameters,
        active_parameters=_active(shape, experts, fields),
        experts=experts,
        vocabulary=fields.positive("vocab_size"),
        shards=math.ceil(weights / _SHARD_BYTES),
        scaled_positions=_positions(fields) == _SCALED_POSITIONS,
        law=_scaled(near, shape),
    )


def _nearest(shape: ModelShape, experts: int, *, sees: bool) -> Model:
    build = _build(shape, experts, sees=sees)
    alike = [model for model in MODELS.values() if _build_of(model) == build]
    return min(
        alike, key=lambda model: abs(math.log(model.parameters / shape.parameters))
    )


def _build_of(model: Model) -> str:
    return _build(model.shape, model.experts, sees=model.law.vision is not None)


def _build(shape: ModelShape, experts: int, *, sees: bool) -> str:
    if shape.recurrent is not None:
        return "hybrid"
    if shape.latent is not None:
        return "mla"
    if experts:
        return "experts"
    return "images" if sees else "plain"


def _scaled(near: Model, shape: ModelShape) -> MemoryLaw:
    deeper = shape.layers / near.layers
    wider = shape.hidden_size / near.hidden_size
    graphs = {
        phase: GraphLaw(
            round(law.fixed_bytes * deeper),
            round(law.token_bytes * wider),
            round(law.block_bytes * wider),
        )
        for phase, law in near.law.graphs.items()
    }
    return replace(
        near.law,
        graphs=graphs,
        workspace_bytes=round(near.law.workspace_bytes * wider),
        activation_bytes=round(near.law.activation_bytes * wider),
    )


def _active(shape: ModelShape, experts: int, fields: Fields) -> int:
    """Return the parameters that one token passes."""
    chosen = fields.number("num_experts_per_tok", 1) / experts if experts else 1.0
    return round(
        sum(
            part.parameters * (chosen if part.name == "experts" else 1)
            for part in shape.weights
        )
    )


def _architecture(config: Mapping[str, object]) -> str | None:
    names = config.get("architectures")
    return str(names[0]) if isinstance(names, list) and names else None


def _positions(fields: Fields) -> object:
    """Return how positions are scaled, None where they aren't."""
    scaling = fields.mapping("rope_scaling") or {}
    return scaling.get("rope_type", scaling.get("type"))
