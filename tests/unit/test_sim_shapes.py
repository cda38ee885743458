"""Padding by the release's rules, and the memory of what traffic added to the lists."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpuwatch.gaudi import lookup
from hpuwatch.gaudi.buckets import DECODE, PROMPT, Bucket, BucketSettings, generate
from hpuwatch.gaudi.dialects import DIALECTS
from hpuwatch.gaudi.lookup import fall_back_value as round_up
from hpuwatch.sim.shapes import Shapes

pytestmark = pytest.mark.unit


def _settings(dialect: str = "gaudi-plugin-0.26", **changes: object) -> BucketSettings:
    rules = DIALECTS[dialect]
    given: dict[str, object] = {
        "max_num_seqs": 8,
        "max_num_batched_tokens": 1024,
        "max_model_len": 1024,
        "num_blocks": 400,
        "dialect": dialect,
        "strategy": rules.strategies[0],
    }
    return BucketSettings(**(given | changes))  # type: ignore[arg-type]  # named above


def _shapes(settings: BucketSettings) -> Shapes:
    lists = {phase: generate(settings, phase) for phase in (PROMPT, DECODE)}
    return Shapes(settings, lists)


def test_traffic_is_padded_to_the_first_bucket_that_is_large_enough() -> None:
    shapes = _shapes(_settings())
    assert shapes.prompt(1, 200, 1).bucket == Bucket(1, 256, 1)
    assert shapes.decode(5, 20).bucket == Bucket(6, 1, 24)


def test_what_no_bucket_covers_gets_one_that_stays() -> None:
    lists = _shapes(_settings()).buckets
    short = tuple(b for b in lists[PROMPT] if b.query < 512)
    shapes = Shapes(_settings(), {**lists, PROMPT: short})
    first = shapes.prompt(1, 600, 0)
    ((wanted, added),) = first.added
    assert wanted == Bucket(1, 600, 0)
    assert added == first.bucket
    assert added.query >= 600
    again = shapes.prompt(1, 600, 0)
    assert not again.added
    assert again.bucket == first.bucket


def test_more_blocks_than_any_bucket_holds_are_capped() -> None:
    shapes = _shapes(_settings())
    assert shapes.decode(8, 100_000).bucket == Bucket(8, 1, 64)


@pytest.mark.parametrize(
    ("dialect", "contiguous", "context"),
    [
        ("gaudi-plugin-0.26", True, 300),
        ("gaudi-plugin-0.26", False, 256),
        ("gaudi-plugin-0.19", True, round_up(300, 32)),
        ("gaudi-plugin-0.19", False, round_up(300, 32)),
        ("gaudi-plugin-0.17", True, 256),
    ],
)
def test_what_a_decode_reads_beyond_the_deepest_bucket(
    dialect: str, contiguous: bool, context: int
) -> None:
    asked = _settings(dialect, contiguous_pa=contiguous, num_blocks=5000)
    lists = {PROMPT: [Bucket(1, 1024, 0)], DECODE: [Bucket(8, 1, 256)]}
    shapes = Shapes(asked, lists)
    assert shapes.decode(8, 300).bucket == Bucket(8, 1, context)


def test_a_bucket_beyond_the_longest_request_warms_a_shorter_shape() -> None:
    shapes = _shapes(_settings())
    assert shapes.warm_shape(PROMPT, Bucket(1, 1024, 7)) == Bucket(1, 1024, 0)
    assert shapes.warm_shape(PROMPT, Bucket(1, 128, 7)) == Bucket(1, 128, 7)
    assert shapes.warm_shape(DECODE, Bucket(8, 1, 64)) == Bucket(8, 1, 64)


def test_a_merged_prefill_is_one_row_of_everything() -> None:
    shapes = _shapes(_settings(merged_prefill=True, max_num_prefill_seqs=8))
    assert shapes.merges_context
    bucket = shapes.merged_prompt(300, 5).bucket
    assert bucket.batch == 1
    assert bucket.query >= 300
    assert bucket.context == 32


@pytest.mark.parametrize("dialect", sorted(DIALECTS))
@settings(max_examples=12, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(1, 8), st.integers(1, 1024), st.integers(0, 7)),
        min_size=1,
        max_size=6,
    ),
    st.lists(st.tuples(st.integers(1, 8), st.integers(1, 64)), min_size=1, max_size=6),
    st.booleans(),
)
def test_every_release_pads_as_the_predictor_says(
    dialect: str,
    prompts: list[tuple[int, int, int]],
    decodes: list[tuple[int, int]],
    contiguous: bool,
) -> None:
    """The rules are the same; fallbacks are remembered in both."""
    asked = _settings(dialect, contiguous_pa=contiguous)
    shapes, prepared = _shapes(asked), lookup.prepare(asked)
    for want in prompts:
        found = lookup.look_up(prepared, PROMPT, Bucket(*want))
        padded = shapes.prompt(*want)
        assert padded.bucket == found.bucket
        grown = len(found.after.prompt) > len(prepared.prompt)
        assert bool(padded.added) == (grown and found.bucket not in prepared.prompt)
        prepared = found.after
    for sequences, blocks in decodes:
        first = lookup.look_up(prepared, DECODE, Bucket(sequences, 1, blocks))
        shape = lookup.decode_shape(prepared, sequences, blocks)
        assert shapes.decode(sequences, blocks).bucket == shape._replace(
            context=max(shape.context, blocks if contiguous else 0)
        )
        prepared = first.after


@given(st.integers(2, 100_000), st.sampled_from([2, 32]))
def test_fallbacks_round_up_to_multiples_of_the_cube_root(
    value: int, step: int
) -> None:
    rounded = round_up(value, step)
    root = next(r for r in range(1, 60) if r**3 >= value)
    assert value <= rounded < value + root * step
    assert rounded % (root * step) == 0


def test_a_real_fallback() -> None:
    # (1, 772, 1) became (1, 960, 1) in a real start of plugin 0.26.
    assert round_up(772, 32) == 960
    assert round_up(1, 2) == 1
