"""Graph memory that public logs and issues tell of: a table, nothing else.

It stands in where a server has no log yet.  A prompt's figure is used per token of batch x
query and in proportion to ``hidden_size``, so that models of several sizes can be compared;
a decode's figure is used per graph.
"""

from __future__ import annotations

from dataclasses import dataclass

from hpuwatch.units import GIB, KIB, MIB


@dataclass(frozen=True, slots=True)
class GraphPoint:
    """What the graphs of one public start took on each card.

    Attributes:
        source: where it was published.
        hidden_size: of the model.
        graphs: how many were captured.
        tokens: the sum of batch x query over them; 0 where it isn't known.
        used_bytes: what they took.
    """

    source: str
    model: str
    card: str
    phase: str
    hidden_size: int
    graphs: int
    tokens: int
    used_bytes: float


POINTS = (
    GraphPoint(
        "vllm-gaudi docs, performance tuning",
        "Llama-3.1-8B",
        "gaudi2",
        "prompt",
        4096,
        24,
        32256,
        67.72 * MIB,
    ),
    GraphPoint(
        "vllm-gaudi docs, warm-up",
        "Llama-3.1-8B",
        "gaudi2",
        "prompt",
        4096,
        15,
        9984,
        14.03 * GIB,
    ),
    GraphPoint(
        "vllm-gaudi 0.15 log, torch.compile",
        "Qwen3-VL-32B-FP8",
        "gaudi3",
        "prompt",
        5120,
        48,
        614400,
        11.11 * GIB,
    ),
    GraphPoint(
        "vllm-gaudi docs, performance tuning",
        "Llama-3.1-8B",
        "gaudi2",
        "decode",
        4096,
        1,
        0,
        64 * KIB,
    ),
    GraphPoint(
        "vllm-gaudi docs, warm-up",
        "Llama-3.1-8B",
        "gaudi2",
        "decode",
        4096,
        48,
        0,
        161.9 * MIB,
    ),
    GraphPoint(
        "vllm-fork, DeepSeek-R1 guide",
        "DeepSeek-R1",
        "gaudi2",
        "decode",
        7168,
        399,
        0,
        4.236 * GIB,
    ),
    GraphPoint(
        "vllm-gaudi 0.15 log, torch.compile",
        "Qwen3-VL-32B-FP8",
        "gaudi3",
        "decode",
        5120,
        162,
        0,
        0,
    ),
    GraphPoint(
        "vllm-fork#209",
        "unknown",
        "gaudi2",
        "decode",
        0,
        72,
        0,
        3.239 * GIB,
    ),
)
