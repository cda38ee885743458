"""Findings of buckets: when each is said, with which figures, and when not."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpuwatch.advise.checks.buckets_made import made_of
from hpuwatch.advise.finding import Finding
from hpuwatch.advise.findings import findings_of
from hpuwatch.app.catalogue import shipped_findings
from hpuwatch.gaudi.buckets import generate
from hpuwatch.gaudi.coverage import reach, widest
from hpuwatch.gaudi.lookup import look_up, warmed_prompts
from hpuwatch.gaudi.model import DECODE, PROMPT, Bucket
from hpuwatch.gaudi.resolve import Flags, resolve
from hpuwatch.testing.logs import start_of_text, state_of_text
from hpuwatch.testing.starts import (
    READY,
    Server,
    Split,
    died,
    finished,
    listed,
    logged,
    missed,
    stats,
    warmed,
)

pytestmark = pytest.mark.unit

SIZES = {
    "max_model_len": 4096,
    "max_num_seqs": 32,
    "max_num_batched_tokens": 4096,
    "block_size": 128,
}
DIALECT = "gaudi-plugin-0.26"
CARD = Split(blocks=2000)


def found(text: str) -> dict[str, Finding]:
    *earlier, start = state_of_text(text).starts
    return {x.name: x for x in findings_of(start, shipped_findings(), earlier)}


def by_rules(
    sizes: Mapping[str, int], env: Mapping[str, str], strategy: str = "exp"
) -> dict[str, tuple[Bucket, ...]]:
    flags = Flags(
        sizes["max_num_seqs"],
        sizes["max_num_batched_tokens"],
        sizes["max_model_len"],
        2000,
        strategy=strategy,
        contiguous_pa=False,
    )
    settings = resolve(DIALECT, flags, env)
    return {phase: generate(settings, phase) for phase in (PROMPT, DECODE)}


def log(
    prompts: list[Bucket] | tuple[Bucket, ...],
    decodes: list[Bucket] | tuple[Bucket, ...],
    **server: object,
) -> str:
    head = Server(**{"sizes": SIZES, **server})  # type: ignore[arg-type]  # fields of Server
    return (
        head.lines()
        + CARD.lines()
        + listed("prompt", prompts)
        + listed("decode", decodes)
    )


PROMPTS = [
    Bucket(1, q, c) for q, c in product((128, 512, 1024, 2048, 4096), (0, 16, 32))
]
DECODES = [Bucket(b, 1, c) for b, c in product((1, 4, 16, 32), (32, 256, 1024, 2000))]


# Holes.


def test_whole_lists_have_no_hole() -> None:
    assert "buckets-open" not in found(log(PROMPTS, DECODES) + READY)


@pytest.mark.parametrize(
    ("prompts", "decodes", "said", "numbers"),
    [
        (
            [p for p in PROMPTS if p.query < 4096],
            DECODES,
            "prompts of 2,049 to 4,096 tokens",
            {"prompt_open_from_tokens": 2049, "prompt_open_to_tokens": 4096},
        ),
        (
            [p for p in PROMPTS if p.context < 32],
            DECODES,
            "behind 17 to 32 blocks of context",
            {"prompt_open_above_blocks": 16, "prompt_open_to_blocks": 32},
        ),
        (
            PROMPTS,
            [d for d in DECODES if d.batch < 16],
            "decodes of 5 to 32 requests",
            {"decode_open_from_requests": 5, "decode_open_to_requests": 32},
        ),
    ],
)
def test_a_hole_below_the_servers_limits_is_named(
    prompts: list[Bucket],
    decodes: list[Bucket],
    said: str,
    numbers: Mapping[str, int],
) -> None:
    seen = found(log(prompts, decodes) + READY)["buckets-open"]
    assert said in seen.title
    assert seen.severity == "info"
    assert seen.numbers.items() >= numbers.items()
    assert "none that came" in seen.why
    assert seen.cure.startswith("Nothing if they don't come")


def test_traffic_in_a_hole_asks_for_a_wider_range() -> None:
    text = log(PROMPTS, [d for d in DECODES if d.batch < 16], strategy="lin") + READY
    seen = found(text + missed("decode", 16, 1, 256) * 2)["buckets-open"]
    assert seen.numbers["hits"] == 2
    assert "Raise VLLM_DECODE_BS_BUCKET_MAX" in seen.cure
    for shape in (("decode", 4, 1, 200), ("prompt", 1, 20, 9)):
        inside = found(text + missed(*shape))["buckets-open"]
        assert inside.numbers["hits"] == 0


def test_a_block_at_the_end_of_a_range_is_no_hole_to_speak_of() -> None:
    nearly = [p._replace(context=min(p.context, 30)) for p in PROMPTS]
    assert "buckets-open" not in found(log(nearly, DECODES) + READY)


def test_no_hole_is_told_from_a_size_that_was_assumed() -> None:
    sizes = {name: each for name, each in SIZES.items() if name != "max_num_seqs"}
    text = log(PROMPTS, [d for d in DECODES if d.batch < 16], sizes=sizes) + READY
    assert "buckets-open" not in found(text)


def test_a_skipped_warm_up_has_no_holes() -> None:
    text = log(PROMPTS[:3], DECODES) + logged("Skipping warmup...") + READY
    assert "buckets-open" not in found(text)


# Settings that come to nothing.


def test_variables_that_the_strategy_never_looks_at_are_named() -> None:
    env = {"VLLM_DECODE_BLOCK_BUCKET_MAX": "512", "VLLM_PROMPT_QUERY_BUCKET_STEP": "64"}
    seen = found(log(PROMPTS, DECODES, env=env) + READY)["settings-ignored"]
    assert seen.severity == "info"
    assert seen.numbers["ignored_settings"] == 2
    assert set(env) <= set(seen.title.replace(",", "").split())
    assert "exponential" in seen.why
    assert len(seen.lines) == 2
    linear = found(log(PROMPTS, DECODES, env=env, strategy="lin") + READY)
    assert (
        "settings-ignored" not in linear
        or not linear["settings-ignored"].numbers["ignored_settings"]
    )


@pytest.mark.parametrize(
    ("name", "value", "unit", "made"),
    [
        ("VLLM_DECODE_BS_BUCKET_MIN", 8, "requests", 1),
        ("VLLM_DECODE_BLOCK_BUCKET_MIN", 768, "blocks", 32),
        ("VLLM_PROMPT_QUERY_BUCKET_MIN", 256, "tokens", 128),
        ("VLLM_PROMPT_QUERY_BUCKET_MAX", 2048, "tokens", 4096),
        ("VLLM_DECODE_BS_BUCKET_MAX", 16, "requests", 32),
    ],
)
def test_a_bound_that_the_list_does_not_keep(
    name: str, value: int, unit: str, made: int
) -> None:
    text = log(PROMPTS, DECODES, env={name: str(value)}, strategy="lin") + READY
    seen = found(text)["settings-ignored"]
    assert seen.severity == "warning"
    assert seen.numbers[f"asked_{unit}"] == value
    assert seen.numbers[f"made_{unit}"] == made
    assert f"{name}={value:,} was set and the list has {made:,} {unit}" in seen.title


def test_bounds_that_are_kept_and_the_whole_pool_are_nothing_to_tell() -> None:
    env = {
        "VLLM_DECODE_BS_BUCKET_MIN": "1",
        "VLLM_DECODE_BS_BUCKET_MAX": "32",
        "VLLM_DECODE_BLOCK_BUCKET_MAX": "1024",  # the pool comes on top
        "VLLM_PROMPT_QUERY_BUCKET_MAX": "4096",
    }
    assert "settings-ignored" not in found(
        log(PROMPTS, DECODES, env=env, strategy="lin")
    )


# Buckets above the cache.


def test_the_share_of_the_range_above_the_cache_is_told() -> None:
    tall = [*DECODES, Bucket(32, 1, 8000)]
    seen = found(log(PROMPTS, tall) + READY)["buckets-above-kv"]
    assert seen.numbers["decode_range_above_kv_percent"] == 75
    assert seen.severity == "info"
    assert "prompts share a beginning" in seen.why


def test_a_range_that_traffic_was_seen_to_use_is_left_alone() -> None:
    tall = [*DECODES, Bucket(32, 1, 8000)]
    text = log(PROMPTS, tall, strategy="lin") + READY
    assert "Lower VLLM_DECODE_BLOCK_BUCKET_MAX" in found(text)["buckets-above-kv"].cure
    seen = found(text + missed("decode", 20, 1, 2600))["buckets-above-kv"]
    assert seen.numbers["asked_blocks_most"] == 2600
    assert seen.cure.startswith("Leave the range")
    within = found(text + missed("decode", 20, 1, 1900))["buckets-above-kv"]
    assert "Lower VLLM_DECODE_BLOCK_BUCKET_MAX" in within.cure


# Padding.


def test_buckets_far_apart_tell_the_worst_and_the_mean() -> None:
    wide = [p for p in PROMPTS if p.query in (128, 4096)]
    seen = found(log(wide, DECODES) + READY)["padding-wide"]
    assert seen.numbers["prompt_gap_from"] == 129
    assert seen.numbers["prompt_gap_to"] == 4096
    assert seen.numbers["prompt_padding_worst_percent"] == pytest.approx(96.9)
    mean = seen.figures["prompt_padding_percent"]
    assert 0 == mean.low < mean.value < mean.high
    assert "whether anybody pays it is unknown" in seen.why
    assert "2.5 to 3.5 times" in seen.cure


def test_gaps_that_are_small_in_tokens_are_nobodys_concern() -> None:
    near = [p for p in PROMPTS if p.query < 4096]
    assert "padding-wide" not in found(log(near, DECODES) + READY)


def test_under_load_the_padding_of_its_peak_is_measured() -> None:
    few = [d for d in DECODES if d.batch in (1, 32)]
    sizes = {**SIZES, "max_num_seqs": 128}
    gap = [*few, *(Bucket(128, 1, c) for c in (256, 1024, 2000))]
    text = log(PROMPTS, gap, sizes=sizes) + READY + stats(48, times=5)
    seen = found(text)["padding-wide"]
    assert seen.figures["decode_padding_at_peak_percent"].value == pytest.approx(62.5)
    assert seen.figures["decode_padding_at_peak_percent"].origin == "measured"
    assert "48 requests ran as a batch of 128" in seen.why
    idle = found(log(PROMPTS, gap, sizes=sizes) + READY + stats(48))
    assert "decode_padding_at_peak_percent" not in idle["padding-wide"].figures


# Buckets that nobody finds, or that warm-up passes over.


def test_buckets_beyond_the_limits_are_never_used() -> None:
    beyond = [
        *PROMPTS,
        *(Bucket(4, 1024, c) for c in (0, 16)),  # a prefill takes one prompt
    ]
    idle = [*DECODES, Bucket(64, 1, 1024), Bucket(64, 1, 2000), Bucket(32, 1, 16)]
    seen = found(log(beyond, idle) + READY)["buckets-unreachable"]
    assert "4 of decode" not in seen.title
    assert "3 of decode" in seen.title
    assert "of prompt" in seen.title
    count = seen.figures["unreachable_buckets"]
    assert (count.low, count.origin) == (0, "predicted")
    assert seen.severity == "info"


def test_what_is_called_unreachable_is_found_by_no_request() -> None:
    """Ask with every batch and a fine grid of queries and contexts."""
    idle = [*DECODES, Bucket(64, 1, 1024), Bucket(32, 1, 16)]
    made = made_of(start_of_text(log(PROMPTS, idle) + READY))
    assert made is not None
    s = made.settings
    hit = {
        look_up(made.prepared, DECODE, Bucket(batch, 1, blocks)).bucket
        for batch in range(1, widest(s, DECODE) + 1)
        for blocks in range(batch, 2001, 8)
    }
    hit |= {
        look_up(made.prepared, PROMPT, Bucket(1, query, context)).bucket
        for query in range(1, widest(s, PROMPT) + 1, 61)
        for context in range(reach(s, PROMPT, query) + 1)
    }
    warm = {*warmed_prompts(made.prepared), *idle}
    never = {b for b in (*PROMPTS, *idle) if b not in hit and b in warm}
    seen = found(log(PROMPTS, idle) + READY)["buckets-unreachable"]
    assert seen.figures["unreachable_buckets"].value == len(never)


def test_the_rules_own_lists_have_hardly_a_bucket_that_nobody_finds() -> None:
    made = by_rules(SIZES, {})
    assert "buckets-unreachable" not in found(log(made[PROMPT], made[DECODE]) + READY)


def test_a_prompt_with_context_where_none_should_come_refutes_it() -> None:
    alone = [*PROMPTS]
    text = log(alone, DECODES, paged=True) + READY
    assert "of prompt" in found(text)["buckets-unreachable"].title
    came = found(text + missed("prompt", 1, 300, 9))
    assert "buckets-unreachable" not in came


def test_prompts_that_exceed_the_model_with_their_context_stay_cold() -> None:
    sizes = {**SIZES, "max_model_len": 1024, "max_num_batched_tokens": 1024}
    made = by_rules(sizes, {})
    text = log(made[PROMPT], made[DECODE], sizes=sizes) + READY
    seen = found(text)["buckets-cold"]
    cold = seen.figures["cold_buckets"]
    assert cold.value >= 4
    assert cold.origin == "predicted"
    assert seen.severity == "info"


def test_a_warm_up_that_went_over_fewer_buckets_than_listed_is_a_warning() -> None:
    steps = [(each, 20.0) for each in DECODES[:9]]
    text = log(PROMPTS, DECODES) + warmed("decode", steps, 9) + finished(60, 1.0)
    seen = found(text)["buckets-cold"]
    assert seen.severity == "warning"
    assert seen.numbers["cold_buckets"] == len(DECODES) - 9
    assert "9 of the 16 decode buckets" in seen.title


# Batches and time.


def test_batches_far_above_the_load_are_told_with_what_they_cost() -> None:
    steps = [(each, 20.0) for each in DECODES]
    warm = warmed("decode", steps, len(DECODES), each_seconds=2)
    text = log(PROMPTS, DECODES) + warm + finished(40, 1.0)
    seen = found(text + stats(3, times=31))["batch-unused"]
    assert seen.numbers["running_peak_requests"] == 3
    assert seen.numbers["needed_batch"] == 4
    assert seen.numbers["decode_buckets_unused"] == 8
    saved = seen.figures["warmup_seconds_saved"]
    assert saved.low < saved.value < saved.high
    assert seen.cure == "If no heavier load comes, set --max-num-seqs 4."


def test_speculative_tokens_make_rows_that_no_request_limit_bounds() -> None:
    idle = [*DECODES, Bucket(64, 1, 1024), Bucket(64, 1, 2000)]
    text = log(PROMPTS, idle) + READY + stats(3, times=31)
    plain = found(text)
    assert {"batch-unused", "buckets-unreachable"} <= set(plain)
    drafts = "speculative_config=SpeculativeConfig(method='eagle'), max_seq_len"
    other = found(text.replace("max_seq_len", drafts))
    assert not {"batch-unused", "buckets-unreachable"} & set(other)
    none = found(text.replace("max_seq_len", "speculative_config=None, max_seq_len"))
    assert "batch-unused" in none


def test_contiguous_attention_never_counts_beyond_the_pool() -> None:
    tall = [*DECODES, Bucket(32, 1, 2600), Bucket(32, 1, 3000)]
    plain = [p for p in PROMPTS if p.context == 0]
    shared = found(log(plain, tall) + READY)
    assert "buckets-unreachable" not in shared
    paged = found(log(plain, tall, paged=True) + READY)["buckets-unreachable"]
    assert paged.figures["unreachable_buckets"].value == 2


@pytest.mark.parametrize(
    "load",
    [
        stats(3, times=5),  # too short to tell
        stats(3, times=30) + stats(3, waiting=2),
        stats(3, times=30) + stats(20),
        "",
    ],
)
def test_no_batch_is_called_unused_without_a_load_that_shows_it(load: str) -> None:
    assert "batch-unused" not in found(log(PROMPTS, DECODES) + READY + load)


def hours(each_seconds: int, end: str = "") -> dict[str, Finding]:
    sizes = {**SIZES, "max_num_seqs": 64}
    env = {"VLLM_DECODE_BS_BUCKET_STEP": "8", "VLLM_DECODE_BLOCK_BUCKET_STEP": "64"}
    made = by_rules(sizes, env, "lin")
    text = log(PROMPTS, made[DECODE], sizes=sizes, env=env, strategy="lin")
    steps = [(each, 30.0 - n / 10) for n, each in enumerate(made[DECODE][:20])]
    return found(text + warmed("decode", steps, len(made[DECODE]), each_seconds) + end)


def test_a_list_that_takes_hours_names_a_batch_limit_that_does_not() -> None:
    seen = hours(60)["buckets-many"]
    numbers = seen.numbers
    assert numbers["seconds_per_bucket"] == 60
    total = seen.figures["decode_warmup_seconds"]
    assert total.value == 60 * float(numbers["decode_buckets"])
    assert total.low < total.value < total.high
    assert float(numbers["buckets_then"]) * 60 <= 3600
    sizes = {**SIZES, "max_num_seqs": int(numbers["max_num_seqs"])}
    env = {"VLLM_DECODE_BS_BUCKET_STEP": "8", "VLLM_DECODE_BLOCK_BUCKET_STEP": "64"}
    assert len(by_rules(sizes, env, "lin")[DECODE]) == numbers["buckets_then"]
    assert f"--max-num-seqs {numbers['max_num_seqs']}" in seen.cure


def test_no_batch_limit_is_worked_out_for_a_list_that_the_rules_do_not_make() -> None:
    odd = [Bucket(32, 1, 8 + n) for n in range(99)]
    text = log(PROMPTS, odd, strategy="lin")
    steps = [(each, 30.0) for each in odd[:5]]
    seen = found(text + warmed("decode", steps, 99, each_seconds=60))["buckets-many"]
    assert "max_num_seqs" not in seen.numbers
    assert "Make fewer buckets" in seen.cure


def test_a_warm_up_within_the_hour_is_not_too_many_buckets() -> None:
    assert "buckets-many" not in hours(1)


def test_a_list_of_thousands_is_priced_before_any_bucket_was_timed() -> None:
    count = 16_000
    listing = logged(
        f"Generated {count} prompt buckets [bs, query, num_blocks]: [(1, 1, 0)]"
    )
    before = Server(SIZES).lines() + CARD.lines() + listing
    seen = found(before)["buckets-many"]
    assert seen.figures["prompt_warmup_seconds"].origin == "prior"
    assert seen.figures["prompt_warmup_seconds"].low >= 3600
    assert "pace of public logs" in seen.why
    # Once it is ready, it came through, in whatever time.
    assert "buckets-many" not in found(before + READY)
    few = before.replace(str(count), "4000")
    assert "buckets-many" not in found(few)  # it may take 33 minutes


def test_a_death_that_was_no_matter_of_memory_is_told_apart() -> None:
    seen = hours(
        60, died("RuntimeError: Graph compile failed. synStatus=synStatus 26 [x].")
    )
    assert "memory is not what the log shows" in seen["buckets-many"].why
    assert "28.1 GiB" in seen["buckets-many"].why


SOME = st.lists(
    st.tuples(st.integers(1, 300), st.integers(1, 9000), st.integers(0, 9000)),
    min_size=1,
    max_size=12,
)


@settings(max_examples=40, deadline=None)
@given(SOME, SOME, st.sampled_from(["exp", "lin", "pad"]), st.booleans())
def test_no_list_can_break_a_check(
    prompts: list[tuple[int, int, int]],
    decodes: list[tuple[int, int, int]],
    strategy: str,
    paged: bool,
) -> None:
    lists = (
        [Bucket(*each) for each in prompts],
        [Bucket(b, 1, c) for b, _, c in decodes],
    )
    text = log(*lists, strategy=strategy, paged=paged) + READY
    text += missed("decode", 7, 1, 77) + missed("prompt", 1, 77, 0) + stats(9, times=31)
    for finding in found(text).values():
        for each in finding.figures.values():
            assert each.low <= each.value <= each.high
        assert "{" not in f"{finding.title}{finding.why}{finding.cure}"
