"""An estimate of a model's weights on one card, from its ``config.json`` alone.

A checkpoint is a handful of matrices.  Each *part* here is a group of them with its number
of parameters, the bytes of one (quantised or not) and how it is shared out: tensor
parallelism divides most matrices among the cards; key and value projections only among as
many cards as there are KV heads; the down-projections of MLA and routers are whole on
every card.  vLLM divides embedding and output matrix as well.

Left out are norms, biases and position tables, which are small.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hpuwatch.errors import ConfigError
from hpuwatch.gaudi.modelfields import SERVED_DTYPE_BYTES, Fields, mapping
from hpuwatch.gaudi.modellayers import GDN, Layers


@dataclass(frozen=True, slots=True)
class WeightPart:
    """Matrices that are stored and shared out alike.

    Attributes:
        name: what they do.
        parameters: how many numbers, in the whole model.
        parameter_bytes: bytes of one, scales included.
        shares: the most cards among which they are divided, None for any number.
    """

    name: str
    parameters: int
    parameter_bytes: float
    shares: int | None = None

    def bytes_on_card(self, tp: int) -> float:
        """Return the bytes of it on one of ``tp`` cards."""
        shares = tp if self.shares is None else min(tp, self.shares)
        return self.parameters * self.parameter_bytes / shares


_UNGATED = frozenset(
    [
        "bloom",
        "falcon",
        "gpt2",
        "gpt_bigcode",
        "gpt_neox",
        "mpt",
        "nemotron_h",
        "opt",
        "phi",
        "starcoder2",
    ]
)
"""Model types whose feed-forward part has two matrices, where the others have three."""

_TIED = _UNGATED - {"falcon", "nemotron_h", "phi"} | {"gemma", "gemma2"}
"""Model types that share embedding and output matrix unless they say otherwise."""

_QUANTISED_BITS = {"fp8": 8, "fbgemm_fp8": 8, "mxfp4": 4.25}
"""Bits of a weight by ``quant_method``, where the method alone tells them."""

_MOST_BITS = 64
_SCALE_BYTES = 2
_VISION_MATRICES = 2  # of a vision tower's feed-forward part


@dataclass(frozen=True, slots=True)
class _Sizes:
    """The sizes that most parts are made of, and the bytes of a quantised weight."""

    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    weight_bytes: float


def weight_parts(
    fields: Fields, layers: Layers, heads: tuple[int, int, int]
) -> tuple[WeightPart, ...]:
    """Return the weights of a model by part.

    Args:
        fields: the model's configuration.
        layers: its layers.
        heads: attention heads, KV heads and numbers per head.

    Raises:
        ConfigError: a size is missing, or the quantisation is an unknown one.
    """
    weight_bytes = _weight_bytes(fields)
    sizes = _Sizes(fields.positive("hidden_size"), *heads, weight_bytes)
    parts = [
        *_tables(fields, sizes),
        *_attention(fields, layers, sizes),
        *_recurrent(layers, sizes),
        *_feed_forward(fields, layers, sizes),
        *_vision(fields),
    ]
    return tuple(part for part in parts if part.parameters)


def _weight_bytes(fields: Fields) -> float:
    """Return the bytes of one weight of a matrix that may be quantised."""
    given = fields.mapping("quantization_config")
    if given is None:
        return SERVED_DTYPE_BYTES
    method = str(given.get("quant_method", ""))
    bits = given.get("bits", _compressed_bits(given))
    if isinstance(bits, int) and 0 < bits <= _MOST_BITS:
        group = given.get("group_size")
        scales = _SCALE_BYTES / group if isinstance(group, int) and group > 0 else 0.0
        return bits / 8 + scales
    if method in _QUANTISED_BITS:
        return _QUANTISED_BITS[method] / 8
    raise ConfigError(
        f"model {fields.name!r} is quantised by {method!r}, whose weights this "
        f"arithmetic doesn't know; known are {', '.join(_QUANTISED_BITS)} and those that "
        "give their bits"
    )


def _compressed_bits(given: Mapping[str, object]) -> object:
    """Return the bits of the first group of a compressed-tensors checkpoint."""
    for group in (mapping(given, "config_groups") or {}).values():
        weights = mapping(group, "weights") if isinstance(group, Mapping) else None
        if weights is not None:
            return weights.get("num_bits")
    return None


def _tables(fields: Fields, sizes: _Sizes) -> list[WeightPart]:
    table = fields.positive("vocab_size") * sizes.hidden
    tied = fields.flag(
        "tie_word_embeddings", default=fields.text("model_type") in _TIED
    )
    return [
        WeightPart("embedding", table, SERVED_DTYPE_BYTES),
        WeightPart("output", 0 if tied else table, SERVED_DTYPE_BYTES),
    ]


def _attention(fields: Fields, layers: Layers, sizes: _Sizes) -> list[WeightPart]:
    if layers.latent is not None:
        return _latent(fields, layers, sizes)
    wide = sizes.heads * sizes.head_dim
    # A gated output doubles the query projection (the GDN hybrids of today).
    gated = fields.flag(
        "attn_output_gate", default=fields.has("linear_num_value_heads")
    )
    queries = sizes.hidden * wide * (3 if gated else 2)
    keys = 2 * sizes.hidden * sizes.kv_heads * sizes.head_dim
    return [
        WeightPart("attention", layers.attention * queries, sizes.weight_bytes),
        WeightPart(
            "keys and values",
            layers.attention * keys,
            sizes.weight_bytes,
            shares=sizes.kv_heads,
        ),
    ]


def _latent(fields: Fields, layers: Layers, sizes: _Sizes) -> list[WeightPart]:
    nope = fields.number("qk_nope_head_dim")
    rope = fields.number("qk_rope_head_dim")
    value = fields.number("v_head_dim")
    rank = fields.number("kv_lora_rank")
    query_rank = fields.number("q_lora_rank", 0)
    down = sizes.hidden * (query_rank + rank + rope)
    up = sizes.heads * (query_rank or sizes.hidden) * (nope + rope)
    up += sizes.heads * (rank * (nope + value) + value * sizes.hidden)
    return [
        WeightPart("attention", layers.attention * up, sizes.weight_bytes),
        WeightPart(
            "latent projections", layers.attention * down, sizes.weight_bytes, shares=1
        ),
    ]


def _recurrent(layers: Layers, sizes: _Sizes) -> list[WeightPart]:
    found = layers.recurrent
    if found is None:
        return []
    values, keys = found.heads * found.head_dim, found.groups * found.state_size
    gates = found.heads * (2 if found.kind == GDN else 1)
    each = sizes.hidden * (3 * values + 2 * keys + gates)
    return [WeightPart("recurrent", found.layers * each, sizes.weight_bytes)]


def _feed_forward(fields: Fields, layers: Layers, sizes: _Sizes) -> list[WeightPart]:
    matrices = 2 if fields.text("model_type") in _UNGATED else 3
    wide = fields.number("intermediate_size", 4 * sizes.hidden)
    experts = fields.number("experts", 0)
    each = matrices * sizes.hidden
    if experts == 0:
        wide = fields.number("shared_intermediate_size", wide)
        return [
            WeightPart("feed-forward", layers.mlp * each * wide, sizes.weight_bytes)
        ]
    expert = fields.number("moe_intermediate_size", wide)
    sparse = _sparse_layers(fields, layers.mlp)
    dense = layers.mlp - sparse
    wide = fields.number("intermediate_size_mlp", wide)
    shared = _shared_expert(fields, expert)
    return [
        WeightPart("feed-forward", dense * each * wide, sizes.weight_bytes),
        WeightPart("experts", sparse * each * experts * expert, sizes.weight_bytes),
        WeightPart("shared expert", sparse * each * shared, sizes.weight_bytes),
        WeightPart(
            "router", sparse * sizes.hidden * experts, SERVED_DTYPE_BYTES, shares=1
        ),
    ]


def _sparse_layers(fields: Fields, count: int) -> int:
    """Return how many layers have experts."""
    first = fields.number("first_k_dense_replace", 0)
    dense = fields.numbers("mlp_only_layers") or ()
    step = fields.positive("sparse_step", 1)
    return sum(
        n >= first and n not in dense and (n + 1) % step == 0 for n in range(count)
    )


def _shared_expert(fields: Fields, expert: int) -> int:
    """Return the width of what every token passes beside its experts."""
    listed = fields.number("n_shared_experts", 0) * expert
    return listed or fields.number("shared_expert", 0)


def _vision(fields: Fields) -> list[WeightPart]:
    """Return the vision tower, which stays unquantised; patch tables are left out."""
    given = mapping(fields.whole, "vision_config")
    if given is None:
        return []
    vision = Fields(given)
    layers, hidden = vision.number("layers", 0), vision.number("hidden_size", 0)
    wide = vision.number("intermediate_size", 4 * hidden)
    tower = layers * (4 * hidden * hidden + _VISION_MATRICES * hidden * wide)
    merged = hidden * vision.number("spatial_merge_size", 0) ** 2
    mergers = 1 + len(vision.numbers("deepstack_visual_indexes") or ())
    merge = mergers * merged * (merged + vision.number("out_hidden_size", 0))
    return [WeightPart("vision", tower + merge, SERVED_DTYPE_BYTES)]
