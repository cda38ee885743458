"""What knobs do to each other, as a table; ``gaudi.conflict`` says how to read it."""

from __future__ import annotations

from hpuwatch.gaudi.conflict import Conflict, If, Test
from hpuwatch.gaudi.resolve import EXPONENTIAL, FILE_VARIABLE, STRATEGY


def _if(knob: str, test: Test, *values: str) -> If:
    return If((knob,), test, values)


_V0 = _if("VLLM_USE_V1", "off")
_DRAFTS = If(("--speculative-config", "--speculative-model"), "set")
_PAGED, _CACHING = "VLLM_CONTIGUOUS_PA", "--enable-prefix-caching"
_COMPILED = (
    "VLLM_T_COMPILE_REGIONAL_COMPILATION",
    "VLLM_T_COMPILE_DYNAMIC_SHAPES",
    "VLLM_T_COMPILE_FULLGRAPH",
    "VLLM_REGIONAL_COMPILATION",
)
_DECIDE = "Unset VLLM_CONTIGUOUS_PA, or say --no-enable-prefix-caching."
_CARDS, _LAZY = "--tensor-parallel-size", "PT_HPU_LAZY_MODE"
_COLLECTIVES = "PT_HPU_ENABLE_LAZY_COLLECTIVES"
_PROFILES = (
    "VLLM_PT_PROFILE",
    *(f"VLLM_PROFILE_{part}" for part in ("PROMPT", "DECODE", "STEPS", "UNIFIED")),
)

CONFLICTS: tuple[Conflict, ...] = (
    Conflict(
        "reserve-without-graphs",
        "info",
        "all",
        (
            If(("VLLM_GRAPH_RESERVED_MEM", "VLLM_GRAPH_PROMPT_RATIO"), "set"),
            _if("--enforce-eager", "on"),
        ),
        "No graph is captured under --enforce-eager, so nothing is reserved for them.",
        "Leave one of the two out.",
    ),
    Conflict(
        "prefix-caching-lost",
        "warning",
        "plugin-0.11..",
        (_if(_PAGED, "given"), _if(_CACHING, "on")),
        "Contiguous attention and prefix caching exclude each other: prefix caching is "
        "turned off, with no more than a warning.",
        _DECIDE,
    ),
    Conflict(
        "prefix-caching-lost",
        "warning",
        "fork-1.21",
        (_if(_PAGED, "given"), _if(_CACHING, "on"), _if("VLLM_USE_V1", "given")),
        "Contiguous attention and prefix caching exclude each other: the V1 engine turns "
        "contiguous attention off, with no more than a warning.",
        _DECIDE,
    ),
    *(
        Conflict(
            "prefix-caching-refused",
            "error",
            releases,
            (_if(_PAGED, "given"), _if(_CACHING, "given"), *engine),
            "The server stops with an AssertionError: contiguous attention doesn't go with "
            "prefix caching.",
            "Leave one of the two out.",
        )
        for releases, engine in (("fork-1.21", (_V0,)), ("fork-1.22..1.23", ()))
    ),
    Conflict(
        "prefix-caching-unheeded",
        "info",
        "plugin-0.11..",
        (_if(_CACHING, "set"), _if(_CACHING, "off"), _if(_PAGED, "unset")),
        "Without prefix caching attention is still not contiguous, and the buckets stay as "
        "they are: VLLM_CONTIGUOUS_PA alone decides that.",
        "Set VLLM_CONTIGUOUS_PA=true if contiguous attention is meant.",
    ),
    Conflict(
        "drafts-refused",
        "error",
        "fork-1.20..",
        (_DRAFTS, _if(_PAGED, "on"), _if(_CACHING, "off")),
        "The server stops with a ValueError: speculative decoding doesn't go with "
        "contiguous attention, which is on unless it is turned off.",
        "Set VLLM_CONTIGUOUS_PA=false.",
    ),
    Conflict(
        "defragmenter-idle",
        "info",
        "plugin-0.11..",
        (_if("VLLM_DEFRAG", "given"), _if(_PAGED, "off")),
        "Defragmentation only helps contiguous attention, which is off.",
        "Unset VLLM_DEFRAG, or set VLLM_CONTIGUOUS_PA=true.",
    ),
    Conflict(
        "strategy-overridden",
        "warning",
        "plugin-0.20..",
        (_if(STRATEGY, "set"), _if(EXPONENTIAL, "set")),
        "VLLM_EXPONENTIAL_BUCKETING wins as soon as it is set, whatever its value, so "
        "this changes nothing.",
        "Unset VLLM_EXPONENTIAL_BUCKETING.",
    ),
    Conflict(
        "strategy-without-effect",
        "info",
        "plugin-0.11..",
        (If((STRATEGY, EXPONENTIAL), "set"), _if(FILE_VARIABLE, "set")),
        "The buckets come from the file, so the strategy is not asked for.",
        "Leave one of the two out.",
    ),
    Conflict(
        "bucket-file-evaluated",
        "info",
        "plugin-0.11..0.16",
        (_if(FILE_VARIABLE, "set"),),
        "The server evaluates each line of the file as an expression of Python, so whoever "
        "writes it has the server's rights.",
        "Let nobody else write it.",
    ),
    Conflict(
        "prefill-batch-elsewhere",
        "info",
        "fork-1.20.. plugin-0.10",
        (
            _if("VLLM_PROMPT_BS_BUCKET_MAX", "set"),
            _if("--max-num-prefill-seqs", "unset"),
            _if(EXPONENTIAL, "off"),
        ),
        "It only bounds the prompt buckets. How many prompts a prefill takes is another "
        "knob in the fork, --max-num-prefill-seqs, and always one in plugin-0.10.",
        "Set --max-num-prefill-seqs too in the fork; unset it in plugin-0.10.",
    ),
    *(
        Conflict(
            "older-spelling-overridden",
            "info",
            "plugin-0.11..",
            (
                _if(f"VLLM_PROMPT_SEQ_BUCKET_{part}", "set"),
                _if(f"VLLM_PROMPT_QUERY_BUCKET_{part}", "set"),
            ),
            "The newer spelling, with QUERY, is set too, and wins.",
            "Unset the one with SEQ.",
        )
        for part in ("MIN", "STEP", "MAX")
    ),
    Conflict(
        "merged-prefill-ranges",
        "info",
        "plugin-0.11..",
        (
            If(
                ("VLLM_PROMPT_QUERY_BUCKET_MAX", "VLLM_PROMPT_QUERY_BUCKET_STEP"),
                "set",
            ),
            _if("VLLM_MERGED_PREFILL", "on"),
        ),
        "Merged prefill sets a maximum of its own, and steps grow fourfold.",
        "Leave one of the two out.",
    ),
    Conflict(
        "merged-prefill-cold",
        "warning",
        "fork-1.22..1.23 plugin-0.10",
        (_if("VLLM_MERGED_PREFILL", "given"), _if(EXPONENTIAL, "on")),
        "This release can't warm merged prompts up under the exponential strategy.",
        "Set VLLM_EXPONENTIAL_BUCKETING=false, or unset VLLM_MERGED_PREFILL.",
    ),
    Conflict(
        "merged-prefill-refused",
        "error",
        "fork-1.21..1.23",
        (
            _if("VLLM_MERGED_PREFILL", "given"),
            _if("--use-padding-aware-scheduling", "given"),
        ),
        "The server stops with an AssertionError: merged prefill doesn't go with "
        "padding-aware scheduling.",
        "Leave one of the two out.",
    ),
    Conflict(
        "chunked-prefill-refused",
        "error",
        "fork vllm",
        (
            _if("--enable-chunked-prefill", "given"),
            If((_CACHING, "--use-padding-aware-scheduling"), "given"),
        ),
        "The V0 engine on Gaudi doesn't support chunked prefill, and fails with prefix "
        "caching or padding-aware scheduling.",
        "Leave --enable-chunked-prefill out.",
    ),
    *(
        Conflict(
            "delayed-sampling-refused",
            "error",
            "fork-1.21..1.23",
            (_if("VLLM_DELAYED_SAMPLING", "given"), other),
            "The server stops with an AssertionError: delayed sampling doesn't go with "
            "multi-step scheduling, pipeline parallelism or speculative decoding.",
            "Set VLLM_DELAYED_SAMPLING=false.",
        )
        for other in (
            If(("--num-scheduler-steps", "--pipeline-parallel-size"), "several"),
            _DRAFTS,
        )
    ),
    Conflict(
        "full-warmup-skipped",
        "error",
        "fork-1.21.2..1.23 plugin-0.10..",
        (_if("VLLM_FULL_WARMUP", "given"), _if("VLLM_SKIP_WARMUP", "given")),
        "Nothing is warmed up, and then the first request ends the server: no shape may "
        "compile after a full warm-up.",
        "Unset one of the two.",
    ),
    Conflict(
        "full-warmup-strict",
        "warning",
        "fork-1.21.2..1.23 plugin-0.10..",
        (_if("VLLM_FULL_WARMUP", "given"), _if("VLLM_SKIP_WARMUP", "off")),
        "A shape that was not warmed up ends the server instead of compiling.",
        "Unset it unless the buckets cover all of your traffic.",
    ),
    Conflict(
        "warmup-skipped",
        "info",
        "all",
        (_if("VLLM_SKIP_WARMUP", "given"),),
        "The start is fast, and each new shape compiles while requests wait.",
        "Unset it for production.",
    ),
    Conflict(
        "buckets-off",
        "warning",
        "fork-1.22.. plugin",
        (
            _if("VLLM_ENABLE_BUCKETING", "set"),
            _if("VLLM_ENABLE_BUCKETING", "off"),
        ),
        "Shapes run as they come, so every new one compiles while requests wait.",
        "Unset it.",
    ),
    Conflict(
        "flex-attention-unused",
        "warning",
        "fork-1.21.. plugin",
        (
            _if("VLLM_PROMPT_USE_FLEX_ATTENTION", "given"),
            _if("VLLM_PROMPT_USE_FUSEDSDPA", "on"),
        ),
        "Flex attention needs fused attention to be off, which it isn't by default.",
        "Set VLLM_PROMPT_USE_FUSEDSDPA=false too.",
    ),
    Conflict(
        "slices-unaligned",
        "warning",
        "fork-1.22..1.23",
        (_if("PT_HPU_SDPA_QKV_SLICE_MODE_FWD", "given"), _if(EXPONENTIAL, "on")),
        "A long prompt whose bucket is no multiple of a slice ends the server with an "
        "AssertionError, and exponential buckets needn't be.",
        "Set VLLM_EXPONENTIAL_BUCKETING=false, and VLLM_PROMPT_SEQ_BUCKET_MIN and STEP "
        "to 1024.",
    ),
    Conflict(
        "slices-without-padding",
        "info",
        "plugin-0.21..",
        (
            _if("VLLM_HPU_FSDPA_SLICE_ENABLED", "given"),
            _if(STRATEGY, "differs", "pad"),
        ),
        "Slices of fused attention work under the strategy pad only; exp and lin turn "
        "them off.",
        "Set VLLM_BUCKETING_STRATEGY=pad, or unset it.",
    ),
    Conflict(
        "compact-states-uncached",
        "info",
        "plugin-0.19..",
        (_if("VLLM_COMPACT_GDN", "given"), _if(_CACHING, "given")),
        "Compact states of gated delta nets go without prefix caching.",
        "Leave one of the two out.",
    ),
    Conflict(
        "lazy-collectives-off",
        "error",
        "all",
        (
            _if(_CARDS, "several"),
            _if(_LAZY, "given"),
            _if(_COLLECTIVES, "set"),
            _if(_COLLECTIVES, "off"),
        ),
        "Several cards in lazy mode hang, crash or compute nonsense without lazy "
        "collectives.",
        "Set PT_HPU_ENABLE_LAZY_COLLECTIVES=true.",
    ),
    Conflict(
        "lazy-collectives-unset",
        "warning",
        "fork vllm",
        (
            _if(_CARDS, "several"),
            _if(_LAZY, "given"),
            _if(_COLLECTIVES, "unset"),
        ),
        "Several cards in lazy mode may hang or compute nonsense where lazy collectives "
        "are not asked for: unlike the plugin, this release leaves that to you.",
        "Set PT_HPU_ENABLE_LAZY_COLLECTIVES=true.",
    ),
    Conflict(
        "compilation-unused",
        "info",
        "all",
        (If(_COMPILED, "set"), _if(_LAZY, "given")),
        "torch.compile is not used in lazy mode, so its settings change nothing.",
        "Unset it, or set PT_HPU_LAZY_MODE=0.",
    ),
    Conflict(
        "compilation-unused",
        "info",
        "all",
        (If(_COMPILED, "set"), _if("--enforce-eager", "on")),
        "Nothing is compiled under --enforce-eager, so its settings change nothing.",
        "Leave one of the two out.",
    ),
    Conflict(
        "fake-card",
        "warning",
        "all",
        (_if("VLLM_USE_FAKE_HPU", "given"),),
        "The server runs on the CPU and makes memory figures up.",
        "Unset it on a machine with cards.",
    ),
    Conflict(
        "v1-without-it",
        "info",
        "fork-1.21..1.22",
        (
            If(("--swap-space", "VLLM_DELAYED_SAMPLING"), "set"),
            _if("VLLM_USE_V1", "given"),
        ),
        "The V1 engine does not look at it.",
        "Leave one of the two out.",
    ),
    Conflict(
        "v1-refused",
        "error",
        "fork-1.23",
        (_if("VLLM_USE_V1", "given"),),
        "The server stops with a ValueError: this release has no V1 engine any more.",
        "Unset it, or move to the plugin.",
    ),
    Conflict(
        "profile-ends-server",
        "warning",
        "all",
        (If(_PROFILES, "set"),),
        "The server writes its profile and then ends on purpose, with an error.",
        "Unset it to serve.",
    ),
    Conflict(
        "waits-for-card",
        "info",
        "plugin",
        (_if("PT_HPU_METRICS_GC_DETAILS", "given"),),
        "Each step waits for the card, so that compilations can be told.",
        "Unset it when you have seen enough.",
    ),
    Conflict(
        "log-silenced",
        "warning",
        "all",
        (_if("VLLM_LOGGING_LEVEL", "equals", "WARNING", "ERROR", "CRITICAL"),),
        "Buckets, memory and warm-up are told at INFO: hpuwatch will see none of them.",
        "Unset it.",
    ),
    Conflict(
        "log-silenced",
        "warning",
        "all",
        (_if("VLLM_CONFIGURE_LOGGING", "equals", "0"),),
        "vLLM doesn't set its log up: hpuwatch will see few lines, or none.",
        "Unset it.",
    ),
    Conflict(
        "log-mixed",
        "info",
        "all",
        (_if("ENABLE_CONSOLE", "given"),),
        "The card's own log goes into the server's output.",
        "Unset it unless you look for a fault of the card's software.",
    ),
)
