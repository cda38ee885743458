"""Continuous batching: blocks are conserved, budgets are kept, everybody finishes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpuwatch.sim.serve.blocks import BlockPool, LowestFree
from hpuwatch.sim.serve.defragment import Defragmenter
from hpuwatch.sim.serve.schedule import Limits, Request, Scheduler
from hpuwatch.sim.serve.schedule_v0 import OlderScheduler

pytestmark = pytest.mark.unit

_REQUESTS = st.lists(
    st.tuples(st.integers(1, 60), st.integers(1, 40)), min_size=1, max_size=25
)
_KINDS: dict[str, Callable[[Limits, BlockPool], Scheduler]] = {
    "V1": Scheduler,
    "V0": OlderScheduler,
    "V0 that swaps": lambda limits, pool: OlderScheduler(limits, pool, swap_blocks=60),
}


def _scheduler(
    seqs: int = 4, budget: int = 64, blocks: int = 100, *, caches: bool = False
) -> Scheduler:
    return Scheduler(Limits(seqs, budget), BlockPool(blocks, 4, caches=caches))


def _held(scheduler: Scheduler) -> Counter[int]:
    requests = [*scheduler.running, *scheduler.waiting]
    return Counter(block for request in requests for block in request.blocks)


def _run(scheduler: Scheduler, most_steps: int = 1) -> dict[Request, int]:
    """Run to the end, and check at every step that blocks and limits are kept."""
    made: dict[Request, int] = {}
    for _ in range(20_000):
        if not scheduler.has_work:
            return made
        plan = scheduler.plan(most_steps)
        held = _held(scheduler)
        assert scheduler.pool.used == len(held) <= scheduler.pool.count
        assert scheduler.pool.caches or set(held.values()) <= {1}
        assert len(scheduler.running) <= scheduler.limits.max_num_seqs
        new = sum(tokens for _, tokens in plan.prefills) + len(plan.decodes)
        assert 0 < new <= scheduler.limits.max_num_batched_tokens
        for request, tokens in scheduler.apply(plan):
            made[request] = made.get(request, 0) + tokens
    raise AssertionError("the scheduler makes no progress")


def _chunks(scheduler: Scheduler) -> list[int]:
    chunks = []
    while scheduler.has_work:
        plan = scheduler.plan()
        chunks += [tokens for _, tokens in plan.prefills]
        scheduler.apply(plan)
    return chunks


@pytest.mark.parametrize("kind", _KINDS)
@settings(max_examples=25, deadline=None)
@given(_REQUESTS, st.integers(1, 6), st.integers(100, 164), st.integers(1, 20))
def test_every_request_gets_its_tokens_whatever_the_pressure(
    kind: str, sizes: list[tuple[int, int]], seqs: int, budget: int, spare: int
) -> None:
    # 100 tokens at most need 25 blocks of 4: any single request fits.
    limits, pool = Limits(seqs, budget), BlockPool(25 + spare, 4, first=1)
    scheduler = _KINDS[kind](limits, pool)
    requests = [Request(prompt, end, siblings=2) for prompt, end in sizes]
    for request in requests:
        scheduler.add(request)
    made = _run(scheduler, most_steps=50)
    assert made == {request: request.end_tokens for request in requests}
    assert scheduler.pool.used == 0


@settings(max_examples=25, deadline=None)
@given(
    st.lists(
        st.tuples(st.text("ab", min_size=1, max_size=40), st.integers(1, 20)),
        min_size=1,
        max_size=20,
    ),
    st.integers(0, 20),
)
def test_a_prefix_cache_changes_nothing_but_the_work(
    asked: list[tuple[str, int]], spare: int
) -> None:
    scheduler = Scheduler(Limits(4, 32), BlockPool(15 + spare, 4, caches=True))
    requests = [Request(len(text), end, content=text) for text, end in asked]
    for request in requests:
        scheduler.add(request)
    made = _run(scheduler, most_steps=50)
    assert made == {request: request.end_tokens for request in requests}
    assert scheduler.pool.used == 0
    for text, request in zip((text for text, _ in asked), requests, strict=True):
        cached = request.cached or 0
        assert cached % 4 == 0
        assert cached < len(text)
        shared = [other for other, _ in asked if other.startswith(text[:cached])]
        assert cached == 0 or len(shared) > 1 or "one" in text


@settings(max_examples=25, deadline=None)
@given(_REQUESTS, st.integers(2, 6))
def test_many_steps_at_once_change_nothing_but_their_number(
    sizes: list[tuple[int, int]], seqs: int
) -> None:
    preemptions = []
    for most_steps in (1, 50):
        scheduler = _scheduler(seqs, 64, 40)
        for prompt, end in sizes:
            scheduler.add(Request(prompt, end))
        _run(scheduler, most_steps)
        preemptions.append(scheduler.preemptions)
    assert preemptions[0] == preemptions[1]


def test_a_long_prompt_is_computed_in_chunks() -> None:
    scheduler = _scheduler()
    scheduler.add(Request(150, 1))
    assert _chunks(scheduler) == [64, 64, 22]


def test_long_prompts_may_be_held_back() -> None:
    limits = Limits(4, 64, long_prefill_tokens=40)
    scheduler = Scheduler(limits, BlockPool(100, 4))
    scheduler.add(Request(90, 1))
    scheduler.add(Request(20, 1))
    assert _chunks(scheduler) == [40, 20, 40, 10]


def test_without_chunks_a_prompt_waits_for_a_step_of_its_own() -> None:
    limits = Limits(4, 64, chunked_prefill=False)
    scheduler = Scheduler(limits, BlockPool(100, 4))
    for _ in range(2):
        scheduler.add(Request(50, 1))
    assert _chunks(scheduler) == [50, 50]


@pytest.mark.parametrize("whole", [False, True])
def test_newer_releases_admit_a_prompt_only_when_all_of_it_fits(*, whole: bool) -> None:
    limits = Limits(4, 64, whole_prompts=whole)
    scheduler = Scheduler(limits, BlockPool(20, 4))
    for _ in range(2):
        scheduler.add(Request(48, 1))  # 12 blocks, of which 4 would do for 16 tokens
    plan = scheduler.plan()
    assert [tokens for _, tokens in plan.prefills] == ([48] if whole else [48, 16])


def test_the_newest_gives_way_when_blocks_run_out() -> None:
    scheduler = _scheduler(2, 64, 4)
    old, new = Request(7, 6), Request(7, 6)
    scheduler.add(old)
    scheduler.add(new)
    while not scheduler.preemptions:
        scheduler.apply(scheduler.plan())
    assert scheduler.running == [old]
    assert list(scheduler.waiting) == [new]
    assert new.blocks == []
    assert new.generated > 0


def test_dropping_a_request_frees_its_blocks() -> None:
    scheduler = _scheduler(2, 64, 8)
    running, waiting = Request(20, 6), Request(20, 6)
    scheduler.add(running)
    scheduler.add(waiting)
    scheduler.apply(scheduler.plan())
    assert scheduler.pool.used == 5
    scheduler.drop(waiting)
    scheduler.drop(running)
    assert scheduler.pool.used == 0
    assert not scheduler.has_work


def test_a_prompt_that_begins_like_an_earlier_one_is_computed_from_there() -> None:
    scheduler = _scheduler(caches=True)
    earlier = Request(10, 3, content="abcdefghij")
    scheduler.add(earlier)
    _run(scheduler)
    later = Request(12, 3, content="abcdefghXYZZ")
    scheduler.add(later)
    plan = scheduler.plan()
    assert later.cached == 8
    assert plan.prefills == ((later, 4),)
    assert scheduler.prefix.queries == 22
    assert scheduler.prefix.hits == 8
    assert scheduler.prefix.recent_rate == pytest.approx(8 / 22)


def test_at_least_the_last_token_of_a_prompt_is_computed() -> None:
    scheduler = _scheduler(caches=True)
    first, again = (Request(8, 1, content="abcdefgh") for _ in range(2))
    for request in (first, again):
        scheduler.add(request)
        _run(scheduler)
    assert first.cached == 0
    assert again.cached == 4


def test_what_was_generated_is_found_by_the_next_turn() -> None:
    scheduler = _scheduler(caches=True)
    scheduler.add(Request(4, 9, content=["a", "b", "c", "d"]))
    _run(scheduler)
    words = ["one", "two", "three", "four", "five", "six", "seven", "eight"]
    turn = Request(13, 1, content=["a", "b", "c", "d", *words, "next"])
    scheduler.add(turn)
    _run(scheduler)
    assert turn.cached == 12


def test_cached_blocks_are_forgotten_in_the_order_of_their_freeing() -> None:
    scheduler = _scheduler(blocks=6, caches=True)
    for text in ("aaaaaaaaa", "bbbbbbbbb"):  # 3 blocks each, 2 of them full
        scheduler.add(Request(9, 1, content=text))
        _run(scheduler)
    scheduler.add(Request(12, 1, content="cccccccccccc"))
    _run(scheduler)
    old, new = Request(9, 1, content="aaaaaaaaa"), Request(9, 1, content="bbbbbbbbb")
    for request in (new, old):
        scheduler.add(request)
        _run(scheduler)
    assert new.cached == 8
    assert old.cached == 0


def test_v0_never_mixes_prompts_and_decodes() -> None:
    scheduler = OlderScheduler(Limits(8, 64), BlockPool(100, 4))
    for _ in range(6):
        scheduler.add(Request(30, 5))
    kinds = []
    while scheduler.has_work:
        plan = scheduler.plan()
        assert bool(plan.prefills) != bool(plan.decodes)
        assert all(tokens == 30 for _, tokens in plan.prefills)
        kinds.append(len(plan.prefills))
        scheduler.apply(plan)
    assert kinds[:4] == [2, 2, 2, 0]  # prompts go first


def test_v0_packs_no_more_prompts_than_it_is_told() -> None:
    few = Limits(8, 1000, max_num_prefill_seqs=3)
    padded = Limits(8, 90, padding_aware=True)
    for limits, sizes, expected in ((few, (10,) * 5, 3), (padded, (10, 40, 40), 2)):
        scheduler = OlderScheduler(limits, BlockPool(1000, 4))
        for size in sizes:
            scheduler.add(Request(size, 1))
        assert len(scheduler.plan().prefills) == expected


def test_v0_tells_of_every_fiftieth_preemption() -> None:
    scheduler = OlderScheduler(Limits(8, 1000), BlockPool(12, 4))
    for _ in range(60):
        scheduler.add(Request(8, 30, identity="x"))
    _run(scheduler)
    assert scheduler.preemptions > 50
    assert [told.count for told in scheduler.told][:2] == [1, 51]
    assert {told.mode for told in scheduler.told} == {"RECOMPUTE"}


def test_v0_swaps_what_was_asked_for_several_times() -> None:
    limits, pool = Limits(8, 1000), BlockPool(8, 4)
    scheduler = OlderScheduler(limits, pool, swap_blocks=20)
    requests = [Request(9, 12, siblings=2) for _ in range(2)]
    for request in requests:
        scheduler.add(request)
    while not scheduler.swapped:
        scheduler.apply(scheduler.plan())
    assert scheduler.host_usage > 0
    computed = requests[1].computed
    _run(scheduler)
    assert computed > 0
    assert scheduler.told[0].mode == "SWAP"
    assert not scheduler.swapped


def test_v0_refuses_what_could_never_run() -> None:
    scheduler = OlderScheduler(Limits(8, 1000), BlockPool(8, 4))
    scheduler.add(Request(100, 1))
    assert scheduler.plan().is_empty
    assert len(scheduler.refused) == 1
    assert not scheduler.has_work


@given(st.lists(st.integers(0, 30), min_size=1, unique=True), st.data())
def test_the_lowest_block_goes_first(blocks: list[int], data: st.DataObject) -> None:
    free = LowestFree(blocks)
    taken = [free.pop() for _ in range(data.draw(st.integers(0, len(blocks))))]
    assert taken == sorted(blocks)[: len(taken)]
    for block in taken:
        free.push(block)
    assert len(free) == len(blocks)
    assert free.pop() == min(blocks)


@given(st.sets(st.integers(1, 400), min_size=1, max_size=60), st.integers(0, 40))
def test_a_tidied_cache_lies_below_the_threshold(
    used: set[int], threshold: int
) -> None:
    moved = Defragmenter(1, threshold)
    blocks = sorted(used)
    before = moved.highest(blocks)
    moved.compact(blocks)
    after = moved.highest(blocks)
    assert len({moved.highest([block]) for block in blocks}) == len(blocks)
    if before - threshold > len(blocks):
        assert after == len(blocks)
    else:
        assert after == before
