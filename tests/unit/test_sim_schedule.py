"""Continuous batching: blocks are conserved, budgets are kept, everybody finishes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpuwatch.gaudi.buckets import DECODE, PROMPT, Bucket, BucketSettings, generate
from hpuwatch.sim.serve.schedule import Request, Scheduler
from hpuwatch.sim.serve.shapes import Shapes, round_up

pytestmark = pytest.mark.unit

_REQUESTS = st.lists(
    st.tuples(st.integers(1, 60), st.integers(1, 40)), min_size=1, max_size=25
)


def _run(scheduler: Scheduler, most_steps: int) -> dict[Request, int]:
    made: dict[Request, int] = {}
    for _ in range(20_000):
        if not scheduler.has_work:
            return made
        plan = scheduler.plan(most_steps)
        held = sum(r.blocks for r in [*scheduler.running, *scheduler.waiting])
        assert scheduler.used_blocks == held <= scheduler.num_blocks
        assert len(scheduler.running) <= scheduler.max_num_seqs
        new = sum(tokens for _, tokens in plan.prefills) + len(plan.decodes)
        assert 0 < new <= scheduler.max_num_batched_tokens
        for request, tokens in scheduler.apply(plan):
            made[request] = made.get(request, 0) + tokens
    raise AssertionError("the scheduler makes no progress")


@settings(max_examples=60, deadline=None)
@given(_REQUESTS, st.integers(1, 6), st.integers(8, 64), st.integers(0, 20))
def test_every_request_gets_its_tokens_whatever_the_pressure(
    sizes: list[tuple[int, int]], seqs: int, budget: int, spare: int
) -> None:
    # 100 tokens at most need 25 blocks of 4: any single request fits.
    scheduler = Scheduler(seqs, max(budget, seqs), 25 + spare, 4)
    requests = [Request(prompt, end) for prompt, end in sizes]
    for request in requests:
        scheduler.add(request)
    made = _run(scheduler, most_steps=50)
    assert made == {request: request.end_tokens for request in requests}
    assert scheduler.used_blocks == 0


@settings(max_examples=40, deadline=None)
@given(_REQUESTS, st.integers(2, 6))
def test_many_steps_at_once_change_nothing_but_their_number(
    sizes: list[tuple[int, int]], seqs: int
) -> None:
    preemptions = []
    for most_steps in (1, 50):
        scheduler = Scheduler(seqs, 64, 40, 4)
        for prompt, end in sizes:
            scheduler.add(Request(prompt, end))
        _run(scheduler, most_steps)
        preemptions.append(scheduler.preemptions)
    assert preemptions[0] == preemptions[1]


def test_a_long_prompt_is_computed_in_chunks() -> None:
    scheduler = Scheduler(4, 64, 100, 4)
    request = Request(150, 1)
    scheduler.add(request)
    chunks = []
    while scheduler.has_work:
        plan = scheduler.plan()
        chunks += [tokens for _, tokens in plan.prefills]
        scheduler.apply(plan)
    assert chunks == [64, 64, 22]


def test_the_newest_gives_way_when_blocks_run_out() -> None:
    scheduler = Scheduler(2, 64, 4, 4)
    old, new = Request(7, 6), Request(7, 6)
    scheduler.add(old)
    scheduler.add(new)
    while not scheduler.preemptions:
        scheduler.apply(scheduler.plan())
    assert scheduler.running == [old]
    assert list(scheduler.waiting) == [new]
    assert new.blocks == 0
    assert new.generated > 0


def test_dropping_a_request_frees_its_blocks() -> None:
    scheduler = Scheduler(2, 64, 8, 4)
    running, waiting = Request(20, 6), Request(20, 6)
    scheduler.add(running)
    scheduler.add(waiting)
    scheduler.apply(scheduler.plan())
    assert scheduler.used_blocks == 5
    scheduler.drop(waiting)
    scheduler.drop(running)
    assert scheduler.used_blocks == 0
    assert not scheduler.has_work


def _shapes(**changes: int) -> Shapes:
    numbers = {"max_num_seqs": 8, "max_num_batched_tokens": 1024, "max_model_len": 1024}
    s = BucketSettings(num_blocks=400, **(numbers | changes))  # type: ignore[arg-type]
    return Shapes(s, {phase: generate(s, phase) for phase in (PROMPT, DECODE)})


def test_traffic_is_padded_to_the_first_bucket_that_is_large_enough() -> None:
    shapes = _shapes()
    assert shapes.prompt(1, 200, 1).bucket == Bucket(1, 256, 1)
    assert shapes.decode(5, 20).bucket == Bucket(6, 1, 24)


def test_what_no_bucket_covers_gets_one_that_stays() -> None:
    shapes = _shapes()
    shapes.buckets[PROMPT] = [b for b in shapes.buckets[PROMPT] if b.query < 512]
    first = shapes.prompt(1, 600, 0)
    assert first.wanted == Bucket(1, 600, 0)
    assert first.bucket.query >= 600
    again = shapes.prompt(1, 600, 0)
    assert again.wanted is None
    assert again.bucket == first.bucket


def test_more_blocks_than_any_bucket_holds_are_capped() -> None:
    shapes = _shapes()
    assert shapes.decode(8, 100_000).bucket == Bucket(8, 1, 64)


def test_a_bucket_beyond_the_longest_request_warms_a_shorter_shape() -> None:
    shapes = _shapes()
    assert shapes.warm_shape(PROMPT, Bucket(1, 1024, 7)) == Bucket(1, 1024, 0)
    assert shapes.warm_shape(PROMPT, Bucket(1, 128, 7)) == Bucket(1, 128, 7)
    assert shapes.warm_shape(DECODE, Bucket(8, 1, 64)) == Bucket(8, 1, 64)


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
