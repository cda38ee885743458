"""The settings of public starts, and what is to be said of their memory figures.

:mod:`tests.memory_points` starts them and compares.  Here stand the settings of each public
log, which figures of ``numbers.yaml`` have no start and why, what of the simulator was set
from a figure, and why a figure doesn't come out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

_VISION = (
    *("--model", "qwen3-vl-32b", "--card", "gaudi3"),
    *("--max-model-len", "32768", "--max-num-batched-tokens", "32768"),
    *("--max-num-seqs", "64", "--gpu-memory-utilization", "0.75"),
)
_VISION_ENV = {
    "VLLM_GRAPH_RESERVED_MEM": "0.4",
    "VLLM_CONTIGUOUS_PA": "true",
    "VLLM_EXPONENTIAL_BUCKETING": "False",
    "VLLM_PROMPT_BS_BUCKET_MIN": "1",
    "VLLM_PROMPT_BS_BUCKET_STEP": "1",
    "VLLM_PROMPT_BS_BUCKET_MAX": "1",
    "VLLM_PROMPT_QUERY_BUCKET_MIN": "5120",
    "VLLM_PROMPT_QUERY_BUCKET_STEP": "1024",
    "VLLM_PROMPT_QUERY_BUCKET_MAX": "20480",
    "VLLM_PROMPT_CTX_BUCKET_MIN": "0",
    "VLLM_PROMPT_CTX_BUCKET_STEP": "12",
    "VLLM_PROMPT_CTX_BUCKET_MAX": "24",
    "VLLM_DECODE_BS_BUCKET_MIN": "1",
    "VLLM_DECODE_BS_BUCKET_STEP": "4",
    "VLLM_DECODE_BS_BUCKET_MAX": "64",
    "VLLM_DECODE_BLOCK_BUCKET_MIN": "256",
    "VLLM_DECODE_BLOCK_BUCKET_STEP": "128",
    "VLLM_DECODE_BLOCK_BUCKET_MAX": "1152",
}
_PROFILES = (*_VISION, "--release", "plugin-0.15")
_PROFILES_NOTHING = (*_VISION, "--release", "plugin-0.14")
_SKIP = {"VLLM_SKIP_WARMUP": "true"}
_LLAMA = ("--model", "llama-3.1-8b", "--block-size", "128")
_FOUR_PROMPTS = {
    "VLLM_PROMPT_BS_BUCKET_MIN": "1",
    "VLLM_PROMPT_BS_BUCKET_STEP": "32",
    "VLLM_PROMPT_BS_BUCKET_MAX": "4",
    "VLLM_PROMPT_SEQ_BUCKET_MIN": "128",
    "VLLM_PROMPT_SEQ_BUCKET_STEP": "128",
    "VLLM_PROMPT_SEQ_BUCKET_MAX": "1024",
}


@dataclass(frozen=True, slots=True)
class PublicStart:
    """The settings of one public start.

    Attributes:
        config: the model's name in ``tests/data/models.yaml`` where it is no preset.
    """

    arguments: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    config: str = ""


STARTS: Mapping[str, PublicStart] = {
    "corpus/001": PublicStart(_PROFILES, _VISION_ENV),
    "corpus/002": PublicStart(_PROFILES, _VISION_ENV | _SKIP),
    "corpus/003+004+006": PublicStart(_PROFILES_NOTHING, _VISION_ENV | _SKIP),
    "corpus/005": PublicStart(_PROFILES_NOTHING, _VISION_ENV | _SKIP),
    "corpus/007": PublicStart(
        (
            *("--model", "llama-3.1-70b", "--release", "fork-1.19"),
            *("--block-size", "128", "--gpu-memory-utilization", "0.9"),
        ),
        _SKIP | {"VLLM_PROMPT_BS_BUCKET_MAX": "256"},
    ),
    "corpus/008-010": PublicStart(
        (*_LLAMA, "--release", "plugin-0.16", "--gpu-memory-utilization", "0.8"),
        _SKIP,
    ),
    "corpus/011": PublicStart(
        (
            *(*_LLAMA, "--release", "fork-1.18", "--gpu-memory-utilization", "0.5"),
            *("--max-num-seqs", "4", "--max-model-len", "4096"),
        ),
        _FOUR_PROMPTS
        | {
            "VLLM_GRAPH_RESERVED_MEM": "0.4",
            "VLLM_DECODE_BS_BUCKET_MIN": "1",
            "VLLM_DECODE_BS_BUCKET_MAX": "4",
            "VLLM_DECODE_BLOCK_BUCKET_MAX": "2048",
            "PT_HPUGRAPH_DISABLE_TENSOR_CACHE": "false",
            "PT_COMPILE_ONLY_MODE": "0",
        },
    ),
    "corpus/013": PublicStart(
        (
            *(*_LLAMA, "--release", "fork-1.18", "--gpu-memory-utilization", "0.9"),
            *("--max-num-seqs", "4", "--max-model-len", "4096"),
        ),
        _FOUR_PROMPTS
        | {
            "VLLM_GRAPH_RESERVED_MEM": "0.1",
            "VLLM_DECODE_BS_BUCKET_MIN": "4",
            "VLLM_DECODE_BS_BUCKET_MAX": "4",
            "VLLM_DECODE_BLOCK_BUCKET_MAX": "128",
        },
    ),
    "corpus/021": PublicStart(
        (
            *(*_LLAMA, "--release", "fork-1.20", "--gpu-memory-utilization", "0.9"),
            *("--max-num-seqs", "256", "--max-num-prefill-seqs", "64"),
        ),
        {"VLLM_GRAPH_RESERVED_MEM": "0.4", "VLLM_PROMPT_BS_BUCKET_MAX": "64"},
    ),
    "corpus/031": PublicStart(
        (
            *("--model", "deepseek-r1", "--card", "gaudi3", "--release", "fork-1.20"),
            *("--block-size", "128", "--max-num-seqs", "512"),
            *("--max-model-len", "4096"),
        ),
        {
            "VLLM_PROMPT_BS_BUCKET_MAX": "1",
            "VLLM_DECODE_BS_BUCKET_MIN": "1",
            "VLLM_DECODE_BLOCK_BUCKET_MAX": "2432",
        },
    ),
    "corpus/040": PublicStart(
        ("--release", "fork-1.20", "--block-size", "128"), _SKIP, config="Qwen2-7B"
    ),
    "corpus/041": PublicStart(
        ("--model", "deepseek-r1", "--release", "fork-1.21", "--block-size", "128"),
        _SKIP,
    ),
    "corpus/055": PublicStart(
        (
            *("--release", "fork-1.18", "--block-size", "128"),
            *("--tensor-parallel-size", "2"),
        ),
        _SKIP,
        config="Llama-3-8B",
    ),
    "corpus/061": PublicStart(
        (
            *(*_LLAMA, "--card", "gaudi3", "--release", "fork-1.21"),
            *("--max-model-len", "4096", "--max-num-batched-tokens", "4096"),
            *("--gpu-memory-utilization", "0.9"),
        ),
        _SKIP | {"VLLM_GRAPH_RESERVED_MEM": "0"},
    ),
    "vllm-fork#292": PublicStart((*_LLAMA, "--release", "fork-1.18")),
    "vllm-gaudi#1700": PublicStart(
        ("--model", "qwen3-0.6b", "--card", "gaudi3", "--release", "plugin-0.26"), _SKIP
    ),
    "vllm-gaudi#1736": PublicStart(
        ("--model", "qwen3.6-27b", "--card", "gaudi3", "--release", "plugin-0.26"),
        _SKIP,
    ),
}

NOT_STARTED: Mapping[str, str] = {
    "corpus/022": "its flags are not published, and its KV cache alone says nothing of them",
    "corpus/030": "its flags are not published",
    "corpus/035": "gaudi1 is no card of the simulator",
    "corpus/042": "its model is not published",
    "corpus/043": "its model is not published",
    "corpus/018": "its model is not published",
    "corpus/019": "its model is not published",
    "vllm-gaudi#1146": "tells what one request needs, no start",
    "vllm-gaudi 6cd91242": "tells of block references, no start",
}
"""Memory points that no start stands beside."""

NOT_COMPARED: Mapping[tuple[str, str], str] = {
    ("corpus/031", "prompt"): "its prompt lists are not published",
    ("corpus/031", "decode_399 of 4.236"): (
        "more than 399 of the largest decode graph make; another start took 1.91"
    ),
    ("vllm-gaudi#1736", "left_for_warmup"): "follows from the cache, which is off",
    ("vllm-gaudi#1736", "warmup_peak"): "told as 20 to 30 GiB",
    ("vllm-gaudi#1736", "buckets"): "told as more than 300",
    ("vllm-gaudi#1736", "frac_that_barely_fits"): (
        "a test asks that warm-up runs out of memory with 0.1 and not with 0.25"
    ),
    ("autocalc_table", "other models"): "no presets",
    ("autocalc_table", "free target"): "a choice, no measurement",
    ("hand_set_reserves", "all"): "a test asks that a start lives with each of them",
    ("identities_checked", "all"): "sums of the figures above",
    ("autocalc_rule", "all"): "a rule, no measurement",
}
"""Further figures of ``numbers.yaml`` without a row."""

_CHECKPOINT = "the preset's checkpoint"
_V0_PROFILE = "the profile run of V0 and the preset's workspace"
_IMAGES = "the preset's profile run with images"
SET_FROM: Mapping[tuple[str, str], str] = {
    ("corpus/001", "weights"): _CHECKPOINT,
    ("corpus/002", "weights"): _CHECKPOINT,
    ("corpus/005", "weights"): _CHECKPOINT,
    ("corpus/001", "profile"): _IMAGES,
    ("corpus/002", "profile"): _IMAGES,
    ("corpus/003+004+006", "profile"): "the release of the start",
    ("corpus/005", "profile"): "the release of the start",
    ("corpus/001", "prompt_graph_used"): "the preset's workspace",
    ("corpus/001", "most_free_of_images"): "what the preset keeps of an image",
    ("corpus/007", "profile"): "the preset's workspace",
    ("corpus/008-010", "weights"): "the buffers of V1",
    ("corpus/011", "prompt_graph_used"): "the outputs that a graph keeps",
    ("corpus/013", "weights"): "the buffers of V0",
    ("corpus/013", "profile"): _V0_PROFILE,
    ("corpus/013", "prompt_graph_used"): "the share that compile-only mode takes",
    ("corpus/021", "profile"): _V0_PROFILE,
    ("corpus/031", "largest_decode_graph_mib"): "the preset's decode graphs",
    ("corpus/041", "weights"): _CHECKPOINT,
    ("vllm-gaudi#1736", "weights"): _CHECKPOINT,
}
"""What of the simulator was set from a figure, which so proves nothing."""

_OLDER = "a build before fork-1.18, with shorter tables of positions"
_LISTS = "its bucket variables are not published"
_ONE_OFF = (
    "one block, or one of the last digit, off: some megabytes are not accounted for"
)
_LOADED_LESS = "0.9 GiB less was loaded of the same checkpoint"
DIFFERENCES: Mapping[tuple[str, str], str] = {
    ("corpus/001", "used_after_cache"): (
        "the real line tells one block less than the sum of the lines before it"
    ),
    ("corpus/002", "prompt_buckets"): _LISTS,
    ("corpus/002", "decode_buckets"): _LISTS,
    ("corpus/003+004+006", "prompt_buckets"): _LISTS,
    **{
        ("corpus/003+004+006", figure): _LOADED_LESS
        for figure in ("weights", "free", "usable", "graph", "kv", "blocks")
    },
    **{
        ("corpus/011", figure): _OLDER
        for figure in ("weights", "profile", "free", "usable", "graph", "kv", "blocks")
    },
    ("corpus/013", "blocks"): _ONE_OFF,
    ("corpus/040", "weights"): _ONE_OFF,
    ("corpus/055", "weights"): _ONE_OFF,
    ("vllm-gaudi#1700", "blocks"): _ONE_OFF,
    ("corpus/011", "decode_buckets"): (
        "fork-1.18 leaves out decodes larger than the cache, the build before it didn't"
    ),
    ("vllm-gaudi#1736", "kv"): "told roughly, and its flags are not published",
}
"""Figures that don't come out to print rounding, each with the reason."""
