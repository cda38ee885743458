"""Bytes of the KV cache on one card: per token, per block, per sequence.

A plain model keeps, for every token and attention layer, a key and a value per KV head::

    token = 2 * layers * kv_heads_on_card * head_dim * dtype
    block = token * block_size

Tensor parallelism divides the KV heads; with more cards than heads each card keeps one,
and heads are kept several times.  MLA keeps one latent vector, whole on every card.

*A sliding window saves nothing here*: the worker of vllm-gaudi knows full attention and
recurrent layers only, so a windowed layer keeps every token like any other.

A *hybrid* model's recurrent layers keep a state per sequence, which the engine puts into
the same blocks.  It makes groups of layers of one kind, and a block serves one layer of
each group::

    page   = max(attention page of one layer, state of one layer)
    block  = page * layers per group

The plugin allocates pages and states apart, so it lowers the cache first
(:func:`hybrid_factor`) and says so in a line of its own.

The hybrid part follows the public source of the plugin and of vLLM's ``kv_cache_utils``.
"""

from __future__ import annotations

from dataclasses import dataclass

from hpuwatch.errors import ConfigError
from hpuwatch.gaudi.modellayers import GDN, Recurrent
from hpuwatch.gaudi.modelshape import ModelShape

HPU_BLOCK_SIZE = 128
"""Tokens per KV block that are taken where nothing tells.

It is the default of HPU since vLLM 0.6.4 (fork 1.19).  Before that it was 16, and the
documentation asked for 128.
"""

_DTYPE_BYTES = {
    "bfloat16": 2,
    "float16": 2,
    "fp8": 1,
    "fp8_e4m3": 1,
    "fp8_e5m2": 1,
    "fp8_inc": 1,
}
KV_DTYPES = ("auto", *_DTYPE_BYTES)
"""What ``--kv-cache-dtype`` may say."""
_SCALE_BYTES = 2  # a scale is bfloat16
_UNEVEN = 1.25
"""Layer counts closer than this make one group per kind, filled up with padding."""


@dataclass(frozen=True, slots=True)
class KvLayout:
    """How the KV cache of a model lies on one card.

    Attributes:
        shape: the model.
        tp: cards that tensor parallelism divides it among.
        kv_dtype_bytes: bytes of one number, None for the model's own (see
            :func:`kv_dtype_bytes`).
        block_size: tokens per block.
        compact_gdn: ``VLLM_COMPACT_GDN`` is on.
    """

    shape: ModelShape
    tp: int = 1
    kv_dtype_bytes: int | None = None
    block_size: int = HPU_BLOCK_SIZE
    compact_gdn: bool = False


def kv_dtype_bytes(name: str, shape: ModelShape) -> int:
    """Return the bytes of one number of the cache for a value of ``--kv-cache-dtype``.

    Raises:
        ConfigError: there is no such dtype.
    """
    if name == "auto":
        return shape.dtype_bytes
    if name not in _DTYPE_BYTES:
        raise ConfigError(
            f"--kv-cache-dtype {name} is unknown, choose from auto, "
            f"{', '.join(_DTYPE_BYTES)}"
        )
    return _DTYPE_BYTES[name]


def shared_out(heads: int, tp: int) -> int:
    """Return how many of some heads one of ``tp`` cards keeps.

    With more cards than heads every card keeps one: heads are kept several times.

    Raises:
        ConfigError: they can't be shared out evenly, which stops the server.
    """
    if tp < 1:
        raise ConfigError(f"a tensor parallel size of {tp} is no number of cards")
    more, less = max(heads, tp), min(heads, tp)
    if more % less:
        raise ConfigError(
            f"{heads} KV heads can't be shared out evenly among {tp} cards: choose a "
            "tensor parallel size that divides them, or is a multiple of them"
        )
    return max(1, heads // tp)


def kv_bytes_per_token(
    shape: ModelShape, tp: int = 1, kv_dtype_bytes: int | None = None
) -> int:
    """Return what one token takes in all attention layers of one card.

    Raises:
        ConfigError: the KV heads can't be shared out among the cards.
    """
    return shape.attention_layers * _layer_token_bytes(shape, tp, kv_dtype_bytes)


def _layer_token_bytes(shape: ModelShape, tp: int, kv_dtype_bytes: int | None) -> int:
    """Return what one token takes in one attention layer."""
    dtype = shape.dtype_bytes if kv_dtype_bytes is None else kv_dtype_bytes
    if shape.latent is not None:
        return (shape.latent.rank + shape.latent.rope_dim) * dtype
    return token_bytes(shared_out(shape.kv_heads, tp), shape.head_dim, dtype)


def token_bytes(kv_heads_on_card: int, head_dim: int, dtype_bytes: int) -> int:
    """Return the key and the value of one token in one plain layer of one card."""
    return 2 * kv_heads_on_card * head_dim * dtype_bytes


def state_bytes(recurrent: Recurrent, tp: int, conv_dtype_bytes: int) -> int:
    """Return the state of one sequence in one recurrent layer of one card.

    Raises:
        ConfigError: the value heads can't be divided among the cards.
    """
    if recurrent.heads % tp:
        raise ConfigError(
            f"{recurrent.heads} value heads can't be divided among {tp} cards"
        )
    heads = recurrent.heads // tp
    groups = shared_out(recurrent.groups, tp)
    matrix = heads * recurrent.head_dim * recurrent.state_size
    channels = heads * recurrent.head_dim + 2 * groups * recurrent.state_size
    kept = (recurrent.conv_kernel - 1) * channels
    return matrix * recurrent.state_dtype_bytes + kept * conv_dtype_bytes


@dataclass(frozen=True, slots=True)
class _Pages:
    """The pages of a hybrid model, in bytes, and how its layers form groups."""

    attention: int
    state: int
    layers_per_group: int
    attention_groups: int
    recurrent_groups: int

    @property
    def page(self) -> int:
        return max(self.attention, self.state)


def _pages(layout: KvLayout, recurrent: Recurrent) -> _Pages:
    shape = layout.shape
    token = _layer_token_bytes(shape, layout.tp, layout.kv_dtype_bytes)
    few, many = sorted((shape.attention_layers, recurrent.layers))
    size = many if many < few * _UNEVEN or few == 0 else few
    return _Pages(
        attention=token * layout.block_size,
        state=state_bytes(recurrent, layout.tp, shape.dtype_bytes),
        layers_per_group=size,
        attention_groups=-(-shape.attention_layers // size),
        recurrent_groups=-(-recurrent.layers // size),
    )


def kv_block_bytes(layout: KvLayout) -> int:
    """Return the bytes of one KV block of one card, by which the engine divides.

    Raises:
        ConfigError: heads can't be shared out among the cards.
    """
    shape = layout.shape
    if shape.recurrent is None:
        token = kv_bytes_per_token(shape, layout.tp, layout.kv_dtype_bytes)
        return token * layout.block_size
    pages = _pages(layout, shape.recurrent)
    return pages.page * pages.layers_per_group


def dummy_block_bytes(layout: KvLayout) -> int:
    """Return what the V1 engine sets aside for its block of padding.

    One page of every layer, which in a plain model is one block.
    """
    shape = layout.shape
    if shape.recurrent is None:
        return kv_block_bytes(layout)
    page = _pages(layout, shape.recurrent).page
    return page * (shape.attention_layers + shape.recurrent.layers)


def scale_bytes_per_block(layout: KvLayout) -> int:
    """Return the dynamic fp8 scales that come with a block (``VLLM_DYNAMIC_KV_QUANT``).

    One scale per token and head for keys and for values, and one per channel of the
    block's values, which only newer sources have.  The engine doesn't count them: they are
    taken from the memory beside the cache.  MLA has none.
    """
    shape = layout.shape
    if shape.latent is not None:
        return 0
    heads = shared_out(shape.kv_heads, layout.tp)
    scales = heads * (2 * layout.block_size + shape.head_dim)
    return shape.attention_layers * scales * _SCALE_BYTES


def hybrid_factor(layout: KvLayout) -> float:
    """Return the share of the KV cache that the plugin leaves a hybrid model; else 1.

    Gated delta nets are weighed with the real attention page, Mamba with the padded one.
    """
    recurrent = layout.shape.recurrent
    if recurrent is None or layout.shape.attention_layers == 0:
        return 1.0
    pages = _pages(layout, recurrent)
    if recurrent.kind != GDN:
        return pages.page / (pages.page + pages.state)
    if layout.compact_gdn:
        return 1.0
    return min(1.0, pages.page / (pages.attention + pages.state))


def blocks_of(kv_bytes: int, layout: KvLayout) -> int:
    """Return how many blocks the engine makes of ``kv_bytes``; none of a negative cache.

    Raises:
        ConfigError: heads can't be shared out among the cards.
    """
    left = int(kv_bytes * hybrid_factor(layout))
    return max(0, left // kv_block_bytes(layout))


def blocks_per_sequence(tokens: int, layout: KvLayout) -> int:
    """Return the blocks that one sequence of so many tokens holds.

    In a hybrid model each group of attention layers holds its own, and each group of
    recurrent layers one.
    """
    own = -(-tokens // layout.block_size)
    recurrent = layout.shape.recurrent
    if recurrent is None:
        return own
    pages = _pages(layout, recurrent)
    return pages.attention_groups * own + pages.recurrent_groups
