"""Graph memory follows a straight law, and the interval says how well it is known."""

from __future__ import annotations

import random
from collections.abc import Sequence
from math import sqrt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpuwatch.gaudi.estimate import Estimate, Origin, exactly, weakest
from hpuwatch.gaudi.graphlaw import (
    Cost,
    GraphLaw,
    feasible,
    fit,
    prior,
    warmup_use,
)
from hpuwatch.gaudi.graphseen import (
    EVERY,
    Observation,
    observe,
    steps,
    tokens_of,
)
from hpuwatch.gaudi.model import DECODE, PROMPT, Bucket
from hpuwatch.units import GIB, KIB, MIB, parse_amount

pytestmark = pytest.mark.unit

# The 24 prompt buckets of a public log (batches 1, 2, 4; lengths 128 to 1024 by 128).
TINY = [Bucket(batch, 128 * n, 0) for batch in (1, 2, 4) for n in range(1, 9)]
# As that release captures them while its budget lasts: the fewest tokens first.
SMALLEST = sorted(TINY, key=lambda each: each.batch * each.query)

_queries = st.integers(1, 64).map(lambda n: n * 128)
_bucket = st.builds(Bucket, st.integers(1, 16), _queries, st.integers(0, 32))
_buckets = st.lists(_bucket, min_size=1, max_size=24)


def total(law: Cost, buckets: Sequence[Bucket], phase: str = PROMPT) -> Observation:
    used = round(law.of(len(buckets), tokens_of(buckets)))
    return Observation(phase, tuple(buckets), used)


def predicted(law: GraphLaw, buckets: Sequence[Bucket]) -> Estimate:
    return law.bytes_of({PROMPT: buckets})


def test_a_public_log_that_captured_15_of_24() -> None:
    """14.03 GiB for 9,984 tokens: all 24 graphs would take 45.3 GiB."""
    captured = SMALLEST[:15]
    assert tokens_of(captured) == 9984
    law = fit([observe(PROMPT, captured, parse_amount("14.03 GiB"))])
    assert law.phases[PROMPT].cost.token_bytes / MIB == pytest.approx(1.439, abs=5e-4)
    every = predicted(law, TINY)
    assert every.value / GIB == pytest.approx(45.33, abs=0.005)
    # Were it all per graph, 24 graphs would take 24 / 15 of it.
    assert every.low / GIB == pytest.approx(14.03 * 24 / 15, abs=0.01)
    assert every.origin == "predicted"


def test_its_first_ten_graphs_foretell_the_other_five() -> None:
    """The log's free memory had fallen from 55.43 to 48.77 GiB before the 11th graph."""
    ten = SMALLEST[:10]
    law = fit([observe(PROMPT, ten, parse_amount("6.66 GiB"))])
    fifteen = predicted(law, SMALLEST[:15])
    assert fifteen.value / GIB == pytest.approx(14.03, rel=0.002)
    assert fifteen.low < 14.03 * GIB < fifteen.high


def test_what_was_printed_is_measured() -> None:
    law = fit([observe(PROMPT, TINY, parse_amount("67.72 MiB"))])
    again = predicted(law, list(reversed(TINY)))
    assert again.origin == "measured"
    assert again.value == pytest.approx(67.72 * MIB, abs=1)
    assert law.phases[PROMPT].cost.token_bytes / KIB == pytest.approx(2.15, abs=5e-3)
    assert again.high - again.low == pytest.approx(0.01 * MIB, abs=2)


def test_several_starts_with_one_list_span_what_they_printed() -> None:
    law = fit(
        Observation(PROMPT, tuple(TINY), used) for used in (GIB, 2 * GIB, 3 * GIB)
    )
    assert predicted(law, TINY) == Estimate(2 * GIB, GIB, 3 * GIB, "measured")


@given(st.floats(0, 1e8), st.floats(0, 1e6), _buckets, _buckets)
def test_one_total_bounds_every_other_list(
    fixed: float, token: float, seen: list[Bucket], wanted: list[Bucket]
) -> None:
    truth = Cost(fixed, token)
    found = predicted(fit([total(truth, seen)]), wanted)
    real = truth.of(len(wanted), tokens_of(wanted))
    off = 1 + 1e-6 * real + len(wanted) + tokens_of(wanted) / tokens_of(seen)
    assert found.low - off <= real <= found.high + off
    assert found.low <= found.value <= found.high


@given(st.floats(1, 1e8), st.floats(1, 1e6), _buckets)
def test_three_totals_without_noise_give_the_law_itself(
    fixed: float, token: float, wanted: list[Bucket]
) -> None:
    truth = Cost(fixed, token)
    lists = [TINY, TINY[:8], [Bucket(4, 8192, 0)] * 3]
    found = predicted(fit(total(truth, each) for each in lists), wanted)
    real = truth.of(len(wanted), tokens_of(wanted))
    assert found.value == pytest.approx(real, rel=1e-3, abs=1e3)
    assert found.origin in {"learned", "measured"}


@given(st.lists(st.tuples(_buckets, st.integers(-GIB, 50 * GIB)), max_size=6), _buckets)
def test_an_estimate_lies_in_its_interval_whatever_was_seen(
    seen: list[tuple[list[Bucket], int]], wanted: list[Bucket]
) -> None:
    observed = [Observation(PROMPT, tuple(each), used) for each, used in seen]
    found = fit(observed).bytes_of({PROMPT: wanted, DECODE: wanted})
    assert 0 <= found.low <= found.value <= found.high


@given(st.lists(st.integers(0, GIB), min_size=1, max_size=5), _buckets, _bucket)
def test_a_bucket_more_never_takes_less(
    seen: list[int], wanted: list[Bucket], more: Bucket
) -> None:
    lists = [TINY[: 3 + n] for n in range(len(seen))]
    law = fit(
        Observation(PROMPT, tuple(each), used)
        for each, used in zip(lists, seen, strict=True)
    )
    for phase_law in law.phases.values():
        cost = phase_law.cost
        assert cost.fixed_bytes >= 0
        assert cost.token_bytes >= 0
        few = cost.of(len(wanted), tokens_of(wanted))
        assert cost.of(len(wanted) + 1, tokens_of([*wanted, more])) >= few


def test_the_interval_of_a_fit_holds_as_often_as_it_says() -> None:
    """95 % of the time where graphs scatter around a straight law; at least 90 counts."""
    dice = random.Random(7)  # noqa: S311  repeatable, no secret
    lists = [[bucket] for bucket in TINY]
    wanted = [Bucket(2, 128 * n, 0) for n in range(1, 20)]
    truth = Cost(3 * MIB, 20_000)
    held, tries = 0, 400
    for _ in range(tries):
        seen = [
            Observation(
                PROMPT,
                tuple(each),
                round(truth.of(1, tokens_of(each)) + dice.gauss(0, 2 * MIB)),
            )
            for each in lists
        ]
        noise = dice.gauss(0, 2 * MIB * sqrt(len(wanted)))
        real = truth.of(len(wanted), tokens_of(wanted)) + noise
        found = predicted(fit(seen), wanted)
        held += found.low <= real <= found.high
    assert 0.9 <= held / tries <= 0.99


def test_graphs_that_grow_faster_than_their_tokens_have_no_negative_part() -> None:
    used = {128: MIB, 512: 8 * MIB, 1024: 32 * MIB}
    law = fit(Observation(PROMPT, (Bucket(1, n, 0),), took) for n, took in used.items())
    cost = law.phases[PROMPT].cost
    assert cost.fixed_bytes == 0
    weighed = sum(n * took for n, took in used.items()) / sum(n * n for n in used)
    assert cost.token_bytes == pytest.approx(weighed)


def test_graphs_that_shrink_with_their_tokens_count_per_graph() -> None:
    used = {128: 3 * MIB, 512: 2 * MIB, 1024: MIB}
    law = fit(Observation(PROMPT, (Bucket(1, n, 0),), took) for n, took in used.items())
    assert law.phases[PROMPT].cost == Cost(2 * MIB, 0.0)


def test_without_a_log_public_figures_stand_in_with_all_their_spread() -> None:
    found = prior(hidden_size=4096).bytes_of({PROMPT: TINY, DECODE: [Bucket(4, 1, 8)]})
    assert found.origin == "prior"
    assert found.high / found.low > 500
    # Both public logs with just these buckets lie within.
    assert found.low < 68 * MIB
    assert found.high > 45 * GIB


def test_a_wider_model_is_expected_to_take_more() -> None:
    small, large = (prior(size).bytes_of({PROMPT: TINY}) for size in (4096, 8192))
    assert large.value == 2 * small.value


def test_a_phase_that_nobody_saw_is_a_guess_and_so_is_the_sum() -> None:
    law = fit([observe(PROMPT, TINY, parse_amount("1 GiB"))])
    assert law.bytes_of({PROMPT: TINY, DECODE: []}).origin == "measured"
    found = law.bytes_of({PROMPT: TINY, DECODE: [Bucket(4, 1, 8)]})
    assert found.origin == "prior"
    assert found.low == pytest.approx(GIB, rel=0.001)


def test_only_a_total_of_all_phases_is_known() -> None:
    decodes = [Bucket(n, 1, 128) for n in range(1, 9)]
    law = fit([observe(EVERY, [*TINY, *decodes], parse_amount("1.429 GiB"))])
    both = law.bytes_of({PROMPT: TINY, DECODE: decodes})
    assert both.origin == "measured"
    assert both.value / GIB == pytest.approx(1.429, abs=1e-6)
    more = law.bytes_of({PROMPT: TINY, DECODE: decodes * 2})
    assert more.origin == "predicted"
    assert more.low <= 1.429 * GIB * (1 + 1e-3) < more.high


def test_free_memory_is_printed_before_each_graph() -> None:
    frees = [parse_amount(text) for text in ("10 GiB", "9.75 GiB", "9.25 GiB")]
    printed = list(zip(TINY[:3], frees, strict=True))
    first, second = steps(PROMPT, printed)
    assert (first.buckets, first.used_bytes) == ((TINY[0],), GIB // 4)
    assert (second.buckets, second.used_bytes) == ((TINY[1],), GIB // 2)
    *_, last, whole = steps(PROMPT, printed, parse_amount("1.5 GiB"))
    assert (last.buckets, last.used_bytes) == ((TINY[2],), 3 * GIB // 4)
    assert (whole.used_bytes, whole.repeats) == (3 * GIB // 2, True)


def test_a_total_that_repeats_its_steps_answers_for_itself_only() -> None:
    used = [round(Cost(MIB, 9000).of(1, tokens_of([each]))) for each in TINY]
    single = [
        Observation(PROMPT, (each,), n) for each, n in zip(TINY, used, strict=True)
    ]
    whole = Observation(PROMPT, tuple(TINY), 77 * GIB, repeats=True)
    law = fit([*single, whole])
    assert predicted(law, TINY).value == 77 * GIB
    assert law.phases[PROMPT].cost.fixed_bytes == pytest.approx(MIB, rel=1e-3)


def test_no_steps_without_lines() -> None:
    assert steps(PROMPT, []) == ()
    assert steps(PROMPT, [], parse_amount("1 GiB")) == ()
    assert fit([Observation(PROMPT, (), GIB)]) == prior()


def test_peak_and_steady_use_are_two_numbers() -> None:
    use = warmup_use(50 * GIB, [48 * GIB, 30 * GIB, 45 * GIB])
    assert (use.peak_bytes, use.steady_bytes) == (20 * GIB, 5 * GIB)
    assert warmup_use(50 * GIB, []).peak_bytes == 0


@given(st.integers(0, 100 * GIB), st.lists(st.integers(0, 100 * GIB), max_size=9))
def test_the_peak_is_never_below_the_steady_use(before: int, frees: list[int]) -> None:
    use = warmup_use(before, frees)
    assert use.peak_bytes >= use.steady_bytes >= 0


@pytest.mark.parametrize(
    ("room", "fits", "short", "hopeless"),
    [
        (31, True, False, False),
        (25, False, False, False),
        (15, False, True, False),
        (9, False, True, True),
    ],
)
def test_a_verdict_knows_best_guess_and_ends(
    room: int, fits: bool, short: bool, hopeless: bool
) -> None:
    graphs = Estimate(15 * GIB, 7 * GIB, 22 * GIB, "predicted")
    workspace = Estimate(5 * GIB, 3 * GIB, 8 * GIB, "prior")
    verdict = feasible(graphs, workspace, 8 * GIB, (room - 8) * GIB)
    assert (verdict.fits, verdict.is_short) == (fits, short)
    assert verdict.is_hopeless == hopeless
    assert verdict.need.origin == "prior"


def test_a_sum_is_known_as_well_as_its_worst_part() -> None:
    origins: list[Origin] = ["measured", "predicted", "learned"]
    assert weakest(origins) == "predicted"
    assert weakest([]) == "measured"
    assert exactly(2.0) + Estimate(3, 1, 5, "learned") == Estimate(5, 3, 7, "learned")
