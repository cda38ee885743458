"""The table of knobs against a reference that was read off the runtime's own source.

The reference is written for people.  What can be read mechanically is compared as values:
the name, the releases that act on it, and the default of each release.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml

from hpuwatch.gaudi.knobs import KNOBS, named
from hpuwatch.gaudi.spans import RELEASES, covers, point_of

_FORK, _VLLM, _PLUGIN = (
    frozenset(name for name in RELEASES if name.startswith(family))
    for family in ("fork", "vllm", "plugin")
)
_EVERY = _FORK | _VLLM | _PLUGIN
_FAMILIES = {"fork": _FORK, "upstream": _VLLM, "vllm-gaudi": _PLUGIN}
_VERSION = r"v?(\d+\.\d+)(?:\.\w+)*"
_RANGE = re.compile(
    # A family's word belongs to the numbers that follow it, if any do.
    rf"(?:fork|upstream|vllm-gaudi)?[^≥≤\d,;/:]*?"
    rf"(?P<sign>[≥≤])?\s*{_VERSION}(?:\s*\u2013\s*{_VERSION})?(?P<on>\+)?"
    r"|(?P<whole>fork|upstream|vllm-gaudi)"
)
_AXES = ("PROMPT_BS", "PROMPT_QUERY", "PROMPT_SEQ", "PROMPT_CTX", "DECODE_BS")


@pytest.fixture(scope="module")
def reference(shared: Path) -> list[dict[str, Any]]:
    text = (shared / "reference" / "env-vars.yaml").read_text(encoding="utf-8")
    listed: list[dict[str, Any]] = yaml.safe_load(text)["variables"]
    return listed


def names_of(text: str) -> Iterator[str]:
    """Yield the names that one heading stands for."""
    text = re.sub(r"\([^)]*\)", "", text)
    text = text.replace("{...}", "{" + ",".join((*_AXES, "DECODE_BLOCK")) + "}")
    first = ""
    for word in re.findall(r"(?:[^\s,/→{[]|\{[^}]*\}|\[[^\]]*\])+", text):
        full = first.rsplit("_", 1)[0] + word if word.startswith("_") else word
        first = first or full
        full = full.replace("[_ALL]", "{,_ALL}")
        full = re.sub(r"(\d)\.\.(\d)", _counted, full)
        parts = [part.split(",") for part in re.split(r"[{}]", full)]
        yield from ("".join(each) for each in product(*parts))


def _counted(found: re.Match[str]) -> str:
    numbers = range(int(found[1]), int(found[2]) + 1)
    return "{" + ",".join(map(str, numbers)) + "}"


def releases_of(prose: str) -> frozenset[str]:
    """Return the releases that a text names, to the precision of the table's pages."""
    found: frozenset[str] = frozenset()
    for part in _RANGE.finditer(prose):
        if part["whole"]:
            found |= _FAMILIES[part["whole"]]
            continue
        first, last = _number(part[2]), _number(part[3])
        family = _FORK if first[0] == 1 else _PLUGIN if first[1] >= 10 else _VLLM
        if part["sign"] == "≤":
            first, last = (0, 0), first
        elif part["sign"] == "≥" or part["on"]:
            last = (9, 9)
        elif last == (0, 27):
            last = (9, 9)  # the newest that the reference knows
        else:
            last = max(first, last)
        found |= {name for name in family if first <= _number(name) <= last}
    return found


def _number(text: str | None) -> tuple[int, int]:
    numbers = re.findall(r"\d+", text or "")
    if text and not numbers:
        return (0, 99)  # plugin-head
    return (int(numbers[0]), int(numbers[1])) if numbers else (0, 0)


_EVERYWHERE = re.compile(r"all|see matrix|see log-lines|.*(bridge|Synapse|container)")
# Where the reference has a sentence instead of ranges, or names no range at all.
_BY_HAND = {
    "--kv-cache-memory-bytes": "none",
    "--swap-space": "fork vllm",
    "--enable-chunked-prefill": "plugin",
    "--long-prefill-token-threshold": "plugin",
    # The reference says all; vLLM up to 0.6 had no such flag (issue 9206 asks for it).
    "--data-parallel-size": "fork-1.21.. vllm-0.7.. plugin",
    "--num-scheduler-steps": "fork",
    "VLLM_PROMPT_BS_BUCKET_LIMIT": "fork-1.21",
    "VLLM_PROMPT_SEQ_BUCKET_LIMIT": "fork-1.21",
    "VLLM_DECODE_BS_BUCKET_LIMIT": "fork-1.21",
    "VLLM_DECODE_BLOCK_BUCKET_LIMIT": "fork-1.21",
    "VLLM_DELAYED_SAMPLING": "fork-1.21..1.23",
    "VLLM_REGIONAL_COMPILATION": "fork-1.19..1.23",
    "VLLM_T_COMPILE_REGIONAL_COMPILATION": "plugin",
    "VLLM_MM_WARMUP_OUTSIDE_COMPILE_ONLY": "plugin-head",
    "VLLM_HPU_LOG_STEP_GRAPH_COMPILATION": "fork vllm",
    "VLLM_HPU_LOG_STEP_GRAPH_COMPILATION_ALL": "fork vllm",
    "VLLM_HPU_LOG_STEP_CPU_FALLBACKS": "fork vllm",
    "VLLM_HPU_LOG_STEP_CPU_FALLBACKS_ALL": "fork vllm",
    "VLLM_PT_PROFILE": "all",
    "VLLM_PROFILE_PROMPT": "all",
    "VLLM_PROFILE_DECODE": "all",
    "VLLM_PROFILE_STEPS": "all",
    "VLLM_PROFILE_UNIFIED": "plugin-0.14..0.17",
    "VLLM_FUSEDSDPA_SLIDE_RIGHT": "fork-1.22..1.23",
    "VLLM_ENGINE_ITERATION_TIMEOUT_S": "fork vllm",
    "VLLM_RPC_TIMEOUT": "fork vllm",
    "VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS": "plugin",
    "VLLM_USE_V1": "fork-1.21..1.22 vllm plugin-0.10",
    "VLLM_DISABLE_COMPILE_CACHE": "all",
    "VLLM_CACHE_ROOT": "all",
    "OMP_NUM_THREADS": "all",
    "PT_COMPILE_ONLY_MODE": "fork-1.18.. plugin",
    "PT_HPU_METRICS_GC_DETAILS": "fork-1.21.. plugin",
    "VLLM_ENABLE_BUCKETING": "fork-1.22.. plugin",
    # The reference says in parentheses that fork-1.17 has another name for it.
    "VLLM_DECODE_BLOCK_BUCKET_MIN": "fork-1.18..1.23 vllm plugin",
    "VLLM_DECODE_BLOCK_BUCKET_STEP": "fork-1.18..1.23 vllm plugin",
    "VLLM_DECODE_BLOCK_BUCKET_MAX": "fork-1.18..1.23 vllm plugin",
}


def acting(name: str, prose: str) -> frozenset[str]:
    """Return the releases that the reference says act on a knob."""
    if name in _BY_HAND:
        return frozenset(r for r in RELEASES if covers(_BY_HAND[name], point_of(r)))
    if _EVERYWHERE.match(prose):
        return _EVERY
    return releases_of(re.sub(r"\([^)]*\)", "", prose))


def test_names() -> None:
    assert list(names_of("A_B, A_C (1024)")) == ["A_B", "A_C"]
    assert list(names_of("A_B / _C / _D")) == ["A_B", "A_C", "A_D"]
    assert list(names_of("A_{X,Y}_B")) == ["A_X_B", "A_Y_B"]
    assert list(names_of("A_B[_ALL]")) == ["A_B", "A_B_ALL"]
    assert list(names_of("G0..2")) == ["G0", "G1", "G2"]


def test_the_table_knows_every_name_of_the_reference(
    reference: list[dict[str, Any]],
) -> None:
    missing = [
        name
        for entry in reference
        for name in names_of(entry["name"])
        if not name.startswith("--no-") and named(name.replace("*", "X")) is None
    ]
    assert missing == []


def test_each_knob_acts_where_the_reference_says(
    reference: list[dict[str, Any]],
) -> None:
    wrong = {}
    for entry in reference:
        for name in names_of(entry["name"]):
            knob = KNOBS.get(name)
            if knob is None:
                continue
            ours = frozenset(r for r in RELEASES if knob.acts(point_of(r)))
            theirs = acting(name, str(entry["honoured"]))
            if ours != theirs:
                wrong[name] = (sorted(ours - theirs), sorted(theirs - ours))
    assert wrong == {}


# Defaults that the reference tells in a sentence, or for several knobs at once.
_DEFAULTS_BY_HAND: dict[str, dict[str, str]] = {
    # The reference says 16 for fork-1.19 too; versions.md, 34, and vLLM's own source since
    # 0.6.4, which fork-1.19 is built on, say 128.
    "--block-size": {"fork-1.19.. vllm plugin": "128", "fork-..1.18": "16"},
    # The reference says true, and that the plugin sets it; deployments.md, and what old
    # set-ups lack, show that with the fork it is up to whoever starts the server.
    "PT_HPU_ENABLE_LAZY_COLLECTIVES": {"plugin": "true", "fork vllm": "not set"},
    # The reference says 0.9 for all; the logs of plugin-0.26 in the corpus print 0.92
    # without the flag, and real-vllm-lifecycle.md says so too.
    "--gpu-memory-utilization": {
        "plugin-0.26..": "0.92",
        "fork vllm plugin-..0.25": "0.9",
    },
    "VLLM_PROMPT_BS_BUCKET_MAX": {
        "fork-1.17": "min(max_num_seqs, 64)",
        "fork-1.18": "min(max_num_seqs, 64, max_num_batched_tokens // block_size)",
        "fork-1.19 vllm": "64",
        "fork-1.20..": "max_num_prefill_seqs or max_num_seqs",
        "plugin": "1",
    },
    "VLLM_PROMPT_CTX_BUCKET_STEP": {"plugin": "1 (pad: 2, merged prefill: 4)"},
    "VLLM_PROMPT_CTX_BUCKET_MAX": {
        "plugin": "ceil((max_model_len - PROMPT_QUERY_MIN) // block_size)"
    },
    "VLLM_DECODE_BS_BUCKET_STEP": {
        "fork-1.17": "128",
        "fork-1.18": "min(32, max_num_seqs)",
        "fork-1.19.. vllm plugin-..0.19": "32",
        "plugin-0.20..": "32 (pad: 2)",
    },
    "VLLM_DECODE_BS_BUCKET_MIN": {
        "fork-1.18": "min(32, max_num_seqs)",
        "fork-1.19.. vllm plugin": "1",
    },
    "VLLM_DECODE_BLOCK_BUCKET_MIN": {
        "fork-1.18": "128",
        "fork-1.19.. vllm plugin-0.10": "block_size",
        "plugin-0.11..0.19": "1",
        "plugin-0.20..": "1 (pad: block_size)",
    },
    "VLLM_DECODE_BLOCK_BUCKET_STEP": {
        "fork-1.18": "128",
        "fork-1.19.. vllm plugin": "block_size",
    },
    "VLLM_DECODE_BLOCK_BUCKET_MAX": {
        "fork-1.18..1.20": "max(128, max_num_seqs * 2048 / block_size)",
        "fork-1.21": "max(block_size, max_num_seqs * max_model_len // block_size)",
        "fork-1.22.. plugin-0.10": "num_blocks",
        "plugin-0.11..": "num_blocks with contiguous attention, "
        "else max(max_model_len * max_num_seqs // block_size, block_size)",
    },
    "VLLM_DECODE_SEQ_BUCKET_MIN": {"fork-1.17": "128"},
    "VLLM_DECODE_SEQ_BUCKET_STEP": {"fork-1.17": "128"},
    "VLLM_DECODE_SEQ_BUCKET_MAX": {"fork-1.17": "2048"},
    "VLLM_MERGED_PREFILL": {"plugin-0.18.. plugin-0.10 fork-1.21..1.23": "false"},
    "VLLM_CONTIGUOUS_PA": {
        "fork-1.19..1.20": "true",
        "fork-1.21..1.23 plugin-0.10": "true; false where prefixes are cached",
        "plugin-0.18..": "false",
    },
    "VLLM_DEFRAG": {"plugin-0.18": "false", "plugin-0.19..": "as VLLM_CONTIGUOUS_PA"},
    "VLLM_DELAYED_SAMPLING": {},
    "VLLM_GC_THR_MULTIPLIER": {"fork-1.18..1.20": "2", "fork-1.21..1.23": "16"},
    "PT_HPU_LAZY_MODE": {"fork-1.17": "1"},
    "PT_HPU_SDPA_BC_FACTOR": {"all": "1024"},
    "VLLM_FUSEDSDPA_SLIDE_THLD": {"all": "8192"},
    "VLLM_FUSEDSDPA_SLIDE_RIGHT": {"all": "0"},
    "VLLM_HPU_FSDPA_SLICE_SEQ_LEN_THLD": {"all": "min(max_num_batched_tokens, 8192)"},
    "VLLM_USE_HYBRID_CACHE": {"all": "false"},
    "VLLM_USE_NAIVE_MAMBA_CACHE_SHARING": {"all": "true"},
    "VLLM_ROW_PARALLEL_CHUNKS": {"all": "1"},
    "VLLM_ROW_PARALLEL_CHUNK_THRESHOLD": {"all": "8192"},
    "VLLM_ENGINE_ITERATION_TIMEOUT_S": {"all": "60"},
    "VLLM_RPC_TIMEOUT": {"all": "10000"},
    "VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS": {"all": "300"},
    "VLLM_USE_V1": {"fork": "0"},
    "VLLM_CACHE_ROOT": {"all": "~/.cache/vllm"},
    "VLLM_DISABLE_COMPILE_CACHE": {"all": "0"},
    "HABANA_LOGS": {"all": "~/.habana_logs"},
    "ENABLE_CONSOLE": {"all": "false"},
    "VLLM_PROMPT_USE_FUSEDSDPA": {"fork-1.18": "0"},
    "--max-num-seqs": {"all": "256"},
    "--max-num-batched-tokens": {
        "fork vllm": "max(max_model_len, 2048)",
        "plugin": "2048",
    },
    "VLLM_PROMPT_BS_BUCKET_PAD_MAX": {"all": "ceil(max_num_prefill_seqs / 4)"},
    "VLLM_DECODE_BS_BUCKET_PAD_MAX": {"all": "ceil(max_num_seqs / 4)"},
    "VLLM_PROMPT_QUERY_BUCKET_PAD_MAX": {"all": "ceil(max_num_batched_tokens / 4)"},
    "VLLM_PROMPT_SEQ_BUCKET_PAD_MAX": {"all": "ceil(max_num_batched_tokens / 4)"},
    "VLLM_PROMPT_CTX_BUCKET_PAD_MAX": {
        "all": "ceil(max_num_batched_tokens / block_size)"
    },
    "VLLM_DECODE_BLOCK_BUCKET_PAD_MAX": {"all": "ceil(largest decode context / 4)"},
}
_IN_WORDS = frozenset(
    {
        "--num-gpu-blocks-override",
        "--max-model-len",
        "--max-num-prefill-seqs",
        "--enable-chunked-prefill",
        "--long-prefill-token-threshold",
        "VLLM_DEFRAG_WITH_GRAPHS",
        "VLLM_GC_THR_GEN0",
        "VLLM_GC_THR_GEN1",
        "VLLM_GC_THR_GEN2",
        "VLLM_HPU_FSDPA_SLICE_ENABLED",
        "VLLM_HPU_FSDPA_SLICE_CHUNK_SIZE",
        "VLLM_HPU_FSDPA_SLICE_WITH_GRAPH_BREAKS",
        "VLLM_UNIFIED_ATTENTION_SHARED_CACHE_RATIO",
        "VLLM_MULTIMODAL_BUCKETS",
        "PT_HPU_MAX_COMPOUND_OP_SIZE",
        "LOG_LEVEL_ALL",
        "OMP_NUM_THREADS",
    }
)
"""Knobs whose default is no value, or that the reference tells nothing of."""

_SAME = {
    **dict.fromkeys(("none", "empty", "unset"), "notset"),
    **dict.fromkeys(("on", "true"), "true"),
    **dict.fromkeys(("off", "false"), "false"),
    "ceil(log2(max))+1": "ceil(log2(maximum))+1",
}


_ASIDE = re.compile(r"\s\([^()]*(\([^()]*\))?[^()]*\)")
"""A remark in parentheses, which a formula's own don't follow a blank to be."""


def plain(value: object) -> str:
    """Return a default in one spelling."""
    text = re.sub(r" (unless chunked|on HPU).*", "", str(value).strip())
    text = text.lower().replace(" ", "")
    return _SAME.get(text, text)


def defaults_of(told: object) -> Iterator[tuple[frozenset[str], str]]:
    """Yield the releases and the default of each, as the reference has them."""
    if isinstance(told, dict):
        rows = [(key, value) for key, value in told.items() if "eager" not in key]
    else:
        text = _ASIDE.sub("", str(told))
        parts = re.split(r";\s*|\. ", text)
        split = (part.partition(": ") for part in parts if ": " in part)
        rows = [(there, value) for there, _, value in split] or [("", text)]
    for releases, value in rows:
        there = _ASIDE.sub("", releases).replace("V0", "fork, upstream")
        there = there.replace("V1", "vllm-gaudi")
        yield releases_of(there) or _EVERY, plain(value)


def test_each_default_is_the_references(reference: list[dict[str, Any]]) -> None:
    wrong = {}
    for entry in reference:
        for name in names_of(entry["name"]):
            knob = KNOBS.get(name)
            if knob is None or name in _IN_WORDS or entry["default"] == "-":
                continue
            for release in RELEASES:
                ours = knob.default(point_of(release))
                theirs = _expected(name, entry["default"], release)
                if ours is not None and theirs not in {None, plain(ours)}:
                    wrong[f"{name} {release}"] = (plain(ours), theirs)
    assert wrong == {}


def _expected(name: str, told: object, release: str) -> str | None:
    by_hand = _DEFAULTS_BY_HAND.get(name)
    if by_hand is not None:
        at = point_of(release)
        found = [value for spans, value in by_hand.items() if covers(spans, at)]
        return plain(found[0]) if found else None
    rows = [value for releases, value in defaults_of(told) if release in releases]
    return rows[0] if rows else None


def test_every_default_that_was_read_by_hand_is_of_a_knob() -> None:
    assert (_DEFAULTS_BY_HAND.keys() | _IN_WORDS | _BY_HAND.keys()) <= KNOBS.keys()
