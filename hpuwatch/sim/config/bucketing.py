"""What decides the bucket lists of a simulated server, in the words of ``gaudi.buckets``."""

from __future__ import annotations

from hpuwatch.errors import ConfigError
from hpuwatch.gaudi.buckets import BucketError, BucketSettings
from hpuwatch.gaudi.model import HANG, TOO_MANY, UNKNOWN
from hpuwatch.gaudi.spans import covers
from hpuwatch.sim.config.knobs import Knobs
from hpuwatch.sim.config.options import Options


def bucket_settings(options: Options, knobs: Knobs, blocks: int) -> BucketSettings:
    """Return the settings that the server makes its lists of.

    Args:
        options: the command line.
        knobs: the environment.
        blocks: KV blocks that the engine may hand out.
    """
    # The prompt ranges of fork-1.21 are made before prefix caching turns the attention off.
    before = "VLLM_CONTIGUOUS_PA" not in options.env or knobs.contiguous_pa
    return BucketSettings(
        max_num_seqs=options.max_num_seqs,
        max_num_batched_tokens=options.max_num_batched_tokens,
        max_model_len=options.max_model_len,
        num_blocks=blocks,
        block_size=options.block_size,
        contiguous_pa=knobs.contiguous_pa,
        max_num_prefill_seqs=knobs.max_prefill_seqs,
        dialect=options.dialect,
        strategy=knobs.strategy,
        env=knobs.bucket_env,
        prefix_caching=options.prefix_caching,
        merged_prefill=knobs.merged_prefill,
        prompt_contiguous_pa=before if covers("fork-1.21", options.point) else None,
        num_speculative_tokens=options.speculative_tokens,
        skip_decode_block_clamp=options.model.attention_layers < options.model.layers,
        bucket_file=knobs.bucket_file if knobs.strategy == "file" else None,
    )


def death_by(error: BucketError) -> str:
    """Return the last line of a server that can't make its lists.

    Raises:
        ConfigError: no exception ends the real one, which would never get through, or warm
            up for days, or nobody knows.
    """
    if error.raised in {HANG, TOO_MANY, UNKNOWN}:
        raise ConfigError(f"These settings can't be simulated: {error}") from None
    return f"{error.raised}: {error.words}"
