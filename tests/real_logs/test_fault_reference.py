"""Every fault of the reference, in each phase where it can come: class, phase, place, rank."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from hpuwatch.advise.findings import findings_of
from hpuwatch.app.catalogue import shipped_findings
from hpuwatch.app.rules import shipped_rules
from hpuwatch.life.phases import Phase
from hpuwatch.parse.header import read
from hpuwatch.parse.parser import Parser
from hpuwatch.parse.rules import RuleSet
from hpuwatch.source.assemble import Assembler
from hpuwatch.state.model import Fault, Start, State
from hpuwatch.state.reduce import reduce

WHO = "(Worker_TP1 pid=8) "
INFO = f"{WHO}INFO 11-29 12:29:10 [hpu_worker.py:1] "
ERROR = f"{WHO}ERROR 11-29 12:29:10 [multiproc_executor.py:1] "
FRONT = "(APIServer pid=1) INFO 11-29 12:29:10 [api_server.py:1] "
ENGINE = (
    f"{FRONT}vLLM API server version 0.26.0\n"
    "(EngineCore pid=9) INFO 11-29 12:29:10 [core.py:1] Initializing a V1 LLM engine "
    "(v0.26.0) with config: model='m', max_seq_len=2048, device_config=hpu\n"
)
WEIGHTS = f"{INFO}Starting to load model m...\n"
PROFILE = f"{INFO}Wrapping in HPUGraph took 0.0000 GB\n"
SPLIT = (
    f"{INFO}Free device memory: 80 GiB, 72 GiB usable (gpu_memory_utilization=0.9), "
    "7.2 GiB reserved for HPUGraphs (VLLM_GRAPH_RESERVED_MEM=0.1), 16 MiB reserved for KV "
    "cache dummy block 64.78 GiB reserved for usable KV cache\n"
)
BUCKET = (
    f"{WHO}[Warmup][Prompt][3/48] batch_size:1 query_len:128 num_blocks:0 "
    "free_mem:7 GiB\n"
)
BAR = (
    "Decode warmup processing:   5%|# | 5/19 [00:01<00:12,  1.48item/s, 4/19]\r"
    "Decode warmup processing:  32%|# | 6/19 [00:02<00:12,  1.48item/s, 5/19]"
)
READY = "(APIServer pid=1) INFO:     Application startup complete.\n"

UP_TO: Mapping[str, tuple[str, Phase, str | None]] = {
    "start": (ENGINE, Phase.STARTING, None),
    "weights": (ENGINE + WEIGHTS, Phase.LOADING, None),
    "profile": (ENGINE + WEIGHTS + PROFILE, Phase.SIZING, "profile run"),
    "kv": (ENGINE + WEIGHTS + PROFILE + SPLIT, Phase.SIZING, "KV cache allocation"),
    "warm-up": (
        ENGINE + WEIGHTS + PROFILE + SPLIT + BUCKET,
        Phase.WARMING,
        "prompt bucket 3 of 48",
    ),
    "bars": (
        ENGINE + WEIGHTS + PROFILE + SPLIT + BUCKET + BAR,
        Phase.WARMING,
        "decode bucket 7 of 19",
    ),
    "serving": (ENGINE + WEIGHTS + PROFILE + SPLIT + BUCKET + READY, Phase.READY, None),
}
"""A log up to some moment, the phase it is in then, and the place within the phase."""

MOMENTS: Mapping[str, tuple[str, ...]] = {
    "any": tuple(UP_TO),
    "start": ("start",),
    "import": ("start",),
    "device init": ("start",),
    "load": ("weights",),
    "profiling": ("profile",),
    "KV sizing": ("kv",),
    "bucket generation": ("kv",),
    "warm-up": ("warm-up", "bars"),
    "first request": ("serving",),
    "serving": ("serving",),
}
"""The reference's words for phases."""

RAISED = re.compile(r"[\w.]+(?:: |$)")

BY_STATE = {
    "device_oom_warmup_hybrid",
    "preemption_storm",
    "recompile_stalls",
    "hang_no_progress",
}
"""Faults that no line tells by itself; for hang_no_progress see test_hang.py."""

ELSEWHERE = {
    "engine_ready_timeout": (
        "TimeoutError: Timed out waiting for engine core processes to start. This is"
    ),
    "kv_short": (
        "ValueError: The model's max seq len (8) is larger than the maximum number of "
        "tokens that can be stored in KV cache (4)."
    ),
    "fork_hang": (
        "On HPU, VLLM_WORKER_MULTIPROC_METHOD=fork might cause application hangs on exit."
    ),
    "device_lost": "habanalabs hl2: device is in reset",
    "device_oom_devmem": (
        "RuntimeError: [Rank:1] FATAL ERROR :: MODULE:PT_DEVMEM Allocation failed for "
        "size::268435456 (256)MB"
    ),
    "lazy_validate_inputs": (
        "[Rank:1] FATAL ERROR :: MODULE:PT_LAZY Error, ValidateSyncInputTensors "
        "tensor_data is empty. Tensorid:3375 QueueStatus:ThreadPool"
    ),
    "bridge_fatal_other": "[Rank:1] FATAL ERROR :: MODULE:PT_SYNHELPER text",
}
"""What the reference describes or shows for another rank."""


@lru_cache
def reference(folder: Path) -> tuple[Mapping[str, Any], ...]:
    text = (folder / "reference" / "faults.yaml").read_text(encoding="utf-8")
    return tuple(yaml.safe_load(text)["faults"])


def moments_of(phase: str) -> set[str]:
    return {each for word, found in MOMENTS.items() if word in phase for each in found}


def printed(message: str) -> Iterator[str]:
    """A fault as its process prints it: logged, bare on stderr, or without a traceback."""
    raised = message if RAISED.match(message) else f"RuntimeError: {message}"
    steps = ['  File "/opt/model.py", line 7, in run', "    forward()"]
    for head in (ERROR, WHO):
        begin = [f"{head}Traceback (most recent call last):"]
        yield "\n".join([*begin, *[head + each for each in steps], head + raised, ""])
    yield f"{WHO}a last word\n{ERROR}{message}\n"


@lru_cache
def rules() -> RuleSet:
    return shipped_rules()


def start_of(log: str) -> Start:
    parser, assembler, state = Parser(rules()), Assembler(), State()
    lines = [*assembler.feed(log.encode()), *assembler.close()]
    events = [event for line in lines for event in parser.feed(line)]
    for event in events + parser.close():
        state = reduce(state, event)
    return state.starts[-1]


def fault_in(log: str, name: str) -> Fault | None:
    found = [fault for fault in start_of(log).faults if fault.name == name]
    return found[0] if len(found) == 1 else None


def test_every_fault_has_its_phase_place_rank_and_context(shared: Path) -> None:
    mistakes, seen = [], 0
    for entry in reference(shared):
        if entry["id"] in BY_STATE:
            continue
        moments = moments_of(entry["phase"])
        assert moments, entry["phase"]
        (record,) = read(ELSEWHERE.get(entry["id"], entry["example"]))
        for moment in sorted(moments):
            before, phase, at = UP_TO[moment]
            for text in printed(record.message):
                seen += 1
                fault = fault_in(before + text, entry["id"])
                told = fault and (fault.phase, fault.at, fault.rank)
                if told != (phase, at, 1) or not (fault and fault.context):
                    mistakes.append((entry["id"], moment, text, fault))
    assert mistakes == []
    assert seen > 200


def test_bytes_wanted_are_told(shared: Path) -> None:
    by_id = {entry["id"]: entry for entry in reference(shared)}
    fault = fault_in(
        ENGINE + by_id["device_oom_devmem"]["example"], "device_oom_devmem"
    )
    assert fault is not None
    assert fault.wanted is not None
    assert (fault.wanted.bytes, fault.rank) == (268_435_456, 0)


def test_a_worker_that_only_a_pid_names_has_a_rank(shared: Path) -> None:
    (message,) = {e["example"] for e in reference(shared) if e["id"] == "pooler_oom"}
    worker = "(VllmWorkerProcess pid={}) {} 11-29 12:29:10 worker.py:1] {}\n"
    log = "".join(
        worker.format(pid, "INFO", "Loading weights on hpu...") for pid in (5, 6)
    )
    fault = fault_in(log + worker.format(6, "ERROR", message), "pooler_oom")
    assert fault is not None
    assert fault.rank == 2


def test_memory_that_runs_out_in_a_hybrid_models_warm_up(shared: Path) -> None:
    assert "device_oom_warmup_hybrid" in {entry["id"] for entry in reference(shared)}
    hybrid = (
        f"{INFO}Hybrid model (standard Mamba2 + ATN): adjusted usable KV cache from "
        "64.78 GiB to 20.1 GiB (attn_page=128, mamba_state=256, ratio=0.468)\n"
    )
    sized = ENGINE + WEIGHTS + PROFILE + SPLIT + hybrid
    oom = f"{ERROR}{ELSEWHERE['device_oom_devmem']}\n"
    fault = fault_in(sized + BUCKET + oom, "device_oom_warmup_hybrid")
    assert fault is not None
    assert fault.at == "prompt bucket 3 of 48"
    assert fault_in(sized + oom, "device_oom_devmem") is not None


def codes(log: str) -> set[str]:
    return {finding.name for finding in findings_of(start_of(log), shipped_findings())}


STORM = (
    "(EngineCore pid=9) INFO 11-29 12:30:10 [loggers.py:1] Engine 000: Avg prompt "
    "throughput: 9.0 tokens/s, Avg generation throughput: 90.0 tokens/s, Running: "
    "64 reqs, Waiting: 30 reqs, Preemptions: 12, GPU KV cache usage: 99.1%, "
    "Prefix cache hit rate: 0.0%\n"
)
RECOMPILED = (
    "(EngineCore pid=9) WARNING 11-29 12:30:10 [hpu_model_runner.py:1] "
    "Configuration: ('prompt', 1, 896, 2) was not warmed-up!\n"
)


@pytest.mark.parametrize(
    ("lines", "code"),
    [(STORM, "kv-tight"), (RECOMPILED, "bucket-miss")],
    ids=["preemption_storm", "recompile_stalls"],
)
def test_what_many_lines_tell_is_a_finding(lines: str, code: str) -> None:
    quiet = UP_TO["serving"][0]
    assert code not in codes(quiet)
    assert code in codes(quiet + lines)
