"""How long a warm-up takes: what starts teach, and what the recipe cache saves."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpuwatch.gaudi.estimate import Estimate, exactly
from hpuwatch.gaudi.model import DECODE, PROMPT, Bucket, BucketSettings
from hpuwatch.gaudi.warmuptime import (
    DECODE_PER_PROMPT,
    PUBLIC,
    RECIPES,
    Rates,
    Recipes,
    TimedStart,
    downtime,
    learn,
    recipe_folder,
    skips_warmup,
    total,
)

pytestmark = pytest.mark.unit

PROMPTS = tuple(Bucket(1, 128 * n, 0) for n in range(1, 41))
DEEP = tuple(Bucket(1, 128 * n, 4) for n in range(1, 11))
DECODES = tuple(Bucket(n, 1, 128) for n in range(1, 81))
LISTS = {PROMPT: PROMPTS, DECODE: DECODES}
COUNTS = {PROMPT: 40, DECODE: 80}


def timed(**phase_seconds: float) -> TimedStart:
    return TimedStart(
        COUNTS,
        total_seconds=sum(phase_seconds.values()) + 20,
        buckets=LISTS,
        phase_seconds=phase_seconds,
        fixed_seconds=20,
    )


SPLIT = timed(prompt=120, decode=160)
TOTAL = TimedStart(COUNTS, 300, LISTS, fixed_seconds=20)


def test_each_phase_teaches_its_own_seconds() -> None:
    law = learn([SPLIT])
    assert law.likely == Rates(3.0, 2.0)
    assert law.origin == "learned"
    fewer = {PROMPT: PROMPTS[:10], DECODE: DECODES[:40]}
    assert law.seconds(fewer).value == 20 + 10 * 3 + 40 * 2


def test_the_thirds_of_a_bar_are_its_bounds() -> None:
    start = TimedStart(
        COUNTS, 300, LISTS, SPLIT.phase_seconds, {PROMPT: (2.5, 4.0)}, fixed_seconds=20
    )
    low, high = learn([start]).bounds
    assert (low.prompt, high.prompt) == (2.5, 4.0)
    assert low.decode == pytest.approx(2 * 0.59)
    assert high.decode == pytest.approx(2 * 1.44)


def test_equal_buckets_take_what_they_took_and_a_tenth() -> None:
    for start in (SPLIT, TOTAL):
        found = learn([start]).seconds(LISTS)
        assert found.value == pytest.approx(300)
        assert (found.low, found.high) == pytest.approx((272, 328))


def test_buckets_that_come_and_go_make_the_interval() -> None:
    law = learn([SPLIT])
    more = {PROMPT: (*PROMPTS, Bucket(1, 9999, 0)), DECODE: DECODES}
    found = law.seconds(more)
    assert found.value == pytest.approx(303)
    assert found.low == pytest.approx(272 + 3 * 0.59)
    assert found.high == pytest.approx(328 + 3 * 1.44)


def test_a_total_alone_leaves_the_share_of_decode_open() -> None:
    law = learn([TOTAL])
    assert law.origin == "predicted"
    assert law.of_counts(COUNTS).value == pytest.approx(280)
    ratios = {round(each.decode / each.prompt, 6) for each in law.bounds}
    assert ratios == set(DECODE_PER_PROMPT)


def test_a_phase_without_buckets_is_priced_by_the_other() -> None:
    law = learn([TimedStart({PROMPT: 10}, 30, phase_seconds={PROMPT: 30.0})])
    assert law.likely.prompt == 3.0
    assert law.likely.decode == pytest.approx(3.0 * DECODE_PER_PROMPT[1])


def test_before_any_log_public_figures_stand_in() -> None:
    law = learn([])
    found = law.of_counts({PROMPT: 10, DECODE: 10})
    assert found.origin == "prior"
    low, likely, high = (10 * each.prompt + 10 * each.decode for each in PUBLIC)
    assert (found.low, found.value, found.high) == (low, likely, high)


def test_the_newest_start_is_the_guess_and_all_are_the_bounds() -> None:
    law = learn([timed(prompt=400, decode=160), SPLIT])
    assert law.likely == Rates(3.0, 2.0)
    assert max(each.prompt for each in law.bounds) == pytest.approx(10 * 1.44)


def test_published_warm_ups_with_a_recipe_cache_lie_in_the_interval() -> None:
    """504 s and 66 s without one, 34 s and 23 s with all graphs in it."""
    for cold_seconds, warm_seconds in ((504, 34), (66, 23)):
        law = learn([TimedStart(COUNTS, cold_seconds, LISTS)])
        held = {phase: frozenset(each) for phase, each in LISTS.items()}
        found = law.seconds(LISTS, held)
        assert found.value < cold_seconds / 4
        assert found.low <= warm_seconds <= found.high


def test_another_number_of_blocks_makes_decodes_and_contexts_new() -> None:
    env = {RECIPES: "/cache,false,1024"}
    recipes = Recipes("/cache", {PROMPT: PROMPTS + DEEP, DECODE: DECODES}, 1000)
    same = recipes.usable(env, 1000)
    assert same == {PROMPT: frozenset(PROMPTS + DEEP), DECODE: frozenset(DECODES)}
    assert recipes.usable(env, 999) == {PROMPT: frozenset(PROMPTS)}
    assert recipes.usable({RECIPES: "/other,false,1024"}, 1000) == {}
    assert recipes.usable({}, 1000) == {}


@pytest.mark.parametrize(
    ("value", "folder"),
    [
        ("/cache,false,1024", "/cache"),
        ("/cache", "/cache"),
        ("/cache,True,1024", None),
        ("", None),
        (",false,1", None),
    ],
)
def test_the_folder_of_the_recipe_cache(value: str, folder: str | None) -> None:
    assert recipe_folder({RECIPES: value}) == folder


def test_times_with_a_recipe_cache_may_be_of_loading_only() -> None:
    start = TimedStart(COUNTS, 30, LISTS, had_recipes=True)
    found = learn([start]).of_counts(COUNTS)
    assert found.value == pytest.approx(30)
    assert found.high > 30 * 10


counts = st.fixed_dictionaries({PROMPT: st.integers(1, 40), DECODE: st.integers(1, 80)})


@given(counts, st.sampled_from([SPLIT, TOTAL, None]))
def test_a_value_lies_in_its_interval_and_cached_graphs_never_cost_more(
    sizes: Mapping[str, int], start: TimedStart | None
) -> None:
    law = learn([start] if start else [])
    lists = {phase: LISTS[phase][:size] for phase, size in sizes.items()}
    found = law.seconds(lists)
    assert 0 <= found.low <= found.value <= found.high
    cached = law.seconds(lists, {PROMPT: frozenset(PROMPTS)})
    assert cached.low <= cached.value <= cached.high
    assert cached.low <= found.low + 1e-9


def test_downtime_says_what_is_not_known() -> None:
    warmup = Estimate(300, 270, 330, "learned")
    parts = downtime((40.0, 60.0), warmup)
    assert [part.name for part in parts] == [
        "drain",
        "stop",
        "load",
        "warm-up",
        "settle",
    ]
    known = {part.name: part.seconds for part in parts if part.seconds}
    assert known == {"load": Estimate(50, 20, 120, "predicted"), "warm-up": warmup}
    assert total(parts) == Estimate(350, 290, 450, "predicted")
    assert all(part.why for part in parts)
    assert total(downtime((), None)) == exactly(0.0)


@pytest.mark.parametrize(
    ("dialect", "value", "skips"),
    [
        ("gaudi-plugin-0.26", "1", True),
        ("gaudi-plugin-0.26", "ture", False),
        ("fork-1.20", "1", False),
        ("fork-1.20", "True", True),
    ],
)
def test_which_spelling_skips_the_warm_up(
    dialect: str, value: str, *, skips: bool
) -> None:
    settings = BucketSettings(
        1, 1, 1, 1, dialect=dialect, env={"VLLM_SKIP_WARMUP": value}
    )
    assert skips_warmup(settings) is skips
