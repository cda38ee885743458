"""``hpuwatch buckets``: which shapes a configuration warms up, without starting it."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from hpuwatch.app.buckets import Answer, Explained

program = typer.Typer(
    help="Say which shapes a configuration warms up.",
    no_args_is_help=True,
)

Release = Annotated[
    str, typer.Option(help="plugin-0.26, fork-1.22, plugin-head or any version.")
]
ModelLen = Annotated[int, typer.Option(help="Longest sequence, in tokens.")]
Blocks = Annotated[
    int, typer.Option("--num-blocks", help="KV blocks, as the server's log has it.")
]
Seqs = Annotated[int, typer.Option(help="Sequences at a time.")]
Tokens = Annotated[
    int | None,
    typer.Option(help="Tokens of a step [plugin: 2048; fork: the model's length]."),
]
BlockSize = Annotated[int, typer.Option(help="Tokens of a KV block.")]
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
Drafts = Annotated[int, typer.Option(help="Tokens of a speculative draft.")]
Chunk = Annotated[int, typer.Option(help="Chunk of a Mamba model.")]
ChunkSaid = Annotated[
    bool, typer.Option(help="The chunk stands in the model's configuration.")
]
Unclamped = Annotated[
    bool,
    typer.Option(help="plugin-head: a hybrid or sliding-window model."),
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
Env = Annotated[
    list[str] | None,
    typer.Option("--env", metavar="KEY=VALUE", help="A variable of the server."),
]
FromEnv = Annotated[
    bool, typer.Option("--from-env", help="Take VLLM_… and PT_HPU_… from here.")
]
Format = Annotated[str, typer.Option("--format", help="text or json.")]
Shape = Annotated[
    str, typer.Argument(help="BATCH,QUERY,CONTEXT; the context in blocks.")
]
_NEWEST = "plugin-0.26"


def _ask(
    max_model_len: ModelLen,
    num_blocks: Blocks,
    release: Release = _NEWEST,
    max_num_seqs: Seqs = 256,
    max_num_batched_tokens: Tokens = None,
    block_size: BlockSize = 128,
    max_num_prefill_seqs: Prefills = None,
    prefix_caching: Caching = None,
    num_speculative_tokens: Drafts = 0,
    mamba_chunk_size: Chunk = 0,
    mamba_chunk_explicit: ChunkSaid = False,
    skip_decode_block_clamp: Unclamped = False,
    strategy: Strategy = None,
    contiguous_pa: Contiguous = None,
    bucket_file: BucketFile = None,
    env: Env = None,
    from_env: FromEnv = False,
) -> Answer:
    from hpuwatch.app import buckets
    from hpuwatch.errors import UsageError
    from hpuwatch.gaudi.resolve import Flags

    if contiguous_pa not in {None, "on", "off"}:
        raise UsageError(f"--contiguous-pa {contiguous_pa!r} is not on or off")
    if strategy not in {None, "exp", "lin", "pad"}:
        raise UsageError(f"--strategy {strategy!r} is not exp, lin or pad")
    flags = Flags(
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=max_num_batched_tokens
        or buckets.default_tokens(release, max_model_len),
        max_model_len=max_model_len,
        num_blocks=num_blocks,
        block_size=block_size,
        max_num_prefill_seqs=max_num_prefill_seqs,
        prefix_caching=prefix_caching,
        num_speculative_tokens=num_speculative_tokens,
        mamba_chunk_size=mamba_chunk_size,
        mamba_chunk_is_explicit=mamba_chunk_explicit,
        skip_decode_block_clamp=skip_decode_block_clamp,
        bucket_file=None
        if bucket_file is None
        else buckets.read_bucket_file(bucket_file),
        strategy=strategy,
        contiguous_pa=None if contiguous_pa is None else contiguous_pa == "on",
    )
    return buckets.answer(
        release, flags, buckets.environment(env or [], inherit=from_env)
    )


def _verb(tell: Callable[..., None]) -> Callable[..., None]:
    """Register ``tell`` as a verb with the options of :func:`_ask` beside its own.

    Its first argument is what these options come to.
    """
    # The answer's type would be imported here only for its name.
    unnamed = {"Answer": object}
    options = inspect.signature(_ask, eval_str=True, locals=unnamed)
    told = inspect.signature(tell, eval_str=True, locals=unnamed)
    own = list(told.parameters.values())[1:]

    def verb(**given: object) -> None:
        mine = {parameter.name: given.pop(parameter.name) for parameter in own}
        tell(_ask(**given), **mine)  # type: ignore[arg-type]  # typer converts them

    parameters = [
        parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for parameter in (*own, *options.parameters.values())
    ]
    verb.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # read by inspect
    verb.__annotations__ = {p.name: p.annotation for p in parameters}
    verb.__doc__ = tell.__doc__
    return program.command(tell.__name__.rstrip("_"))(verb)


@_verb
def count(found: Answer, form: Format = "text") -> None:
    """Say how many buckets a configuration makes."""
    from hpuwatch.app.buckets import counts

    document = counts(found)
    if _is_json(form):
        print(json.dumps(document, indent=2))
    else:
        print(_summary(found))


@_verb
def list_(found: Answer, form: Format = "text") -> None:
    """List the buckets, as lines of a bucket file.

    VLLM_BUCKETING_FROM_FILE takes such a file.
    """
    from hpuwatch.app.buckets import lists

    if _is_json(form):
        print(json.dumps(lists(found)))
        return
    for line in _summary(found).splitlines():
        print(f"# {line}")
    for bucket in (*found.prepared.prompt, *found.prepared.decode):
        print(tuple(bucket))


@_verb
def explain(found: Answer, shape: Shape, form: Format = "text") -> None:
    """Say which bucket a shape gets, and whether it is ready."""
    from hpuwatch.app import buckets

    told = buckets.explain(found, *buckets.read_shape(shape))
    if _is_json(form):
        document = {**buckets.counts(found), "shape": told.document()}
        print(json.dumps(document, indent=2))
    else:
        print(_explained(told))


def _is_json(form: str) -> bool:
    from hpuwatch.errors import UsageError

    if form not in {"text", "json"}:
        raise UsageError(f"--format {form!r} is not text or json")
    return form == "json"


def _summary(found: Answer) -> str:
    settings, prepared = found.settings, found.prepared
    paged = "on" if settings.contiguous_pa else "off"
    rows = [
        ("release", f"{found.release.name} (dialect {settings.dialect})"),
        ("strategy", f"{settings.strategy}, contiguous paged attention {paged}"),
        (
            "prompt",
            f"{len(prepared.prompt)} buckets, {len(found.warmed)} shapes warmed",
        ),
        ("decode", f"{len(prepared.decode)} buckets"),
        *(("note", note) for note in found.notes),
    ]
    return "\n".join(f"{name:10}{text}" for name, text in rows)


def _explained(told: Explained) -> str:
    wanted, bucket = tuple(told.wanted), tuple(told.bucket)
    if told.warm:
        state = "warmed up"
    elif told.prepared:
        state = "listed, but not warmed up: its first use compiles"
    else:
        state = "made up for this request, which waits until it is compiled"
    if not told.holds:
        state += "; it does not hold the shape"
    rows = [("shape", f"{told.phase} {wanted}"), ("bucket", f"{bucket}, {state}")]
    if told.padding is not None:
        rows.append(("padding", f"{told.padding:.0%} of the bucket"))
    if told.exceeds:
        limits = " and ".join(f"{name} ({at})" for name, at in told.exceeds.items())
        rows.append(("limit", f"the shape exceeds {limits}: no such step comes"))
    return "\n".join(f"{name:10}{text}" for name, text in rows)
