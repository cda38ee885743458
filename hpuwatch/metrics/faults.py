"""The fault classes that may become a label, with the severity that each usually has.

The names are those of the fault rules (a test compares them).  All of them are exported
from 0 on, because ``increase()`` doesn't see a counter's first value.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

_BY_SEVERITY = {
    "fatal": (
        "all_reduce_assert",
        "bad_env_value",
        "bad_strategy",
        "bridge_fatal_other",
        "bucket_file_malformed",
        "bucket_min_gt_max",
        "device_acquire_generic",
        "device_busy",
        "device_lost",
        "device_oom_devmem",
        "device_type_unknown",
        "engine_ready_timeout",
        "graph_compile_failed",
        "hccl_error",
        "host_oom",
        "kv_none",
        "kv_short",
        "kv_underprovisioned",
        "lazy_validate_inputs",
        "mamba_divisible",
        "max_concurrency_assert",
        "model_not_found",
        "pooler_oom",
        "port_in_use",
        "runtime_scale_patching",
        "segfault_native",
        "skip_guard_recompile",
        "slice_size",
        "syn_node_create",
        "unknown_exception",
        "unsupported_config",
        "v1_removed_fork",
        "zero_buckets",
    ),
    "error": (
        "deadlock_warning",
        "nan_weights",
    ),
    "warning": (
        "cpu_offload_kernel_missing",
        "dynamo_limit",
        "fork_hang",
    ),
    "consequence": (
        "engine_dead_v0",
        "engine_dead_v1",
    ),
    "info": (
        "benign_profiling_exit",
        "interrupted",
    ),
}

FAULT_CLASSES: Mapping[str, str] = MappingProxyType(
    {name: severity for severity, names in _BY_SEVERITY.items() for name in names}
)
