"""What broke: the root among the faults, its cause in words, and what helps.

``CAUSES`` has a sentence on the cause and one on the cure for each fault class of the
rules (a test compares the names).  Advice depends on the phase: memory that runs out while
weights load is another trouble than memory that runs out in warm-up.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from hpuwatch.life.phases import Phase
from hpuwatch.state.model import Fault, Start

UNKNOWN = "unknown_exception"


class Cause(NamedTuple):
    """Why a fault of a class comes, and what to do; both are sentences."""

    why: str
    cure: str


_OUT_OF_MEMORY = ("device_oom_devmem", "device_oom_warmup_hybrid", "pooler_oom")
_CONSEQUENCES = ("engine_dead_v0", "engine_dead_v1")
_FATAL = "fatal"
_ENDED = (Phase.DRAINING, Phase.STOPPING, Phase.STOPPED)

_BY_NAME = {"kv_none": "kv-none", "kv_short": "kv-short"}
_TIMEOUT = {"engine_ready_timeout": "warmup-timeout"}
_BY_PHASE = {
    Phase.STARTING: ("weights-oom", "start-failed"),
    Phase.LOADING: ("weights-oom", "start-failed"),
    Phase.SIZING: ("sizing-oom", "start-failed"),
    Phase.WARMING: ("warmup-oom", "warmup-failed"),
    Phase.SWITCHING: ("serving-oom", "server-died"),
    Phase.READY: ("serving-oom", "server-died"),
    Phase.DEGRADED: ("serving-oom", "server-died"),
}

_CODE_ERRORS = re.compile(
    r"(?:\w+\.)*(KeyError|TypeError|AttributeError|IndexError|NameError|"
    r"UnboundLocalError|AssertionError|NotImplementedError|ZeroDivisionError|ImportError|"
    r"ModuleNotFoundError|RecursionError)\b"
)
_NAMED = re.compile(r"\b([A-Z][A-Z0-9]*_[A-Z0-9_]+): failed to process")
_QUOTED = re.compile(r"(?:base 10|to float): '([^']*)'")
_FRAME = re.compile(r'File ".*", line \d+, in (\S+)')


def root_fault(start: Start) -> Fault | None:
    """Return the fault that ended the server: the first cause, else the first consequence.

    A front end complains of a dead engine in ordinary stops too, so what comes after a
    stop was asked for doesn't count.
    """
    fatal = [
        fault
        for fault in start.faults
        if fault.severity == _FATAL and fault.phase not in _ENDED
    ]
    causes = [
        fault for fault in fatal if fault.root and fault.name not in _CONSEQUENCES
    ]
    return next(iter(causes or fatal), None)


def code_of(fault: Fault) -> str:
    """Return the finding's code for a fault that ended the server."""
    if fault.name in _BY_NAME:
        return _BY_NAME[fault.name]
    if fault.name in _TIMEOUT:
        return _TIMEOUT[fault.name]
    memory, other = _BY_PHASE.get(fault.phase, ("serving-oom", "server-died"))
    return memory if fault.name in _OUT_OF_MEMORY else other


def described(fault: Fault) -> str:
    """Return the cause in a few words: ``KeyError: 0 in get_attention_context``."""
    message = fault.message.strip() or fault.line.text.strip()
    where = raised_in(fault) if fault.name == UNKNOWN else None
    return f"{message} in {where}" if where else message


def raised_in(fault: Fault) -> str | None:
    """Return the function that raised, from the traceback's last frame."""
    for line in reversed(fault.context):
        frame = _FRAME.search(line)
        if frame is not None:
            return frame[1]
    return None


def cause_of(fault: Fault) -> Cause:
    """Return why it came and what helps."""
    if fault.name in CAUSES:
        return CAUSES[fault.name]
    if _CODE_ERRORS.match(fault.message.strip()):
        return Cause(
            "This is a code bug, not memory.",
            "Report it with the traceback, or go back to the release that worked; "
            "no memory setting will help.",
        )
    return Cause(
        "hpuwatch doesn't know this exception.",
        "Read the traceback above it in the log.",
    )


def bad_value(start: Start, fault: Fault) -> Cause:
    """Return the cause for a variable that can't be read, by its name where it is told.

    The runtime names the variable in newer releases; older ones quote only the value,
    which is looked for among the variables that the log lists.
    """
    why, cure = CAUSES["bad_env_value"]
    flags = start.server.flags
    named, quoted = _NAMED.search(fault.message), _QUOTED.search(fault.message)
    name = named[1] if named else None
    if name is None and quoted:
        known = [each for each, said in flags.items() if said.value == quoted[1]]
        name = known[0] if len(known) == 1 else None
    if name is None:
        return Cause(why, cure)
    value = flags[name].value if name in flags else quoted[1] if quoted else None
    now = f" (now {value!r})" if value is not None else ""
    return Cause(f"{name} has a value that can't be read.", f"Correct {name}{now}.")


CAUSES: Mapping[str, Cause] = MappingProxyType(
    {
        "device_oom_devmem": Cause(
            "The card's memory ran out.",
            "Leave more room: a larger VLLM_GRAPH_RESERVED_MEM, fewer or smaller buckets, "
            "a lower --max-num-seqs or --max-num-batched-tokens.",
        ),
        "device_oom_warmup_hybrid": Cause(
            "The KV cache of a hybrid model left too little for warm-up.",
            "Set VLLM_COMPACT_GDN=1, or raise VLLM_GRAPH_RESERVED_MEM.",
        ),
        "pooler_oom": Cause(
            "Warming up the pooler ran out of memory.",
            "Lower --max-num-seqs or the largest prompt bucket.",
        ),
        "graph_compile_failed": Cause(
            "The graph compiler refused a shape, often after an upgrade.",
            "Check that driver, firmware and container belong together; try the release "
            "that worked with the same flags.",
        ),
        "syn_node_create": Cause(
            "The card's software doesn't support an operation or its shape.",
            "Check that driver, firmware and container belong together.",
        ),
        "device_acquire_generic": Cause(
            "The card could not be acquired.",
            "Check hl-smi, the driver, --runtime=habana and HABANA_VISIBLE_DEVICES.",
        ),
        "device_busy": Cause(
            "Another process holds the card.",
            "Stop it (it may be a leftover worker), or choose other cards.",
        ),
        "device_type_unknown": Cause(
            "The Gaudi software was not found in this environment.",
            "Install vllm-gaudi and the habana-torch-plugin that belongs to it.",
        ),
        "lazy_validate_inputs": Cause(
            "The lazy bridge met hardware or code that it can't handle.",
            "Use supported hardware, or another release.",
        ),
        "bridge_fatal_other": Cause(
            "The PyTorch bridge gave up.",
            "Read the words behind MODULE: in the log line.",
        ),
        "segfault_native": Cause(
            "Native code crashed.",
            "In lazy mode with tensor parallelism set "
            "PT_HPU_ENABLE_LAZY_COLLECTIVES=true; else check the versions.",
        ),
        "hccl_error": Cause(
            "The cards could not talk to each other.",
            "Check the ports (hl-smi), and --net and --ipc of the container.",
        ),
        "deadlock_warning": Cause(
            "One rank failed, the others may wait for ever.",
            "The cause is the traceback above it.",
        ),
        "engine_dead_v1": Cause(
            "The engine died; this line is the consequence.",
            "Look for the first error before it.",
        ),
        "engine_dead_v0": Cause(
            "The engine died; this line is the consequence.",
            "Look for the first error before it.",
        ),
        "engine_ready_timeout": Cause(
            "The front end waited for the engine until its own limit, and ended a server "
            "that may have been healthy.",
            "Set VLLM_ENGINE_READY_TIMEOUT_S above the length of warm-up, or warm fewer "
            "buckets.",
        ),
        "kv_none": Cause(
            "Weights and workspace leave nothing for a KV cache.",
            "Spread the model over more cards or use FP8; lower VLLM_GRAPH_RESERVED_MEM "
            "or raise --gpu-memory-utilization if they are unusual.",
        ),
        "kv_short": Cause(
            "The KV cache can't hold a single request of --max-model-len tokens.",
            "Lower --max-model-len, or make room for KV cache.",
        ),
        "kv_underprovisioned": Cause(
            "The model that was switched to got fewer KV blocks than it needs.",
            "Lower --max-num-seqs, or give that model more memory.",
        ),
        "zero_buckets": Cause(
            "The bucket settings leave no bucket at all.",
            "Change the limit that the lines before it name.",
        ),
        "bucket_min_gt_max": Cause(
            "A bucket minimum lies above its maximum.",
            "Correct the VLLM_…_BUCKET_MIN or _MAX; skipping warm-up, as the text says, "
            "is no cure.",
        ),
        "bad_env_value": Cause(
            "An environment variable has a value that can't be read.",
            "Correct the variable that the line names.",
        ),
        "bad_strategy": Cause(
            "VLLM_BUCKETING_STRATEGY is none of exp, lin and pad.",
            "Set one of them.",
        ),
        "bucket_file_malformed": Cause(
            "The bucket file has a line that the runtime trips over.",
            "Correct the file that VLLM_BUCKETING_FROM_FILE names.",
        ),
        "mamba_divisible": Cause(
            "The token budget is no multiple of the model's chunk size.",
            "Round --max-num-batched-tokens to a multiple.",
        ),
        "slice_size": Cause(
            "A prompt's length is no multiple of the attention slice.",
            "Set the prompt buckets' minimum and step to the slice size.",
        ),
        "skip_guard_recompile": Cause(
            "VLLM_FULL_WARMUP forbids shapes that warm-up did not see.",
            "Unset it, or widen the buckets.",
        ),
        "dynamo_limit": Cause(
            "torch.compile made more variants than its limit.",
            "Warm fewer buckets, or compile by region.",
        ),
        "runtime_scale_patching": Cause(
            "This FP8 scaling method doesn't go with runtime scale patching.",
            "Set RUNTIME_SCALE_PATCHING=0.",
        ),
        "max_concurrency_assert": Cause(
            "More requests ran than the KV cache holds, which this release can't handle.",
            "Keep the clients below the printed maximum concurrency.",
        ),
        "all_reduce_assert": Cause(
            "The ranks don't agree on their number.",
            "Check --tensor-parallel-size; run one process per card.",
        ),
        "preemption_storm": Cause(
            "Requests are preempted again and again: the KV cache is too small.",
            "Lower --max-num-seqs, or make room for KV cache.",
        ),
        "recompile_stalls": Cause(
            "Shapes outside of the buckets compile while users wait.",
            "Widen the bucket range that the lines name.",
        ),
        "v1_removed_fork": Cause(
            "This fork has no V1 engine any more.",
            "Unset VLLM_USE_V1, or move to vllm-gaudi.",
        ),
        "unsupported_config": Cause(
            "Two features that are switched on exclude each other.",
            "Switch off one of the two that the line names.",
        ),
        "fork_hang": Cause(
            "Workers are forked, which may hang at exit.",
            "Set VLLM_WORKER_MULTIPROC_METHOD=spawn.",
        ),
        "port_in_use": Cause(
            "Another server listens on that port.",
            "Stop it, or choose another --port.",
        ),
        "model_not_found": Cause(
            "The model was not found, or may not be read.",
            "Check its name and the access token.",
        ),
        "host_oom": Cause(
            "The host's memory ran out and the kernel killed a process.",
            "More memory, --swap-space 0, or load fewer ranks at a time.",
        ),
        "cpu_offload_kernel_missing": Cause(
            "A Gaudi kernel is missing, a slower one is used.",
            "Install the habana packages that belong together.",
        ),
        "nan_weights": Cause(
            "The FP8 weights are in a form that Gaudi 2 can't hold.",
            "Set VLLM_HPU_CONVERT_TO_FP8UZ.",
        ),
        "device_lost": Cause(
            "The card was reset or lost.",
            "Look at the kernel log; reset or drain the node.",
        ),
        "interrupted": Cause(
            "The process was interrupted from outside.",
            "Look for who stopped it.",
        ),
        "benign_profiling_exit": Cause(
            "A profiling run ended as it should.",
            "Nothing.",
        ),
    }
)
