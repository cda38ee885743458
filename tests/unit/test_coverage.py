"""Shapes that no bucket covers."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpuwatch.gaudi.buckets import find
from hpuwatch.gaudi.coverage import Hole, holes
from hpuwatch.gaudi.lookup import Prepared, prepare
from hpuwatch.gaudi.model import DECODE, PROMPT, Bucket, BucketSettings
from hpuwatch.gaudi.resolve import Flags, resolve

pytestmark = pytest.mark.unit

SETTINGS = BucketSettings(
    max_num_seqs=8,
    max_num_batched_tokens=1024,
    max_model_len=1024,
    num_blocks=40,
    prefix_caching=True,
)


def lists(prompt: list[Bucket], decode: list[Bucket], **news: int) -> Prepared:
    settings = replace(SETTINGS, **news)  # type: ignore[arg-type]  # sizes only
    return Prepared(settings, tuple(prompt), tuple(decode), (), 0)


def test_queries_and_batches_beyond_the_largest_bucket() -> None:
    found = holes(lists([Bucket(1, 512, 8)], [Bucket(4, 1, 40)]))
    assert found == (Hole(PROMPT, 513, 1024, -1, 4), Hole(DECODE, 5, 8, -1, 40))


def test_contexts_above_those_of_the_wide_enough_buckets() -> None:
    prompts = [Bucket(1, 256, 8), Bucket(1, 1024, 2)]
    found = holes(lists(prompts, [Bucket(8, 1, 16), Bucket(1, 1, 8)]))
    # 257 tokens leave room for 6 blocks; 8 sequences of 8 blocks fill all 40.
    assert found == (Hole(PROMPT, 257, 1024, 2, 6), Hole(DECODE, 2, 8, 16, 40))


def test_a_prompt_that_comes_whole_has_no_context() -> None:
    prepared = lists([Bucket(1, 1024, 0)], [Bucket(8, 1, 40)])
    whole = replace(prepared.settings, prefix_caching=False)
    assert holes(replace(prepared, settings=whole)) == ()
    assert holes(prepared) == (Hole(PROMPT, 1, 1024, 0, 8),)


def test_contiguous_attention_may_reach_the_end_of_the_pool_with_one_sequence() -> None:
    prepared = lists([Bucket(1, 1024, 8)], [Bucket(8, 1, 40), Bucket(1, 1, 20)])
    paged = replace(prepared.settings, contiguous_pa=True)
    assert holes(replace(prepared, settings=paged)) == ()
    short = replace(prepared, settings=paged, decode=(Bucket(8, 1, 30),))
    assert holes(short) == (Hole(DECODE, 1, 8, 30, 40),)


@given(
    st.sampled_from(["gaudi-plugin-0.13", "gaudi-plugin-0.26", "gaudi-plugin-head"]),
    st.sampled_from(["exp", "lin"]),
    st.integers(1, 32),
    st.sampled_from([512, 1024, 3000]),
    st.integers(8, 200),
    st.data(),
)
def test_a_shape_has_a_bucket_exactly_where_no_hole_is(
    dialect: str,
    strategy: str,
    seqs: int,
    longest: int,
    blocks: int,
    data: st.DataObject,
) -> None:
    flags = Flags(
        seqs, 512, longest, max(blocks, longest // 128 + 1), strategy=strategy
    )
    prepared = prepare(resolve(dialect, flags, {}))
    mine = [hole for hole in holes(prepared) if hole.phase == DECODE]
    batch = data.draw(st.integers(1, seqs))
    reach = min(batch * prepared.settings.blocks_per_sequence, flags.num_blocks)
    context = data.draw(st.integers(1, reach))
    inside = any(
        hole.first <= batch <= hole.last and hole.above < context for hole in mine
    )
    listed = find(prepared.decode, Bucket(batch, 1, context))
    assert inside is (listed is None)
