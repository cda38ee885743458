"""Look-ups: fall-backs are made up, capped and remembered as each release does."""

from __future__ import annotations

import pytest

from hpuwatch.gaudi.buckets import DECODE, PROMPT, Bucket, BucketSettings, generate
from hpuwatch.gaudi.lookup import (
    Prepared,
    decode_shape,
    fall_back,
    look_up,
    look_up_seed,
    prepare,
    warmed_prompts,
)

pytestmark = pytest.mark.unit


def lists(dialect: str, **more: object) -> Prepared:
    given = {
        "max_num_seqs": 32,
        "max_num_batched_tokens": 4096,
        "max_model_len": 4096,
        "num_blocks": 600,
        "dialect": dialect,
        **more,
    }
    return prepare(BucketSettings(**given))  # type: ignore[arg-type]  # named above


def test_what_is_prepared_is_found_and_nothing_changes() -> None:
    prepared = lists("gaudi-plugin-0.26")
    found = look_up(prepared, PROMPT, Bucket(1, 200, 3))
    assert found.bucket == Bucket(1, 256, 4)
    assert found.prepared
    assert found.after is prepared


def test_a_fall_back_is_remembered() -> None:
    prepared = lists("gaudi-plugin-0.11")
    want = Bucket(3, 200, 3)
    found = look_up(prepared, PROMPT, want)
    assert not found.prepared
    assert found.bucket == Bucket(4, 384, 64)
    assert found.bucket in found.after.prompt
    again = look_up(found.after, PROMPT, want)
    assert again.prepared
    assert again.bucket == found.bucket


@pytest.mark.parametrize(
    ("dialect", "phase", "want", "bucket"),
    [
        ("gaudi-plugin-0.13", DECODE, Bucket(33, 1, 700), Bucket(40, 1, 600)),
        ("gaudi-plugin-0.14", DECODE, Bucket(33, 1, 700), Bucket(32, 1, 600)),
        ("gaudi-plugin-0.17", DECODE, Bucket(33, 1, 9000), Bucket(32, 1, 1024)),
        ("gaudi-plugin-0.26", DECODE, Bucket(33, 1, 9000), Bucket(32, 1, 1024)),
        ("gaudi-plugin-0.16", PROMPT, Bucket(1, 9000, 9000), Bucket(1, 4096, 600)),
        ("gaudi-plugin-0.26", PROMPT, Bucket(1, 9000, 9000), Bucket(1, 4096, 32)),
        ("fork-1.22", PROMPT, Bucket(1, 100, 7), Bucket(1, 160, 64)),
    ],
)
def test_fall_backs_are_capped(
    dialect: str, phase: str, want: Bucket, bucket: Bucket
) -> None:
    assert fall_back(lists(dialect), phase, want) == bucket


def test_a_mamba_chunk_and_slices_widen_the_query() -> None:
    chunky = lists("gaudi-plugin-0.26", mamba_chunk_size=512)
    assert fall_back(chunky, PROMPT, Bucket(1, 100, 0)).query == 2560
    sliced = lists(
        "gaudi-plugin-0.26",
        env={
            "PT_HPU_SDPA_QKV_SLICE_MODE_FWD": "on",
            "VLLM_FUSEDSDPA_SLIDE_THLD": "2048",
            "PT_HPU_SDPA_BC_FACTOR": "768",
        },
    )
    assert fall_back(sliced, PROMPT, Bucket(1, 5000, 0)).query == 5376
    assert fall_back(sliced, PROMPT, Bucket(1, 2000, 0)).query == 2080


def test_newer_releases_cut_a_decode_at_the_deepest_bucket() -> None:
    older = lists("gaudi-plugin-0.17")
    newer = lists("gaudi-plugin-0.26")
    want = Bucket(32, 1, 5000)
    assert look_up(newer, DECODE, want).prepared
    assert look_up(newer, DECODE, want).bucket.context == newer.deepest
    found = look_up(older, DECODE, want)
    assert found.bucket.context == older.deepest
    assert len(found.after.decode) == len(older.decode) + 1


def test_a_fall_back_that_stands_in_the_list_is_not_added_twice() -> None:
    newer = lists("gaudi-plugin-0.26")
    found = look_up(newer, DECODE, Bucket(33, 1, 1024))
    assert found.bucket == Bucket(32, 1, 1024)
    assert found.prepared
    assert found.after is newer


def test_a_draft_looks_up_its_batch_among_the_seeds_first() -> None:
    prepared = lists("gaudi-plugin-0.26", num_speculative_tokens=2)
    assert set(prepared.seeds) < set(prepared.decode)
    assert look_up_seed(prepared, Bucket(5, 1, 100)).bucket in prepared.seeds
    wide = look_up_seed(prepared, Bucket(33, 1, 100)).bucket
    assert wide in prepared.decode
    assert wide not in prepared.seeds
    shape = decode_shape(prepared, 5, 100)
    assert shape.batch == look_up_seed(prepared, Bucket(5, 1, 100)).bucket.batch
    rows = Bucket(shape.batch * 3, 1, 100)
    assert shape.context == look_up(prepared, DECODE, rows).bucket.context


@pytest.mark.parametrize(
    ("dialect", "want", "bucket"),
    [
        ("fork-1.21", Bucket(3, 1, 129), Bucket(4, 1, 256)),
        ("fork-1.21", Bucket(40, 1, 9000), Bucket(64, 1, 600)),
        ("fork-1.20", Bucket(40, 1, 700), Bucket(64, 1, 600)),
        ("fork-1.18", Bucket(3, 1, 700), Bucket(32, 1, 768)),
    ],
)
def test_older_releases_pad_each_axis(
    dialect: str, want: Bucket, bucket: Bucket
) -> None:
    prepared = lists(dialect, strategy="lin")
    found = look_up(prepared, DECODE, want)
    assert found.bucket == bucket
    assert found.after is prepared
    assert found.prepared is (bucket in prepared.decode)


def test_fork_1_21_takes_the_next_listed_value_on_each_axis() -> None:
    prepared = lists("fork-1.21", strategy="exp", max_num_prefill_seqs=8)
    bucket = look_up(prepared, PROMPT, Bucket(3, 130, 0)).bucket
    lengths = {b.query for b in prepared.prompt if b.query >= 130}
    assert bucket.query == min(lengths)
    beyond = look_up(prepared, PROMPT, Bucket(9, 9999, 0))
    assert beyond.bucket == Bucket(9, 9999, 0)
    assert not beyond.prepared


def test_warm_up_leaves_buckets_cold_that_exceed_the_model() -> None:
    newer = lists("gaudi-plugin-0.26")
    older = lists("gaudi-plugin-0.17")
    longest = Bucket(1, 4096, 31)
    assert longest in newer.prompt
    assert longest not in warmed_prompts(newer)
    assert longest not in older.prompt
    assert len(warmed_prompts(newer)) < len(newer.prompt)
    assert warmed_prompts(older) == older.prompt


def test_the_pairs_of_old_forks_keep_their_own_order() -> None:
    settings = lists("fork-1.18", strategy="lin").settings
    made = generate(settings, PROMPT)
    products = [bucket.batch * bucket.query for bucket in made]
    assert products == sorted(products)
    assert all(bucket.context == 0 for bucket in made)
    assert list(made) != sorted(made)
