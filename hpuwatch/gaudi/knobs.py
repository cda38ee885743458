"""The knobs of a vLLM server on Gaudi that hpuwatch explains or tunes, as one table.

Releases are those of ``gaudi.releases``: ``plugin-0.11`` and later numbers are vllm-gaudi,
``fork-1.18`` to ``fork-1.23`` Gaudi's fork of vLLM.  The page ``docs/knobs.md`` is made
from this table.
"""

from __future__ import annotations

from collections.abc import Mapping

from hpuwatch.gaudi import checks
from hpuwatch.gaudi.bucketknobs import AXES, PADS, SELECTORS
from hpuwatch.gaudi.knob import ALL, YES, Knob

__all__ = ["KNOBS", "Knob", "complaints"]

_RATIO = "0 ≤ x < 1"

_MEMORY = (
    Knob(
        "VLLM_GRAPH_RESERVED_MEM",
        "env",
        "memory",
        "Share of the usable memory that is kept from the KV cache, for graphs and for "
        "everything that is allocated later.",
        (("fork-1.19 and later, plugin", "0.1"), ("up to fork-1.18", "0.4")),
        _RATIO,
        ALL,
        checks.number_below_one,
        "Without effect under --enforce-eager. Since fork-1.22 nothing bounds the graphs: "
        "too small a reserve ends in an out-of-memory error during warm-up.",
    ),
    Knob(
        "--gpu-memory-utilization",
        "flag",
        "memory",
        "Share of the memory that is free after weights and profile run (not of the "
        "card's) that reserve and KV cache divide between them.",
        ((ALL, "0.9"),),
        "0 < x ≤ 1",
        ALL,
        checks.share,
        "Raising it makes an out-of-memory error during warm-up worse: what it leaves is "
        "the margin for everything else.",
    ),
    Knob(
        "--num-gpu-blocks-override",
        "flag",
        "memory",
        "Number of KV blocks, instead of what fits.",
        ((ALL, "what fits"),),
        "a whole number, 1 or more",
        ALL,
        checks.whole(1),
        "More than fits ends in an out-of-memory error.",
    ),
    Knob(
        "--kv-cache-memory-bytes",
        "flag",
        "memory",
        "Bytes of the KV cache, instead of what utilisation and reserve leave.",
        ((ALL, "not set"),),
        "bytes, or 1G or 1Gi",
        "later than plugin-head",
        beware="Accepted and ignored up to plugin-0.26.",
    ),
    Knob(
        "--block-size",
        "flag",
        "memory",
        "Tokens of a KV block; also minimum and step of the query and block axes.",
        (("fork-1.19 and later, plugin", "128"), ("up to fork-1.18", "16")),
        "a multiple of 128",
        ALL,
        checks.multiple_of(128),
        "16 works, but very slowly: where it is the default, 128 has to be asked for.",
    ),
    Knob(
        "--kv-cache-dtype",
        "flag",
        "memory",
        "Type of keys and values; 8 bits halve the bytes of a block.",
        ((ALL, "auto"),),
        "auto, fp8_inc, fp8, bfloat16 …",
        ALL,
    ),
)

_SHAPES = (
    Knob(
        "--max-model-len",
        "flag",
        "buckets",
        "Longest sequence in tokens: the end of the context axis of prompts and the "
        "blocks that a sequence can need.",
        ((ALL, "the model's"),),
        "a whole number, 1 or more",
        ALL,
        beware="From 8192 on, exp works in long-context mode (plugin-0.14 and later).",
    ),
    Knob(
        "--max-num-seqs",
        "flag",
        "buckets",
        "Largest decode batch; since plugin-0.11 also the step of exp's decode blocks.",
        ((ALL, "256"),),
        "a whole number, 1 or more",
        ALL,
        checks.whole(1),
    ),
    Knob(
        "--max-num-batched-tokens",
        "flag",
        "buckets",
        "Tokens of a step: end of the query axis, and what a prompt bucket may hold.",
        (("plugin", "2048"), ("fork", "max(max_model_len, 2048)")),
        "a whole number, the block size or more",
        ALL,
        checks.whole(1),
        "Must be a multiple of the chunk of a Mamba model (plugin-0.17 and later).",
    ),
    Knob(
        "--max-num-prefill-seqs",
        "flag",
        "buckets",
        "Largest prompt batch of the fork's V0 engine.",
        (("fork", "max_num_seqs"),),
        "a whole number, 1 or more",
        "fork-1.20 to fork-1.23",
        checks.whole(1),
        "The plugin has no such flag: see VLLM_PROMPT_BS_BUCKET_MAX.",
    ),
    Knob(
        "--enable-prefix-caching",
        "flag",
        "buckets",
        "Reuse of KV blocks of equal beginnings. Before plugin-0.11 it also adds the "
        "context axis to the prompt buckets and turns contiguous paged attention off.",
        (("plugin", "on"), ("fork", "off")),
        "the flag, or --no-enable-prefix-caching",
        ALL,
        beware="Since plugin-0.11 only VLLM_CONTIGUOUS_PA decides about the buckets.",
    ),
    Knob(
        "--enforce-eager",
        "flag",
        "buckets",
        "No graphs and no compilation: the reserve is 0 and no graph is captured.",
        ((ALL, "off"),),
        "the flag",
        ALL,
    ),
)

_WARMUP = (
    Knob(
        "VLLM_SKIP_WARMUP",
        "env",
        "warm-up",
        "No warm-up: a fast start, and a compilation at each first use of a shape.",
        ((ALL, "false"),),
        YES,
        ALL,
        checks.word_true,
        "Up to fork-1.21 only the word true works.",
    ),
    Knob(
        "VLLM_FULL_WARMUP",
        "env",
        "warm-up",
        "Skips the guards of compiled code after warm-up.",
        ((ALL, "false"),),
        "1 or true",
        "fork-1.21 and later",
        checks.one_of("1", "true", "0", "false"),
        "A shape that was not warmed up then ends the server.",
    ),
    Knob(
        "PT_HPU_LAZY_MODE",
        "env",
        "warm-up",
        "Lazy mode with HPU graphs (1), or eager mode with torch.compile (0).",
        (("plugin", "0"), ("fork", "1, in its images")),
        "0 or 1",
        ALL,
        checks.one_of("0", "1"),
    ),
    Knob(
        "PT_HPU_RECIPE_CACHE_CONFIG",
        "env",
        "restart",
        "Cache of compiled recipes on disk, which shortens the next warm-up.",
        ((ALL, "not set"),),
        "DIRECTORY,true|false,MEGABYTES",
        ALL,
        checks.recipe_cache,
        "Needs a local disk with file locks. Another card, release, data type or number "
        "of cards makes it useless.",
    ),
    Knob(
        "VLLM_ENGINE_READY_TIMEOUT_S",
        "env",
        "restart",
        "How long the front end waits for the engine, warm-up included.",
        (("plugin-0.14 and later", "600"), ("earlier", "600, fixed")),
        "seconds",
        "plugin-0.14 and later",
        checks.whole(1),
        "A long warm-up is killed by it: raise it before adding buckets.",
    ),
)

KNOBS: dict[str, Knob] = {
    knob.name: knob for knob in (*_MEMORY, *_SHAPES, *SELECTORS, *AXES, *PADS, *_WARMUP)
}


def complaints(settings: Mapping[str, str]) -> tuple[str, ...]:
    """Return what is wrong with the settings that the table knows, by name."""
    found = (
        KNOBS[name].complaint(value)
        for name, value in sorted(settings.items())
        if name in KNOBS
    )
    return tuple(complaint for complaint in found if complaint)
