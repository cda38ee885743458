"""What is found in a log, under which code, and on which lines it rests."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from hpuwatch.advise.causes import CAUSES, UNKNOWN
from hpuwatch.advise.finding import SEVERITIES, Finding
from hpuwatch.advise.findings import ALL_GOOD, CHECKS, findings_of
from hpuwatch.advise.plan.reserve import propose
from hpuwatch.advise.render.text import render_text
from hpuwatch.advise.report import build_report
from hpuwatch.app.catalogue import shipped_findings
from hpuwatch.gaudi.planning import RESERVE
from hpuwatch.testing.logs import start_of_text, state_of_text

pytestmark = pytest.mark.unit

AT = "INFO 01-02 03:04:05 [x.py:1]"
ENGINE = (
    f"{AT} Initializing a V1 LLM engine (v0.26.0) with config: model='m', "
    "max_seq_len=2048, tensor_parallel_size=1, device_config=hpu\n"
)
WEIGHTS = f"{AT} Loading model weights took 14.5000 GB\n"
WRAPPED = f"{AT} Wrapping in HPUGraph took 0.0000 GB\n"
SPLIT = (
    f"{AT} Free device memory: 80 GiB, 72 GiB usable (gpu_memory_utilization=0.9), "
    "{reserve} GiB reserved for HPUGraphs (VLLM_GRAPH_RESERVED_MEM=0.1), 16 MiB reserved "
    "for KV cache dummy block {kv} GiB reserved for usable KV cache\n"
    f"{AT} Usable num_blocks: {{blocks}}, actual allocated num_blocks: 9 "
    "(_PAD_BLOCK_ID=0, _PAD_SLOT_ID=-1)\n"
)
WARM = f"{AT} Warmup finished in 30 secs, allocated {{used}} GiB of device memory\n"
BAR = "Prompt warmup processing:   4%|4  | 2/48 [00:06<02:18,  3.00s/item, 1/48]\n"
READY = "INFO:     Application startup complete.\n"
OOM = (
    "RuntimeError: [Rank:0] FATAL ERROR :: MODULE:PT_DEVMEM Allocation failed for "
    "size::2147483648 (2048)MB"
)


def sized(reserve: float = 7.2, kv: float = 64.78, blocks: int = 4146) -> str:
    return SPLIT.format(reserve=reserve, kv=kv, blocks=blocks)


def dies(exception: str) -> str:
    """The engine's last words, as a logger repeats them."""
    said = [
        "EngineCore failed to start.",
        "Traceback (most recent call last):",
        '  File "/opt/x/core.py", line 12, in run',
        "    step()",
        '  File "/opt/x/layer.py", line 590, in attend',
        "    return layers[name]",
        exception,
    ]
    return "".join(f"ERROR 01-02 03:04:09 [core.py:9] {line}\n" for line in said)


def found(text: str) -> dict[str, Finding]:
    return {
        each.name: each for each in findings_of(start_of_text(text), shipped_findings())
    }


def test_a_server_that_is_ready_and_has_no_fault_says_so() -> None:
    text = ENGINE + WEIGHTS + sized() + WARM.format(used=6.5) + READY
    (only,) = found(text).values()
    assert only.name == "all-good"
    assert "nothing to say" in only.title


WHOLE = (ENGINE, WEIGHTS, sized(), WARM.format(used=6.5), READY)


@pytest.mark.parametrize(
    ("gone", "lacks"),
    [
        (2, "the split of memory and the number of KV blocks"),
        (3, "the end of warm-up and what graphs took"),
    ],
)
def test_a_log_with_a_gap_is_no_good_log(gone: int, lacks: str) -> None:
    text = "".join(part for place, part in enumerate(WHOLE) if place != gone)
    (only,) = found(text).values()
    assert (only.name, only.severity) == ("log-incomplete", "warning")
    assert only.title == f"The log is not whole: it lacks {lacks}"
    assert "--tail" in only.cure


def test_without_its_blocks_a_log_is_not_whole() -> None:
    text = "".join(WHOLE).replace("Usable num_blocks", "Strange num_blocks")
    assert set(found(text)) == {"log-incomplete"}


def test_a_kv_budget_in_bytes_is_no_gap() -> None:
    budget = (
        f"{AT} Free device memory: 80 GiB, using explicit KV cache budget 60 GiB "
        "(--kv-cache-memory-bytes; gpu_memory_utilization ignored), 16 MiB reserved for KV "
        "cache dummy block, 59.98 GiB reserved for usable KV cache\n"
    )
    blocks = sized().splitlines(keepends=True)[1]
    text = ENGINE + WEIGHTS + budget + blocks + WARM.format(used=6.5) + READY
    assert set(found(text)) == {"all-good"}


def test_a_release_that_never_prints_the_split_has_no_gap_for_it() -> None:
    text = (
        ENGINE.replace("a V1 LLM engine (v0.26.0)", "an LLM engine (v0.4.2)")
        + WEIGHTS
        + f"{AT} # HPU blocks: 3000, # CPU blocks: 128\n"
        + f"{AT} Graph capturing finished in 72 secs, allocated 5.10 GiB of device memory "
        "(20.00 GiB/94.62 GiB used)\n"
    )
    assert set(found(text + READY)) == {"all-good"}


def test_a_skipped_warm_up_is_no_gap() -> None:
    skipped = f"{AT} Skipping warmup...\n"
    text = ENGINE + WEIGHTS + sized() + skipped + READY
    assert set(found(text)) == {"warmup-skipped"}


def test_the_end_of_a_stopped_servers_log_is_not_whole_either() -> None:
    text = ENGINE + READY + f"{AT} [shutdown] API server: shutdown triggered\n"
    codes = list(found(text))
    assert codes[:2] == ["log-incomplete", "stopped"]


def split(free: float, usable: float, reserve: float, kv: float, blocks: int) -> str:
    text = SPLIT.format(reserve=reserve, kv=kv, blocks=blocks)
    return text.replace("80 GiB, 72 GiB", f"{free} GiB, {usable} GiB")


@pytest.mark.parametrize("tail", [READY, dies("ValueError: what is this"), dies(OOM)])
def test_nothing_usable_is_told_and_nothing_is_proposed(tail: str) -> None:
    text = ENGINE + WEIGHTS + split(0, 0, 0, 64.78, 4146).replace(" 0 GiB", " 0 B")
    text += WARM.format(used=0.5) + tail
    assert propose(start_of_text(text)) is None
    if tail == READY:
        seen = found(text)["kv-none"]
        assert seen.title.startswith("The log prints 0 B of usable memory")


@pytest.mark.parametrize("blocks", [0, -5])
def test_no_block_is_no_kv_cache(blocks: int) -> None:
    text = (
        ENGINE + WEIGHTS + sized(blocks=blocks) + LISTS + WARM.format(used=6.5) + READY
    )
    findings = found(text)
    assert f"prints {blocks} KV blocks" in findings["kv-none"].title
    assert "buckets-above-kv" not in findings


AMOUNTS = st.floats(-100, 100).map(lambda amount: round(amount, 2))


@settings(max_examples=40)
@given(AMOUNTS, AMOUNTS, AMOUNTS, AMOUNTS, st.integers(-9, 9000), st.booleans())
def test_no_figures_can_break_the_report(
    free: float, usable: float, reserve: float, kv: float, blocks: int, dead: bool
) -> None:
    text = ENGINE + WEIGHTS + split(free, usable, reserve, kv, blocks) + LISTS
    text += WARM.format(used=6.5) + (dies(OOM) if dead else READY)
    report = build_report([("s.log", state_of_text(text))], shipped_findings())
    assert render_text(report)


@pytest.mark.parametrize(
    ("before", "code"),
    [
        (ENGINE, "weights-oom"),
        (ENGINE + WEIGHTS, "weights-oom"),
        (ENGINE + WEIGHTS + WRAPPED, "sizing-oom"),
        (ENGINE + WEIGHTS + sized() + BAR, "warmup-oom"),
        (ENGINE + WEIGHTS + sized() + WARM.format(used=6.5) + READY, "serving-oom"),
    ],
)
def test_memory_that_runs_out_is_told_by_its_phase(before: str, code: str) -> None:
    findings = list(findings_of(start_of_text(before + dies(OOM)), shipped_findings()))
    assert findings[0].name == code
    assert findings[0].severity == "error"
    assert findings[0].numbers["wanted_bytes"] == 2 * 1024**3
    last = (before + dies(OOM)).count("\n")
    assert [line.number for line in findings[0].lines] == [last]


def test_a_kv_cache_that_doesnt_fit_after_all_is_no_matter_of_the_profile_run() -> None:
    profiled = found(ENGINE + WEIGHTS + WRAPPED + dies(OOM))["sizing-oom"]
    assert "profile run" in profiled.title
    allocated = found(ENGINE + WEIGHTS + WRAPPED + sized() + dies(OOM))["sizing-oom"]
    assert "KV cache allocation" in allocated.title
    assert "hl-smi" in allocated.cure


def test_weights_that_dont_fit_are_no_matter_of_the_reserve() -> None:
    seen = found(ENGINE + dies(OOM))["weights-oom"]
    assert "reserve can't help" in seen.why
    assert "--tensor-parallel-size" in seen.cure


def test_a_code_bug_in_warm_up_is_named_and_is_no_memory() -> None:
    text = ENGINE + WEIGHTS + sized() + BAR + dies("KeyError: 0")
    text += (
        "(APIServer pid=1) Traceback (most recent call last):\n"
        '(APIServer pid=1)   File "/opt/x/utils.py", line 9, in wait\n'
        "(APIServer pid=1) RuntimeError: Engine core initialization failed. See root "
        "cause above. Failed core proc(s): {}\n"
    )
    seen = found(text)["warmup-failed"]
    assert "KeyError: 0 in attend" in seen.title
    assert "prompt bucket 3 of 48" in seen.title
    assert seen.why == "This is a code bug, not memory."


@pytest.mark.parametrize(
    ("before", "exception", "code"),
    [
        (ENGINE, "OSError: [Errno 98] Address already in use", "start-failed"),
        (
            ENGINE + WEIGHTS,
            (
                "ValueError: No available memory for the cache blocks. Try increasing "
                "`gpu_memory_utilization` when initializing the engine."
            ),
            "kv-none",
        ),
        (
            ENGINE + WEIGHTS,
            (
                "ValueError: The model's max seq len (8192) is larger than the maximum number "
                "of tokens that can be stored in KV cache (4096). Try increasing"
            ),
            "kv-short",
        ),
        (
            ENGINE + WEIGHTS + sized() + BAR,
            (
                "TimeoutError: Timed out waiting for engine core processes to start. This is "
                "often caused by slow weight loading for large models. Waited 600s "
                "(configured by VLLM_ENGINE_READY_TIMEOUT_S)."
            ),
            "warmup-timeout",
        ),
        (ENGINE + READY, "WeirdError: what is this", "server-died"),
    ],
)
def test_other_ends(before: str, exception: str, code: str) -> None:
    assert code in found(before + dies(exception))


def test_an_exception_that_nobody_knows_is_told_as_such() -> None:
    seen = found(ENGINE + READY + dies("WeirdError: what is this"))["server-died"]
    assert "doesn't know" in seen.why


def test_an_idle_reserve_without_load_is_not_proven() -> None:
    text = ENGINE + WEIGHTS + sized() + WARM.format(used=0.5) + READY
    finding = found(text)["reserve-idle"]
    assert finding.severity == "info"
    assert "not proven under load" in finding.why
    assert finding.numbers["idle_bytes"] == pytest.approx(6.7 * 1024**3)
    assert finding.numbers["idle_kv_blocks"] == 428
    assert [line.number for line in finding.lines] == [3, 4, 5]


def stats(use: float, waiting: int = 0) -> str:
    return (
        f"{AT} Engine 000: Avg prompt throughput: 900.0 tokens/s, Avg generation "
        f"throughput: 90.0 tokens/s, Running: 8 reqs, Waiting: {waiting} reqs, GPU KV "
        f"cache usage: {use}%, Prefix cache hit rate: 0.0%\n"
    )


def test_an_idle_reserve_that_nobody_needs_is_information() -> None:
    text = ENGINE + WEIGHTS + sized() + WARM.format(used=0.5) + READY
    finding = found(text + stats(40.0) * 4)["reserve-idle"]
    assert finding.severity == "info"
    assert finding.cure.startswith("Change nothing")
    assert finding.numbers["kv_use_peak_percent"] == 40.0
    assert "kv-tight" not in found(text + stats(40.0) * 4)


def test_a_full_kv_cache_beside_an_idle_reserve_asks_for_it() -> None:
    text = ENGINE + WEIGHTS + sized() + WARM.format(used=0.5) + READY
    findings = found(text + stats(95.0, waiting=3) * 4)
    assert findings["reserve-idle"].severity == "warning"
    assert "95.0 %" in findings["kv-tight"].title


def test_waiting_beside_an_empty_cache_points_elsewhere() -> None:
    text = ENGINE + WEIGHTS + sized() + WARM.format(used=6.9) + READY
    seen = found(text + stats(30.0, waiting=3) * 8)["kv-tight"]
    assert "--max-num-seqs" in seen.cure


def test_graphs_larger_than_the_reserve() -> None:
    text = ENGINE + WEIGHTS + sized() + WARM.format(used=9.0) + READY
    finding = found(text)["reserve-short"]
    assert finding.severity == "warning"
    assert finding.numbers["short_bytes"] == pytest.approx(1.8 * 1024**3)
    assert "as proposed" in finding.cure


def test_graphs_larger_than_all_that_is_usable_get_no_promise_of_a_proposal() -> None:
    text = ENGINE + WEIGHTS + sized() + WARM.format(used=200.0) + READY
    assert propose(start_of_text(text)) is None
    cure = found(text)["reserve-short"].cure
    assert "as proposed" not in cure
    assert "fewer buckets" in cure


def test_a_graph_budget_that_ran_out() -> None:
    text = (
        ENGINE
        + f"{AT} Graph/Prompt captured:15 (62.5%) used_mem:14.03 GiB buckets:[(1, 128)]\n"
        + f"{AT} Graph/Decode captured:48 (100.0%) used_mem:161.9 MiB buckets:[(4, 128)]\n"
        + READY
    )
    seen = found(text)["graphs-incomplete"]
    assert "62.5 % of the prompt graphs" in seen.title
    assert "VLLM_GRAPH_PROMPT_RATIO" in seen.cure


def test_a_card_that_warm_up_all_but_filled() -> None:
    text = (
        ENGINE
        + f"{AT} Initializing cache engine took 70 GiB of device memory (93 GiB/94.62 GiB "
        "used) and 0 B of host memory (5 GiB/10 GiB used)\n"
        + f"{AT} [Warmup][Decode][8/8] batch_size:4 query_len:1 num_blocks:16 "
        "free_mem:1.476 GiB\n" + WARM.format(used=1) + READY
    )
    assert "1.476 GiB" in found(text)["memory-thin"].title


def buckets(phase: str, listed: str) -> str:
    count = listed.count("(")
    return (
        f"{AT} Generated {count} {phase} buckets [bs, query, num_blocks]: [{listed}]\n"
    )


def not_warmed(phase: str, *sizes: int) -> str:
    shape = ", ".join(str(size) for size in sizes)
    return (
        f"WARNING 01-02 03:04:05 [m.py:1] Configuration: ('{phase}', {shape}) was not "
        "warmed-up!\n"
    )


LISTS = buckets("prompt", "(1, 128, 0), (1, 4096, 0), (1, 4096, 32)") + buckets(
    "decode", "(1, 1, 128), (64, 1, 128), (64, 1, 1024)"
)


@pytest.mark.parametrize(
    ("missed", "said"),
    [
        (
            not_warmed("decode", 64, 1, 5120),
            "blocks 5,120 (5.0 times the largest, 1,024)",
        ),
        (not_warmed("decode", 96, 1, 128), "batch 96 (1.5 times the largest, 64)"),
        (not_warmed("prompt", 1, 8192, 0), "query length 8,192 (2.0 times the largest"),
        (not_warmed("prompt", 1, 4096, 64), "blocks 64 (2.0 times the largest, 32)"),
        (not_warmed("prompt", 1, 4096), "yet warm-up did not reach them"),
        (not_warmed("prompt", 1, 256, 0), "between the buckets"),
        (
            (
                "WARNING 01-02 03:04:05 [common.py:1] Decode bucket for (1, 1, 1024) was not "
                "prepared. Adding new bucket: (1, 1, 1024)\n"
            ),
            "no bucket combines",
        ),
    ],
)
def test_a_missed_shape_names_the_range_that_it_misses(missed: str, said: str) -> None:
    seen = found(ENGINE + LISTS + READY + missed)["bucket-miss"]
    assert said in seen.why
    assert seen.lines[0].number == 5


def test_a_missed_range_names_the_variable_and_what_ignores_it() -> None:
    features = (
        "INFO 01-02 03:04:05 [runtime.py:28] Features:\n"
        "INFO 01-02 03:04:05 [runtime.py:32]     bucketing_strategy: {}\n"
    )
    missed = READY + not_warmed("decode", 64, 1, 5120)
    linear = found(ENGINE + features.format("lin") + LISTS + missed)["bucket-miss"]
    assert "VLLM_DECODE_BLOCK_BUCKET_MAX" in linear.cure
    assert "ignores" not in linear.cure
    exponential = found(ENGINE + features.format("exp") + LISTS + missed)["bucket-miss"]
    assert "ignores" in exponential.cure


def test_misses_without_warm_up_are_what_had_to_come() -> None:
    text = ENGINE + f"{AT} Skipping warmup...\n" + READY
    findings = found(text + not_warmed("decode", 1, 1, 128))
    assert findings["bucket-miss"].severity == "info"
    assert findings["warmup-skipped"].severity == "warning"


def test_decode_buckets_beyond_the_kv_cache() -> None:
    text = ENGINE + WEIGHTS + sized(blocks=500) + LISTS
    seen = found(text)["buckets-above-kv"]
    assert "1 of 3 decode buckets" in seen.title


def test_a_log_that_ends_too_early() -> None:
    seen = found(ENGINE + WEIGHTS + sized() + BAR)["not-ready"]
    assert "in warm-up (prompt 2 of 48)" in seen.title


def test_an_ordinary_stop_with_a_dead_engine_in_it_is_no_fault() -> None:
    text = (
        ENGINE
        + READY
        + f"{AT} [shutdown] API server: shutdown triggered\n"
        + f"{AT} [shutdown] MPClient: complete\n"
        + "ERROR 01-02 03:04:05 [async_llm.py:7] vllm.v1.engine.exceptions."
        "EngineDeadError: EngineCore encountered an issue. See stack trace (above) for "
        "the root cause.\n"
    )
    findings = found(text)
    assert "stopped" in findings
    assert all(each.severity == "info" for each in findings.values())


def test_an_engine_that_dies_under_load_is_one() -> None:
    text = (
        ENGINE
        + READY
        + "ERROR 01-02 03:04:05 [core.py:7] Engine core proc EngineCore died "
        "unexpectedly, shutting down client.\n"
        + "INFO:     Shutting down\nINFO:     Finished server process [7]\n"
    )
    assert "server-died" in found(text)


def test_findings_come_gravest_first_and_have_documented_codes() -> None:
    text = (
        ENGINE
        + LISTS
        + READY
        + not_warmed("decode", 64, 1, 5120)
        + dies("TypeError: x")
    )
    findings = findings_of(start_of_text(text), shipped_findings())
    order = [SEVERITIES.index(each.severity) for each in findings]
    assert order == sorted(order, reverse=True)
    kinds = {kind.code: kind.name for kind in shipped_findings().kinds}
    assert all(kinds[each.code] == each.name for each in findings)


def test_every_kind_has_its_check_and_every_check_its_kind() -> None:
    assert {kind.name for kind in shipped_findings().kinds} == {*CHECKS, ALL_GOOD}


def test_the_documentation_has_the_tables_and_no_kind_twice(checkout: Path) -> None:
    page = (checkout / "docs/findings.md").read_text(encoding="utf-8")
    assert shipped_findings().documentation() in page
    for kind in shipped_findings().kinds:
        assert page.count(f"| `{kind.code}` | `{kind.name}` |") == 1


def test_every_fault_class_of_the_rules_has_a_cause(checkout: Path) -> None:
    text = (checkout / "rules/parse/faults.yaml").read_text(encoding="utf-8")
    rules = yaml.safe_load(text)["rules"]
    names = {rule["set"]["name"] for rule in rules if rule["event"] == "fault"}
    assert names - {UNKNOWN} <= set(CAUSES)


FEATURE = "INFO 01-02 03:04:05 [runtime.py:32]     bucketing_strategy: {}\n"
FORK = f"{AT} Initializing an LLM engine (v0.6.4.post2+Gaudi-1.19.0) with config: model='m', "
FROM_FILE = "INFO 01-02 03:04:05 [runtime.py:32]     VLLM_BUCKETING_FROM_FILE: /b.txt\n"


@pytest.mark.parametrize("strategy", ["exp", "exponential_bucketing"])
def test_a_cure_never_names_a_variable_that_the_strategy_ignores(strategy: str) -> None:
    text = ENGINE + FEATURE.format(strategy) + WEIGHTS + sized(blocks=500) + LISTS
    above = found(text + READY)["buckets-above-kv"].cure
    findings = found(text + READY + not_warmed("decode", 64, 1, 5120))
    assert "lower --max-num-seqs or --max-model-len" in above
    assert "Lower VLLM_DECODE_BLOCK_BUCKET_MAX" not in above
    assert "VLLM_BUCKETING_STRATEGY=lin" in above
    missed = findings["bucket-miss"].cure
    assert not missed.startswith("Raise VLLM_DECODE")
    assert missed.startswith(
        "Set VLLM_BUCKETING_STRATEGY=lin and raise VLLM_DECODE_BLOCK"
    )
    assert "--max-num-seqs and --max-model-len" in missed


@pytest.mark.parametrize("strategy", ["lin", "linear_bucketing", "pad"])
def test_a_cure_names_the_variable_that_the_strategy_heeds(strategy: str) -> None:
    text = ENGINE + FEATURE.format(strategy) + WEIGHTS + sized(blocks=500) + LISTS
    findings = found(text + READY + not_warmed("decode", 64, 1, 5120))
    assert found(text + READY)["buckets-above-kv"].cure == (
        "Lower VLLM_DECODE_BLOCK_BUCKET_MAX if prompts share no long beginning."
    )
    assert findings["bucket-miss"].cure == (
        "Raise VLLM_DECODE_BLOCK_BUCKET_MAX, or limit the requests."
    )


def test_the_strategy_is_read_off_the_ranges_where_nothing_else_tells() -> None:
    ranges = (
        "Decode bucket config (min, step, max_warmup, limit) bs:[1, 2, 64, 7], "
        "block:[1, 64, 1024, 11]\n"
    )
    text = ENGINE + ranges + WEIGHTS + sized(blocks=500) + LISTS
    assert "exponential strategy" in found(text)["buckets-above-kv"].cure


def test_a_bucket_file_is_the_cure_of_what_it_lists() -> None:
    text = ENGINE + FROM_FILE + WEIGHTS + sized(blocks=500) + LISTS + READY
    findings = found(text + not_warmed("decode", 64, 1, 5120))
    cures = found(text)["buckets-above-kv"].cure, findings["bucket-miss"].cure
    for cure in cures:
        assert "bucket file" in cure
        assert "_BUCKET_MAX" not in cure


def test_an_older_release_gets_its_own_spelling() -> None:
    lists = "Generated 2 prompt buckets [bs, seq]: [(1, 128), (1, 1024)]\n"
    missed = (
        "WARNING 01-02 03:04:05 m.py:1] Configuration: (prompt, 1, 4096) was not "
        "warmed-up!\n"
    )
    cure = found(FORK + "max_seq_len=8192\n" + lists + READY + missed)["bucket-miss"]
    assert "Raise VLLM_PROMPT_SEQ_BUCKET_MAX," in cure.cure


def short_of_kv(ratio: float, needed: float, *, usable: float = 72.0) -> str:
    reserve = usable * ratio
    split = SPLIT.splitlines(keepends=True)[0].format(
        reserve=f"{reserve:.4g}", kv=f"{usable - reserve:.4g}"
    )
    split = split.replace("MEM=0.1)", f"MEM={ratio:g})")
    fits = int(131072 * (usable - reserve) / needed)
    return (
        ENGINE
        + WEIGHTS
        + split
        + dies(
            "ValueError: To serve at least one request with the model's max seq len "
            f"(131072), ({needed:.2f} GiB KV cache is needed, which is larger than the "
            f"available KV cache memory ({usable - reserve:.2f} GiB). Based on the "
            f"available memory, the estimated maximum model length is {fits}. Try "
            "increasing `gpu_memory_utilization`."
        )
    )


def test_a_reserve_that_took_the_kv_cache_is_named_before_the_length() -> None:
    start = start_of_text(short_of_kv(0.9, 16.0))
    seen = found(short_of_kv(0.9, 16.0))["kv-short"]
    assert "one request of 131,072 tokens (--max-model-len) needs 16 GiB" in seen.title
    assert "takes 64.8 GiB of the 72 GiB usable" in seen.title
    assert "ValueError" not in seen.title
    assert seen.cure.startswith("Lower VLLM_GRAPH_RESERVED_MEM to 0.10 first")
    assert seen.numbers["reserve_ratio"] == 0.9
    proposal = propose(start)
    assert proposal is not None
    assert proposal.env == {RESERVE: "0.10"}
    assert proposal.flags == ()
    assert "Second choice: keep the reserve and set --max-model-len" in proposal.why


def test_the_length_is_proposed_where_a_smaller_reserve_is_not_enough() -> None:
    proposal = propose(start_of_text(short_of_kv(0.2, 70.0)))
    assert proposal is not None
    assert proposal.env == {}
    assert proposal.flags[0] == "--max-model-len"
    assert "reserve" not in found(short_of_kv(0.2, 70.0))["kv-short"].title


def test_an_unusual_reserve_is_lowered_though_the_length_must_shrink_too() -> None:
    proposal = propose(start_of_text(short_of_kv(0.6, 70.0)))
    assert proposal is not None
    assert proposal.env == {RESERVE: "0.10"}
    length = int(proposal.flags[1])
    assert length % 128 == 0
    assert length * 70 / 131072 <= 0.9 * 72
    cure = found(short_of_kv(0.6, 70.0))["kv-short"].cure
    assert f"0.10 first, and set --max-model-len {length}" in cure


def test_the_reserve_is_lowered_to_what_its_release_takes_by_default() -> None:
    text = short_of_kv(0.9, 16.0).replace("(v0.26.0)", "(v0.5.3+Gaudi-1.18.0)")
    proposal = propose(start_of_text(text))
    assert proposal is not None
    assert proposal.env == {RESERVE: "0.40"}


def test_a_reserve_of_one_or_more_gets_its_own_sentence() -> None:
    split = SPLIT.splitlines(keepends=True)[0].format(reserve=86.4, kv=-14.42)
    text = ENGINE + WEIGHTS + split.replace("MEM=0.1)", "MEM=1.2)")
    text += dies("ValueError: No available memory for the cache blocks.")
    seen = found(text)["kv-none"]
    assert "VLLM_GRAPH_RESERVED_MEM must be below 1" in seen.why
    assert "nothing is left for the KV cache" in seen.title
    assert propose(start_of_text(text)) is not None


FLAG = "INFO 01-02 03:04:05 [runtime.py:32]     VLLM_DECODE_BS_BUCKET_MAX: many\n"


@pytest.mark.parametrize(
    ("exception", "cure"),
    [
        (
            (
                "RuntimeError: VLLM_DECODE_BS_BUCKET_MAX: failed to process environment "
                "variable"
            ),
            "Correct VLLM_DECODE_BS_BUCKET_MAX (now 'many').",
        ),
        (
            "ValueError: invalid literal for int() with base 10: 'many'",
            "Correct VLLM_DECODE_BS_BUCKET_MAX (now 'many').",
        ),
        (
            "ValueError: invalid literal for int() with base 10: 'other'",
            "Correct the variable that the line names.",
        ),
    ],
)
def test_a_bad_value_is_told_by_its_variable(exception: str, cure: str) -> None:
    text = ENGINE + FLAG + WEIGHTS + dies(exception)
    assert found(text)["start-failed"].cure == cure


def test_graphs_are_summed_in_one_way_only() -> None:
    phases = (
        f"{AT} Graph/Prompt captured:63 used_mem:711.2 MiB\n"
        f"{AT} Graph/Decode captured:46 used_mem:410 MiB\n"
    )
    text = ENGINE + WEIGHTS + sized() + phases + WARM.format(used=1.094) + READY
    assert "Graphs took 1.094 GiB" in found(text)["reserve-idle"].why


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (1, "waiting in at most 1 of the engine's periodic lines (about 10 s)"),
        (3, "at most 3 of the engine's periodic lines in a row (about 30 s)"),
    ],
)
def test_waiting_is_told_by_lines_that_are_named(lines: int, said: str) -> None:
    text = ENGINE + WEIGHTS + sized() + WARM.format(used=0.5) + READY
    why = found(text + stats(40.0) * 4 + stats(40.0, waiting=2) * lines)
    assert said in why["reserve-idle"].why
    assert "no preemptions reported" in why["reserve-idle"].why


def test_a_card_with_the_memory_of_another_is_noted() -> None:
    card = "INFO 01-02 03:04:05 [runtime.py:32]     hw: gaudi3\n"
    took = (
        f"{AT} Loading model weights took in total 15 GiB of device memory "
        "(15.05 GiB/{} GiB used) and 1 GiB of host memory (5 GiB/10 GiB used)\n"
    )
    seen = found(ENGINE + card + took.format(94.62) + READY)["card-mismatch"]
    assert "94.62 GiB are the memory of a gaudi2" in seen.title
    assert "card-mismatch" not in found(ENGINE + card + took.format(126.5) + READY)
