"""Write tests/data/buckets.json anew: our own configurations, counted and hashed.

Run it only when a dialect is added, or when a rule has been proved wrong, and look at
what changed: the file freezes results that agreed with the runtime's own.
"""

from __future__ import annotations

import json
from pathlib import Path

from hpuwatch.gaudi.buckets import DECODE, PROMPT, BucketError, generate
from hpuwatch.gaudi.dialects import DIALECTS
from hpuwatch.gaudi.fingerprint import fingerprint
from hpuwatch.gaudi.grammar import Dialect, PluginDialect
from hpuwatch.gaudi.resolve import Flags, resolve

TARGET = Path(__file__).resolve().parent / "data" / "buckets.json"

Case = dict[str, object]
_SIZES = ("max_num_seqs", "max_num_batched_tokens", "max_model_len", "num_blocks")
_LIN = {"VLLM_EXPONENTIAL_BUCKETING": "false"}
_EXP = {"VLLM_EXPONENTIAL_BUCKETING": "true"}
_FILE = "# ours\n(1, [256, 384], range(0, 6, 2))\n([2, 6], 1, [20, 50])\n(1, 1, 9)\n"


def case(sizes: tuple[int, int, int, int], **more: object) -> Case:
    return {**dict(zip(_SIZES, sizes, strict=True)), **more}


_SMALL = (12, 1536, 1536, 640)
_MIDDLE = (48, 6144, 6144, 2500)
_LONG = (24, 12288, 49152, 7000)
_WIDE = (96, 4096, 3072, 2200)
ALL = [
    case(_SMALL, env=_EXP),
    case(_MIDDLE, env={**_EXP, "VLLM_CONTIGUOUS_PA": "true"}),
    case(_MIDDLE, env={**_EXP, "VLLM_CONTIGUOUS_PA": "false"}),
    case(_LONG, env={**_EXP, "VLLM_CONTIGUOUS_PA": "false"}),
    case(_LONG, env={**_EXP, "VLLM_CONTIGUOUS_PA": "true"}),
    case((37, 3001, 5003, 777), env=_EXP),
    case((20, 4096, 4096, 900), env=_EXP, block_size=256),
    case((64, 2048, 1024, 30), env=_EXP),
    case(_WIDE, env={**_EXP, "VLLM_PROMPT_BS_BUCKET_MAX": "4"}, max_num_prefill_seqs=4),
    case(_WIDE, env=_LIN),
    case(_MIDDLE, env={**_LIN, "VLLM_CONTIGUOUS_PA": "true"}),
    case(_MIDDLE, env={**_LIN, "VLLM_DECODE_BLOCK_BUCKET_STEP": "320"}),
    case(_WIDE, env={**_LIN, "VLLM_DECODE_BS_BUCKET_MIN": "500"}),
    case(_SMALL, env={**_LIN, "VLLM_PROMPT_SEQ_BUCKET_STEP": "256"}),
    case(_SMALL, env={**_LIN, "VLLM_PROMPT_BS_BUCKET_MIN": "0"}),
    case(_SMALL, env={**_LIN, "VLLM_DECODE_BS_BUCKET_STEP": "many"}),
    case(_SMALL, env=_EXP, prefix_caching=True),
    case(_SMALL, env=_LIN, prefix_caching=True),
    case(_SMALL, env={**_EXP, "VLLM_MERGED_PREFILL": "true"}),
    case(_LONG, env={**_LIN, "VLLM_DECODE_BLOCK_BUCKET_MAX": "1000"}),
]
PLUGIN = [
    case(_MIDDLE, env={}, num_speculative_tokens=2),
    case(_MIDDLE, env={"VLLM_CONTIGUOUS_PA": "1"}, num_speculative_tokens=1),
    case(_SMALL, env={}, bucket_file=_FILE),
    case(_SMALL, env={}, bucket_file="(1, 128, 0)\nnonsense\n(4, 1, 40)\n"),
    case(_LONG, env={}, mamba_chunk_size=256, mamba_chunk_is_explicit=True),
    case(_LONG, env={"PT_HPU_SDPA_QKV_SLICE_MODE_FWD": "yes"}),
]
PAD = [
    case(_WIDE, env={"VLLM_BUCKETING_STRATEGY": "pad"}),
    case(_LONG, env={"VLLM_BUCKETING_STRATEGY": "pad", "VLLM_CONTIGUOUS_PA": "t"}),
    case(
        _WIDE,
        env={
            "VLLM_BUCKETING_STRATEGY": "pad",
            "VLLM_DECODE_BS_BUCKET_PAD_PERCENT": "10",
            "VLLM_PROMPT_QUERY_BUCKET_PAD_MAX": "512",
        },
    ),
    case(_SMALL, env={"VLLM_BUCKETING_STRATEGY": "Pad"}),
]


def cases_of(dialect: Dialect) -> list[Case]:
    cases = [*ALL]
    if isinstance(dialect, PluginDialect):
        cases += PLUGIN
    if "pad" in dialect.strategies:
        cases += PAD
    return cases


def outcome(name: str, given: Case, phase: str) -> Case:
    flags = {key: value for key, value in given.items() if key != "env"}
    env = given["env"]
    assert isinstance(env, dict)
    try:
        buckets = generate(resolve(name, Flags(**flags), env), phase)  # type: ignore[arg-type]  # ours, above
    except BucketError as error:
        return {"error": error.raised}
    return {"count": len(buckets), "sha256": fingerprint(buckets)}


def result_of(name: str, given: Case) -> Case:
    return {phase: outcome(name, given, phase) for phase in (PROMPT, DECODE)}


def write() -> None:
    frozen = {
        name: [{**given, **result_of(name, given)} for given in cases_of(dialect)]
        for name, dialect in DIALECTS.items()
    }
    rows = [
        f"{json.dumps(name)}: [\n"
        + ",\n".join(f" {json.dumps(row)}" for row in made)
        + "\n]"
        for name, made in frozen.items()
    ]
    TARGET.write_text("{\n" + ",\n".join(rows) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    write()
