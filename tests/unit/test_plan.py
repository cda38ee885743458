"""One plan out of many findings: what holds together, what is expected, what stays."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from math import floor

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hpuwatch.advise.baseline import baseline_of
from hpuwatch.advise.checks.memory_peak import ran_out
from hpuwatch.advise.finding import Case
from hpuwatch.advise.findings import findings_of
from hpuwatch.advise.plan.desk import Dropped, objection
from hpuwatch.advise.plan.left import left_alone
from hpuwatch.advise.plan.padding import padding_percent
from hpuwatch.advise.plan.parts import headline
from hpuwatch.advise.plan.reserve import Proposal, Step, propose
from hpuwatch.advise.plan.whole import Planned, planned
from hpuwatch.advise.plan.widening import all_widened, widened
from hpuwatch.advise.report import build_report
from hpuwatch.app.catalogue import shipped_findings
from hpuwatch.gaudi.buckets import DECODE, PROMPT, Bucket
from hpuwatch.gaudi.estimate import Estimate, exactly
from hpuwatch.gaudi.knobs import KNOBS
from hpuwatch.gaudi.lookup import prepare
from hpuwatch.gaudi.planning import READY_TIMEOUT, RESERVE, Change, Plan, applied
from hpuwatch.gaudi.predict import predict
from hpuwatch.gaudi.refusal import refusals
from hpuwatch.gaudi.resolve import FILE_VARIABLE, Flags
from hpuwatch.gaudi.spans import point_of
from hpuwatch.state.model import Start
from hpuwatch.testing.lives import Told
from hpuwatch.testing.logs import OUT_OF_MEMORY, start_of_text, state_of_text
from hpuwatch.testing.starts import Server, Split, listed, out_of_memory, warmed
from hpuwatch.units import GIB, MIB, format_bytes, parse_amount

pytestmark = pytest.mark.unit

BLOCK_MIB, LENGTH = 16, 8192
DECODE_TOP = "VLLM_DECODE_BLOCK_BUCKET_MAX"
QUERY_TOP = "VLLM_PROMPT_QUERY_BUCKET_MAX"
BUSY = (
    "Engine 000: Avg prompt throughput: 900.0 tokens/s, Avg generation throughput: 300.0 "
    "tokens/s, Running: 12 reqs, Waiting: {waiting} reqs, GPU KV cache usage: {use}%, "
    "Prefix cache hit rate: 0.0%"
)
NO_LISTS: Mapping[str, str] = {
    "VLLM_PROMPT_QUERY_BUCKET_MIN": "256",
    "VLLM_PROMPT_QUERY_BUCKET_STEP": "512",
    QUERY_TOP: "1024",
    "VLLM_PROMPT_CTX_BUCKET_MAX": "0",
    "VLLM_DECODE_BS_BUCKET_MIN": "8",
    "VLLM_DECODE_BS_BUCKET_STEP": "8",
    "VLLM_DECODE_BLOCK_BUCKET_MIN": "256",
    "VLLM_DECODE_BLOCK_BUCKET_STEP": "512",
    DECODE_TOP: "1024",
}


def told(
    env: Mapping[str, str] = NO_LISTS, max_num_seqs: int = 16, **figures: object
) -> Told:
    """A linear server whose lists are those that the rules make of its settings."""
    start = Told(
        env=env,
        args={"max_model_len": LENGTH, "max_num_seqs": max_num_seqs},
        strategy="lin",
    )
    start = replace(start, **figures)  # type: ignore[arg-type]  # fields of Told
    usable = start.free * start.utilisation
    cache = usable * (1 - start.reserve) * GIB - BLOCK_MIB * MIB
    blocks = max(1, floor(cache / (BLOCK_MIB * MIB)))
    flags = Flags(max_num_seqs, 2048, LENGTH, blocks, strategy="lin")
    made = prepare(Plan("plugin-0.26", flags, env).shapes(blocks))
    return replace(
        start,
        blocks=blocks,
        prompt=[plain(each) for each in made.prompt],
        decode=[plain(each) for each in made.decode],
    )


def plain(bucket: Bucket) -> tuple[int, int, int]:
    return bucket.batch, bucket.query, bucket.context


def loaded(start: Told, *lines: str, use: float = 96.0, waiting: int = 3) -> Start:
    """The same under load: as long as it takes to speak of load."""
    busy = [BUSY.format(use=use, waiting=waiting)] * 8
    return start_of_text(start.then(*lines, *busy))


def proposal_of(plan: Planned) -> Proposal:
    assert plan.proposal is not None, plan.dropped
    return plan.proposal


def test_the_synthetic_server_is_one_that_the_rules_make() -> None:
    start = start_of_text(told().text())
    baseline = baseline_of([start])
    assert baseline is not None
    assert baseline.basis.printed is not None
    assert baseline.basis.printed.lists[PROMPT]
    forecast = predict(baseline.plan, baseline.basis)
    assert forecast.lists_origin == "measured"
    assert not refusals(forecast, baseline.basis)


def test_change_nothing_is_an_answer_and_says_what_stays() -> None:
    start = loaded(told(reserve=0.1), use=40.0, waiting=0)
    plan = planned([start])
    assert plan.proposal is None
    left = {each.name: each.why for each in left_alone(start, plan)}
    assert "40.0 %" in left[RESERVE]
    assert "would bring nothing" in left[RESERVE]
    assert left["buckets"] == "no shape of this log's load missed them"
    assert "12 requests ran at once" in left["--max-num-seqs"]
    assert READY_TIMEOUT in left


def test_the_memory_move_comes_with_intervals_and_a_check() -> None:
    start = start_of_text(told(reserve=0.4, used=4.0).text())
    proposal = proposal_of(planned([start]))
    assert proposal.checked
    assert [step.answers for step in proposal.steps] == ["reserve-idle"]
    blocks, figures = proposal.expected["kv_blocks"], proposal.figures
    assert figures["kv_blocks"].value == blocks
    # One for the last block, and what four digits of the reserve hide: less than another.
    assert figures["kv_blocks"].low == blocks - 2
    assert figures["kv_blocks"].high == blocks + 2
    assert figures["kv_tokens"].value == blocks * 128
    assert figures["kv_blocks"].origin == "predicted"
    # The next log prints the reserve with four digits, which has to lie inside.
    reserve = figures["reserve_bytes"]
    printed = parse_amount(format_bytes(reserve.value)).bytes
    assert reserve.low - 1 <= printed <= reserve.high + 1
    # The buckets stay, so graphs and warm-up are those of this very log.
    assert figures["graph_bytes"].value == pytest.approx(4 * GIB, rel=0.01)
    assert figures["warmup_seconds"].low < figures["warmup_seconds"].high
    assert figures["prompt_buckets"].value == len(told().prompt)


def test_an_earlier_start_with_those_buckets_narrows_the_interval() -> None:
    """What a longer list takes was guessed from a shorter one, until a start had it."""
    wider = {**NO_LISTS, QUERY_TOP: "1536", DECODE_TOP: "1536"}
    before = start_of_text(told(env=wider, max_num_seqs=64, reserve=0.3).text())
    now = loaded(told(max_num_seqs=64, reserve=0.3), *MISSES, use=40.0, waiting=0)
    alone = proposal_of(planned([now])).figures
    both = proposal_of(planned([before, now])).figures
    assert width(both["graph_bytes"]) < width(alone["graph_bytes"])
    assert both["graph_bytes"].value == pytest.approx(6.5 * GIB, rel=0.01)


def test_a_log_before_teaches_the_plan_of_the_one_after_it() -> None:
    wider = {**NO_LISTS, QUERY_TOP: "1536", DECODE_TOP: "1536"}
    before = told(env=wider, max_num_seqs=64, reserve=0.3).text()
    busy = [BUSY.format(use=40.0, waiting=0)] * 8
    now = told(max_num_seqs=64, reserve=0.3).then(*MISSES, *busy)
    other = before.replace("acme/small-7b", "acme/other")
    origins = []
    for first in (before, other):
        logs = [("a", state_of_text(first)), ("b", state_of_text(now))]
        _, last = build_report(logs, shipped_findings()).reports
        assert last.proposal is not None
        origins.append(last.proposal.figures["graph_bytes"])
    same, strange = origins
    assert same.high - same.low < strange.high - strange.low


def width(figure: Estimate) -> float:
    return figure.high - figure.low


MISSES = (
    "Configuration: ('decode', 64, 1, 1400) was not warmed-up!",
    "Configuration: ('prompt', 1, 1500, 0) was not warmed-up!",
)


def test_ranges_reach_as_far_as_traffic_did() -> None:
    before = told(max_num_seqs=64, reserve=0.3, used=2.0)
    start = loaded(before, *MISSES, use=40.0, waiting=0)
    proposal = proposal_of(planned([start]))
    # In whole steps of 512: 1,400 and 1,500 both end in 1,536.
    assert proposal.env == {DECODE_TOP: "1536", QUERY_TOP: "1536"}
    assert proposal.answers == "bucket-miss"
    then = proposal.figures
    assert then["decode_buckets"].value > len(before.decode)
    assert then["graph_bytes"].value > 2 * GIB


def test_a_headline_promises_no_reserve_that_was_left_out() -> None:
    start = start_of_text(told(reserve=0.4, used=4.0).text())
    findings = findings_of(start, shipped_findings())
    promised = headline(start, findings, planned([start]))
    assert promised.do.startswith(f"Set {RESERVE}=")
    step = Step((Change(RESERVE, "0.3"),), "reserve-idle", "", "", 0)
    dropped = Planned(dropped=(Dropped(step, "It would not come up."),))
    left = headline(start, findings, dropped)
    assert left.do == f"Leave {RESERVE} as it is."
    assert "It would not come up." in left.why


def test_a_range_that_something_else_ends_is_not_raised_in_vain() -> None:
    """16 sequences of 8,192 tokens have 1,024 blocks at most, whatever the variable says."""
    miss = MISSES[0].replace("64", "16")
    start = loaded(told(reserve=0.3, used=2.0), miss, use=40.0, waiting=0)
    plan = planned([start])
    assert DECODE_TOP not in (plan.proposal.env if plan.proposal else {})
    assert "still have no bucket" in plan.dropped[0].why


def test_steps_that_quarrel_are_not_both_taken() -> None:
    """More buckets want the memory that a smaller reserve would give away."""
    start = loaded(told(reserve=0.1, used=6.0, utilisation=0.99), *MISSES)
    plan = planned([start])
    proposal = proposal_of(plan)
    both = [*proposal.steps, *(each.step for each in plan.dropped)]
    assert {step.answers for step in both} >= {"bucket-miss"}
    baseline = baseline_of([start])
    assert baseline is not None
    then = predict(applied(baseline.plan, proposal.changes), baseline.basis)
    assert not refusals(then, baseline.basis)
    for each in plan.dropped:
        assert each.why
        assert any(each.why in left.why for left in left_alone(start, plan))


def test_buckets_that_no_rule_makes_are_listed_in_a_file() -> None:
    """Nobody can tell what a higher bound would make of them; of a file one can."""
    odd = replace(
        told(max_num_seqs=64, reserve=0.3), decode=((64, 1, 300), (64, 1, 1000))
    )
    start = loaded(odd, *MISSES, use=40.0, waiting=0)
    plan = planned([start])
    (dropped,) = plan.dropped
    assert "nobody can tell" in dropped.why
    proposal = proposal_of(plan)
    assert set(proposal.env) == {FILE_VARIABLE}
    lines = (proposal.bucket_file or "").splitlines()
    # All that the log lists, and what was missed: in whole blocks of 128.
    assert "(64, 1, 300)" in lines
    assert "(64, 1, 1408)" in lines
    assert "(1, 1536, 0)" in lines
    assert proposal.figures["decode_buckets"].value == 3
    state = state_of_text(odd.then(*MISSES))
    (only,) = build_report([("s.log", state)], shipped_findings()).reports
    assert only.proposal is not None
    assert FILE_VARIABLE not in only.proposal.env
    assert only.proposal.bucket_file is not None
    assert FILE_VARIABLE in only.headline.do


def test_a_server_that_came_up_disproves_what_is_refused_of_it() -> None:
    """Its largest decode bucket has more than three times the blocks of the card, captured."""
    deep = replace(
        told(max_num_seqs=64, free=20.0), decode=((64, 1, 300), (64, 1, 4000))
    )
    text = deep.then(*MISSES, *[BUSY.format(use=40.0, waiting=0)] * 8)
    start = start_of_text(re.sub(r".*Warmup finished.*\n", "", text))
    baseline = baseline_of([start])
    assert baseline is not None
    refused = refusals(predict(baseline.plan, baseline.basis), baseline.basis)
    assert "decode-above-cache" not in {each.code for each in refused}
    assert proposal_of(planned([start])).bucket_file is not None


def test_a_storm_of_shapes_is_no_list() -> None:
    odd = replace(told(max_num_seqs=64), decode=((64, 1, 300), (64, 1, 1000)))
    storm = [
        f"Configuration: ('decode', 64, 1, {1100 + 128 * n}) was not warmed-up!"
        for n in range(80)
    ]
    assert planned([loaded(odd, *storm, use=40.0, waiting=0)]).proposal is None


def test_a_decode_range_above_the_cache_ends_there_after_it_killed_warm_up() -> None:
    wide = {**NO_LISTS, DECODE_TOP: "4096", "VLLM_DECODE_BLOCK_BUCKET_STEP": "1024"}
    start = start_of_text(
        ended(told(env=wide, max_num_seqs=64, free=40.0, reserve=0.1), "died")
    )
    proposal = proposal_of(planned([start]))
    blocks = int(proposal.expected["kv_blocks"])
    assert {DECODE_TOP, RESERVE} <= proposal.env.keys()
    assert int(proposal.env[DECODE_TOP]) <= blocks + 1
    assert float(proposal.env[RESERVE]) > 0.1


TIGHT = Split(94.62, 16.0, ratio=0.06)
PROMPTS = [Bucket(1, 128 * n, 0) for n in range(40, 0, -1)]


def died_after(count: int) -> Start:
    """Each graph takes 0.2 MiB a token, and the largest come first."""
    steps, free = [], TIGHT.room
    for bucket in PROMPTS[:count]:
        steps.append((bucket, free))
        free -= bucket.query * 0.2 * MIB / GIB
    return start_of_text(
        Server({"max_model_len": 8192, "max_num_seqs": 16}).lines()
        + TIGHT.lines()
        + listed("prompt", PROMPTS)
        + listed("decode", [Bucket(8, 1, 64)])
        + warmed("prompt", steps, len(PROMPTS))
        + out_of_memory(1024)
    )


def test_after_warm_up_died_the_reserve_goes_as_far_as_its_need() -> None:
    """Half as much again would die at a later bucket: the steps before tell of all."""
    start = died_after(11)
    alone = propose(start)
    seen = ran_out(Case(start))
    assert alone is not None
    assert seen is not None
    needed = seen.figures["reserve_needed_ratio"].value
    assert float(alone.env[RESERVE]) < needed < 0.9
    proposal = proposal_of(planned([start]))
    assert float(proposal.env[RESERVE]) == pytest.approx(needed)
    assert "at its peak" in proposal.why
    assert proposal.expected["kv_blocks"] < alone.expected["kv_blocks"]


def test_a_time_out_that_ended_nothing_is_left_alone() -> None:
    """With one API server it was seen not to bound a start at all."""
    hasty = {**NO_LISTS, READY_TIMEOUT: "300"}
    slow = told(env=hasty, reserve=0.4, used=4.0, decode_seconds=60.0)
    proposal = proposal_of(planned([start_of_text(slow.text())]))
    assert set(proposal.env) == {RESERVE}
    assert proposal.figures["warmup_seconds"].high > 300


V0 = "INFO 03-01 10:00:00 worker.py:1] "
FORK = (
    "INFO 03-01 10:00:00 api_server.py:1] vLLM API server version 0.6.4+Gaudi-1.20.0\n"
    f"{V0}Initializing an LLM engine (v0.6.4+Gaudi-1.20.0) with config: "
    "model='acme/m', max_seq_len=2048, tensor_parallel_size=1, device_config=hpu\n"
    f"{V0}Free device memory: 80 GiB, 40 GiB usable (gpu_memory_utilization=0.5), 16 GiB "
    "reserved for HPUGraphs (VLLM_GRAPH_RESERVED_MEM=0.4), 24 GiB reserved for KV cache\n"
    f"{V0}# HPU blocks: 1536, # CPU blocks: 256\n"
    f"{V0}Graph/Prompt captured:15 (62.5%) used_mem:4.7 GiB buckets:[(1, 128)]\n"
    f"{V0}Graph/Decode captured:48 (100.0%) used_mem:161.9 MiB buckets:[(4, 128)]\n"
    f"{V0}Warmup finished in 49 secs, allocated 4.9 GiB of device memory\n"
    "INFO:     Application startup complete.\n"
)


def test_prompts_get_the_graph_budget_that_decodes_leave() -> None:
    proposal = proposal_of(planned([start_of_text(FORK)]))
    # Decodes keep 1.5 times their 161.9 MiB of 16 GiB: 1.5 %; no more than 0.95 goes.
    assert proposal.env == {"VLLM_GRAPH_PROMPT_RATIO": "0.95"}
    assert proposal.answers == "graphs-incomplete"
    assert "62.5 %" in proposal.why
    # A later release divides nothing, and would pass over the variable.
    later = start_of_text(FORK.replace("1.20.0", "1.22.0"))
    assert planned([later]).proposal is None


def test_without_a_release_the_memory_move_stands_alone() -> None:
    text = told(reserve=0.4, used=4.0).text().replace("0.26.0", "dev")
    proposal = proposal_of(planned([start_of_text(text)]))
    assert not proposal.checked
    assert set(proposal.env) == {RESERVE}
    assert proposal.figures["kv_blocks"].value == proposal.expected["kv_blocks"]


def test_widening_is_for_what_was_predicted() -> None:
    figure = Estimate(10, 8, 14, "predicted")
    assert widened(figure, 2) == Estimate(10, 6, 18, "predicted")
    assert widened(figure, 0.5) == figure
    assert widened(figure, 20).low == 0
    assert widened(exactly(10), 9) == exactly(10)
    won = Estimate(-3, -4, -2, "predicted")
    assert widened(won, 3).low == -6
    assert all_widened({"a": figure, "b": figure}, {"b": 2})["a"] == figure


def test_bad_predictions_widen_the_next_ones() -> None:
    start = start_of_text(told(reserve=0.4, used=4.0).text())
    plain = proposal_of(planned([start])).figures["warmup_seconds"]
    wide = proposal_of(planned([start], {"warmup_seconds": 3.0})).figures
    assert wide["warmup_seconds"].high - plain.value == pytest.approx(
        3 * (plain.high - plain.value)
    )


def test_padding_is_the_mean_over_all_sizes() -> None:
    share = padding_percent([Bucket(1, 2, 0), Bucket(1, 4, 0)], PROMPT)
    # 1 of 2 and 3 of 4 are the sizes that waste: (1/2 + 1/4) / 4.
    assert share is not None
    assert share.value == pytest.approx(100 * 0.75 / 4, abs=0.1)
    assert share.high == 50.0
    assert padding_percent([], DECODE) is None


def ended(start: Told, how: str) -> str:
    if how == "died":
        stopped = replace(start, stops_in="decode", stops_after=1)
        return stopped.text() + OUT_OF_MEMORY.replace("pid=7", "pid=30")
    if how == "busy":
        return start.then(*[BUSY.format(use=97.0, waiting=9)] * 8)
    if how == "missed":
        return start.then(*MISSES, *[BUSY.format(use=50.0, waiting=0)] * 8)
    return start.text()


synthetic = st.builds(
    told,
    max_num_seqs=st.sampled_from((8, 16, 64)),
    free=st.sampled_from((12.0, 40.0, 80.0)),
    utilisation=st.sampled_from((0.5, 0.9, 0.99)),
    reserve=st.sampled_from((0.02, 0.1, 0.4, 0.8)),
    used=st.sampled_from((0.0, 0.5, 4.0, 12.0)),
    load_seconds=st.sampled_from((30.0, 400.0)),
    decode_seconds=st.sampled_from((1.0, 30.0)),
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    start=synthetic,
    ends=st.sampled_from(("idle", "busy", "missed", "died")),
)
def test_no_proposal_is_refused_or_objected_to(start: Told, ends: str) -> None:
    """Whatever the start was like: legal values, heeded ones, and a server that comes up."""
    text = ended(start, ends)
    known = start_of_text(text)
    plan = planned([known])
    if plan.proposal is None:
        return
    changes = plan.proposal.changes
    assert objection(known, changes, plan.proposal.bucket_file) is None
    for change in changes:
        knob = KNOBS[change.name]
        assert knob.acts(point_of("plugin-0.26")), change
        if change.value is not None:
            assert knob.complaint(change.value) is None, change
    baseline = baseline_of([known])
    if baseline is None:
        return
    running = refusals(predict(baseline.plan, baseline.basis), baseline.basis)
    assert plan.then is not None
    then = plan.then
    # What the server that ran was refused for, its own run disproves.
    disproved = {each.code for each in running} if ends != "died" else set()
    if plan.now is not None and then.deepest <= plan.now.deepest:
        disproved.add("decode-above-cache")  # no reason: see plan.desk
    assert {each.code for each in refusals(then, baseline.basis)} <= disproved
    for name, figure in plan.proposal.figures.items():
        assert figure.low <= figure.value <= figure.high, name
