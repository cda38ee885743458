"""The knobs that decide the bucket lists, as a table."""

from __future__ import annotations

from hpuwatch.gaudi import checks
from hpuwatch.gaudi.knob import ALL, YES, Knob

SELECTORS = (
    Knob(
        "VLLM_BUCKETING_STRATEGY",
        "env",
        "buckets",
        "How bucket lists are made: exponential, linear or padding-aware.",
        (("plugin-0.20 and later", "exp"),),
        "exp, lin or pad, in lower case",
        "plugin-0.20 and later",
        checks.one_of("exp", "lin", "pad"),
        "VLLM_EXPONENTIAL_BUCKETING, if set at all, wins. fork-1.22 and plugin-0.10 do "
        "not start with these values.",
    ),
    Knob(
        "VLLM_EXPONENTIAL_BUCKETING",
        "env",
        "buckets",
        "Exponential (true) or linear (false) bucket lists.",
        (
            ("plugin-0.20 and later", "not set"),
            ("fork-1.22 to plugin-0.19", "true"),
            ("fork-1.21", "false"),
        ),
        YES,
        "fork-1.21 and later",
        checks.word_true,
        "A typing error means linear. It can't choose pad.",
    ),
    Knob(
        "VLLM_BUCKETING_FROM_FILE",
        "env",
        "buckets",
        "A file of buckets, which replaces every strategy; filters still apply.",
        ((ALL, "not set"),),
        "a path; one (batch, query, context) a line",
        "plugin-0.11 and later",
        beware="Since plugin-0.17 a line that is not understood stops the server.",
    ),
    Knob(
        "VLLM_CONTIGUOUS_PA",
        "env",
        "buckets",
        "Contiguous paged attention: decode looks at the highest block in use instead of "
        "the number of blocks, and the pool itself becomes a bucket.",
        (
            ("plugin-0.11 and later", "false"),
            ("plugin-0.10, fork-1.21 to fork-1.23", "true unless prefixes are cached"),
            ("up to fork-1.20", "true"),
        ),
        YES,
        "fork-1.19 and later",
        checks.word_true,
        "Since plugin-0.11 true turns prefix caching off, with no more than a warning.",
    ),
    Knob(
        "VLLM_MERGED_PREFILL",
        "env",
        "buckets",
        "Several prompts run as one row: the batch axis is 1, steps grow fourfold.",
        ((ALL, "false"),),
        YES,
        "fork-1.21 and later",
        checks.truth,
    ),
    Knob(
        "VLLM_ENABLE_BUCKETING",
        "env",
        "buckets",
        "Whether shapes are padded to buckets at all.",
        ((ALL, "true"),),
        YES,
        "fork-1.22 and later",
        checks.truth,
        "Without buckets every new shape compiles while a request waits.",
    ),
    Knob(
        "PT_HPU_SDPA_QKV_SLICE_MODE_FWD",
        "env",
        "buckets",
        "Attention of long prompts in slices: drops prompt buckets of 8192 tokens and "
        "more that are no multiple of a slice (1024).",
        ((ALL, "false"),),
        YES,
        "fork-1.22, plugin-0.11 and later",
        checks.truth,
    ),
)


def _axis(axis: str, noun: str, defaults: tuple[str, str, str]) -> tuple[Knob, ...]:
    """Return minimum, step and maximum of one axis of the buckets."""
    newer = axis in {"PROMPT_QUERY", "PROMPT_CTX"}
    return tuple(
        Knob(
            f"VLLM_{axis}_BUCKET_{part}",
            "env",
            "buckets",
            f"{word} of {noun}, under lin and pad.",
            (("newest", default), *_EARLIER.get(f"{axis}_{part}", ())),
            "a whole number" + (", 1 or more" if part == "STEP" else ""),
            "plugin-0.11 and later" if newer else ALL,
            checks.whole(1 if part == "STEP" else 0),
            _BEWARE.get(f"{axis}_{part}", "Without effect under exp."),
        )
        for (part, word), default in zip(_PARTS, defaults, strict=True)
    )


_PARTS = (("MIN", "Minimum"), ("STEP", "Step"), ("MAX", "Maximum"))
_BEWARE = {
    "PROMPT_BS_MAX": "Since plugin-0.11 it is the batch of a prefill itself, under every "
    "strategy, whatever the warning in the log says.",
    "PROMPT_QUERY_MIN": "Exp heeds the value 1 only (plugin-0.13 and later).",
    "PROMPT_CTX_MAX": "Under exp it bounds long contexts (plugin-0.16 and later, from "
    "8192 tokens on).",
}
_FILLED = "fork-1.22, plugin-0.10"
_EARLIER = {
    "PROMPT_BS_STEP": (("fork, plugin-0.10", "32"),),
    "PROMPT_BS_MAX": (("fork", "max_num_prefill_seqs"),),
    "PROMPT_SEQ_MAX": (
        ("fork-1.21, fork-1.22, plugin-0.10", "max_model_len"),
        ("up to fork-1.20", "1024"),
    ),
    "DECODE_BS_MIN": (("fork-1.18", "min(32, max_num_seqs)"),),
    "DECODE_BS_STEP": (("fork-1.18", "min(32, max_num_seqs)"),),
    "DECODE_BLOCK_MIN": (("fork, plugin-0.10", "block size"),),
    "DECODE_BLOCK_MAX": (
        (_FILLED, "the pool"),
        ("fork-1.21", "max_num_seqs * max_model_len / block size"),
        ("up to fork-1.20", "max_num_seqs * 2048 / block size"),
    ),
}
AXES = (
    *_axis("PROMPT_BS", "the prompt batch", ("1", "1", "1")),
    *_axis(
        "PROMPT_QUERY",
        "the new tokens of a prompt",
        ("block size", "block size", "max_num_batched_tokens"),
    ),
    *_axis(
        "PROMPT_SEQ",
        "the prompt length; the older spelling of QUERY",
        ("block size", "block size", "max_num_batched_tokens"),
    ),
    *_axis(
        "PROMPT_CTX",
        "the context of a prompt, in blocks",
        ("0", "1 (pad: 2)", "what max_model_len leaves"),
    ),
    *_axis("DECODE_BS", "the decode batch", ("1", "32 (pad: 2)", "max_num_seqs")),
    *_axis(
        "DECODE_BLOCK",
        "the context of a decode, in blocks",
        ("1 (pad: block size)", "block size", "what all sequences can need"),
    ),
)
PADS = tuple(
    knob
    for axis in ("PROMPT_BS", "PROMPT_QUERY", "PROMPT_CTX", "DECODE_BS", "DECODE_BLOCK")
    for knob in (
        Knob(
            f"VLLM_{axis}_BUCKET_PAD_MAX",
            "env",
            "buckets",
            "Largest gap between two buckets of this axis, under pad.",
            (("newest", "a quarter of the axis (PROMPT_CTX: tokens by block size)"),),
            "a whole number; 0 is no bound",
            "plugin-0.20 and later",
            checks.whole(0),
        ),
        Knob(
            f"VLLM_{axis}_BUCKET_PAD_PERCENT",
            "env",
            "buckets",
            "Largest share of a bucket that may be padding, under pad.",
            (("newest", "25"),),
            "0 (as lin) to 50 (about as exp)",
            "plugin-0.20 and later",
            checks.percentage,
        ),
    )
)
