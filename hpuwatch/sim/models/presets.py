"""The cards and models that can be simulated by name: tables, nothing else.

Geometry, parameters and checkpoint sizes are those of the published models; what DeepSeek-R1
and the two newest Qwens load follows from the weights that public starts printed.  Graph
sizes follow what little is public: Intel's calculator counts 10 to 20 MB for a graph, all
graphs of an 8B model came to 1.6 GiB, and a decode graph of 512 sequences of DeepSeek-R1
printed 8.5 MB, of which its decodes are set (compile-only mode takes 18 %).  Workspaces
follow profile runs (Llama) and the first step of a warm-up (the vision-language model);
those of the others are three feed-forward tensors of a token.  Where nothing public is
known of a model, its laws lie between those of its neighbours.  How far all that comes out
stands in ``docs/explanation/simulator.md``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from hpuwatch.gaudi.modellayers import GDN, Latent, Recurrent
from hpuwatch.gaudi.modelshape import ModelShape
from hpuwatch.sim.models.model import GraphLaw, MemoryLaw, Model, Vision
from hpuwatch.units import GIB, KIB, MIB


@dataclass(frozen=True, slots=True)
class Card:
    """One Gaudi card.

    Attributes:
        total_bytes: device memory as the runtime counts it: of 94.62 and 126.5 GiB, more
            digits than it prints follow from the sums that public logs print.
        base_bytes: used before a model is loaded.
    """

    name: str
    total_bytes: int
    base_bytes: int


CARDS = {
    "gaudi2": Card("gaudi2", int(94.6243 * GIB), 0),
    "gaudi3": Card("gaudi3", int(126.5435 * GIB), int(0.0405 * GIB)),
}

_PROMPT, _DECODE = "prompt", "decode"

_LLAMA_8B = Model(
    name="meta-llama/Llama-3.1-8B-Instruct",
    kind="llama",
    architecture="LlamaForCausalLM",
    shape=ModelShape("llama-3.1-8b", 32, 32, 4096, 32, 8, 128, 131072),
    checkpoint_bytes=16_060_522_496,
    parameters=8_030_261_248,
    active_parameters=8_030_261_248,
    vocabulary=128256,
    shards=4,
    scaled_positions=True,
    law=MemoryLaw(
        graphs={
            _PROMPT: GraphLaw(6 * MIB, 8 * KIB, 16 * KIB),
            _DECODE: GraphLaw(3 * MIB, 40 * KIB, 256),
        },
        workspace_bytes=86_880,
        activation_bytes=64 * KIB,
    ),
)
_LLAMA_70B = Model(
    name="meta-llama/Llama-3.1-70B-Instruct",
    kind="llama",
    architecture="LlamaForCausalLM",
    shape=ModelShape("llama-3.1-70b", 80, 80, 8192, 64, 8, 128, 131072),
    checkpoint_bytes=141_107_412_992,
    parameters=70_553_706_496,
    active_parameters=70_553_706_496,
    vocabulary=128256,
    shards=30,
    scaled_positions=True,
    tensor_parallel=4,
    law=MemoryLaw(
        graphs={
            _PROMPT: GraphLaw(14 * MIB, 12 * KIB, 20 * KIB),
            _DECODE: GraphLaw(8 * MIB, 60 * KIB, 512),
        },
        workspace_bytes=112_205,
        activation_bytes=128 * KIB,
    ),
)
_QWEN_32B = Model(
    name="Qwen/Qwen2.5-32B-Instruct",
    kind="qwen2",
    architecture="Qwen2ForCausalLM",
    shape=ModelShape("qwen2.5-32b", 64, 64, 5120, 40, 8, 128, 32768),
    checkpoint_bytes=65_527_752_704,
    parameters=32_763_876_352,
    active_parameters=32_763_876_352,
    vocabulary=152064,
    shards=17,
    law=MemoryLaw(
        graphs={
            _PROMPT: GraphLaw(9 * MIB, 15 * KIB, 24 * KIB),
            _DECODE: GraphLaw(5 * MIB, 70 * KIB, 512),
        },
        workspace_bytes=3 * 27648 * 2,
        activation_bytes=108 * KIB,
    ),
)

MODELS = {
    "llama-3.1-8b": _LLAMA_8B,
    "llama-3.3-70b": replace(_LLAMA_70B, name="meta-llama/Llama-3.3-70B-Instruct"),
    "llama-3.1-70b": _LLAMA_70B,
    "llama-3.1-405b": Model(
        name="meta-llama/Llama-3.1-405B-Instruct-FP8",
        kind="llama",
        architecture="LlamaForCausalLM",
        shape=ModelShape("llama-3.1-405b", 126, 126, 16384, 128, 8, 128, 131072),
        checkpoint_bytes=410_055_933_952,
        parameters=405_853_388_800,
        active_parameters=405_853_388_800,
        vocabulary=128256,
        shards=109,
        scaled_positions=True,
        tensor_parallel=8,
        law=MemoryLaw(
            graphs={
                _PROMPT: GraphLaw(24 * MIB, 14 * KIB, 20 * KIB),
                _DECODE: GraphLaw(14 * MIB, 70 * KIB, 512),
            },
            workspace_bytes=3 * 53248 * 2,
            activation_bytes=256 * KIB,
        ),
    ),
    "qwen2.5-32b": _QWEN_32B,
    "qwen-32b": _QWEN_32B,
    "qwen3-0.6b": Model(
        name="Qwen/Qwen3-0.6B",
        kind="qwen3",
        architecture="Qwen3ForCausalLM",
        shape=ModelShape("qwen3-0.6b", 28, 28, 1024, 16, 8, 128, 40960),
        checkpoint_bytes=1_192_099_840,
        parameters=596_049_920,
        active_parameters=596_049_920,
        vocabulary=151936,
        shards=1,
        law=MemoryLaw(
            graphs={
                _PROMPT: GraphLaw(3 * MIB, 4 * KIB, 8 * KIB),
                _DECODE: GraphLaw(2 * MIB, 24 * KIB, 256),
            },
            workspace_bytes=3 * 3072 * 2,
            activation_bytes=16 * KIB,
        ),
    ),
    "qwen3-30b-a3b": Model(
        name="Qwen/Qwen3-30B-A3B",
        kind="qwen3_moe",
        architecture="Qwen3MoeForCausalLM",
        shape=ModelShape("qwen3-30b-a3b", 48, 48, 2048, 32, 4, 128, 40960),
        checkpoint_bytes=61_064_245_248,
        parameters=30_532_122_624,
        active_parameters=3_350_000_000,
        experts=128,
        vocabulary=151936,
        shards=16,
        law=MemoryLaw(
            graphs={
                _PROMPT: GraphLaw(10 * MIB, 10 * KIB, 12 * KIB),
                _DECODE: GraphLaw(6 * MIB, 40 * KIB, 256),
            },
            workspace_bytes=3 * 8 * 768 * 2,
            activation_bytes=48 * KIB,
        ),
    ),
    "mixtral-8x7b": Model(
        name="mistralai/Mixtral-8x7B-Instruct-v0.1",
        kind="mixtral",
        architecture="MixtralForCausalLM",
        shape=ModelShape("mixtral-8x7b", 32, 32, 4096, 32, 8, 128, 32768),
        checkpoint_bytes=93_405_585_408,
        parameters=46_702_792_704,
        active_parameters=12_879_925_248,
        experts=8,
        vocabulary=32000,
        shards=19,
        tensor_parallel=2,
        law=MemoryLaw(
            graphs={
                _PROMPT: GraphLaw(9 * MIB, 12 * KIB, 16 * KIB),
                _DECODE: GraphLaw(5 * MIB, 50 * KIB, 256),
            },
            workspace_bytes=3 * 2 * 14336 * 2,
            activation_bytes=96 * KIB,
        ),
    ),
    "deepseek-r1": Model(
        name="deepseek-ai/DeepSeek-R1",
        kind="deepseek_v3",
        architecture="DeepseekV3ForCausalLM",
        shape=ModelShape(
            "deepseek-r1",
            *(61, 61, 7168, 128, 128, 128, 163840),
            kind="mla",
            latent=Latent(rank=512, rope_dim=64),
        ),
        checkpoint_bytes=int(8 * 79.371 * GIB),
        parameters=671_026_419_200,
        active_parameters=37_000_000_000,
        experts=256,
        vocabulary=129280,
        shards=163,
        tensor_parallel=8,
        law=MemoryLaw(
            graphs={
                _PROMPT: GraphLaw(8 * MIB, 14 * KIB, 4 * KIB),
                _DECODE: GraphLaw(12 * MIB, 70 * KIB, 256),
            },
            workspace_bytes=3 * 9 * 2048 * 2,
            activation_bytes=224 * KIB,
        ),
    ),
    "qwen3.6-27b": Model(
        name="Qwen/Qwen3.6-27B-FP8",
        kind="qwen3_5",
        architecture="Qwen3_5ForConditionalGeneration",
        shape=ModelShape(
            "qwen3.6-27b",
            *(64, 16, 5120, 24, 4, 256, 262144),
            kind="hybrid",
            recurrent=Recurrent(
                GDN,
                layers=48,
                heads=48,
                head_dim=128,
                groups=16,
                state_size=128,
                conv_kernel=4,
                state_dtype_bytes=4,
            ),
        ),
        checkpoint_bytes=int(4 * 6.975 * GIB),
        parameters=26_900_000_000,
        active_parameters=26_900_000_000,
        vocabulary=248320,
        shards=11,
        tensor_parallel=4,
        law=MemoryLaw(
            graphs={
                _PROMPT: GraphLaw(40 * MIB, 20 * KIB, 20 * KIB),
                _DECODE: GraphLaw(60 * MIB, 150 * KIB, 512),
            },
            workspace_bytes=4 * MIB,
            activation_bytes=512 * KIB,
        ),
    ),
    "qwen3-vl-32b": Model(
        name="Qwen/Qwen3-VL-32B-Instruct-FP8",
        kind="qwen3_vl",
        architecture="Qwen3VLForConditionalGeneration",
        shape=ModelShape("qwen3-vl-32b", 64, 64, 5120, 64, 8, 128, 262144),
        checkpoint_bytes=int(34.6975 * GIB),
        parameters=33_357_000_000,
        active_parameters=33_357_000_000,
        vocabulary=151936,
        shards=7,
        law=MemoryLaw(
            graphs={
                _PROMPT: GraphLaw(9 * MIB, 512, 4 * KIB),
                _DECODE: GraphLaw(4 * MIB, 10 * KIB, 256),
            },
            workspace_bytes=579_400,
            activation_bytes=64 * KIB,
            vision=Vision(296_290, kept_bytes=int(0.74 * GIB), pixel_bytes=2 * KIB),
        ),
    ),
}
"""Models by the preset name that a user may type."""

_SPELLINGS = re.compile(r"^meta-|-instruct\b|-v0\.1$|-chat$")
"""What is left out of a name where names are compared."""


def model_called(name: str) -> Model | None:
    """Return the preset of a name, None where there is none.

    A name is that of a preset, a published one with or without its owner and its
    ``Instruct``, or a path that holds one (also as a cache of downloads spells it).
    """
    parts = [_plain(part) for part in re.split(r"/|--", name)]
    for preset, model in MODELS.items():
        known = {preset, _plain(model.name.rpartition("/")[2])}
        if not known.isdisjoint(parts):
            return model
    return None


def _plain(name: str) -> str:
    return _SPELLINGS.sub("", name.strip().lower())
