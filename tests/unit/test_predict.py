"""What plans come to, which are refused, and that the nearest plan works."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hpuwatch.errors import ConfigError
from hpuwatch.gaudi.basis import Basis, Device, Printed
from hpuwatch.gaudi.buckets import DECODE, PROMPT, Bucket, generate
from hpuwatch.gaudi.caution import cautions
from hpuwatch.gaudi.estimate import Estimate, exactly
from hpuwatch.gaudi.graphlaw import fit, prior
from hpuwatch.gaudi.graphseen import Observation
from hpuwatch.gaudi.modelshape import read_model
from hpuwatch.gaudi.planning import READY_TIMEOUT, RESERVE, Change, Plan, applied
from hpuwatch.gaudi.predict import Forecast, made_like, predict
from hpuwatch.gaudi.refusal import refusals
from hpuwatch.gaudi.remedies import DECODE_TOP
from hpuwatch.gaudi.repair import Repaired, repair
from hpuwatch.gaudi.resolve import Flags
from hpuwatch.gaudi.search import Search, SearchCutError
from hpuwatch.gaudi.warmuptime import RECIPES, Recipes, TimedStart, learn
from hpuwatch.units import GIB, MIB

pytestmark = pytest.mark.unit

PLAN = Plan(
    "plugin-0.26", Flags(64, 0, 4096, 0), {RESERVE: "0.1"}, utilisation_given=0.9
)
CARD = Device(exactly(80 * GIB), 8 * GIB, block_bytes=16.0 * MIB)
LLAMA = read_model(
    {
        "model_type": "llama",
        "num_hidden_layers": 32,
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "max_position_embeddings": 131072,
        "vocab_size": 128256,
        "torch_dtype": "bfloat16",
    }
)


def running(plan: Plan = PLAN, blocks: int = 4107) -> Basis:
    """Return a server whose log printed everything: 10 KiB and 0.5 s per prompt token."""
    shapes = plan.shapes(blocks)
    lists = {phase: generate(shapes, phase) for phase in (PROMPT, DECODE)}
    tokens = sum(each.batch * each.query for each in lists[PROMPT])
    counts = {phase: len(each) for phase, each in lists.items()}
    return Basis(
        device=CARD,
        printed=Printed(plan, blocks, lists, counts, 250.0),
        graphs=fit(
            [
                Observation(PROMPT, lists[PROMPT], tokens * 10 * 1024),
                Observation(DECODE, lists[DECODE], counts[DECODE] * MIB),
            ]
        ),
        warmup=learn(
            [
                TimedStart(
                    counts,
                    250.0,
                    lists,
                    {PROMPT: 150.0, DECODE: 80.0},
                    fixed_seconds=20,
                )
            ]
        ),
        load_seconds=(60.0,),
    )


def codes(forecast: Forecast, basis: Basis) -> list[str]:
    return [each.code for each in refusals(forecast, basis)]


def mended_of(plan: Plan, basis: Basis) -> Repaired | None:
    return repair(predict(plan, basis), basis)


def refused(plan: Plan, basis: Basis) -> list[str]:
    return codes(predict(plan, basis), basis)


def test_the_running_server_is_what_its_log_printed() -> None:
    basis = running()
    found = predict(PLAN, basis)
    assert basis.printed is not None
    assert found.blocks == exactly(4107)
    assert found.lists == basis.printed.lists
    assert found.lists_origin == "measured"
    assert found.warmup == exactly(250.0)
    assert found.graph_bytes is not None
    assert found.graph_bytes.origin == "measured"
    assert refusals(found, basis) == ()


def test_blocks_are_carried_over_from_the_printed_number() -> None:
    basis = running()
    found = predict(applied(PLAN, [Change(RESERVE, "0.2")]), basis)
    # A tenth of the 72 GiB usable is 460.8 blocks of 16 MiB.
    assert found.blocks == Estimate(3646, 3645, 3647, "predicted")
    assert found.split is not None
    assert found.split.reserve_bytes == int(0.2 * 0.9 * 80 * GIB)


def test_nothing_of_a_proposal_is_called_measured() -> None:
    found = predict(applied(PLAN, [Change("VLLM_SOMETHING", "1")]), running())
    assert found.blocks.origin == "predicted"
    assert found.lists_origin == "predicted"
    assert found.graph_bytes is not None
    assert found.graph_bytes.origin == "predicted"
    assert found.warmup is not None
    assert found.warmup.origin == "learned"


def test_half_the_block_and_half_the_number_make_more_blocks() -> None:
    basis = running()
    small = predict(applied(PLAN, [Change("--block-size", "64")]), basis)
    fp8 = predict(applied(PLAN, [Change("--kv-cache-dtype", "fp8_inc")]), basis)
    assert small.num_blocks == fp8.num_blocks == 2 * 4107


def test_a_log_says_nothing_about_other_cards() -> None:
    with pytest.raises(ConfigError, match="--model and --card"):
        predict(applied(PLAN, [Change("--tensor-parallel-size", "2")]), running())


def test_a_model_and_a_card_give_blocks_with_an_interval() -> None:
    free = Estimate(80 * GIB, 70 * GIB, 80 * GIB, "prior")
    basis = Basis(device=Device(free, model=LLAMA))
    found = predict(PLAN, basis)
    # 128 KiB per token: 2 * 32 layers * 8 heads * 128 * 2 bytes.
    block = 128 * 128 * 1024
    cache = [int(each * GIB * 0.9 * 0.9) - block for each in (80, 70)]
    assert found.blocks == Estimate(
        cache[0] // block, cache[1] // block, cache[0] // block, "prior"
    )


def test_lists_that_the_rules_don_t_make_stay_as_printed() -> None:
    basis = running()
    assert basis.printed is not None
    odd = {**basis.printed.lists, PROMPT: (Bucket(1, 4000, 0),)}
    basis = replace(basis, printed=replace(basis.printed, lists=odd))
    more_reserve = predict(applied(PLAN, [Change(RESERVE, "0.2")]), basis)
    assert more_reserve.lists[PROMPT] == odd[PROMPT]
    assert max(more_reserve.lists[DECODE]).context <= 64 * 32
    other = predict(applied(PLAN, [Change("--max-num-batched-tokens", "512")]), basis)
    assert other.lists[PROMPT] != odd[PROMPT]
    said = [each.code for each in cautions(other, basis)]
    assert "rules-differ" in said
    # No rule makes the prompts depend on the sequences.
    fewer = predict(applied(PLAN, [Change("--max-num-seqs", "32")]), basis)
    assert fewer.lists[PROMPT] == odd[PROMPT]
    assert fewer.lists[DECODE] == generate(fewer.plan.shapes(4107), DECODE)


def test_a_build_that_makes_another_release_s_list_goes_on_with_its_rules() -> None:
    env = {"VLLM_PROMPT_CTX_BUCKET_MAX": "64"}  # which plugin-0.14 ignores
    flags = Flags(64, 0, 16384, 0, strategy="lin")
    plan, older = Plan("plugin-0.15", flags, env, 4096), "gaudi-plugin-0.14"
    basis = running(plan)
    assert basis.printed is not None
    listed = generate(plan.shapes(4107, older), PROMPT)
    lists = {**basis.printed.lists, PROMPT: listed}
    basis = replace(basis, printed=replace(basis.printed, lists=lists))
    assert made_like(basis, PROMPT) == older
    longer = predict(applied(plan, [Change("--max-model-len", "20480")]), basis)
    assert longer.lists[PROMPT] == generate(longer.plan.shapes(4107, older), PROMPT)
    assert longer.lists[PROMPT] != generate(longer.plan.shapes(4107), PROMPT)
    assert longer.lists[DECODE] == generate(longer.plan.shapes(4107), DECODE)
    (said,) = [each for each in cautions(longer, basis) if each.code == "rules-differ"]
    assert older in said.text


def test_a_count_is_printed_more_often_than_its_list() -> None:
    basis = running()
    assert basis.printed is not None
    counted = replace(basis.printed, lists={}, counts={PROMPT: 48, DECODE: 20})
    basis = replace(basis, printed=counted)
    found = predict(PLAN, basis)
    assert found.counts == {PROMPT: 48, DECODE: 20}
    assert found.lists_origin == "measured"
    said = [each for each in cautions(found, basis) if each.code == "rules-differ"]
    assert [each.numbers.get("decode_buckets") for each in said] == [None, 20]


def test_the_recipe_cache_saves_what_it_holds() -> None:
    cached = replace(PLAN, env={**PLAN.env, RECIPES: "/cache,false,1024"})
    basis = running(cached)
    assert basis.printed is not None
    basis = replace(basis, recipes=Recipes("/cache", basis.printed.lists, 4107))
    again = predict(applied(cached, [Change("VLLM_SOMETHING", "1")]), basis)
    fewer_blocks = predict(applied(cached, [Change(RESERVE, "0.2")]), basis)
    without = predict(applied(cached, [Change(RECIPES, None)]), basis)
    assert again.warmup is not None
    assert fewer_blocks.warmup is not None
    assert without.warmup is not None
    assert again.warmup.value < fewer_blocks.warmup.value < without.warmup.value


def test_an_eager_server_has_no_graphs_and_reserves_nothing() -> None:
    found = predict(applied(PLAN, [Change("--enforce-eager", "true")]), running())
    assert found.graph_bytes == exactly(0.0, "predicted")
    assert found.split is not None
    assert found.split.reserve_bytes == 0
    assert found.num_blocks > 4107


def test_the_default_server_that_dies_at_its_first_decode() -> None:
    """A default start of a small model: 81,920 blocks wanted, 7,593 there."""
    plan = Plan("plugin-0.26", Flags(256, 0, 40960, 0))
    basis = Basis(blocks=7593)
    found = predict(plan, basis)
    first = refusals(found, basis)[0]
    assert first.code == "decode-above-cache"
    assert first.numbers == {"largest_bucket_blocks": 81920, "kv_blocks": 7593}
    # Exponential ranges heed no variable, so the flag has to give.
    mended = mended_of(plan, basis)
    assert mended is not None
    assert mended.changes == (Change("--max-num-seqs", "71"),)
    assert mended.forecast.deepest == 71 * 320 <= 3 * 7593


@pytest.mark.parametrize("strategy", ["lin", "pad"])
def test_the_cap_is_named_where_it_acts(strategy: str) -> None:
    plan = Plan("plugin-0.26", Flags(256, 0, 40960, 0, strategy=strategy))
    basis = Basis(blocks=7593)
    assert refused(plan, basis) == ["decode-above-cache"]
    mended = mended_of(plan, basis)
    assert mended is not None
    assert mended.changes == (Change(DECODE_TOP, "7593"),)
    assert mended.forecast.deepest <= 7593


def test_slices_that_exceed_their_threshold_are_unset() -> None:
    size = "VLLM_HPU_FSDPA_SLICE_CHUNK_SIZE"
    plan = Plan("plugin-0.26", Flags(8, 0, 4096, 0, strategy="pad"), {size: "2049"})
    basis = Basis(blocks=7593)
    assert refused(plan, basis) == ["bad-value"]
    mended = mended_of(plan, basis)
    assert mended is not None
    assert mended.changes == (Change(size, None),)
    # Exp doesn't slice.
    assert refused(replace(plan, flags=Flags(8, 0, 4096, 0)), basis) == []


def test_what_a_warm_up_came_through_is_no_reason_to_refuse() -> None:
    plan = Plan("plugin-0.26", Flags(256, 0, 40960, 0))
    printed = Printed(plan, 7593, captured_blocks=81920)
    assert refused(plan, Basis(blocks=7593)) == ["decode-above-cache"]
    assert refused(plan, Basis(printed=printed)) == []


_CASES: list[tuple[list[Change], str, list[Change]]] = [
    ([Change(RESERVE, "1.2")], "bad-value", [Change(RESERVE, None)]),
    (
        [Change("VLLM_PROMPT_BS_BUCKET_MAX", "x")],
        "bad-value",
        [Change("VLLM_PROMPT_BS_BUCKET_MAX", None)],
    ),
    (
        [Change("VLLM_BUCKETING_STRATEGY", "linear")],
        "bad-value",
        [Change("VLLM_BUCKETING_STRATEGY", None)],
    ),
    (
        [
            Change("VLLM_BUCKETING_STRATEGY", "lin"),
            Change("VLLM_PROMPT_QUERY_BUCKET_MIN", "8192"),
        ],
        "no-buckets",
        [Change("VLLM_PROMPT_QUERY_BUCKET_MIN", None)],
    ),
    (
        [Change("--max-num-batched-tokens", "32")],
        "tokens-below-seqs",
        [Change("--max-num-batched-tokens", "128")],
    ),
    (
        [Change("--max-model-len", "600000")],
        "kv-short",
        [Change("--max-model-len", "525696"), Change("--max-num-seqs", "3")],
    ),
    ([Change(RESERVE, "0.9999")], "kv-none", [Change(RESERVE, "0.1")]),
    (
        [Change("--max-model-len", "128"), Change("--max-num-seqs", "5000")],
        "tokens-below-seqs",
        [Change("--max-num-seqs", "2048")],
    ),
]


@pytest.mark.parametrize(
    ("changes", "code", "cure"), _CASES, ids=[f"{c}-{p[0]}" for p, c, _ in _CASES]
)
def test_a_plan_that_can_t_work_and_the_nearest_that_can(
    changes: Sequence[Change], code: str, cure: Sequence[Change]
) -> None:
    basis = replace(running(), warmup=learn(()))
    plan = applied(PLAN, changes)
    assert refused(plan, basis)[0] == code
    mended = mended_of(plan, basis)
    assert mended is not None
    assert list(mended.changes) == cure


def test_a_reserve_too_small_for_the_graphs_is_raised_to_hold_them() -> None:
    basis = running()
    margin = 8 * GIB
    law = fit(
        [
            Observation(PROMPT, (Bucket(1, 2048, 0),), 2 * GIB),
            Observation(DECODE, (Bucket(1, 1, 1),), MIB),
        ]
    )
    basis = replace(basis, graphs=law)
    found = predict(applied(PLAN, [Change(RESERVE, "0.01")]), basis)
    assert codes(found, basis) == ["graphs-above-reserve"]
    mended = repair(found, basis)
    assert mended is not None
    assert mended.forecast.graph_bytes is not None
    assert mended.forecast.split is not None
    (change,) = mended.changes
    assert change.name == RESERVE
    need = mended.forecast.graph_bytes.value - margin
    reserve = mended.forecast.split.reserve_bytes
    assert need <= reserve <= 1.05 * need


def test_public_figures_alone_refuse_nothing_that_may_fit() -> None:
    basis = Basis(device=CARD, graphs=prior(), blocks=4107)
    found = predict(PLAN, basis)
    assert found.graph_bytes is not None
    assert found.room is not None
    assert found.graph_bytes.high > found.room.room_bytes
    assert codes(found, basis) == []
    assert "graphs-uncertain" in [each.code for each in cautions(found, basis)]


def test_a_warm_up_that_outlasts_the_front_end_is_told_of_and_not_refused() -> None:
    slow = learn([TimedStart({PROMPT: 10, DECODE: 10}, 400.0)])
    basis = replace(running(), warmup=slow)
    plan = applied(PLAN, [Change("--max-num-batched-tokens", "4096")])
    assert refused(plan, basis) == []
    (told,) = (
        each
        for each in cautions(predict(plan, basis), basis)
        if each.code == "timeout-uncertain"
    )
    assert told.severity == "warning"
    assert "issue 48031" in told.text
    patient = applied(plan, [Change(READY_TIMEOUT, "99999")])
    assert "timeout-uncertain" not in [
        each.code for each in cautions(predict(patient, basis), basis)
    ]


def test_a_length_beyond_the_model_s_own() -> None:
    basis = Basis(device=Device(exactly(80 * GIB), model=LLAMA))
    plan = applied(
        PLAN, [Change("--max-model-len", "200000"), Change("--max-num-seqs", "2")]
    )
    assert refused(plan, basis) == ["beyond-model"]
    allowed = applied(plan, [Change("VLLM_ALLOW_LONG_MAX_MODEL_LEN", "1")])
    assert refused(allowed, basis) == []


def test_weights_that_leave_nothing_can_t_be_repaired() -> None:
    basis = Basis(device=Device(exactly(-GIB), block_bytes=16.0 * MIB))
    assert refused(PLAN, basis) == ["weights-too-large"]
    assert mended_of(PLAN, basis) is None


def test_nothing_is_free_and_nothing_is_asked_for_are_two_things() -> None:
    basis = Basis(device=CARD)
    plan = applied(PLAN, [Change("--gpu-memory-utilization", "0")])
    assert "weights-too-large" not in refused(plan, basis)
    mended = mended_of(plan, basis)
    assert mended is not None
    assert mended.changes == (Change("--gpu-memory-utilization", None),)


def test_a_warm_up_that_is_skipped_can_t_run_out_of_memory() -> None:
    plan = Plan("plugin-0.26", Flags(256, 0, 40960, 0))
    basis = Basis(blocks=7593)
    skipping = applied(plan, [Change("VLLM_SKIP_WARMUP", "true")])
    assert refused(plan, basis) == ["decode-above-cache"]
    assert refused(skipping, basis) == []
    found = predict(skipping, basis)
    assert found.warmup == exactly(0.0, "predicted")
    assert "warmup-skipped" in [each.code for each in cautions(found, basis)]


def test_the_v0_engine_takes_a_prompt_in_one_piece() -> None:
    plan = Plan("fork-1.21", Flags(64, 0, 4096, 0), token_budget=2048)
    basis = Basis(device=CARD)
    assert refused(plan, basis) == ["tokens-below-length"]
    assert refused(replace(plan, env={"VLLM_USE_V1": "1"}), basis) == []


_OTHER_LISTS: list[tuple[Plan, int, str, list[Change]]] = [
    (
        Plan("fork-1.21", Flags(32, 0, 4096, 0), token_budget=4096),
        127,
        "no-buckets",
        [Change("VLLM_CONTIGUOUS_PA", "false")],
    ),
    (
        Plan("plugin-0.26", Flags(256, 0, 129, 0, block_size=1024), token_budget=64),
        1189,
        "tokens-below-seqs",
        [Change("--max-num-seqs", "64")],
    ),
    (
        Plan("plugin-head", Flags(1, 0, 100, 0)),
        100,
        "no-buckets",
        [Change("--block-size", "64")],
    ),
    (
        Plan("plugin-head", Flags(1, 0, 1, 0)),
        100,
        "no-buckets",
        [Change("VLLM_PROMPT_QUERY_BUCKET_MIN", "1")],
    ),
    (
        Plan("fork-1.18", Flags(1, 0, 128, 0)),
        1,
        "decode-above-cache",
        [Change(DECODE_TOP, "1"), Change("VLLM_DECODE_BLOCK_BUCKET_MIN", "1")],
    ),
]


@pytest.mark.parametrize(("plan", "blocks", "code", "cure"), _OTHER_LISTS)
def test_a_pool_or_a_length_below_the_usual_steps_gets_other_lists(
    plan: Plan, blocks: int, code: str, cure: Sequence[Change]
) -> None:
    basis = Basis(blocks=blocks)
    assert refused(plan, basis) == [code]
    mended = mended_of(plan, basis)
    assert mended is not None
    assert list(mended.changes) == cure
    assert all(mended.forecast.lists.values())


def test_what_nobody_can_tell_is_a_caution_and_no_refusal() -> None:
    unified = Plan("plugin-0.17", Flags(64, 0, 8192, 0), {"VLLM_UNIFIED_ATTN": "1"})
    odd_file = "(1, [128] * 2, 0)\n(1, 1, 64)"
    file = Plan("plugin-0.16", Flags(64, 0, 8192, 0, bucket_file=odd_file))
    basis = Basis(blocks=4107)
    for plan in (unified, file):
        found = predict(plan, basis)
        assert refusals(found, basis) == ()
        assert "unpredicted" in [each.code for each in cautions(found, basis)]
        assert (found.lists, found.graph_bytes, found.warmup) == ({}, None, None)


def test_a_list_too_long_for_us_is_refused_as_long_as_it_is_warmed() -> None:
    plan = Plan("plugin-0.26", Flags(64, 0, 131072, 0, strategy="lin"), {}, 131072)
    basis = Basis(blocks=4107)
    (said,) = refusals(predict(plan, basis), basis)
    assert said.code == "no-buckets"
    assert "more than 1,000,000 candidates" in said.text
    skipping = predict(applied(plan, [Change("VLLM_SKIP_WARMUP", "true")]), basis)
    assert refusals(skipping, basis) == ()
    assert "unpredicted" in [each.code for each in cautions(skipping, basis)]


def test_a_reserve_below_public_figures_is_raised_to_what_the_refusal_names() -> None:
    basis = Basis(
        device=Device(Estimate(80 * GIB, 75 * GIB, 80 * GIB, "prior"), model=LLAMA),
        graphs=prior(LLAMA.hidden_size),
    )
    plan = Plan(
        "plugin-head",
        Flags(256, 0, 4096, 0),
        {RESERVE: "0.001"},
        utilisation_given=1.0,
    )
    (said,) = refusals(predict(plan, basis), basis)
    assert said.code == "graphs-above-reserve"
    mended = mended_of(plan, basis)
    assert mended is not None
    assert [each.name for each in mended.changes] == [RESERVE]
    room = mended.forecast.room
    assert room is not None
    assert room.need.value == said.numbers["graph_bytes"] <= room.room_bytes


def test_heads_that_no_card_gets_a_whole_number_of() -> None:
    basis = Basis(device=Device(exactly(80 * GIB), model=LLAMA))
    assert LLAMA.heads == 32
    cards = applied(PLAN, [Change("--tensor-parallel-size", "128")])
    assert refused(cards, basis) == ["heads-uneven"]
    assert mended_of(cards, basis) is None
    assert (
        refused(applied(cards, [Change("--tensor-parallel-size", "32")]), basis) == []
    )


def test_a_reserve_that_is_no_number_to_count_with() -> None:
    basis = Basis(device=CARD)
    plan = applied(PLAN, [Change(RESERVE, "nan")])
    assert refused(plan, basis) == ["bad-value"]
    mended = mended_of(plan, basis)
    assert mended is not None
    assert mended.changes == (Change(RESERVE, None),)


def test_a_search_ends_when_its_buckets_are_spent() -> None:
    basis, plan = Basis(blocks=4107), Plan("plugin-0.26", Flags(64, 0, 4096, 0))
    search = Search(basis)
    before = search.left
    buckets = sum(map(len, search.predict(plan).lists.values()))
    assert 0 < search.left < before - buckets
    search.left = 0
    with pytest.raises(SearchCutError):
        search.predict(plan)


def test_a_search_that_is_cut_begins_anew_with_the_release_s_own_buckets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    least = "VLLM_DECODE_BS_BUCKET_MIN"
    plan = Plan("plugin-0.26", Flags(256, 0, 40960, 0, strategy="lin"), {least: "512"})
    basis = Basis(blocks=7593)
    found = predict(plan, basis)
    spent = iter([0, 400_000])
    monkeypatch.setattr(
        "hpuwatch.gaudi.repair.Search", lambda basis: Search(basis, next(spent))
    )
    mended = repair(found, basis)
    assert mended is not None
    # That the strategy went too proved needless.
    assert mended.changes == (Change(least, None), Change("--max-num-seqs", "71"))
    monkeypatch.setattr(
        "hpuwatch.gaudi.repair.Search", lambda basis: Search(basis, left=0)
    )
    with pytest.raises(SearchCutError, match="buckets"):
        repair(found, basis)


RELEASES = [
    *("plugin-head", "plugin-0.26", "plugin-0.21", "plugin-0.19", "plugin-0.16"),
    *("plugin-0.13", "plugin-0.11", "plugin-0.10"),
    *("fork-1.22", "fork-1.21", "fork-1.20", "fork-1.18"),
]
_AXES = ("PROMPT_BS", "PROMPT_QUERY", "PROMPT_SEQ", "DECODE_BS", "DECODE_BLOCK")
_VARIABLES = [
    f"VLLM_{axis}_BUCKET_{part}" for axis in _AXES for part in ("MIN", "STEP", "MAX")
]
_ODD = st.sampled_from(["0", "64", "128", "1024", "99999", "x"])
_SETTINGS = {
    "VLLM_BUCKETING_STRATEGY": st.sampled_from(["exp", "lin", "pad", "linear"]),
    "VLLM_EXPONENTIAL_BUCKETING": st.sampled_from(["true", "false", "ture"]),
    "VLLM_CONTIGUOUS_PA": st.sampled_from(["true", "false"]),
    RESERVE: st.sampled_from(["0.01", "0.1", "0.4", "0.95", "1.5", "-0.1", "little"]),
}
environments = st.builds(
    lambda bounds, others: {**bounds, **others},
    st.dictionaries(st.sampled_from(_VARIABLES), _ODD, max_size=3),
    st.fixed_dictionaries({}, optional=_SETTINGS),
)
plans = st.builds(
    Plan,
    st.sampled_from(RELEASES),
    st.builds(
        Flags,
        max_num_seqs=st.sampled_from([1, 7, 64, 300, 3000]),
        max_num_batched_tokens=st.just(0),
        max_model_len=st.sampled_from([512, 2048, 8192]),
        num_blocks=st.just(0),
        num_speculative_tokens=st.sampled_from([0, 0, 3]),
    ),
    environments,
    st.sampled_from([None, 64, 2048]),
    st.sampled_from([0.9, 0.5, 1.2]),
)
bases = st.builds(
    lambda free, per_token, seconds: Basis(
        device=Device(exactly(free * GIB), GIB, block_bytes=16.0 * MIB),
        graphs=prior()
        if per_token is None
        else fit([Observation(PROMPT, (Bucket(1, 1024, 0),), per_token * 1024)]),
        warmup=learn(
            [TimedStart({PROMPT: 10, DECODE: 10}, seconds)] if seconds else []
        ),
    ),
    st.sampled_from([5, 20, 80]),
    st.sampled_from([None, 2048, MIB]),
    st.sampled_from([None, 10, 200]),
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(plans, bases)
def test_the_repaired_plan_is_refused_no_more(plan: Plan, basis: Basis) -> None:
    mended = mended_of(plan, basis)
    assert mended is not None
    after = predict(applied(plan, mended.changes), basis)
    assert refusals(after, basis) == ()
    assert after == mended.forecast
    if not refused(plan, basis):
        assert mended.changes == ()
    for change in mended.changes[-1:]:
        others = [each for each in mended.changes if each != change]
        assert refused(applied(plan, others), basis)
