"""The bounds of the bucket axes, as a table: minimum, step, maximum and padding."""

from __future__ import annotations

from hpuwatch.gaudi import checks
from hpuwatch.gaudi.knob import BUCKETS, COUNT, WHOLE, Knob

_NOUNS = {
    "PROMPT_BS": "the prompt batch",
    "PROMPT_QUERY": "the new tokens of a prompt",
    "PROMPT_SEQ": "the prompt length",
    "PROMPT_CTX": "the context of a prompt, in blocks",
    "DECODE_BS": "the decode batch",
    "DECODE_BLOCK": "the context of a decode, in blocks",
    "DECODE_SEQ": "the context of a decode, in tokens",
}
_WORDS = {"MIN": "Minimum", "STEP": "Step", "MAX": "Maximum"}
_EVERYWHERE = "fork-1.17..1.23 vllm-0.6..0.9 plugin-0.10.."
_HONOURED = {
    "PROMPT_QUERY": "plugin-0.11..",
    "PROMPT_CTX": "plugin-0.11..",
    "DECODE_SEQ": "fork-1.17",
    "DECODE_BLOCK": "fork-1.18..1.23 vllm-0.6..0.9 plugin-0.10..",
}
_NEWER = {"PROMPT_SEQ": "PROMPT_QUERY", "DECODE_SEQ": "DECODE_BLOCK"}
"""The axis that took the place of another."""

_BEWARE = {
    "PROMPT_BS_MAX": "Since plugin-0.11 it is the batch of a prefill itself, under every "
    "strategy, whatever the warning in the log says.",
    "PROMPT_QUERY_MIN": "Exp heeds the value 1 only (plugin-0.13 and later), and passes "
    "over others without a warning.",
    "PROMPT_QUERY_MAX": "Without effect under exp, which has no warning for it. Merged "
    "prefill sets a maximum of its own.",
    "PROMPT_CTX_MAX": "Under exp it only bounds long contexts (plugin-0.16 and later, from "
    "8192 tokens on).",
    "DECODE_BLOCK_MAX": "Without effect under exp. Contiguous attention bounds it by the "
    "pool.",
}
_PLUGIN_BOTH = "plugin-0.10.. fork vllm"

_DEFAULTS: dict[str, tuple[tuple[str, str], ...]] = {
    "PROMPT_BS_MIN": (("all", "1"),),
    "PROMPT_BS_STEP": (("plugin-0.11..", "1"), (_PLUGIN_BOTH, "32")),
    "PROMPT_BS_MAX": (
        ("plugin", "1"),
        ("fork-1.20..", "max_num_prefill_seqs or max_num_seqs"),
        ("fork-1.19 vllm", "64"),
        ("fork-1.18", "min(max_num_seqs, 64, max_num_batched_tokens // block_size)"),
        ("fork-1.17", "min(max_num_seqs, 64)"),
    ),
    "PROMPT_SEQ_MIN": (("all", "block_size"),),
    "PROMPT_SEQ_STEP": (("all", "block_size"),),
    "PROMPT_SEQ_MAX": (
        ("plugin-0.11..", "max_num_batched_tokens"),
        ("plugin-0.10 fork-1.21.. vllm-0.8..", "max_model_len"),
        ("fork-..1.20 vllm-..0.7", "1024"),
    ),
    "PROMPT_QUERY_MIN": (("all", "block_size"),),
    "PROMPT_QUERY_STEP": (("all", "block_size"),),
    "PROMPT_QUERY_MAX": (("all", "max_num_batched_tokens"),),
    "PROMPT_CTX_MIN": (("all", "0"),),
    "PROMPT_CTX_STEP": (("all", "1 (pad: 2, merged prefill: 4)"),),
    "PROMPT_CTX_MAX": (
        ("all", "ceil((max_model_len - PROMPT_QUERY_MIN) // block_size)"),
    ),
    "DECODE_BS_MIN": (("fork-1.18", "min(32, max_num_seqs)"), ("all", "1")),
    "DECODE_BS_STEP": (
        ("plugin-0.20..", "32 (pad: 2)"),
        ("fork-1.19.. vllm plugin", "32"),
        ("fork-1.18", "min(32, max_num_seqs)"),
        ("fork-1.17", "128"),
    ),
    "DECODE_BS_MAX": (("all", "max_num_seqs"),),
    "DECODE_BLOCK_MIN": (
        ("plugin-0.20..", "1 (pad: block_size)"),
        ("plugin-0.11..", "1"),
        ("plugin fork-1.19.. vllm", "block_size"),
        ("fork-1.18", "128"),
    ),
    "DECODE_BLOCK_STEP": (
        ("plugin fork-1.19.. vllm", "block_size"),
        ("fork-1.18", "128"),
    ),
    "DECODE_BLOCK_MAX": (
        (
            "plugin-0.11..",
            (
                "num_blocks with contiguous attention, "
                "else max(max_model_len * max_num_seqs // block_size, block_size)"
            ),
        ),
        ("plugin-0.10 fork-1.22..", "num_blocks"),
        (
            "fork-1.21 vllm-0.8..",
            "max(block_size, max_num_seqs * max_model_len // block_size)",
        ),
        ("fork-1.18..1.20 vllm", "max(128, max_num_seqs * 2048 / block_size)"),
    ),
    "DECODE_SEQ_MIN": (("all", "128"),),
    "DECODE_SEQ_STEP": (("all", "128"),),
    "DECODE_SEQ_MAX": (("all", "2048"),),
}
_PADDED = {
    "PROMPT_BS": "ceil(max_num_prefill_seqs / 4)",
    "PROMPT_QUERY": "ceil(max_num_batched_tokens / 4)",
    "PROMPT_SEQ": "ceil(max_num_batched_tokens / 4)",
    "PROMPT_CTX": "ceil(max_num_batched_tokens / block_size)",
    "DECODE_BS": "ceil(max_num_seqs / 4)",
    "DECODE_BLOCK": "ceil(largest decode context / 4)",
}
_LIMITED = ("PROMPT_BS", "PROMPT_SEQ", "DECODE_BS", "DECODE_BLOCK")


def _bound(axis: str, part: str) -> Knob:
    """Return the minimum, step or maximum of one axis."""
    newer = _NEWER.get(axis, "")
    return Knob(
        f"VLLM_{axis}_BUCKET_{part}",
        BUCKETS,
        f"{_WORDS[part]} of {_NOUNS[axis]}, under lin and pad."
        + (f" {newer} is its newer spelling, and wins." if newer else ""),
        _HONOURED.get(axis, _EVERYWHERE),
        _DEFAULTS[f"{axis}_{part}"],
        COUNT if part == "STEP" else WHOLE,
        checks.whole(1 if part == "STEP" else 0),
        _BEWARE.get(f"{axis}_{part}", "Without effect under exp."),
        successor=f"VLLM_{newer}_BUCKET_{part}" if newer else "",
    )


AXES = (
    *(_bound(axis, part) for axis in _NOUNS for part in _WORDS),
    *(
        Knob(
            f"VLLM_{axis}_BUCKET_LIMIT",
            BUCKETS,
            f"How many values exp tries for {_NOUNS[axis]}.",
            "fork-1.21",
            "ceil(log2(maximum)) + 1",
            COUNT,
            checks.whole(1),
            "Later releases know the name and never look at it.",
        )
        for axis in _LIMITED
    ),
    *(
        knob
        for axis, gap in _PADDED.items()
        for knob in (
            Knob(
                f"VLLM_{axis}_BUCKET_PAD_MAX",
                BUCKETS,
                f"Largest gap between two buckets of {_NOUNS[axis]}, under pad.",
                "plugin-0.20..",
                gap,
                WHOLE + "; 0 is no bound",
                checks.whole(0),
                "Sliced attention takes its sizes from it too."
                if axis in {"PROMPT_QUERY", "PROMPT_CTX"}
                else "",
            ),
            Knob(
                f"VLLM_{axis}_BUCKET_PAD_PERCENT",
                BUCKETS,
                f"Largest share of a bucket that may be padding of {_NOUNS[axis]}, "
                "under pad.",
                "plugin-0.20..",
                "25",
                "0 (as lin) to 50 (about as exp)",
                checks.percentage,
            ),
        )
    ),
)
