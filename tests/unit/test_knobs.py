"""The table of knobs: consistent, complete, and able to judge a value by release."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hpuwatch.advise.finding import SEVERITIES
from hpuwatch.gaudi.buckets import DECODE, PROMPT, BucketError, generate
from hpuwatch.gaudi.checks import Outcome
from hpuwatch.gaudi.conflicts import CONFLICTS
from hpuwatch.gaudi.dialects import dialect_of
from hpuwatch.gaudi.heeded import heeded
from hpuwatch.gaudi.knob import GROUPS
from hpuwatch.gaudi.knobpage import knob_pages, page_name
from hpuwatch.gaudi.knobs import KNOBS, complaints, named
from hpuwatch.gaudi.planning import Plan
from hpuwatch.gaudi.refusal import bad_values
from hpuwatch.gaudi.releases import NEWEST, release_of
from hpuwatch.gaudi.resolve import EXPONENTIAL, Flags, resolve
from hpuwatch.gaudi.spans import RELEASES, point_of, read_spans
from hpuwatch.gaudi.variables import flag_number

pytestmark = pytest.mark.unit

DIES, FALSE, TRUE, DEFAULT, WORKS = Outcome


def test_every_row_is_sound() -> None:
    for name, knob in KNOBS.items():
        assert name == knob.name
        assert knob.group in GROUPS
        assert knob.decides.endswith(".")
        assert knob.legal
        assert not knob.successor or knob.successor in KNOBS
        for spans in (knob.honoured, knob.refused, *(row[0] for row in knob.rows)):
            read_spans(spans)  # raises where it is none


def test_a_knob_has_a_default_wherever_it_acts() -> None:
    without = [
        (name, release)
        for name, knob in KNOBS.items()
        for release in RELEASES
        if knob.acts(point_of(release)) and knob.default(point_of(release)) is None
    ]
    assert without == []


def test_no_default_is_hidden_by_an_earlier_row() -> None:
    for knob in KNOBS.values():
        if knob.honoured == "none":
            continue
        told = {knob.default(point_of(release)) for release in RELEASES}
        # Between 1.21.0 and 1.21.2 lies a default that only the patch shows.
        told.add(knob.default(point_of("fork-1.21.0")))
        assert {value for _, value in knob.rows} <= told, knob.name


def test_no_release_both_acts_on_a_flag_and_refuses_it() -> None:
    for knob in KNOBS.values():
        for release in RELEASES:
            at = point_of(release)
            assert not (knob.acts(at) and knob.is_refused(at)), (knob.name, release)


def test_a_default_is_a_good_value() -> None:
    numbers = {"--num-gpu-blocks-override"}
    for name, knob in KNOBS.items():
        default = knob.default(point_of(NEWEST))
        if default is not None and default.isalnum() and name not in numbers:
            assert knob.complaint(default) is None, (name, default)


def test_every_variable_that_shapes_buckets_is_a_knob() -> None:
    for strategy in ("exp", "lin", "pad"):
        flags = Flags(8, 2048, 9000, 100, strategy=strategy)
        acting = heeded(resolve("gaudi-plugin-head", flags, {}))
        assert acting - set(KNOBS) == set()


def test_the_table_agrees_with_the_rules_of_each_release() -> None:
    """Whatever the bucket rules of a proven release read, the table says that it acts."""
    wrong = set()
    for name in RELEASES:
        release = release_of(name)
        if release.assumed_like:
            continue
        for strategy in dialect_of(release.dialect).strategies:
            flags = Flags(8, 2048, 9000, 100, strategy=strategy)
            acting = heeded(resolve(release.dialect, flags, {}))
            wrong |= {(name, n) for n in acting if not KNOBS[n].acts(point_of(name))}
    assert wrong == set()


@pytest.mark.parametrize(
    "release", ["fork-1.20", "fork-1.21", "fork-1.22", "plugin-0.11", "plugin-0.26"]
)
def test_a_bucket_variable_that_is_no_number_has_one_end(release: str) -> None:
    """What makes no lists is refused, whatever the strategy.

    The plugin refuses more: its start prints all of them as numbers, and no list is to blame.
    """
    at, dialect = point_of(release), dialect_of(release_of(release).dialect)
    bare = Flags(8, 2048, 9000, 1000)
    listed = replace(bare, bucket_file="(1, 128, 0)\n(1, 1, 128)\n")
    apart = []
    for strategy in dialect.strategies:
        flags = listed if strategy == "file" else replace(bare, strategy=strategy)
        for name, knob in KNOBS.items():
            if "_BUCKET_" in name and knob.acts(at):
                env = {name: "x", EXPONENTIAL: str(strategy == "exp")}
                refused = any(bad_values(Plan(release, flags, env)))
                makes = _makes_lists(dialect.name, flags, env)
                if refused == makes and not (refused and release.startswith("plugin")):
                    apart.append((strategy, name, refused))
    assert apart == []


def _makes_lists(dialect: str, flags: Flags, env: dict[str, str]) -> bool:
    try:
        made = resolve(dialect, flags, env)
        return all(generate(made, phase) for phase in (PROMPT, DECODE))
    except BucketError:
        return False


def test_names_of_families_and_short_flags() -> None:
    assert named("VLLM_UNIFIED_ATTN_ANY_OTHER") is KNOBS["VLLM_UNIFIED_ATTN"]
    assert named("-tp") is KNOBS["--tensor-parallel-size"]
    assert named("VLLM_HOST_IP") is None


def test_conflicts_speak_of_knobs() -> None:
    drafts = {"--speculative-config", "--speculative-model"}
    for conflict in CONFLICTS:
        assert conflict.severity in SEVERITIES
        assert set(conflict.knobs) <= KNOBS.keys() | drafts
        assert conflict.when[0].test != "unset"
        assert conflict.happens.endswith(".")
        assert conflict.cure.endswith(".")
        read_spans(conflict.releases)


def test_there_is_a_page_for_each_knob_and_an_index_of_them() -> None:
    pages = knob_pages()
    assert len(pages) == len(KNOBS) + 1
    for knob in KNOBS.values():
        assert f"](knobs/{page_name(knob)})" in pages["knobs.md"]
        assert pages[f"knobs/{page_name(knob)}"].startswith(f"# {knob.name}\n")


def test_a_page_tells_defaults_bad_values_and_conflicts_by_release() -> None:
    page = knob_pages()["knobs/VLLM_SKIP_WARMUP.md"]
    rows = [line.split(" | ") for line in page.splitlines() if line.startswith("| ")]
    bad = {row[0].strip("| "): row[1] for row in rows if len(row) == 3}
    assert bad["`1`"] == "fork-1.17 to fork-1.21, vllm-0.6 to vllm-0.9"
    assert bad["`nonsense`, `2`, `-1`"] == "all that act"
    assert any(row[0] == "| `full-warmup-skipped`" for row in rows)


# Name, value, release, outcome: what the reference says of bad values.
JUDGED = [
    ("VLLM_GRAPH_RESERVED_MEM", "0.1", NEWEST, None),
    ("VLLM_GRAPH_RESERVED_MEM", "0", NEWEST, None),
    ("VLLM_GRAPH_RESERVED_MEM", "1", NEWEST, DIES),
    ("VLLM_GRAPH_RESERVED_MEM", "1.5", "fork-1.21", DIES),
    ("VLLM_GRAPH_RESERVED_MEM", "-0.1", NEWEST, WORKS),
    ("VLLM_GRAPH_RESERVED_MEM", "10%", "plugin-0.17", DEFAULT),
    ("VLLM_GRAPH_RESERVED_MEM", "10%", "plugin-0.16", DIES),
    ("VLLM_GRAPH_RESERVED_MEM", "nan", "plugin-0.17", DIES),
    ("VLLM_GRAPH_RESERVED_MEM", "10%", "fork-1.22", DIES),
    ("VLLM_GRAPH_PROMPT_RATIO", "a third", "fork-1.21", DIES),
    ("VLLM_GRAPH_PROMPT_RATIO", "0.3", "fork-1.21", None),
    ("VLLM_GRAPH_PROMPT_STRATEGY", "max_tokens", "fork-1.20", DIES),
    ("VLLM_GRAPH_DECODE_STRATEGY", "MAX_BS", "fork-1.20", DIES),
    ("VLLM_GRAPH_DECODE_STRATEGY", "max_bs", "fork-1.20", None),
    ("--gpu-memory-utilization", "0.9", NEWEST, None),
    ("--gpu-memory-utilization", "0", NEWEST, DIES),
    ("--gpu-memory-utilization", "90", NEWEST, DIES),
    ("--kv-cache-memory-bytes", "20G", NEWEST, None),
    ("--kv-cache-memory-bytes", "twenty", NEWEST, DIES),
    ("--num-gpu-blocks-override", "0", NEWEST, DIES),
    ("--block-size", "256", NEWEST, None),
    ("--block-size", "16", NEWEST, WORKS),
    ("--block-size", "x", NEWEST, DIES),
    ("--dtype", "float16", NEWEST, DEFAULT),
    ("--dtype", "float16", "fork-1.21", None),
    ("--max-num-seqs", "0", NEWEST, DIES),
    ("--max-num-seqs", "1.5", NEWEST, DIES),
    ("--max-model-len", "auto", NEWEST, None),
    ("--max-model-len", "auto", "plugin-0.16", DIES),
    ("--max-model-len", "32k", NEWEST, None),
    ("VLLM_DECODE_BS_BUCKET_STEP", "many", "fork-1.20", DIES),
    ("VLLM_DECODE_BS_BUCKET_STEP", "32.0", NEWEST, DIES),
    ("VLLM_DECODE_BS_BUCKET_STEP", "0", NEWEST, WORKS),
    ("VLLM_PROMPT_CTX_BUCKET_MIN", "0", NEWEST, None),
    ("VLLM_DECODE_BS_BUCKET_PAD_MAX", "some", NEWEST, DIES),
    ("VLLM_DECODE_BS_BUCKET_PAD_PERCENT", "51", NEWEST, DIES),
    ("VLLM_DECODE_BS_BUCKET_PAD_PERCENT", "50", NEWEST, None),
    ("VLLM_BUCKETING_STRATEGY", "pad", NEWEST, None),
    ("VLLM_BUCKETING_STRATEGY", "linear", NEWEST, DIES),
    ("VLLM_BUCKETING_STRATEGY", "EXP", NEWEST, DIES),
    ("VLLM_EXPONENTIAL_BUCKETING", "ture", "plugin-0.19", FALSE),
    ("VLLM_EXPONENTIAL_BUCKETING", "1", "fork-1.21", FALSE),
    ("VLLM_EXPONENTIAL_BUCKETING", "1", "fork-1.22", None),
    ("VLLM_CONTIGUOUS_PA", "yes", "fork-1.20", FALSE),
    ("VLLM_CONTIGUOUS_PA", "Yes", NEWEST, None),
    ("VLLM_SKIP_WARMUP", "TRUE", "fork-1.21", None),
    ("VLLM_SKIP_WARMUP", "1", "fork-1.21", FALSE),
    ("VLLM_SKIP_WARMUP", "1", "vllm-0.7", FALSE),
    ("VLLM_SKIP_WARMUP", "1", NEWEST, None),
    ("VLLM_SKIP_WARMUP", "treu", NEWEST, FALSE),
    ("VLLM_ENABLE_BUCKETING", "off", NEWEST, None),
    ("VLLM_ENABLE_BUCKETING", "enabled", NEWEST, FALSE),
    ("VLLM_FULL_WARMUP", "yes", NEWEST, FALSE),
    ("VLLM_FULL_WARMUP", "1", NEWEST, None),
    ("VLLM_DEFRAG_THRESHOLD", "few", NEWEST, DIES),
    ("VLLM_CONFIG_HIDDEN_LAYERS", "two", "plugin-0.17", DEFAULT),
    ("VLLM_CONFIG_HIDDEN_LAYERS", "two", "plugin-0.16", DIES),
    ("VLLM_HPU_LOG_STEP_CPU_FALLBACKS", "false", "fork-1.21", TRUE),
    ("VLLM_HPU_LOG_STEP_CPU_FALLBACKS", "0", "fork-1.21", None),
    ("VLLM_DEBUG", "steps,everything", NEWEST, DIES),
    ("VLLM_DEBUG", "steps,fwd", NEWEST, None),
    ("VLLM_DEBUG", "", NEWEST, DIES),
    ("VLLM_DEBUG", "steps, fwd", NEWEST, DIES),
    ("VLLM_CONFIGURE_LOGGING", "2", NEWEST, TRUE),
    ("VLLM_CONFIGURE_LOGGING", "0", NEWEST, None),
    ("VLLM_CONFIGURE_LOGGING", "yes", NEWEST, DIES),
    ("VLLM_HPU_FSDPA_SLICE_SEQ_LEN_THLD", "512", NEWEST, DIES),
    ("VLLM_HPU_FSDPA_SLICE_CHUNK_SIZE", "512", NEWEST, WORKS),
    ("VLLM_HPU_FSDPA_SLICE_CHUNK_SIZE", "4096", NEWEST, None),
    ("VLLM_HPU_FSDPA_SLICE_CHUNK_SIZE", "0", NEWEST, DIES),
    ("VLLM_MULTIMODAL_BUCKETS", "1600,many", NEWEST, DIES),
    ("VLLM_MULTIMODAL_BUCKETS", "1600,3136", NEWEST, None),
    ("VLLM_MULTIMODAL_RESOLUTIONS", "640x480,800", NEWEST, DIES),
    ("VLLM_MULTIMODAL_RESOLUTIONS", "640x480x2,800x600x1-4", NEWEST, None),
    ("VLLM_WORKER_MULTIPROC_METHOD", "fork", NEWEST, WORKS),
    ("PT_HPU_RECIPE_CACHE_CONFIG", "/cache,false,8192", NEWEST, None),
    ("PT_HPU_RECIPE_CACHE_CONFIG", "/cache,true,8192", NEWEST, WORKS),
    ("PT_HPU_RECIPE_CACHE_CONFIG", "/cache,False", NEWEST, WORKS),
    ("PT_HPU_RECIPE_CACHE_CONFIG", ",false,9", NEWEST, WORKS),
    ("PT_HPU_RECIPE_CACHE_CONFIG", "/cache,no,9", NEWEST, WORKS),
    ("PT_HPU_RECIPE_CACHE_CONFIG", "/cache,false,big", NEWEST, WORKS),
    ("--kv-cache-dtype", "fp8_inc", NEWEST, None),
    ("PT_HPU_ENABLE_LAZY_COLLECTIVES", "1", "fork-1.21", None),
    ("ENABLE_CONSOLE", "1", "fork-1.21", None),
    ("--kv-cache-dtype", "int4", NEWEST, DIES),
]


@pytest.mark.parametrize(("name", "value", "release", "outcome"), JUDGED)
def test_a_value_comes_to_what_the_release_makes_of_it(
    name: str, value: str, release: str, outcome: Outcome | None
) -> None:
    judged = KNOBS[name].judge(value, point_of(release))
    assert (judged and judged.outcome) == outcome


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("4096", 4096),
        ("-1", -1),
        ("32k", 32_000),
        ("32K", 32_768),
        ("25.6k", 25_600),
        ("1G", 2**30),
        ("auto", None),
        ("k", None),
        ("", None),
        ("infk", None),
    ],
)
def test_a_number_is_read_as_a_flag_has_it(text: str, number: int | None) -> None:
    assert flag_number(text) == number


def test_a_complaint_is_a_sentence_about_the_release() -> None:
    knob = KNOBS["VLLM_SKIP_WARMUP"]
    assert knob.complaint("1") is None
    said = knob.complaint("1", "fork-1.21")
    assert said is not None
    assert said.startswith("VLLM_SKIP_WARMUP: '1' counts as false")
    assert said.endswith(".")


def test_settings_are_checked_together_and_strangers_are_let_pass() -> None:
    said = complaints(
        {"VLLM_SKIP_WARMUP": "oui", "PATH": "", "VLLM_GRAPH_RESERVED_MEM": "2"}
    )
    assert [text.split(":")[0] for text in said] == [
        "VLLM_GRAPH_RESERVED_MEM",
        "VLLM_SKIP_WARMUP",
    ]
