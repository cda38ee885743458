"""The options that say what a server is started with, for every verb of ``buckets``."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from hpuwatch.app.bucket_sources import Told

Release = Annotated[
    str | None,
    typer.Option(
        help="plugin-0.26, fork-1.22, plugin-head or any version [plugin-0.26]."
    ),
]
Seqs = Annotated[int | None, typer.Option(help="Sequences at a time [256].")]
ModelLen = Annotated[int | None, typer.Option(help="Longest sequence, in tokens.")]
Blocks = Annotated[
    int | None,
    typer.Option("--num-blocks", help="KV blocks, as the server's log has it."),
]
Tokens = Annotated[
    int | None,
    typer.Option(help="Tokens of a step [plugin: 2048; fork: the model's length]."),
]
BlockSize = Annotated[int | None, typer.Option(help="Tokens of a KV block [128].")]
Prefills = Annotated[
    int | None, typer.Option(help="Prompts of a prefill; a flag of the fork.")
]
Caching = Annotated[
    bool | None,
    typer.Option(
        "--enable-prefix-caching/--no-enable-prefix-caching",
        help="Decides before plugin-0.11 only.",
    ),
]
Drafts = Annotated[int | None, typer.Option(help="Tokens of a speculative draft.")]
Chunk = Annotated[int | None, typer.Option(help="Chunk of a Mamba model.")]
ChunkSaid = Annotated[
    bool, typer.Option(help="The chunk stands in the model's configuration.")
]
Unclamped = Annotated[
    bool,
    typer.Option(help="plugin-head: a hybrid or sliding-window model."),
]
AttentionBlock = Annotated[
    int | None,
    typer.Option(
        help="Tokens of an attention block, where a hybrid model has its own."
    ),
]
Strategy = Annotated[
    str | None, typer.Option(help="exp, lin or pad, whatever the variables say.")
]
Contiguous = Annotated[
    str | None,
    typer.Option("--contiguous-pa", metavar="on|off", help="Contiguous attention."),
]
BucketFile = Annotated[
    str | None, typer.Option(metavar="PATH", help="Take the buckets from this file.")
]
Config = Annotated[
    str | None,
    typer.Option("--config", metavar="YAML", help="vLLM's own configuration file."),
]
EnvFile = Annotated[
    list[str] | None,
    typer.Option("--env-file", metavar="PATH", help="A file of KEY=VALUE lines."),
]
Env = Annotated[
    list[str] | None,
    typer.Option("--env", metavar="KEY=VALUE", help="A variable of the server."),
]
FromEnv = Annotated[
    bool, typer.Option("--from-env", help="Take VLLM_… and PT_HPU_… from here.")
]

Log = Annotated[
    str | None,
    typer.Argument(
        metavar="[LOG]",
        help="A log, or a saved list (JSON). What it prints beats prediction.",
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
    from_env: FromEnv = False,
    log: Log = None,
) -> Told:
    """Return what the options say, over what a log or a saved list tells."""
    from hpuwatch.app import bucket_sources as sources
    from hpuwatch.errors import UsageError
    from hpuwatch.gaudi.planning import Change

    if contiguous_pa not in {None, "on", "off"}:
        raise UsageError(f"--contiguous-pa {contiguous_pa!r} is not on or off")
    if strategy not in {None, "exp", "lin", "pad"}:
        raise UsageError(f"--strategy {strategy!r} is not exp, lin or pad")
    told = sources.Told() if log is None else sources.of_path(log)
    changes = [] if config is None else sources.changes_of_config(config)
    changes += sources.changes_of_env([], inherit=from_env)
    for path in env_file or []:
        changes += sources.changes_of_env_file(path)
    changes += sources.changes_of_env(env or [], inherit=False)
    if max_num_batched_tokens is not None:
        changes.append(Change("--max-num-batched-tokens", str(max_num_batched_tokens)))
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
        strategy=strategy,
        contiguous_pa=None if contiguous_pa is None else contiguous_pa == "on",
        bucket_file=None
        if bucket_file is None
        else sources.read_bucket_file(bucket_file),
    )


def configured(
    program: typer.Typer, *, takes_log: bool = False
) -> Callable[[Callable[..., None]], Any]:
    """Return a decorator that makes a verb of a function, with these options beside its own.

    The function's first argument is what the options come to.  With ``takes_log`` its last
    positional argument is a log, which the options are laid over.
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

        shared = [each for each in options.values() if takes_log or each.name != "log"]
        parameters = [
            parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
            for parameter in (*own, *shared)
        ]
        verb.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # read by inspect
        verb.__annotations__ = {p.name: p.annotation for p in parameters}
        verb.__doc__ = tell.__doc__
        return program.command(tell.__name__.rstrip("_"))(verb)

    return register
