"""The models and cards that can be simulated: tables, nothing else.

Geometry and weights are those of the published checkpoints in bf16.  Times follow peak
figures of the cards (a decode step reads all weights and the KV blocks in use once, a
prefill is bound by arithmetic); graph sizes follow published totals, such as 1.6 GiB for
all graphs of an 8B model.  ``truth`` departs from them by a hidden seed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hpuwatch.gaudi import cards
from hpuwatch.units import GIB, KIB, MIB


@dataclass(frozen=True, slots=True)
class Card:
    """One Gaudi card.

    Attributes:
        total_bytes: device memory as the runtime reports it.
        base_bytes: used before a model is loaded.
        time_factor: seconds here per second on gaudi2.
    """

    name: str
    total_bytes: int
    base_bytes: int
    time_factor: float


@dataclass(frozen=True, slots=True)
class GraphLaw:
    """Device memory that one captured graph keeps, on each card."""

    fixed_bytes: int
    token_bytes: int  # per batch * query (decode: per sequence)
    block_bytes: int  # per context block


@dataclass(frozen=True, slots=True)
class TimeLaw:
    """Seconds of one step on gaudi2, linear in what the bucket holds."""

    fixed_seconds: float
    token_seconds: float  # per batch * query (decode: per sequence)
    block_seconds: float  # decode: per context block; prompt: per token pair attended


@dataclass(frozen=True, slots=True)
class Model:
    """A model, its geometry and its public laws; sizes are of the whole model."""

    name: str  # as published
    kind: str  # model_type
    architecture: str
    layers: int
    kv_heads: int
    head_dim: int
    weights_bytes: int
    max_model_len: int
    vocabulary: int
    shards: int
    tensor_parallel: int  # where no flag says otherwise
    activation_bytes: int  # transient, per token of a prefill, all cards together
    graphs: Mapping[str, GraphLaw]  # by phase, on each card
    steps: Mapping[str, TimeLaw]  # by phase, at `tensor_parallel`
    bucket_seconds: Mapping[str, float]  # warm-up of a small bucket, by phase

    @property
    def dtype_bytes(self) -> int:
        """Bytes of one number of the KV cache (bf16)."""
        return 2


CARDS = {
    card.name: card
    for card in (
        Card("gaudi2", cards.CARDS["gaudi2"].total_bytes, int(0.3451 * GIB), 1.0),
        Card("gaudi3", cards.CARDS["gaudi3"].total_bytes, int(0.3451 * GIB), 0.68),
    )
}

_PROMPT, _DECODE = "prompt", "decode"

MODELS = {
    "llama-3.1-8b": Model(
        name="meta-llama/Llama-3.1-8B-Instruct",
        kind="llama",
        architecture="LlamaForCausalLM",
        layers=32,
        kv_heads=8,
        head_dim=128,
        weights_bytes=int(15.05 * GIB),
        max_model_len=131072,
        vocabulary=128256,
        shards=4,
        tensor_parallel=1,
        activation_bytes=64 * KIB,
        graphs={
            _PROMPT: GraphLaw(6 * MIB, 8 * KIB, 16 * KIB),
            _DECODE: GraphLaw(3 * MIB, 40 * KIB, 1 * KIB),
        },
        steps={
            _PROMPT: TimeLaw(0.005, 62e-6, 4e-9),
            _DECODE: TimeLaw(0.007, 30e-6, 6.8e-6),
        },
        bucket_seconds={_PROMPT: 0.42, _DECODE: 0.31},
    ),
    "llama-3.1-70b": Model(
        name="meta-llama/Llama-3.1-70B-Instruct",
        kind="llama",
        architecture="LlamaForCausalLM",
        layers=80,
        kv_heads=8,
        head_dim=128,
        weights_bytes=int(131.8 * GIB),
        max_model_len=131072,
        vocabulary=128256,
        shards=30,
        tensor_parallel=4,
        activation_bytes=128 * KIB,
        graphs={
            _PROMPT: GraphLaw(14 * MIB, 12 * KIB, 20 * KIB),
            _DECODE: GraphLaw(8 * MIB, 60 * KIB, 2 * KIB),
        },
        steps={
            _PROMPT: TimeLaw(0.014, 145e-6, 5e-9),
            _DECODE: TimeLaw(0.021, 60e-6, 5.1e-6),
        },
        bucket_seconds={_PROMPT: 1.7, _DECODE: 1.4},
    ),
    "qwen-32b": Model(
        name="Qwen/Qwen2.5-32B-Instruct",
        kind="qwen2",
        architecture="Qwen2ForCausalLM",
        layers=64,
        kv_heads=8,
        head_dim=128,
        weights_bytes=int(61.03 * GIB),
        max_model_len=32768,
        vocabulary=152064,
        shards=17,
        tensor_parallel=1,
        activation_bytes=108 * KIB,
        graphs={
            _PROMPT: GraphLaw(9 * MIB, 15 * KIB, 24 * KIB),
            _DECODE: GraphLaw(5 * MIB, 70 * KIB, 2 * KIB),
        },
        steps={
            _PROMPT: TimeLaw(0.012, 250e-6, 8e-9),
            _DECODE: TimeLaw(0.028, 60e-6, 13.6e-6),
        },
        bucket_seconds={_PROMPT: 1.2, _DECODE: 0.9},
    ),
}


def model_called(name: str) -> Model | None:
    """Find a model by its preset name, its published name or the end of a path."""
    wanted = name.lower().rstrip("/")
    for preset, model in MODELS.items():
        published = model.name.lower()
        if wanted in {preset, published} or wanted.endswith(
            "/" + published.rpartition("/")[2]
        ):
            return model
    return None
