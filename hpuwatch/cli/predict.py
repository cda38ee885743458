"""``hpuwatch predict [LOG]...``: what a configuration will cost, before the restart."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hpuwatch.cli.options import (
    BlockSize,
    BucketFile,
    Caching,
    Chunk,
    Contiguous,
    Drafts,
    Env,
    EnvFile,
    Inherit,
    ModelLen,
    Prefills,
    Release,
    Seqs,
    Strategy,
    Tokens,
    check_choice,
    fail_at,
)

if TYPE_CHECKING:
    from hpuwatch.app.predict import Order, Prediction
    from hpuwatch.gaudi.planning import Change

_FORMATS = ("text", "markdown", "json")

_Words = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[LOG]... [-- CMD...]",
        help="Logs of the server, the newest last, which all teach what graphs cost; and "
        "the command line that is proposed.",
        show_default=False,
    ),
]
_Flag = Annotated[
    list[str] | None,
    typer.Option("--flag", metavar="NAME=VALUE", help="Any of vLLM's flags below."),
]
_Current = Annotated[
    list[str] | None,
    typer.Option(
        "--current",
        metavar="NAME=VALUE",
        help="A variable or flag of the running server that its log doesn't print.",
    ),
]
_Model = Annotated[
    str | None, typer.Option(metavar="PATH", help="config.json, where there is no log.")
]
_Card = Annotated[str | None, typer.Option(help="gaudi2 or gaudi3, with --model.")]
_Blocks = Annotated[
    int | None,
    typer.Option("--num-blocks", min=1, help="KV blocks, where there is no log."),
]
_Length = Annotated[
    int | None,
    typer.Option(min=1, help="Tokens of a usual request; else as traffic has it."),
]
_Share = Annotated[
    float | None,
    typer.Option("--gpu-memory-utilization", help="Share of the free memory."),
]
_Override = Annotated[
    int | None, typer.Option("--num-gpu-blocks-override", help="KV blocks, forced.")
]
_Dtype = Annotated[str | None, typer.Option("--kv-cache-dtype", help="As fp8_inc.")]
_Cards = Annotated[
    int | None,
    typer.Option("--tensor-parallel-size", "--tp", help="Cards of the model."),
]
_Eager = Annotated[
    bool | None, typer.Option("--enforce-eager/--no-enforce-eager", help="No graphs.")
]
_Format = Annotated[
    str, typer.Option("--format", help=f"One of {', '.join(_FORMATS)}.")
]
_FailOn = Annotated[
    str | None,
    typer.Option(
        help="Exit 1 at this severity or worse: info, warning, error (refused)."
    ),
]


def predict(
    words: _Words = None,
    release: Release = None,
    env: Env = None,
    env_file: EnvFile = None,
    inherit: Inherit = False,
    flag: _Flag = None,
    current: _Current = None,
    model: _Model = None,
    card: _Card = None,
    num_blocks: _Blocks = None,
    length: _Length = None,
    max_model_len: ModelLen = None,
    max_num_seqs: Seqs = None,
    max_num_batched_tokens: Tokens = None,
    block_size: BlockSize = None,
    max_num_prefill_seqs: Prefills = None,
    enable_prefix_caching: Caching = None,
    num_speculative_tokens: Drafts = None,
    mamba_chunk_size: Chunk = None,
    gpu_memory_utilization: _Share = None,
    num_gpu_blocks_override: _Override = None,
    kv_cache_dtype: _Dtype = None,
    tensor_parallel_size: _Cards = None,
    enforce_eager: _Eager = None,
    strategy: Strategy = None,
    contiguous_pa: Contiguous = None,
    bucket_file: BucketFile = None,
    form: _Format = "text",
    fail_on: _FailOn = None,
) -> None:
    """Say what a configuration will cost before the restart: now and proposed, side by side.

    With a LOG, what is given here is proposed on top of the running server. Without
    one it is the whole configuration: give --model and --card, or --num-blocks. A
    configuration that can't work is refused, with the nearest one that can.
    """
    given = locals()
    from hpuwatch.advise.finding import SEVERITIES
    from hpuwatch.app.predict import answer

    check_choice("--format", form, _FORMATS)
    check_choice("--fail-on", fail_on, SEVERITIES)
    told = answer(_order(given))
    print(_rendered(told, form))
    remarks = (*told.asked.refusals, *told.asked.cautions)
    fail_at(fail_on, (each.severity for each in remarks))


def _order(given: Mapping[str, Any]) -> Order:
    from hpuwatch.app.bucket_sources import changes_of_command
    from hpuwatch.app.predict import Order
    from hpuwatch.app.server_inputs import headed_changes, logs_and_command

    logs, command = logs_and_command(given["words"] or [])
    environ = os.environ if given["inherit"] else None
    header, changes = headed_changes(
        given["env"] or [], given["env_file"] or [], environ
    )
    changes += [*changes_of_command(command), *_file(given["bucket_file"])]
    return Order(
        logs=logs,
        changes=[*changes, *_named(given["flag"] or [], "--flag"), *_given(given)],
        current=_named(given["current"] or [], "--current"),
        release=given["release"],
        model=given["model"],
        card=given["card"],
        num_blocks=given["num_blocks"],
        length_tokens=given["length"],
        header=header,
    )


def _file(bucket_file: str | None) -> list[Change]:
    from hpuwatch.gaudi.planning import Change
    from hpuwatch.gaudi.resolve import FILE_VARIABLE

    return [] if bucket_file is None else [Change(FILE_VARIABLE, bucket_file or None)]


def _named(given: Sequence[str], option: str) -> list[Change]:
    from hpuwatch.app.server_inputs import change_of

    return [change_of(each, option) for each in given]


def _given(options: Mapping[str, object]) -> list[Change]:
    """Return the flags that decide shapes or memory: options of the same name."""
    from hpuwatch.gaudi.planning import KNOWN_FLAGS, Change

    flags = {name: options[name[2:].replace("-", "_")] for name in KNOWN_FLAGS}
    return [
        Change(name, str(value)) for name, value in flags.items() if value is not None
    ]


def _rendered(told: Prediction, form: str) -> str:
    if form == "json":
        from hpuwatch.app.predict_document import document

        return json.dumps(document(told), indent=2, ensure_ascii=False)
    from hpuwatch.cli.predict_page import markdown_page, text_page

    return text_page(told) if form == "text" else markdown_page(told)
