"""Which layers of a model keep keys and values, and which keep a state of fixed size.

A plain model attends in every layer.  A *hybrid* one names its layers one by one
(``layer_types``, ``layers_block_type``, ``hybrid_override_pattern``) or by an interval;
its *recurrent* layers, gated delta nets (GDN) or Mamba2, have a state per sequence whose
size doesn't grow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hpuwatch.errors import ConfigError
from hpuwatch.gaudi.modelfields import SERVED_DTYPE_BYTES, Fields

GDN, MAMBA2 = "gdn", "mamba2"

_ATTENTION, _MLP = "attention", "mlp"
_KINDS = {
    "full_attention": _ATTENTION,
    "sliding_attention": _ATTENTION,
    "chunked_attention": _ATTENTION,
    "attention": _ATTENTION,
    "linear_attention": GDN,
    "mamba": MAMBA2,
    "*": _ATTENTION,
    "M": MAMBA2,
    "-": _MLP,
}
"""A layer's name, or its letter in a pattern → what it is to the cache."""


_STRANGE = {
    "attn_layer_period": "Mamba layers of the first kind",
    "cross_attention_layers": "layers that look at an encoder",
    "global_head_dim": "layers of different head sizes",
    "index_topk": "an index beside its cache",
    "is_encoder_decoder": "an encoder",
    "linear_attn_config": "linear attention of another kind",
    "num_kv_shared_layers": "layers that share their cache",
}
"""Fields of layers whose cache follows other rules, and what they stand for."""


@dataclass(frozen=True, slots=True)
class Latent:
    """The compressed KV vector of MLA: one per token and layer, the same on every card.

    Attributes:
        rank: numbers of the compressed part (``kv_lora_rank``).
        rope_dim: numbers of the position part (``qk_rope_head_dim``).
    """

    rank: int
    rope_dim: int


@dataclass(frozen=True, slots=True)
class Recurrent:
    """The layers with a state of fixed size, all alike.

    A state is a matrix of ``head_dim`` x ``state_size`` per head, and the last
    ``conv_kernel - 1`` inputs of a convolution that reads the heads' values and two
    vectors of ``state_size`` per group.

    Attributes:
        kind: ``gdn`` or ``mamba2``.
        layers: how many there are.
        heads: value heads of the whole model.
        head_dim: numbers per value head.
        groups: key heads (GDN) or groups (Mamba2) of the whole model.
        state_size: numbers of a key.
        conv_kernel: inputs that the convolution spans.
        state_dtype_bytes: bytes of one number of the matrix.
    """

    kind: str
    layers: int
    heads: int
    head_dim: int
    groups: int
    state_size: int
    conv_kernel: int
    state_dtype_bytes: int


@dataclass(frozen=True, slots=True)
class Layers:
    """The layers of a model by what they keep.

    Attributes:
        count: all layers.
        attention: layers that keep something for every token.
        mlp: layers with a feed-forward part; all but where they are layers of their own.
        latent: what these keep where it is not keys and values.
        recurrent: the layers with a state, None in a plain model.
    """

    count: int
    attention: int
    mlp: int
    latent: Latent | None = None
    recurrent: Recurrent | None = None


def read_layers(fields: Fields) -> Layers:
    """Return the layers of a model's configuration.

    Raises:
        ConfigError: a field is missing, or a layer is of an unknown kind.
    """
    _refuse_strange(fields)
    count = fields.positive("layers")
    kinds = _kinds(fields, count)
    states = set(kinds) & {GDN, MAMBA2}
    if len(states) > 1:
        raise ConfigError(f"model {fields.name!r} mixes GDN and Mamba layers")
    kind = next(iter(states), None)
    recurrent = None
    if kind is not None:
        read = _gdn if kind == GDN else _mamba2
        recurrent = read(fields, kinds.count(kind))
    latent = None
    if fields.has("kv_lora_rank"):
        rope = fields.number("qk_rope_head_dim")
        latent = Latent(fields.positive("kv_lora_rank"), rope)
    mlp = kinds.count(_MLP) or count
    return Layers(count, kinds.count(_ATTENTION), mlp, latent, recurrent)


def _refuse_strange(fields: Fields) -> None:
    strange = [name for name in _STRANGE if fields.value(name)]
    if strange:
        raise ConfigError(
            f"model {fields.name!r} has {_STRANGE[strange[0]]} ({strange[0]}), which this "
            "arithmetic doesn't know"
        )


def _kinds(fields: Fields, count: int) -> Sequence[str]:
    """Return what each layer is to the cache."""
    listed = fields.words("layer_types") or fields.words("layers_block_type")
    listed = listed or tuple(fields.text("hybrid_override_pattern"))
    attending = fields.numbers("attn_layer_indices")
    if listed:
        kinds = [_kind(fields, word) for word in listed]
        if len(kinds) != count:
            raise ConfigError(
                f"model {fields.name!r} lists {len(kinds)} layers, but has {count}"
            )
        return kinds
    if attending is not None:
        return [_ATTENTION if n in attending else MAMBA2 for n in range(count)]
    # Every fourth layer attends where the configuration doesn't say otherwise.
    every = fields.positive("full_attention_interval", 4)
    if fields.has("linear_num_value_heads"):
        return [GDN if (n + 1) % every else _ATTENTION for n in range(count)]
    if 0 in (fields.numbers("attn_type_list") or ()):
        raise ConfigError(
            f"model {fields.name!r} has linear attention of another kind "
            "(attn_type_list), which this arithmetic doesn't know"
        )
    if any(fields.has(name) for name in ("ssm_cfg", "mamba_d_state", "ssm_state_size")):
        raise ConfigError(
            f"model {fields.name!r} has Mamba layers, but its configuration doesn't list "
            "which (layer_types, layers_block_type, hybrid_override_pattern)"
        )
    return [_ATTENTION] * count


def _kind(fields: Fields, word: str) -> str:
    if word not in _KINDS:
        raise ConfigError(
            f"model {fields.name!r} has a layer of the unknown kind {word!r}; known are "
            f"{', '.join(_KINDS)}"
        )
    return _KINDS[word]


def _gdn(fields: Fields, layers: int) -> Recurrent:
    return Recurrent(
        kind=GDN,
        layers=layers,
        heads=fields.positive("linear_num_value_heads"),
        head_dim=fields.positive("linear_value_head_dim"),
        groups=fields.positive("linear_num_key_heads"),
        state_size=fields.positive("linear_key_head_dim"),
        conv_kernel=fields.positive("linear_conv_kernel_dim"),
        state_dtype_bytes=fields.dtype_bytes("mamba_ssm_dtype") or SERVED_DTYPE_BYTES,
    )


def _mamba2(fields: Fields, layers: int) -> Recurrent:
    return Recurrent(
        kind=MAMBA2,
        layers=layers,
        heads=fields.positive("mamba_heads"),
        head_dim=fields.positive("mamba_head_dim"),
        groups=fields.positive("mamba_groups"),
        state_size=fields.positive("mamba_state_size"),
        conv_kernel=fields.positive("mamba_conv_kernel"),
        state_dtype_bytes=fields.dtype_bytes("mamba_ssm_dtype") or SERVED_DTYPE_BYTES,
    )
