"""Flags and variables become settings as each release reads them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hpuwatch.gaudi.buckets import (
    DECODE,
    PROMPT,
    BucketError,
    BucketSettings,
    generate,
)
from hpuwatch.gaudi.dialects import DIALECTS
from hpuwatch.gaudi.heeded import unheeded
from hpuwatch.gaudi.ranges import Axis
from hpuwatch.gaudi.resolve import Flags, resolve
from hpuwatch.gaudi.variables import read_axis

pytestmark = pytest.mark.unit

FLAGS = Flags(
    max_num_seqs=32, max_num_batched_tokens=4096, max_model_len=4096, num_blocks=900
)


def settings_of(name: str, flags: Flags = FLAGS, /, **env: str) -> BucketSettings:
    return resolve(name, flags, env)


@pytest.mark.parametrize(
    ("name", "env", "strategy"),
    [
        ("gaudi-plugin-0.26", {}, "exp"),
        ("gaudi-plugin-0.26", {"VLLM_BUCKETING_STRATEGY": "pad"}, "pad"),
        ("gaudi-plugin-0.19", {"VLLM_BUCKETING_STRATEGY": "pad"}, "exp"),
        ("gaudi-plugin-0.19", {"VLLM_EXPONENTIAL_BUCKETING": "ON"}, "exp"),
        ("gaudi-plugin-0.19", {"VLLM_EXPONENTIAL_BUCKETING": "ture"}, "lin"),
        ("fork-1.22", {}, "exp"),
        ("fork-1.22", {"VLLM_EXPONENTIAL_BUCKETING": "0"}, "lin"),
        ("fork-1.21", {}, "lin"),
        ("fork-1.21", {"VLLM_EXPONENTIAL_BUCKETING": "TRUE"}, "exp"),
        ("fork-1.21", {"VLLM_EXPONENTIAL_BUCKETING": "1"}, "lin"),
        ("fork-1.20", {"VLLM_EXPONENTIAL_BUCKETING": "true"}, "lin"),
    ],
)
def test_the_strategy(name: str, env: dict[str, str], strategy: str) -> None:
    assert resolve(name, FLAGS, env).strategy == strategy


@pytest.mark.parametrize("legacy", ["true", "no"])
def test_the_older_variable_wins_over_the_newer(legacy: str) -> None:
    made = settings_of(
        "gaudi-plugin-0.21",
        VLLM_BUCKETING_STRATEGY="pad",
        VLLM_EXPONENTIAL_BUCKETING=legacy,
    )
    assert made.strategy == ("exp" if legacy == "true" else "lin")


@pytest.mark.parametrize(
    ("name", "value"),
    [("gaudi-plugin-head", "EXP"), ("fork-1.22", "lin"), ("gaudi-plugin-0.10", "exp")],
)
def test_a_name_that_stops_the_server(name: str, value: str) -> None:
    with pytest.raises(BucketError, match="VLLM_BUCKETING_STRATEGY") as caught:
        settings_of(name, VLLM_BUCKETING_STRATEGY=value, VLLM_EXPONENTIAL_BUCKETING="1")
    assert caught.value.raised == "RuntimeError"


@pytest.mark.parametrize(
    ("name", "caching", "env", "paged"),
    [
        ("gaudi-plugin-0.26", None, {}, False),
        ("gaudi-plugin-0.26", False, {}, False),
        ("gaudi-plugin-0.26", True, {"VLLM_CONTIGUOUS_PA": "Y"}, True),
        ("gaudi-plugin-0.10", None, {}, False),
        ("gaudi-plugin-0.10", False, {}, True),
        ("fork-1.22", None, {}, True),
        ("fork-1.22", True, {}, False),
        ("fork-1.22", True, {"VLLM_CONTIGUOUS_PA": "true"}, True),
        ("fork-1.21", False, {}, True),
        ("fork-1.21", False, {"VLLM_CONTIGUOUS_PA": "1"}, False),
        ("fork-1.21", True, {"VLLM_CONTIGUOUS_PA": "true"}, False),
        ("fork-1.20", False, {"VLLM_CONTIGUOUS_PA": "true"}, False),
    ],
)
def test_contiguous_attention(
    name: str, caching: bool | None, env: dict[str, str], paged: bool
) -> None:
    made = settings_of(name, replace(FLAGS, prefix_caching=caching), **env)
    assert made.contiguous_pa is paged


def test_the_prompt_ranges_of_fork_1_21_are_made_before_caching_is_seen() -> None:
    made = settings_of("fork-1.21", replace(FLAGS, prefix_caching=True))
    assert made.prompt_contiguous_pa is True
    assert made.contiguous_pa is False


@pytest.mark.parametrize("paged", [True, False])
def test_where_caching_is_not_told_contiguous_attention_tells_it(paged: bool) -> None:
    flags = replace(FLAGS, contiguous_pa=paged)
    assert settings_of("fork-1.22", flags).prefix_caching is not paged
    assert settings_of("gaudi-plugin-0.26", flags).prefix_caching is True


@pytest.mark.parametrize(
    ("name", "flag", "env", "batch"),
    [
        ("gaudi-plugin-0.26", 7, {}, 1),
        ("gaudi-plugin-0.26", None, {"VLLM_PROMPT_BS_BUCKET_MAX": "4"}, 4),
        ("gaudi-plugin-0.26", None, {"VLLM_MERGED_PREFILL": "true"}, 32),
        ("gaudi-plugin-0.10", 7, {"VLLM_PROMPT_BS_BUCKET_MAX": "4"}, 1),
        ("fork-1.22", 7, {"VLLM_PROMPT_BS_BUCKET_MAX": "4"}, 7),
        ("fork-1.22", None, {}, 32),
    ],
)
def test_the_batch_of_a_prefill(
    name: str, flag: int | None, env: dict[str, str], batch: int
) -> None:
    flags = replace(FLAGS, max_num_prefill_seqs=flag)
    assert settings_of(name, flags, **env).max_num_prefill_seqs == batch


@pytest.mark.parametrize(
    ("name", "raised"), [("fork-1.22", "RuntimeError"), ("fork-1.18", "ValueError")]
)
def test_some_releases_read_every_variable_at_the_start(name: str, raised: str) -> None:
    with pytest.raises(BucketError, match="DECODE_BS_BUCKET_MAX='x'") as caught:
        settings_of(name, VLLM_DECODE_BS_BUCKET_MAX="x")
    assert caught.value.raised == raised


def test_others_stop_at_it_when_they_come_to_it() -> None:
    made = settings_of("gaudi-plugin-0.26", VLLM_PROMPT_SEQ_BUCKET_MAX="x")
    with pytest.raises(BucketError) as caught:
        generate(made, PROMPT)
    assert caught.value.raised == "RuntimeError"


def test_a_budget_must_hold_whole_mamba_chunks() -> None:
    flags = replace(FLAGS, mamba_chunk_size=3000)
    assert settings_of("gaudi-plugin-0.16", flags).mamba_chunk_size == 3000
    with pytest.raises(BucketError, match="set 3000"):
        settings_of("gaudi-plugin-0.17", flags)


def test_unified_attention_is_not_guessed_at() -> None:
    with pytest.raises(BucketError, match="unified attention"):
        settings_of("gaudi-plugin-0.16", VLLM_UNIFIED_ATTN="1")
    assert settings_of("gaudi-plugin-0.19", VLLM_UNIFIED_ATTN="1").strategy == "exp"


@pytest.mark.parametrize(
    ("field", "flags"),
    [
        ("max_num_seqs", replace(FLAGS, max_num_seqs=0)),
        ("max_num_batched_tokens", replace(FLAGS, max_num_batched_tokens=0)),
        ("max_model_len", replace(FLAGS, max_model_len=0)),
        ("num_blocks", replace(FLAGS, num_blocks=0)),
        ("block_size", replace(FLAGS, block_size=0)),
    ],
)
def test_nothing_is_made_of_zero(field: str, flags: Flags) -> None:
    with pytest.raises(BucketError, match=f"{field} is 0"):
        settings_of("fork-1.20", flags)


def test_a_strategy_that_a_release_lacks_is_named() -> None:
    made = settings_of("fork-1.18", replace(FLAGS, strategy="exp"))
    with pytest.raises(BucketError, match="it has lin"):
        generate(made, PROMPT)


def test_a_slice_without_length_is_refused() -> None:
    made = settings_of(
        "gaudi-plugin-0.26",
        PT_HPU_SDPA_QKV_SLICE_MODE_FWD="on",
        PT_HPU_SDPA_BC_FACTOR="0",
    )
    with pytest.raises(BucketError, match="no length of a slice"):
        generate(made, PROMPT)


def test_a_dialect_that_nobody_knows_is_refused() -> None:
    with pytest.raises(BucketError, match="No dialect is called 'klingon'"):
        settings_of("klingon")


BS_MAX, QUERY_MIN = "VLLM_PROMPT_BS_BUCKET_MAX", "VLLM_PROMPT_QUERY_BUCKET_MIN"
CTX_MAX, STEP = "VLLM_PROMPT_CTX_BUCKET_MAX", "VLLM_DECODE_BLOCK_BUCKET_STEP"
LIMIT, PAD = "VLLM_DECODE_BS_BUCKET_LIMIT", "VLLM_DECODE_BS_BUCKET_PAD_MAX"
EVERY = {BS_MAX: "1", QUERY_MIN: "1", CTX_MAX: "9", STEP: "128", LIMIT: "4", PAD: "8"}


@pytest.mark.parametrize(
    ("name", "strategy", "ignored"),
    [
        ("gaudi-plugin-head", "exp", {CTX_MAX, STEP, LIMIT, PAD}),
        ("gaudi-plugin-0.11", "exp", {QUERY_MIN, CTX_MAX, STEP, LIMIT, PAD}),
        ("gaudi-plugin-0.26", "lin", {LIMIT, PAD}),
        ("gaudi-plugin-0.26", "pad", {LIMIT}),
        ("fork-1.22", "exp", set(EVERY)),
        ("fork-1.22", "lin", {QUERY_MIN, CTX_MAX, LIMIT, PAD}),
        ("fork-1.21", "exp", {BS_MAX, QUERY_MIN, CTX_MAX, STEP, PAD}),
    ],
)
def test_variables_without_effect_are_named(
    name: str, strategy: str, ignored: set[str]
) -> None:
    made = settings_of(name, replace(FLAGS, strategy=strategy), **EVERY)
    assert set(unheeded(made)) == ignored


def test_a_bucket_file_leaves_only_the_batch_of_a_prefill() -> None:
    made = settings_of("gaudi-plugin-0.26", replace(FLAGS, bucket_file=""), **EVERY)
    assert made.strategy == "file"
    assert set(unheeded(made)) == set(EVERY) - {BS_MAX}


def test_long_contexts_heed_their_maximum() -> None:
    flags = replace(FLAGS, max_model_len=8192)
    assert CTX_MAX not in unheeded(settings_of("gaudi-plugin-0.16", flags, **EVERY))
    assert CTX_MAX in unheeded(settings_of("gaudi-plugin-0.14", flags, **EVERY))


@pytest.mark.parametrize("name", DIALECTS)
def test_selectors_that_choose_nothing_are_named(name: str) -> None:
    dialect = DIALECTS[name]
    env = {"VLLM_EXPONENTIAL_BUCKETING": "true"}
    if not dialect.old_names:
        env["VLLM_BUCKETING_STRATEGY"] = "exp"
    ignored = set(unheeded(resolve(name, FLAGS, env)))
    if dialect.strategy_rule == "named":
        assert not ignored
    elif dialect.strategy_rule == "fixed":
        assert ignored == set(env)
    else:
        assert ignored == set(env) - {"VLLM_EXPONENTIAL_BUCKETING"}


def test_the_older_spelling_is_not_even_looked_at_where_the_newer_one_is_set() -> None:
    env = {"VLLM_PROMPT_QUERY_BUCKET_MIN": "256", "VLLM_PROMPT_SEQ_BUCKET_MIN": "x"}
    assert read_axis(env, "PROMPT_QUERY", Axis(128, 128, 512)) == (256, 128, 512)
    with pytest.raises(BucketError, match="VLLM_PROMPT_SEQ_BUCKET_MIN"):
        read_axis({"VLLM_PROMPT_SEQ_BUCKET_MIN": "x"}, "PROMPT_QUERY", Axis(1, 1, 1))


@pytest.mark.parametrize(("name", "stops"), [("0.11", False), ("0.26", True)])
def test_of_the_query_bounds_exp_reads_the_minimum_alone(
    name: str, stops: bool
) -> None:
    dialect = f"gaudi-plugin-{name}"
    assert generate(resolve(dialect, FLAGS, {QUERY_MIN: "01"}), PROMPT)
    assert generate(
        resolve(dialect, FLAGS, {"VLLM_PROMPT_QUERY_BUCKET_MAX": "x"}), PROMPT
    )
    malformed = resolve(dialect, FLAGS, {QUERY_MIN: "x"})
    if not stops:
        assert generate(malformed, PROMPT)
        return
    with pytest.raises(BucketError, match=QUERY_MIN) as told:
        generate(malformed, PROMPT)
    assert told.value.raised == "RuntimeError"


HYBRID = replace(FLAGS, attn_block_size=512, block_size=128)


def test_decode_of_a_hybrid_model_counts_attention_blocks() -> None:
    """Prompt lists are those of the block, decode lists those of the attention block."""
    hybrid = settings_of("gaudi-plugin-head", HYBRID)
    assert hybrid.skip_decode_block_clamp
    prompts = settings_of("gaudi-plugin-head", FLAGS)
    decodes = settings_of(
        "gaudi-plugin-head",
        replace(FLAGS, block_size=512, skip_decode_block_clamp=True),
    )
    assert generate(hybrid, PROMPT) == generate(prompts, PROMPT)
    assert generate(hybrid, DECODE) == generate(decodes, DECODE)
    assert generate(hybrid, DECODE) != generate(prompts, DECODE)


@pytest.mark.parametrize("name", ["gaudi-plugin-0.20", "fork-1.22"])
def test_an_older_release_counts_in_one_size(name: str) -> None:
    assert settings_of(name, HYBRID) == settings_of(name, FLAGS)


def test_an_attention_block_like_the_others_changes_nothing() -> None:
    same = replace(FLAGS, attn_block_size=FLAGS.block_size)
    assert settings_of("gaudi-plugin-head", same) == settings_of("gaudi-plugin-head")
