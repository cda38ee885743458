"""What holds for every configuration: filters, order, and look-ups that are large enough."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, assume, given, reject, settings
from hypothesis import strategies as st

from hpuwatch.gaudi.buckets import (
    DECODE,
    PROMPT,
    Bucket,
    BucketError,
    BucketSettings,
    find,
    generate,
)
from hpuwatch.gaudi.dialects import DIALECTS, dialect_of
from hpuwatch.gaudi.grammar import PluginDialect
from hpuwatch.gaudi.lookup import (
    Prepared,
    decode_shape,
    fall_back_value,
    look_up,
    prepare,
    warmed_prompts,
)
from hpuwatch.gaudi.resolve import Flags, resolve

pytestmark = pytest.mark.unit

PLUGINS = [n for n, d in DIALECTS.items() if isinstance(d, PluginDialect)]
quick = settings(
    deadline=None, max_examples=60, suppress_health_check=[HealthCheck.filter_too_much]
)


@st.composite
def configurations(
    draw: st.DrawFn, names: tuple[str, ...] = tuple(DIALECTS)
) -> BucketSettings:
    dialect = dialect_of(draw(st.sampled_from(names)))
    strategies = [s for s in dialect.strategies if s != "file"]
    flags = Flags(
        max_num_seqs=draw(st.integers(1, 80)),
        max_num_batched_tokens=draw(st.integers(256, 8192)),
        max_model_len=draw(st.integers(256, 12000)),
        num_blocks=draw(st.integers(1, 3000)),
        max_num_prefill_seqs=draw(st.integers(1, 8)),
        prefix_caching=draw(st.booleans()),
        strategy=draw(st.sampled_from(strategies)),
        contiguous_pa=draw(st.booleans()),
    )
    env = {"VLLM_PROMPT_BS_BUCKET_MAX": str(draw(st.integers(1, 4)))}
    return resolve(dialect.name, flags, env)


def lists_of(configuration: BucketSettings) -> Prepared:
    try:
        return prepare(configuration)
    except BucketError:
        reject()


@quick
@given(configurations(), st.sampled_from([PROMPT, DECODE]))
def test_a_list_is_made_or_refused_with_a_sentence(
    configuration: BucketSettings, phase: str
) -> None:
    made: tuple[Bucket, ...] = ()
    refusal = None
    try:
        made = generate(configuration, phase)
    except BucketError as error:
        refusal = error
    assert bool(made) != bool(refusal)
    assert all(min(bucket[:2]) >= 1 for bucket in made)
    if refusal is not None:
        assert str(refusal).endswith(".")
        assert refusal.raised


@quick
@given(configurations(tuple(PLUGINS)))
def test_plugin_buckets_respect_the_filters(configuration: BucketSettings) -> None:
    lists = lists_of(configuration)
    for buckets in (lists.prompt, lists.decode):
        assert list(buckets) == sorted(set(buckets))
    for batch, query, context in lists.prompt:
        assert batch * query <= configuration.max_num_batched_tokens
        assert query <= configuration.max_model_len
        assert 0 <= context <= configuration.blocks_per_sequence
    for batch, query, context in lists.decode:
        assert query == 1
        if not configuration.contiguous_pa:
            assert batch <= context <= batch * configuration.blocks_per_sequence


@quick
@given(configurations(tuple(PLUGINS)))
def test_contiguous_attention_always_prepares_the_pool(
    configuration: BucketSettings,
) -> None:
    assume(configuration.contiguous_pa)
    contexts = {bucket.context for bucket in lists_of(configuration).decode}
    assert max(contexts) >= configuration.num_blocks


wanted = st.builds(
    Bucket, st.integers(1, 100), st.integers(1, 9000), st.integers(0, 4000)
)


@quick
@given(st.lists(wanted, max_size=40), wanted)
def test_find_returns_the_first_that_is_large_enough(
    buckets: list[Bucket], want: Bucket
) -> None:
    found = find(buckets, want)
    enough = [
        bucket
        for bucket in buckets
        if all(has >= wants for has, wants in zip(bucket, want, strict=True))
    ]
    assert found == (min(enough) if enough else None)


@quick
@given(configurations(tuple(PLUGINS)), wanted, st.sampled_from([PROMPT, DECODE]))
def test_a_look_up_agrees_with_find_and_is_stable(
    configuration: BucketSettings, want: Bucket, phase: str
) -> None:
    lists = lists_of(configuration)
    if phase == DECODE:
        want = want._replace(query=1)
    found = look_up(lists, phase, want)
    listed = find(lists.of(phase), want)
    if listed is not None:
        assert found.bucket == listed
        assert found.after == lists
    again = look_up(found.after, phase, want)
    assert again.bucket == found.bucket
    grown = len(found.after.of(phase)) - len(lists.of(phase))
    assert grown in {0, 1}
    assert list(found.after.of(phase)) == sorted(found.after.of(phase))


@quick
@given(configurations(tuple(PLUGINS)), st.integers(1, 40), st.integers(1, 500))
def test_a_decode_within_the_lists_gets_a_shape_that_holds_it(
    configuration: BucketSettings, sequences: int, blocks: int
) -> None:
    lists = lists_of(configuration)
    assume(find(lists.decode, Bucket(sequences, 1, blocks)))
    shape = decode_shape(lists, sequences, blocks)
    assert shape.batch >= sequences
    assert shape.context >= blocks


@quick
@given(configurations())
def test_warm_up_compiles_no_more_shapes_than_are_listed(
    configuration: BucketSettings,
) -> None:
    lists = lists_of(configuration)
    warmed = set(warmed_prompts(lists))
    assert 0 < len(warmed) <= len(set(lists.prompt))
    dialect = dialect_of(configuration.dialect)
    if not isinstance(dialect, PluginDialect):
        assert warmed == set(lists.prompt)
        return
    for cold in set(lists.prompt) - warmed:
        longer = cold.query + cold.context * configuration.block_size
        exceeds = not dialect.sum_filter and longer > configuration.max_model_len
        assert exceeds or (dialect.context_alone and cold.batch > 1 and cold.context)


@given(st.integers(0, 200_000), st.sampled_from([2, 32, 256]))
def test_a_fall_back_value_is_enough_and_not_much_more(value: int, step: int) -> None:
    padded = fall_back_value(value, step)
    cube_root = next(n for n in range(200) if n**3 >= value)
    assert value <= padded <= value + cube_root * step
    if value > 1:
        assert padded % (cube_root * step) == 0
