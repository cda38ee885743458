"""Every metric that hpuwatch exports, declared once.

The collector, ``docs/metrics.md``, the dashboard's and the alerts' tests all follow this
table.  Names keep Prometheus' conventions: base units, ``_total`` on counters, no metric
whose value is not known.  Metrics about the engine carry vLLM's own labels ``model_name``
and ``engine``, so that they join with ``vllm:*``; metrics about the process and its log
don't, since those exist before a model is known.  Every label has few values: free text
from a log never becomes one, but for the model's name and the versions, which are cut.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType

ENGINE_LABELS = ("model_name", "engine")


class Kind(Enum):
    """What Prometheus may do with a metric."""

    COUNTER = "counter"
    GAUGE = "gauge"
    INFO = "info"


@dataclass(frozen=True, slots=True)
class Metric:
    """One family of the exposition.

    Attributes:
        name: as it is queried, with ``_total`` or ``_info``.
        kind: counter, gauge or info.
        help: one line, said to people who see only the exposition.
        labels: in the order in which the collector gives their values.
        unit: the base unit that ends the name, or empty for a mere count or flag.
    """

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    unit: str = ""


METRICS: tuple[Metric, ...] = (
    Metric(
        "hpuwatch_runtime_state",
        Kind.GAUGE,
        "1 for the phase of its life that the server is in, 0 for all others.",
        ("state",),
    ),
    Metric(
        "hpuwatch_restarts_total",
        Kind.COUNTER,
        "Starts of the server after its first.",
    ),
    Metric(
        "hpuwatch_last_exit_info",
        Kind.INFO,
        "How the server before this one ended: its exit code or 128 + signal (empty if"
        " nobody knows), the phase in which it ended, and whether somebody asked for it.",
        ("code", "phase", "asked"),
    ),
    Metric(
        "hpuwatch_last_exit_timestamp_seconds",
        Kind.GAUGE,
        "When the server before this one ended, seconds since the epoch.",
        (),
        "seconds",
    ),
    Metric(
        "hpuwatch_device_memory_bytes",
        Kind.GAUGE,
        "Device memory of one rank as the server printed its split; the kinds overlap:"
        " free is what weights and profile run left, usable its share by"
        " gpu_memory_utilization, of which graph_reserve, dummy_block and kv_cache are"
        " parts.",
        ("kind", "rank", *ENGINE_LABELS),
        "bytes",
    ),
    Metric(
        "hpuwatch_kv_cache_blocks",
        Kind.GAUGE,
        "Blocks of the KV cache.",
        ENGINE_LABELS,
        "blocks",
    ),
    Metric(
        "hpuwatch_kv_cache_tokens",
        Kind.GAUGE,
        "Tokens that the KV cache holds.",
        ENGINE_LABELS,
        "tokens",
    ),
    Metric(
        "hpuwatch_graph_reserve_ratio",
        Kind.GAUGE,
        "Share of usable memory set aside for graphs (VLLM_GRAPH_RESERVED_MEM), 0 to 1.",
        ENGINE_LABELS,
        "ratio",
    ),
    Metric(
        "hpuwatch_graph_memory_used_bytes",
        Kind.GAUGE,
        "Device memory that the graphs captured in warm-up really took, by phase.",
        ("phase", *ENGINE_LABELS),
        "bytes",
    ),
    Metric(
        "hpuwatch_buckets",
        Kind.GAUGE,
        "Buckets that the server generated, by phase.",
        ("phase", *ENGINE_LABELS),
    ),
    Metric(
        "hpuwatch_warmup_buckets_done",
        Kind.GAUGE,
        "Buckets that warm-up has been through, by phase.",
        ("phase", *ENGINE_LABELS),
    ),
    Metric(
        "hpuwatch_warmup_buckets_planned",
        Kind.GAUGE,
        "Buckets that warm-up has to go through, by phase.",
        ("phase", *ENGINE_LABELS),
    ),
    Metric(
        "hpuwatch_warmup_progress_ratio",
        Kind.GAUGE,
        "Buckets done of buckets planned, over all phases, 0 to 1.",
        ENGINE_LABELS,
        "ratio",
    ),
    Metric(
        "hpuwatch_warmup_duration_seconds",
        Kind.GAUGE,
        "What the warm-up took, once it has finished.",
        ENGINE_LABELS,
        "seconds",
    ),
    Metric(
        "hpuwatch_warmup_left_seconds",
        Kind.GAUGE,
        "Estimate of the warm-up that is left; absent until it can be estimated.",
        ENGINE_LABELS,
        "seconds",
    ),
    Metric(
        "hpuwatch_warmup_left_low_seconds",
        Kind.GAUGE,
        "Lower end of the estimate of the warm-up that is left.",
        ENGINE_LABELS,
        "seconds",
    ),
    Metric(
        "hpuwatch_warmup_left_high_seconds",
        Kind.GAUGE,
        "Upper end of the estimate of the warm-up that is left.",
        ENGINE_LABELS,
        "seconds",
    ),
    Metric(
        "hpuwatch_bucket_misses_total",
        Kind.COUNTER,
        "Requests' shapes that warm-up had not prepared: not_warmed_up (a graph compiled"
        " while a user waited) or not_prepared (no bucket covers the shape).",
        ("phase", "reason", *ENGINE_LABELS),
    ),
    Metric(
        "hpuwatch_faults_total",
        Kind.COUNTER,
        "Faults that the log told of, by class; those of rules of one's own are other. A"
        " fatal one that only follows from another has the severity consequence.",
        ("class", "severity"),
    ),
    Metric(
        "hpuwatch_log_lines_total",
        Kind.COUNTER,
        "Lines of the server's output that were read.",
    ),
    Metric(
        "hpuwatch_unparsed_lines_total",
        Kind.COUNTER,
        "Lines that should mean something (WARNING or above, talk of memory, buckets or"
        " warm-up) and that no rule knew.",
    ),
    Metric(
        "hpuwatch_rules_loaded",
        Kind.GAUGE,
        "Log rules in force, the operator's own ones included.",
    ),
    Metric(
        "hpuwatch_rule_reload_failures_total",
        Kind.COUNTER,
        "How often the operator's own log rules could not be loaded; those that were in"
        " force stayed so.",
    ),
    Metric(
        "hpuwatch_runtime_info",
        Kind.INFO,
        "What the server is, as far as its log says; an unknown value is empty.",
        (
            *ENGINE_LABELS,
            "release",
            "vllm_version",
            "engine_version",
            "plugin",
            "gaudi_software",
            "card",
            "bridge_mode",
            "tensor_parallel",
        ),
    ),
    Metric(
        "hpuwatch_simulated",
        Kind.GAUGE,
        "1 if the server is a simulated one, so that none of its figures was measured.",
    ),
    Metric(
        "hpuwatch_replayed",
        Kind.GAUGE,
        "1 if all this is of a recorded log that is played again, so that no server of"
        " now is told of.",
    ),
    Metric(
        "hpuwatch_build_info",
        Kind.INFO,
        "The version of hpuwatch.",
        ("version",),
    ),
    Metric(
        "hpuwatch_watcher_starts_total",
        Kind.COUNTER,
        "How often a watcher took up the server's output; more than 1 means that one died.",
    ),
    Metric(
        "hpuwatch_log_dropped_bytes_total",
        Kind.COUNTER,
        "The server's output that was given up before it was read: no line of it is counted.",
        (),
        "bytes",
    ),
    Metric(
        "hpuwatch_echo_dropped_bytes_total",
        Kind.COUNTER,
        "Output not passed through because whoever reads hpuwatch's output stalled.",
        (),
        "bytes",
    ),
    Metric(
        "hpuwatch_page_errors_total",
        Kind.COUNTER,
        "Pages that could not be built, by page.",
        ("page",),
    ),
)

BY_NAME: Mapping[str, Metric] = MappingProxyType({each.name: each for each in METRICS})

MEMORY_KINDS = (
    "total",
    "weights",
    "profile_run",
    "free",
    "usable",
    "graph_reserve",
    "dummy_block",
    "kv_cache",
)
"""Values of ``kind``, in the order in which the server settles them."""

PAGES = ("metrics", "readyz", "livez", "status")
"""Values of ``page``."""

OTHER = "other"
"""The value of a label whose real value is none of the known ones."""

CONSEQUENCE = "consequence"
"""The severity of a fatal fault that only follows from another: one death, one fatal."""

SEVERITIES = ("fatal", "error", "warning", "info", CONSEQUENCE)
"""Values of ``severity``; anything else is ``other``."""
