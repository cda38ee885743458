"""Look-ups of many shapes at once are those of one at a time."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st

from hpuwatch.gaudi import lookuptable
from hpuwatch.gaudi.dialects import DIALECTS, dialect_of
from hpuwatch.gaudi.lookup import Prepared, look_up, prepare
from hpuwatch.gaudi.lookuptable import look_up_all
from hpuwatch.gaudi.model import DECODE, PROMPT, Bucket, BucketError
from hpuwatch.gaudi.resolve import Flags, resolve

pytestmark = pytest.mark.unit

shapes = st.builds(
    Bucket, st.integers(1, 90), st.integers(1, 9000), st.integers(0, 4000)
)


@st.composite
def lists(draw: st.DrawFn) -> Prepared:
    dialect = dialect_of(draw(st.sampled_from(tuple(DIALECTS))))
    flags = Flags(
        max_num_seqs=draw(st.integers(1, 64)),
        max_num_batched_tokens=draw(st.integers(256, 4096)),
        max_model_len=draw(st.integers(256, 9000)),
        num_blocks=draw(st.integers(1, 3000)),
        max_num_prefill_seqs=draw(st.integers(1, 8)),
        prefix_caching=draw(st.booleans()),
        strategy=draw(st.sampled_from([s for s in dialect.strategies if s != "file"])),
        contiguous_pa=draw(st.booleans()),
    )
    env = {"VLLM_PROMPT_BS_BUCKET_MAX": str(draw(st.integers(1, 4)))}
    try:
        return prepare(resolve(dialect.name, flags, env))
    except BucketError:
        reject()


@settings(max_examples=60, suppress_health_check=[HealthCheck.filter_too_much])
@given(lists(), st.lists(shapes, max_size=30), st.sampled_from([PROMPT, DECODE]))
def test_all_at_once_is_one_by_one(
    prepared: Prepared, wanted: list[Bucket], phase: str
) -> None:
    if phase == DECODE:
        wanted = [shape._replace(query=1) for shape in wanted]
    one_by_one = [look_up(prepared, phase, shape).bucket for shape in wanted]
    assert look_up_all(prepared, phase, wanted) == one_by_one


some = st.builds(Bucket, st.integers(1, 9), st.integers(1, 9), st.integers(0, 9))


@given(st.lists(some, max_size=30), st.lists(some, max_size=20))
def test_any_list_will_do(listed: list[Bucket], wanted: list[Bucket]) -> None:
    """A list of a file, or one that has grown, is no product of ranges."""
    flags = Flags(8, 512, 512, 9)
    made = prepare(resolve("gaudi-plugin-0.26", flags, {}))
    prepared = replace(made, prompt=tuple(sorted(listed)))
    one_by_one = [look_up(prepared, PROMPT, shape).bucket for shape in wanted]
    assert look_up_all(prepared, PROMPT, wanted) == one_by_one


def test_a_list_that_is_too_sparse_for_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookuptable, "_MOST_CELLS", 0)
    prepared = prepare(resolve("gaudi-plugin-0.26", Flags(8, 512, 512, 90), {}))
    assert look_up_all(prepared, PROMPT, [Bucket(1, 200, 1)]) == [
        look_up(prepared, PROMPT, Bucket(1, 200, 1)).bucket
    ]


def padding(listed: tuple[Bucket, ...], shape: Bucket) -> int:
    """Tokens of context that one decode of these lists computes in vain."""
    made = prepare(resolve("gaudi-plugin-0.26", Flags(64, 2048, 2048, 900), {}))
    prepared = replace(made, decode=tuple(sorted(listed)), deepest=900)
    return look_up(prepared, DECODE, shape).bucket.context - shape.context


contexts = st.lists(st.integers(1, 900), min_size=1, max_size=10)


@given(contexts, st.integers(1, 900), st.integers(1, 900))
def test_a_bucket_of_the_same_batch_never_adds_padding(
    listed: list[int], more: int, wanted: int
) -> None:
    """Along one axis the first bucket that holds a shape is the tightest one."""
    before = tuple(Bucket(4, 1, context) for context in {*listed, 900})
    after = (*before, Bucket(4, 1, more))
    shape = Bucket(3, 1, wanted)
    assert padding(after, shape) <= padding(before, shape)


def test_a_bucket_of_a_smaller_batch_may_add_padding() -> None:
    """The smallest batch wins, however deep its only bucket is."""
    before = (Bucket(8, 1, 128), Bucket(8, 1, 900))
    after = (*before, Bucket(4, 1, 900))
    shape = Bucket(4, 1, 100)
    assert padding(before, shape) == 28
    assert padding(after, shape) == 800
