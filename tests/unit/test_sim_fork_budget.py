"""The graph budget of the older forks, and the numbers of their bucket ranges."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpuwatch.gaudi.buckets import DECODE, PROMPT, Bucket, BucketSettings, generate
from hpuwatch.sim.fork.budget import ORDERS, Budget, Captures
from hpuwatch.sim.fork.words import Axis, axes, echoes, merged
from hpuwatch.units import GIB, format_bytes

pytestmark = pytest.mark.unit

_PAIRS = [Bucket(b, q, 0) for b in (1, 2, 4) for q in (128, 256, 512)]
_DIALECTS = [
    ("fork-1.18", "lin"),
    ("fork-1.20", "lin"),
    ("fork-1.21", "lin"),
    ("fork-1.21", "exp"),
    ("fork-1.22", "lin"),
    ("fork-1.22", "exp"),
]


def _capture(captures: Captures, budget: float, cost: int = 1) -> list[int]:
    """Capture what is due, at so much a token, and return the numbers."""
    numbers = []
    for number, bucket in captures.due(budget):
        captures.took(bucket, cost * bucket.batch * bucket.query)
        numbers.append(number)
    return numbers


def test_the_budget_of_the_public_sample_comes_out() -> None:
    """79.16 GiB free after the profile at 0.5, 55.43 at the end: 15.85, halved."""
    budget = Budget.of(55.43 * GIB, 0.5 * 79.16 * GIB, 0.5)
    printed = [budget.graph_bytes, budget.prompt_bytes, budget.decode_bytes]
    assert [format_bytes(b) for b in printed] == ["15.85 GiB", "7.925 GiB", "7.925 GiB"]


def test_what_is_used_up_leaves_a_negative_budget_and_no_graphs() -> None:
    budget = Budget.of(3 * GIB, 5 * GIB, 0.3)
    assert budget.graph_bytes == -2 * GIB
    captures = Captures.ordered(PROMPT, _PAIRS, "min_tokens")
    assert _capture(captures, budget.prompt_bytes) == []
    assert not captures.complete
    assert captures.percent == 0


def test_a_large_budget_captures_everything_in_the_order_of_the_strategy() -> None:
    small_first = Captures.ordered(PROMPT, _PAIRS, "min_tokens")
    assert [b.batch * b.query for b in small_first.buckets] == sorted(
        b.batch * b.query for b in _PAIRS
    )
    assert _capture(small_first, 1e9) == [*range(1, 10)]
    assert small_first.complete
    assert small_first.percent == 100
    wide_first = Captures.ordered(PROMPT, _PAIRS, "max_bs")
    assert wide_first.buckets[:4] == [
        (4, 128, 0),
        (4, 256, 0),
        (4, 512, 0),
        (2, 128, 0),
    ]


def test_a_graph_that_would_take_what_is_left_is_passed_over() -> None:
    # Tokens: 128 256 256 512 512 512 1024 1024 2048; a byte each.
    captures = Captures.ordered(PROMPT, _PAIRS, "min_tokens")
    # After three graphs 640 are taken and 511 left; the fourth is estimated at 512.
    assert _capture(captures, 640 + 511) == [1, 2, 3]
    assert not captures.complete
    # The second pass goes on where the first gave up, and numbers start again.
    assert _capture(captures, 513) == [4]
    assert captures.taken_bytes == 640 + 512


def test_a_later_smaller_graph_still_finds_room() -> None:
    captures = Captures.ordered(PROMPT, _PAIRS, "max_bs")
    numbers = _capture(captures, 512 + 1024 + 700)
    assert numbers == [1, 2, 4, 7, 8]
    assert not captures.complete


def test_decode_graphs_are_estimated_by_sequences_alone() -> None:
    buckets = [Bucket(b, 1, c) for b in (1, 2) for c in (128, 1024)]
    captures = Captures.ordered(DECODE, buckets, "max_bs")
    due = captures.due(100)
    assert next(due) == (1, Bucket(2, 1, 128))
    captures.took(Bucket(2, 1, 128), 40)
    # 1,024 blocks are expected to take what 128 took.
    assert next(due) == (2, Bucket(2, 1, 1024))


def test_only_the_two_strategies_are_known() -> None:
    assert set(ORDERS) == {"min_tokens", "max_bs"}
    with pytest.raises(KeyError):
        Captures.ordered(PROMPT, _PAIRS, "max_tokens")


@given(
    st.lists(st.integers(1, 64), min_size=1, max_size=12, unique=True),
    st.integers(0, 4000),
    st.sampled_from(sorted(ORDERS)),
)
def test_graphs_as_heavy_as_estimated_never_exceed_the_budget(
    batches: list[int], budget: int, order: str
) -> None:
    buckets = [Bucket(batch, 16, 0) for batch in batches]
    captures = Captures.ordered(PROMPT, buckets, order)
    _capture(captures, budget)
    # The first graph is taken unseen; every other was estimated exactly.
    first = 16 * (min if order == "min_tokens" else max)(batches)
    assert captures.taken_bytes <= max(first, budget)
    assert captures.complete == (len(captures.captured) == len(buckets))


def _settings(dialect: str, strategy: str, **changes: object) -> BucketSettings:
    known = {
        "max_num_seqs": 48,
        "max_num_batched_tokens": 1 << 40,
        "max_model_len": 4096,
        "num_blocks": 900,
        "max_num_prefill_seqs": 12,
        "dialect": dialect,
        "strategy": strategy,
    }
    return BucketSettings(**(known | changes))  # type: ignore[arg-type]


def test_the_ranges_of_a_real_start_come_out() -> None:
    real = _settings("fork-1.20", "lin", max_num_seqs=256, max_num_prefill_seqs=256)
    prompt, decode = axes(real, PROMPT), axes(real, DECODE)
    assert [axis.numbers for axis in prompt] == [[1, 32, 256], [128, 128, 1024]]
    assert [axis.numbers for axis in decode] == [[1, 32, 256], [128, 128, 4096]]


@pytest.mark.parametrize(("dialect", "strategy"), _DIALECTS)
@pytest.mark.parametrize("phase", [PROMPT, DECODE])
def test_the_printed_ranges_bound_the_lists(
    dialect: str, strategy: str, phase: str
) -> None:
    settings = _settings(dialect, strategy)
    batch, length = axes(settings, phase)
    buckets = generate(settings, phase)
    batches = {bucket.batch for bucket in buckets}
    lengths = {max(bucket.query, bucket.context) for bucket in buckets}
    _bound(batch, batches, cap=settings.max_num_seqs)
    _bound(length, lengths, cap=settings.num_blocks if phase == DECODE else 1 << 40)


def _bound(axis: Axis, values: set[int], *, cap: int) -> None:
    least, step, most = axis.numbers[:3]
    top = min(most, cap)
    assert min(values) == min(least, top)
    # The largest value may be rounded by a step; the next step would be too far.
    assert top - step < max(values) < top + step


def test_settings_are_echoed_beside_their_defaults() -> None:
    env = {"VLLM_PROMPT_SEQ_BUCKET_MAX": "512", "VLLM_PROMPT_BS_BUCKET_MIN": "2"}
    rows = axes(_settings("fork-1.22", "lin", env=env), PROMPT)
    told = {echo.name: (echo.value, echo.default) for echo in echoes(rows)}
    assert told["VLLM_PROMPT_SEQ_BUCKET_MAX"] == (512, 4096)
    assert told["VLLM_PROMPT_BS_BUCKET_MIN"] == (2, 1)
    assert told["VLLM_PROMPT_SEQ_BUCKET_STEP"] == (128, 128)


def test_exponential_ranges_heed_nothing_but_the_older_limit() -> None:
    env = {"VLLM_DECODE_BS_BUCKET_MAX": "7", "VLLM_DECODE_BS_BUCKET_LIMIT": "3"}
    older = axes(_settings("fork-1.21", "exp", env=env), DECODE)[0]
    newer = axes(_settings("fork-1.22", "exp", env=env), DECODE)[0]
    assert older.numbers == [1, 1, 48, 3]
    assert newer.numbers == [1, 2, 48, 7]


def test_merged_prefill_makes_one_row_of_all_prompts() -> None:
    settings = _settings("fork-1.22", "lin", max_num_batched_tokens=8192)
    batch, length = merged(settings, axes(settings, PROMPT))
    assert batch.numbers == (1, 1, 1)
    assert length.numbers == (128, 128, 8192)


@pytest.mark.parametrize(("dialect", "strategy"), _DIALECTS)
def test_a_word_is_no_number(dialect: str, strategy: str) -> None:
    env = {"VLLM_DECODE_BS_BUCKET_STEP": "two"}
    settings = _settings(dialect, strategy, env=env)
    if strategy == "exp":
        assert axes(settings, DECODE)
    else:
        with pytest.raises(ValueError, match="two"):
            axes(settings, DECODE)
