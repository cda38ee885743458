"""The words of bucketing: a bucket, what decides the lists, and why there is no list.

A *bucket* is a shape that the server prepares at warm-up.  It has a batch, a query (new
tokens of each sequence) and a context (KV blocks that were computed before).  A decode
has one new token, so its query is 1.  Older releases know two numbers only: their
prompt buckets carry the context 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from hpuwatch.errors import ConfigError

PROMPT = "prompt"
DECODE = "decode"

HANG, TOO_MANY, UNKNOWN = "HANG", "TOO_MANY", "unknown"
"""Ends that are no exception: the runtime never gets through; hpuwatch doesn't make so long
a list; hpuwatch can't tell what the runtime does."""


class BucketError(ConfigError, ValueError):
    """There are no buckets of these settings: the runtime stops, or we can't tell them.

    Attributes:
        raised: the name of the exception that the runtime raises, or ``HANG``,
            ``TOO_MANY`` or ``UNKNOWN``.
        words: what that exception says, in the runtime's own words; empty where they hang
            on more than the settings.
        made: buckets of the other phase that were made before.
    """

    def __init__(
        self, message: str, raised: str = "ValueError", words: str = ""
    ) -> None:
        """Take the sentence for the user, and what the runtime raises and says."""
        super().__init__(message)
        self.raised = raised
        self.words = words
        self.made = 0

    @property
    def end(self) -> str:
        """Say what becomes of the server, to be read after "the server"."""
        return end_of(self.raised)


def end_of(raised: str) -> str:
    """Say what becomes of a server by what is ``raised``."""
    return _ENDS.get(raised, f"does not start ({raised})")


_ENDS = {
    HANG: "never gets through (HANG)",
    TOO_MANY: "would warm up for days",
    UNKNOWN: "may start: hpuwatch can't tell",
}


class Bucket(NamedTuple):
    """A shape prepared at warm-up; ``context`` counts KV blocks."""

    batch: int
    query: int
    context: int


@dataclass(frozen=True, slots=True)
class BucketSettings:
    """All that decides the bucket lists, resolved (see ``gaudi.resolve``).

    Attributes:
        dialect: the set of rules, as ``gaudi-plugin-0.26``.
        strategy: ``exp``, ``lin``, ``pad`` or ``file``.
        num_blocks: KV blocks the engine may hand out, without the pad block.
        max_num_prefill_seqs: the batch of a prefill (P); 1 unless set.
        env: exactly the variables that are set; VLLM_…_BUCKET_… count here.
        prefix_caching: the engine's flag; decides only before plugin-0.11.
        merged_prefill: several prompts run as one row.
        prompt_contiguous_pa: what the prompt ranges of fork-1.21 saw, when it differs.
        num_speculative_tokens: tokens that a draft adds to each decode.
        mamba_chunk_size: chunk of a Mamba model, 0 for others.
        mamba_chunk_is_explicit: the model's configuration names the chunk itself.
        skip_decode_block_clamp: plugin-head, for hybrid and sliding-window models.
        attn_block_size: tokens of an attention block where a hybrid model has other ones
            than ``block_size``; decode contexts count these.  None for other models.
        bucket_file: the text of the bucket file, for the strategy ``file``.
    """

    max_num_seqs: int
    max_num_batched_tokens: int
    max_model_len: int
    num_blocks: int
    block_size: int = 128
    contiguous_pa: bool = False
    max_num_prefill_seqs: int = 1
    dialect: str = "gaudi-plugin-0.26"
    strategy: str = "exp"
    env: Mapping[str, str] = field(default_factory=dict, hash=False)
    prefix_caching: bool = False
    merged_prefill: bool = False
    prompt_contiguous_pa: bool | None = None
    num_speculative_tokens: int = 0
    mamba_chunk_size: int = 0
    mamba_chunk_is_explicit: bool = False
    skip_decode_block_clamp: bool = False
    attn_block_size: int | None = None
    bucket_file: str | None = None

    @property
    def blocks_per_sequence(self) -> int:
        """KV blocks of one sequence of the greatest length, rounded up."""
        return -(-self.max_model_len // self.block_size)

    @property
    def for_decode(self) -> BucketSettings:
        """The same in the blocks that decode counts."""
        if self.attn_block_size is None:
            return self
        return replace(self, block_size=self.attn_block_size, attn_block_size=None)
