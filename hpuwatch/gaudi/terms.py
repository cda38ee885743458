"""The words of a prediction, as tables: the codes of its remarks, and how figures are known.

``gaudi.refusal`` and ``gaudi.caution`` write the remarks; ``hpuwatch explain`` reads this.
"""

from __future__ import annotations

REFUSALS = {
    "bad-value": "A variable or flag has a value that ends the start.",
    "beyond-model": "--max-model-len exceeds what the model was made for.",
    "tokens-below-seqs": "The token budget of a step is less than the number of sequences.",
    "tokens-below-length": "The token budget is less than the model's length, and the V0 "
    "engine computes a prompt in one piece.",
    "weights-too-large": "Nothing is free beside the weights; no setting helps.",
    "heads-uneven": "The model's heads can't be divided among the cards.",
    "kv-none": "The KV cache holds no block at all.",
    "kv-short": "The KV cache doesn't hold one request of the model's length.",
    "no-buckets": "The runtime makes no bucket list, and stops.",
    "seqs-above-blocks": "There are more sequences than KV blocks.",
    "decode-above-cache": "A decode bucket needs more than three times the KV blocks.",
    "graphs-above-reserve": "Graphs need more than reserve and margin hold.",
}
"""Why a server doesn't come up, by code."""

CAUTIONS = {
    "assumed": "Nobody has compared this release with the one whose bucket rules are used.",
    "rules-differ": "The rules of the release don't make the bucket list that the log prints.",
    "set-in-vain": "Variables are set that the strategy doesn't ask for.",
    "no-bucketing": "Buckets are off, so shapes run as they come.",
    "warmup-skipped": "Warm-up is off, so every shape compiles at its first use.",
    "unpredicted": "hpuwatch can't predict buckets, graphs and warm-up.",
    "decode-above-pool": "Decode buckets have more blocks than the card, which only requests "
    "that share prefixes fill.",
    "seqs-times-length": "Not all sequences fit at the model's length, so some wait or are "
    "preempted.",
    "cold-prompts": "Prompt buckets are listed that warm-up doesn't compile.",
    "not-covered": "Shapes may come that no bucket holds; they compile while a user waits.",
    "graphs-uncertain": "Graphs may need more than reserve and margin hold.",
    "timeout-uncertain": "Loading and warm-up may outlast the front end's limit, which ends a "
    "start with several API servers.",
}
"""What to know of a plan that may work, by code."""

FIGURES = {
    "measured": "A log of the running server printed the figure.",
    "learned": "A law was fitted to so many figures that its own error is known.",
    "predicted": "Carried over from too few figures to tell the error, so the interval holds "
    "all that they allow.",
    "arithmetic": "Follows from figures that the log prints, give or take their rounding.",
    "prior": "Nothing of this server is known, so other servers' public figures stand in.",
    "margin": "What --gpu-memory-utilization leaves of the memory that is free after weights "
    "and profile run; neither reserve nor KV cache.",
    "reserve": "What VLLM_GRAPH_RESERVED_MEM keeps of the usable memory for graphs.",
    "usable": "The free memory times --gpu-memory-utilization: reserve and KV cache.",
}
"""Words beside a figure, and names of parts of the card's memory."""
