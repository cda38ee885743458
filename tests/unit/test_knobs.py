"""The table of knobs: complete, consistent with its page, and able to complain."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpuwatch.gaudi.heeded import heeded
from hpuwatch.gaudi.knobpage import knob_page
from hpuwatch.gaudi.knobs import KNOBS, complaints
from hpuwatch.gaudi.resolve import Flags, resolve

pytestmark = pytest.mark.unit


def test_the_page_is_made_from_the_table(checkout: Path) -> None:
    page = (checkout / "docs" / "knobs.md").read_text(encoding="utf-8")
    assert page == knob_page(), "run `make docs`"


def test_names_and_kinds_agree() -> None:
    for name, knob in KNOBS.items():
        assert name == knob.name
        assert (knob.kind == "flag") == name.startswith("--")
        assert knob.decides.endswith(".")
        assert knob.defaults
        assert knob.legal
        assert knob.honoured


def test_every_variable_that_shapes_buckets_is_a_knob() -> None:
    for strategy in ("exp", "lin", "pad"):
        flags = Flags(8, 2048, 9000, 100, strategy=strategy)
        acting = heeded(resolve("gaudi-plugin-head", flags, {}))
        missing = acting - set(KNOBS)
        # Padding makes no sense for the older spelling of the query axis.
        assert {name for name in missing if "PROMPT_SEQ" not in name} == set()


@pytest.mark.parametrize(
    ("name", "value", "complaint"),
    [
        ("VLLM_GRAPH_RESERVED_MEM", "0.1", None),
        ("VLLM_GRAPH_RESERVED_MEM", "1", "leaves no memory"),
        ("VLLM_GRAPH_RESERVED_MEM", "-0.1", "below 0"),
        ("VLLM_GRAPH_RESERVED_MEM", "10%", "is no number"),
        ("VLLM_GRAPH_RESERVED_MEM", "nan", "is no number"),
        ("--gpu-memory-utilization", "0.9", None),
        ("--gpu-memory-utilization", "0", "is no share"),
        ("--gpu-memory-utilization", "90", "is no share"),
        ("--block-size", "256", None),
        ("--block-size", "16", "no multiple of 128"),
        ("--block-size", "x", "no positive whole number"),
        ("--max-num-seqs", "0", "below 1"),
        ("--max-num-seqs", "1.5", "no whole number"),
        ("VLLM_BUCKETING_STRATEGY", "pad", None),
        ("VLLM_BUCKETING_STRATEGY", "EXP", "none of exp, lin, pad"),
        ("VLLM_ENABLE_BUCKETING", "off", None),
        ("VLLM_ENABLE_BUCKETING", "flase", "counts as false"),
        ("VLLM_SKIP_WARMUP", "true", None),
        ("VLLM_SKIP_WARMUP", "1", "false up to fork-1.21"),
        ("VLLM_SKIP_WARMUP", "treu", "counts as false"),
        ("VLLM_DECODE_BS_BUCKET_STEP", "0", "below 1"),
        ("VLLM_PROMPT_CTX_BUCKET_MIN", "0", None),
        ("VLLM_DECODE_BS_BUCKET_PAD_PERCENT", "51", "from 0 to 50"),
        ("PT_HPU_RECIPE_CACHE_CONFIG", "/cache,false,8192", None),
        ("PT_HPU_RECIPE_CACHE_CONFIG", "/cache,true,8192", "emptied at every start"),
        ("PT_HPU_RECIPE_CACHE_CONFIG", "/cache,False", "is not DIRECTORY"),
        ("PT_HPU_RECIPE_CACHE_CONFIG", ",false,9", "is not DIRECTORY"),
        ("PT_HPU_RECIPE_CACHE_CONFIG", "/cache,no,9", "neither true nor false"),
        ("PT_HPU_RECIPE_CACHE_CONFIG", "/cache,false,big", "no number of megabytes"),
        ("--kv-cache-dtype", "whatever", None),
    ],
)
def test_complaints(name: str, value: str, complaint: str | None) -> None:
    said = KNOBS[name].complaint(value)
    if complaint is None:
        assert said is None
    else:
        assert said is not None
        assert said.startswith(f"{name}: ")
        assert complaint in said
        assert said.endswith(".")


def test_settings_are_checked_together_and_strangers_are_let_pass() -> None:
    said = complaints(
        {"VLLM_SKIP_WARMUP": "oui", "PATH": "", "VLLM_GRAPH_RESERVED_MEM": "2"}
    )
    assert [text.split(":")[0] for text in said] == [
        "VLLM_GRAPH_RESERVED_MEM",
        "VLLM_SKIP_WARMUP",
    ]
