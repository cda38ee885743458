"""Fourteen public pains of memory and buckets, each as a log of the same form.

What a person could have been told: a code, its severity, the figures that matter, and what
no line of the report may advise.  The figures are made up.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import product

import pytest

from hpuwatch.advise.finding import Finding
from hpuwatch.advise.findings import findings_of
from hpuwatch.advise.plan.reserve import propose
from hpuwatch.advise.report import build_report
from hpuwatch.app.catalogue import shipped_findings
from hpuwatch.gaudi.buckets import generate
from hpuwatch.gaudi.model import Bucket
from hpuwatch.gaudi.resolve import Flags, resolve
from hpuwatch.testing.agreement import contradictions
from hpuwatch.testing.logs import state_of_text
from hpuwatch.testing.starts import (
    READY,
    SIZES,
    Server,
    Split,
    died,
    finished,
    listed,
    logged,
    missed,
    out_of_memory,
    warmed,
)
from hpuwatch.units import GIB

pytestmark = pytest.mark.unit

COMPILE_FAILED = (
    "RuntimeError: Graph compile failed. synStatus=synStatus 26 [Generic failure]."
)
RESERVE = "VLLM_GRAPH_RESERVED_MEM"


@dataclass(frozen=True)
class Pain:
    """A case.

    Attributes:
        name: where it was told.
        log: what the server said.
        code: of the finding that answers it.
        numbers: or figures, by name, to one per cent.
        says: words of the finding.
        never: words that no cure of the report may hold.
        proposes: whether a change of the memory split may be proposed.
    """

    name: str
    log: str
    code: str
    severity: str
    numbers: Mapping[str, float] = field(default_factory=dict)
    says: tuple[str, ...] = ()
    never: tuple[str, ...] = ()
    proposes: bool = True


# 1: a hybrid model on four cards, whose warm-up needs more for a moment than it keeps.
HYBRID = Server(
    {"max_model_len": 8192, "max_num_seqs": 16, "max_num_batched_tokens": 8192},
    cards=4,
)
PROMPTS = [Bucket(1, 128 * n, 0) for n in range(1, 41)]
DECODES = [Bucket(batch, 1, 64) for batch in (1, 2, 4, 8, 16)]
HYBRID_LISTS = listed("prompt", PROMPTS) + listed("decode", DECODES)
TIGHT = Split(126.5, 7.1, ratio=0.05, hybrid_to=60.0, taken=102.0)
PEAK = (
    HYBRID.lines()
    + TIGHT.lines()
    + HYBRID_LISTS
    + warmed(
        "prompt",
        [(p, TIGHT.room - 0.42 * n) for n, p in enumerate(PROMPTS[::-1][:31])],
        40,
    )
    + out_of_memory(6144)
)
WIDE = Split(126.5, 7.1, ratio=0.25, hybrid_to=46.0, taken=80.6)
BARELY = (
    HYBRID.lines()
    + WIDE.lines()
    + HYBRID_LISTS
    + warmed(
        "prompt", [(p, WIDE.room - 0.42 * n) for n, p in enumerate(PROMPTS[::-1])], 40
    )
    + finished(600, 11.0)
)

# 2: blocks that were divided by the wrong page.
PAGES = Split(94.62, 18.0, hybrid_to=40.0, taken=14.5)

# 3: a reserve of 40 % for graphs that take little.
WASTED = Split(94.62, 16.0, ratio=0.4)

# 4: the older fork, whose reserve is divided by phase.
V0 = "INFO 08-02 17:36:30 habana_model_runner.py:1] "
BUDGETS = (
    f"{V0}Initializing an LLM engine (v0.6.4.post2+Gaudi-1.19.0) with config: "
    "model='m', max_seq_len=4096, tensor_parallel_size=1, device_config=hpu\n"
    f"{V0}Using 16 GiB/55.4 GiB of free device memory for HPUGraphs, 4.8 GiB for prompt and "
    "11.2 GiB for decode (VLLM_GRAPH_PROMPT_RATIO=0.3)\n"
    f"{V0}Graph/Prompt captured:15 (62.5%) used_mem:4.7 GiB buckets:[(1, 128)]\n"
    f"{V0}Graph/Decode captured:48 (100.0%) used_mem:161.9 MiB buckets:[(4, 128)]\n"
    f"{V0}Warmup finished in 60 secs, allocated 4.86 GiB of device memory\n"
)

# 5 and 6: a card that is full after warm-up; memory that nobody counts.
FULL = Split(94.62, 14.62, utilisation=0.99, ratio=0.1)
LIBRARIES = Split(94.62, 30.0, utilisation=0.95, ratio=0.05, beside=4.5)
SIMPLE = listed("prompt", [(1, 128, 0), (1, 8192, 0)]) + listed(
    "decode", [(1, 1, 128), (64, 1, 256)]
)

# 7: a cache that holds one request, and the next release less than that.
ONE = Server(
    {"max_model_len": 131072, "max_num_seqs": 8, "max_num_batched_tokens": 8192}
)
ALONE = Split(94.62, 72.05, utilisation=0.95, ratio=0.05)
REFUSED = (
    "ValueError: To serve at least one request with the models's max seq len (131072), "
    "(20.0 GiB KV cache is needed, which is larger than the available KV cache memory "
    "(19.04 GiB). Based on the available memory, the estimated maximum model length is "
    "124672. Try increasing `gpu_memory_utilization` or decreasing `max_model_len` when "
    "initializing the engine."
)

# 9 and 11: decode buckets far above the cache.
DEFAULT = Server(
    {
        "max_model_len": 40960,
        "max_num_seqs": 256,
        "max_num_batched_tokens": 2048,
        "block_size": 128,
    }
)
TOWER = [Bucket(b, 1, c) for b, c in product((1, 64, 256), (512, 7168, 81920))]
LINEAR = Server(
    DEFAULT.sizes, strategy="lin", env={"VLLM_DECODE_BLOCK_BUCKET_MAX": "74304"}
)
HELM = [
    Bucket(b, 1, c) for b, c in product((1, 32, 128), (128, 2048, 4096, 37120, 74304))
]
HELM_LOG = (
    LINEAR.lines()
    + Split(blocks=4500).lines()
    + listed("prompt", [(1, 128, 0), (1, 2048, 0)])
    + listed("decode", HELM)
)

# 12: 416 decode buckets of 45 s.
LARGE = Server(
    {**SIZES, "max_num_seqs": 128, "block_size": 128},
    strategy="lin",
    env={"VLLM_DECODE_BS_BUCKET_STEP": "16", "VLLM_DECODE_BLOCK_BUCKET_STEP": "80"},
    cards=8,
)
MANY = generate(
    resolve(
        "gaudi-plugin-0.26", Flags(128, 8192, 8192, 4000, strategy="lin"), LARGE.env
    ),
    "decode",
)


# 13: a minimum that the list doesn't keep.
FIXED = Server(
    strategy="lin",
    env={"VLLM_DECODE_BS_BUCKET_MIN": "32", "VLLM_DECODE_BLOCK_BUCKET_MIN": "768"},
)

PAINS = (
    Pain(
        "vllm-gaudi#1736",
        PEAK,
        "HPW106",
        "warning",
        {
            "bucket": 31,
            "buckets": 40,
            "free_bytes": (TIGHT.room - 0.42 * 30) * GIB,
            "peak_step_bytes": 6 * GIB,
            "taken_bytes": 0.42 * 30 * GIB,
        },
        ("prompt bucket 31 of 40", "lie idle afterwards", "VLLM_COMPACT_GDN=1"),
        ("raise --gpu-memory-utilization",),
    ),
    Pain(
        "vllm-gaudi#1752",
        Server().lines() + PAGES.lines() + SIMPLE + finished(30, 4.0),
        "HPW110",
        "warning",
        {
            "kv_planned_bytes": 40 * GIB,
            "kv_taken_bytes": 14.5 * GIB,
            "difference_percent": 64,
        },
        ("64 % less", "Don't tune by the number of blocks"),
        proposes=False,
    ),
    Pain(
        "vllm-fork#292",
        Server().lines() + WASTED.lines() + SIMPLE + finished(30, 1.566),
        "HPW101",
        "info",
        {"used_bytes": 1.566 * GIB, "idle_bytes": (WASTED.reserve - 1.566) * GIB},
        ("not proven under load",),
    ),
    Pain(
        "vllm-fork#147",
        BUDGETS + READY,
        "HPW103",
        "warning",
        {
            "prompt_captured_percent": 62.5,
            "prompt_budget_bytes": 4.8 * GIB,
            "decode_budget_bytes": 11.2 * GIB,
            "decode_used_bytes": 161.9 * 1024**2,
            "prompt_ratio": 0.3,
        },
        ("62.5 % of the prompt graphs", "raise VLLM_GRAPH_PROMPT_RATIO first"),
        proposes=False,
    ),
    Pain(
        "vllm-fork#276",
        Server().lines()
        + FULL.lines()
        + SIMPLE
        + warmed("decode", [((64, 1, 256), 2.6), ((1, 1, 128), 1.476)], 2)
        + finished(60, 6.9),
        "HPW104",
        "warning",
        {"free_bytes": 1.476 * GIB, "total_bytes": 94.62 * GIB},
        ("Only 1.476 GiB", "Lower --gpu-memory-utilization"),
        ("Raise --gpu-memory-utilization", "raise --gpu-memory-utilization"),
    ),
    Pain(
        "vllm-fork#1667",
        Server(cards=4).lines()
        + LIBRARIES.lines()
        + SIMPLE
        + warmed("prompt", [((1, 8192, 0), LIBRARIES.room)], 2)
        + out_of_memory(2048),
        "HPW108",
        "warning",
        {"unexplained_bytes": 4.5 * GIB, "utilisation_that_holds_it": 0.93},
        ("4.5 GiB of the card", "--gpu-memory-utilization to 0.93 or less (now 0.95)"),
        ("0.7",),
    ),
    Pain(
        "vllm-gaudi#1146 before",
        ONE.lines()
        + ALONE.lines()
        + logged("Maximum concurrency for 131072 tokens per request: 1.02x")
        + READY,
        "HPW109",
        "warning",
        {
            "concurrency": 1.02,
            "max_model_len": 131072,
            "kv_spare_bytes": ALONE.cache * (1 - 1 / 1.02) * GIB,
        },
        ("refuses to start",),
    ),
    Pain(
        "vllm-gaudi#1146 after",
        ONE.lines() + ALONE.lines().splitlines(keepends=True)[0] + died(REFUSED),
        "HPW004",
        "error",
    ),
    Pain(
        "vllm-gaudi#1605",
        Server().lines()
        + logged("Starting to load model made-up-70b...")
        + out_of_memory(448),
        "HPW001",
        "error",
        {"wanted_bytes": 448 * 1024**2},
        (f"{RESERVE}: ", "--tensor-parallel-size"),
        (f"Raise {RESERVE}", f"larger {RESERVE}"),
        proposes=False,
    ),
    Pain(
        "vllm-gaudi#1700",
        DEFAULT.lines()
        + Split(blocks=7593).lines()
        + listed("prompt", [(1, 128, 0), (1, 2048, 0)])
        + listed("decode", TOWER)
        + warmed("decode", [((256, 1, 81920), 14.0)], 9)
        + out_of_memory(12000),
        "HPW201",
        "warning",
        {
            "kv_blocks": 7593,
            "largest_bucket_blocks": 81920,
            "decode_range_above_kv_percent": 91,
        },
        ("ran out of memory among the decode buckets", "lower --max-num-seqs"),
        ("Lower VLLM_DECODE_BLOCK_BUCKET_MAX",),
    ),
    Pain(
        "vllm-gaudi#993",
        DEFAULT.lines()
        + Split(blocks=7593).lines()
        + listed("prompt", [(1, 128, 0), (1, 2048, 0)])
        + listed("decode", [b for b in TOWER if b.context < 7593])
        + READY,
        "HPW202",
        "info",
        {"decode_buckets": 6, "decode_buckets_only_in_log": 5},
        ("Trust the log's list",),
    ),
    Pain(
        "Enterprise-Inference helm values",
        HELM_LOG + READY,
        "HPW201",
        "info",
        {"decode_range_above_kv_percent": 94, "decode_buckets_above_kv": 6},
        (
            "94 % of the decode block range",
            "unless prompts share a beginning",
            "Lower VLLM_DECODE_BLOCK_BUCKET_MAX",
        ),
    ),
    Pain(
        "vllm-gaudi 6cd91242",
        HELM_LOG + READY + missed("decode", 32, 1, 5200),
        "HPW201",
        "info",
        {"asked_blocks_most": 5200},
        ("here they come", "Leave the range as it is"),
        ("Lower VLLM_DECODE_BLOCK_BUCKET_MAX",),
    ),
    Pain(
        "vllm-fork#1194",
        LARGE.lines()
        + Split(126.5, 60.0).lines()
        + listed("prompt", [(1, 8192, 0)])
        + listed("decode", MANY)
        + warmed(
            "decode",
            [(MANY[202], 14.95), (MANY[203], 14.93)],
            len(MANY),
            each_seconds=45,
            first=203,
        )
        + died(COMPILE_FAILED),
        "HPW209",
        "warning",
        {
            "decode_buckets": len(MANY),
            "buckets_done": 203,
            "seconds_per_bucket": 45,
            "decode_warmup_seconds": len(MANY) * 45,
            "free_bytes": 14.93 * GIB,
        },
        (
            f"{len(MANY) * 45 / 3600:.1f} h",
            "memory is not what the log shows",
            "--max-num-seqs",
        ),
        (f"Raise {RESERVE}", f"larger {RESERVE}"),
        proposes=False,
    ),
    Pain(
        "vllm-fork#232",
        FIXED.lines()
        + Split().lines()
        + listed("prompt", [(1, 128, 0), (1, 8192, 0)])
        + listed("decode", [(32, 1, 128), (32, 1, 768), (64, 1, 768)])
        + warmed("decode", [((64, 1, 768), 20.0)], 3)
        + died(COMPILE_FAILED),
        "HPW204",
        "warning",
        {"asked_blocks": 768, "made_blocks": 128, "bounds_not_kept": 1},
        ("VLLM_DECODE_BLOCK_BUCKET_MIN=768 was set and the list has 128 blocks",),
        (f"Raise {RESERVE}", f"larger {RESERVE}"),
        proposes=False,
    ),
    Pain(
        "vllm-gaudi#1734",
        Server().lines()
        + Split().lines()
        + SIMPLE
        + warmed("prompt", [((1, 8192, 0), 20.0)], 2)
        + died(COMPILE_FAILED),
        "HPW006",
        "error",
        says=("synStatus 26",),
        never=(f"Raise {RESERVE}", f"larger {RESERVE}"),
        proposes=False,
    ),
)


@cache
def findings(log: str) -> tuple[Finding, ...]:
    *earlier, start = state_of_text(log).starts
    return findings_of(start, shipped_findings(), earlier)


def told(pain: Pain) -> Finding:
    by_code = {each.code: each for each in findings(pain.log)}
    assert pain.code in by_code, sorted(by_code)
    return by_code[pain.code]


each_pain = pytest.mark.parametrize("pain", PAINS, ids=lambda pain: pain.name)


@each_pain
def test_a_pain_gets_its_finding_with_figures_and_evidence(pain: Pain) -> None:
    seen = told(pain)
    assert seen.severity == pain.severity
    known = {
        **seen.numbers,
        **{name: each.value for name, each in seen.figures.items()},
    }
    for name, right in pain.numbers.items():
        assert known[name] == pytest.approx(right, rel=0.01), name
    vain = [f"{each.knob}: {each.why}" for each in seen.cannot_help]
    text = " ".join((f"{seen.title}. {seen.why} {seen.cure}", *vain))
    for words in pain.says:
        assert words in text
    assert seen.lines
    assert all(line.text.strip() in pain.log for line in seen.lines)


@each_pain
def test_what_would_not_help_is_not_advised(pain: Pain) -> None:
    cures = [each.cure for each in findings(pain.log)]
    for words in pain.never:
        assert not [cure for cure in cures if words in cure]
    start = state_of_text(pain.log).starts[-1]
    proposal = propose(start)
    assert pain.proposes or proposal is None
    ratio = (proposal.env if proposal else {}).get(RESERVE, "0.5")
    assert 0 < float(ratio) < 1


@each_pain
def test_no_part_of_a_report_contradicts_another(pain: Pain) -> None:
    log = ("s.log", state_of_text(pain.log))
    (only,) = build_report([log], shipped_findings()).reports
    assert contradictions(only) == []


@each_pain
def test_every_interval_holds_its_value(pain: Pain) -> None:
    for finding in findings(pain.log):
        for name, each in finding.figures.items():
            assert each.low <= each.value <= each.high, (finding.code, name)


def test_a_failed_warm_up_tells_how_much_it_needs_and_what_then_lies_idle() -> None:
    seen = told(PAINS[0])
    need = seen.figures["reserve_needed_bytes"]
    # 30 buckets of 0.42 GiB were taken and 6 GiB more were asked for; 10 are to come.
    outside = TIGHT.room - TIGHT.reserve
    assert need.low >= (0.42 * 30 + 6 - outside) * GIB * 0.999
    assert need.origin == "prior" or need.value <= (0.42 * 45 + 6 - outside) * GIB * 1.1
    ratio = seen.figures["reserve_needed_ratio"]
    assert ratio.low >= 0.05


def test_levers_are_those_of_the_case() -> None:
    """Name the knobs that can help, each only where it does something."""
    helps = {pain.name: {x.knob for x in told(pain).helps} for pain in PAINS}
    assert "VLLM_COMPACT_GDN" in helps["vllm-gaudi#1736"]
    assert helps["vllm-fork#147"] == {"VLLM_GRAPH_PROMPT_RATIO", RESERVE}
    assert "VLLM_DECODE_BLOCK_BUCKET_MAX" not in helps["vllm-gaudi#1700"]
    assert "VLLM_DECODE_BLOCK_BUCKET_MAX" in helps["Enterprise-Inference helm values"]
    assert "VLLM_PROMPT_CTX_BUCKET_STEP" not in helps["vllm-fork#1194"]
    assert RESERVE in {x.knob for x in told(PAINS[0]).helps}


def test_an_earlier_start_that_got_through_is_quoted() -> None:
    *_, seen = [each for each in findings(BARELY + PEAK) if each.code == "HPW106"]
    assert seen.numbers["earlier_reserve_ratio"] == 0.25
    assert seen.numbers["earlier_idle_bytes"] == pytest.approx(
        (WIDE.reserve - 11.0) * GIB, rel=0.01
    )
    assert "An earlier start with 0.25 got through" in seen.why
