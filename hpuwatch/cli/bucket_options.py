"""The options that say what a server is started with, for every verb of ``buckets``."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hpuwatch.cli.options import (
    AttentionBlock,
    Blocks,
    BlockSize,
    BucketFile,
    Caching,
    Chunk,
    ChunkSaid,
    Config,
    Contiguous,
    Drafts,
    Env,
    EnvFile,
    FromEnv,
    Inherit,
    ModelLen,
    Prefills,
    Release,
    Seqs,
    Strategy,
    Tokens,
    Unclamped,
    check_choice,
)

if TYPE_CHECKING:
    from hpuwatch.app.bucket_sources import Told
    from hpuwatch.gaudi.planning import Change

Words = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[LOG] [-- CMD...]",
        help="A log, or a saved list (JSON), whose lists beat prediction; a server's command.",
        show_default=False,
    ),
]


def _told(
    release: Release = None,
    max_num_seqs: Seqs = None,
    max_model_len: ModelLen = None,
    num_blocks: Blocks = None,
    max_num_batched_tokens: Tokens = None,
    block_size: BlockSize = None,
    max_num_prefill_seqs: Prefills = None,
    prefix_caching: Caching = None,
    num_speculative_tokens: Drafts = None,
    mamba_chunk_size: Chunk = None,
    mamba_chunk_explicit: ChunkSaid = False,
    skip_decode_block_clamp: Unclamped = False,
    attn_block_size: AttentionBlock = None,
    strategy: Strategy = None,
    contiguous_pa: Contiguous = None,
    bucket_file: BucketFile = None,
    config: Config = None,
    env_file: EnvFile = None,
    env: Env = None,
    inherit: Inherit = False,
    from_env: FromEnv = False,
    words: Words = None,
) -> Told:
    """Return what the options say, over what a log or a saved list tells."""
    from hpuwatch.app import bucket_sources as sources
    from hpuwatch.app.server_inputs import log_and_command
    from hpuwatch.gaudi.planning import Change

    check_choice("--contiguous-pa", contiguous_pa, ("on", "off"))
    log, command = log_and_command(words or [])
    told = sources.Told() if log is None else sources.of_path(log)
    changes = _of_files(config, env_file or [], env or [], inherit=inherit or from_env)
    changes += sources.changes_of_command(command)
    if max_num_batched_tokens is not None:
        changes.append(Change("--max-num-batched-tokens", str(max_num_batched_tokens)))
    if strategy is not None:
        changes.append(Change("--strategy", strategy))
    return told.changed(
        changes,
        release,
        max_num_seqs=max_num_seqs,
        max_model_len=max_model_len,
        num_blocks=num_blocks,
        block_size=block_size,
        max_num_prefill_seqs=max_num_prefill_seqs,
        prefix_caching=prefix_caching,
        num_speculative_tokens=num_speculative_tokens,
        mamba_chunk_size=mamba_chunk_size,
        mamba_chunk_is_explicit=mamba_chunk_explicit or None,
        skip_decode_block_clamp=skip_decode_block_clamp or None,
        attn_block_size=attn_block_size,
        contiguous_pa=None if contiguous_pa is None else contiguous_pa == "on",
        bucket_file=bucket_file and sources.read_bucket_file(bucket_file),
    )


def _of_files(
    config: str | None, files: Sequence[str], env: Sequence[str], *, inherit: bool
) -> list[Change]:
    """Return what files and variables change, the weakest first."""
    from hpuwatch.app.bucket_sources import changes_of_config
    from hpuwatch.app.server_inputs import changes_of_variables

    changes = [] if config is None else changes_of_config(config)
    return changes + changes_of_variables(env, files, os.environ if inherit else None)


def configured(
    program: typer.Typer, *, takes_log: bool = False
) -> Callable[[Callable[..., None]], Any]:
    """Return a decorator that makes a verb of a function, with these options beside its own.

    The function's first argument is what the options come to.  With ``takes_log`` its last
    positional arguments are a log and a command, which the options are laid over.
    """

    def register(tell: Callable[..., None]) -> Callable[..., None]:
        # The name is imported only for the checker of types.
        unnamed = {"Told": object}
        options = inspect.signature(_told, eval_str=True, locals=unnamed).parameters
        signature = inspect.signature(tell, eval_str=True, locals=unnamed)
        own = list(signature.parameters.values())[1:]

        def verb(**given: Any) -> None:
            mine = {parameter.name: given.pop(parameter.name) for parameter in own}
            tell(_told(**given), **mine)

        shared = [
            each for each in options.values() if takes_log or each.name != "words"
        ]
        parameters = [
            parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
            for parameter in (*own, *shared)
        ]
        verb.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # read by inspect
        verb.__annotations__ = {p.name: p.annotation for p in parameters}
        verb.__doc__ = tell.__doc__
        return program.command(tell.__name__.rstrip("_"))(verb)

    return register
