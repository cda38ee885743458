"""A model as memory sees it, read from its ``config.json``.

The KV cache follows from the layers that attend, their KV heads and their head size; see
``gaudi.kvcache``.  The weights are estimated part by part; see ``gaudi.weights``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from hpuwatch.errors import ConfigError
from hpuwatch.gaudi.modelfields import SERVED_DTYPE_BYTES, Fields
from hpuwatch.gaudi.modellayers import Latent, Layers, Recurrent, read_layers
from hpuwatch.gaudi.weights import WeightPart, weight_parts

Kind = Literal["mha", "gqa", "mqa", "mla", "hybrid"]


@dataclass(frozen=True, slots=True)
class ModelShape:
    """What memory needs to know of a model; all counts are of the whole model.

    Attributes:
        name: the model's path or type, for messages.
        layers: all layers.
        attention_layers: layers that keep something for every token.
        hidden_size: numbers of a token between two layers.
        heads: attention heads.
        kv_heads: heads that keep keys and values.
        head_dim: numbers per head.
        max_position: longest sequence that the model was made for, in tokens.
        dtype_bytes: bytes of one number as it is served, and of the KV cache unless
            ``--kv-cache-dtype`` says otherwise.
        kind: how heads share keys and values; ``hybrid`` where not all layers attend.
        sliding_window: tokens that a windowed layer looks back, None without windows.
        latent: the compressed cache of MLA, else None.
        recurrent: the layers with a state of fixed size, else None.
        weights: the weights by part, an estimate.
    """

    name: str
    layers: int
    attention_layers: int
    hidden_size: int
    heads: int
    kv_heads: int
    head_dim: int
    max_position: int
    dtype_bytes: int = SERVED_DTYPE_BYTES
    kind: Kind = "gqa"
    sliding_window: int | None = None
    latent: Latent | None = None
    recurrent: Recurrent | None = None
    weights: tuple[WeightPart, ...] = ()

    @property
    def parameters(self) -> int:
        """Return the estimated number of parameters."""
        return sum(part.parameters for part in self.weights)

    def weight_bytes(self, tp: int = 1) -> int:
        """Return the estimated bytes of the weights on one of ``tp`` cards."""
        return round(sum(part.bytes_on_card(tp) for part in self.weights))


def read_model(config: Mapping[str, object]) -> ModelShape:
    """Return the shape of the model of a parsed ``config.json``.

    Raises:
        ConfigError: a field is missing or wrong, or the layers are of a kind that this
            arithmetic doesn't know; says which.
    """
    fields = Fields(config)
    # Neither decides a size, but a file where they are wrong is no model's.
    fields.words("architectures")
    fields.dtype_bytes("torch_dtype", "dtype")
    heads, hidden_size = fields.positive("heads"), fields.positive("hidden_size")
    layers = read_layers(fields)
    kv_heads = _kv_heads(fields, heads)
    head_dim = fields.positive("head_dim", max(1, hidden_size // heads))
    return ModelShape(
        name=fields.name,
        layers=layers.count,
        attention_layers=layers.attention,
        hidden_size=hidden_size,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        max_position=fields.positive("max_position"),
        kind=_kind(heads, kv_heads, layers),
        sliding_window=_sliding_window(fields),
        latent=layers.latent,
        recurrent=layers.recurrent,
        weights=weight_parts(fields, layers, (heads, kv_heads, head_dim)),
    )


def _kv_heads(fields: Fields, heads: int) -> int:
    """Return the KV heads; all heads where the configuration doesn't share them."""
    shared = 1 if fields.flag("multi_query") else heads
    kv_heads = fields.positive("kv_heads", shared)
    if heads % kv_heads:
        raise ConfigError(
            f"model {fields.name!r} has {heads} attention heads and {kv_heads} KV heads, "
            "which can't be shared out among them"
        )
    return kv_heads


def _kind(heads: int, kv_heads: int, layers: Layers) -> Kind:
    if layers.recurrent is not None:
        return "hybrid"
    if layers.latent is not None:
        return "mla"
    if kv_heads == 1:
        return "mqa"
    return "mha" if kv_heads == heads else "gqa"


def _sliding_window(fields: Fields) -> int | None:
    if not fields.flag("use_sliding_window", default=True):
        return None
    return fields.number("sliding_window", 0) or None
