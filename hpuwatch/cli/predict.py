"""``hpuwatch predict [LOG]...``: what a configuration will cost, before the restart."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from hpuwatch.app.predict import Prediction
    from hpuwatch.gaudi.planning import Change

_FORMATS = ("text", "markdown", "json")

_Logs = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[LOG]...",
        help="Logs of the server, the newest last; all of them teach what graphs cost.",
        show_default=False,
    ),
]
_Release = Annotated[
    str | None, typer.Option(help="plugin-0.26, fork-1.22 or any version.")
]
_Env = Annotated[
    list[str] | None,
    typer.Option("--env", metavar="KEY=VALUE", help="A variable to set; empty unsets."),
]
_EnvFile = Annotated[
    list[str] | None,
    typer.Option("--env-file", metavar="PATH", help="A file of KEY=VALUE lines."),
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
_ModelLen = Annotated[int | None, typer.Option(help="Longest sequence, in tokens.")]
_Seqs = Annotated[int | None, typer.Option(help="Sequences at a time.")]
_Tokens = Annotated[int | None, typer.Option(help="Tokens of a step.")]
_BlockSize = Annotated[int | None, typer.Option(help="Tokens of a KV block.")]
_Prefills = Annotated[
    int | None, typer.Option(help="Prompts of a prefill; a flag of the fork.")
]
_Caching = Annotated[
    bool | None,
    typer.Option(
        "--enable-prefix-caching/--no-enable-prefix-caching",
        help="Keep the KV blocks of prefixes.",
    ),
]
_Drafts = Annotated[int | None, typer.Option(help="Tokens of a speculative draft.")]
_Chunk = Annotated[int | None, typer.Option(help="Chunk of a Mamba model.")]
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
_Strategy = Annotated[str | None, typer.Option(help="exp, lin or pad.")]
_Contiguous = Annotated[
    str | None,
    typer.Option("--contiguous-pa", metavar="on|off", help="Contiguous attention."),
]
_BucketFile = Annotated[
    str | None, typer.Option(metavar="PATH", help="Take the buckets from this file.")
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
    logs: _Logs = None,
    release: _Release = None,
    env: _Env = None,
    env_file: _EnvFile = None,
    flag: _Flag = None,
    current: _Current = None,
    model: _Model = None,
    card: _Card = None,
    num_blocks: _Blocks = None,
    length: _Length = None,
    max_model_len: _ModelLen = None,
    max_num_seqs: _Seqs = None,
    max_num_batched_tokens: _Tokens = None,
    block_size: _BlockSize = None,
    max_num_prefill_seqs: _Prefills = None,
    enable_prefix_caching: _Caching = None,
    num_speculative_tokens: _Drafts = None,
    mamba_chunk_size: _Chunk = None,
    gpu_memory_utilization: _Share = None,
    num_gpu_blocks_override: _Override = None,
    kv_cache_dtype: _Dtype = None,
    tensor_parallel_size: _Cards = None,
    enforce_eager: _Eager = None,
    strategy: _Strategy = None,
    contiguous_pa: _Contiguous = None,
    bucket_file: _BucketFile = None,
    form: _Format = "text",
    fail_on: _FailOn = None,
) -> None:
    """Say what a configuration will cost before the restart: now and proposed, side by side.

    With a LOG, what is given here is proposed on top of the running server. Without
    one it is the whole configuration: give --model and --card, or --num-blocks. A
    configuration that can't work is refused, with the nearest one that can.
    """
    given = locals()
    from hpuwatch.app.predict import Order, answer
    from hpuwatch.gaudi.planning import KNOWN_FLAGS

    _check(form, fail_on)
    # Every flag that decides shapes or memory is an option of the same name.
    flags = {name: given[name[2:].replace("-", "_")] for name in KNOWN_FLAGS}
    changes = _variables(env_file or [], env or [], bucket_file)
    told = answer(
        Order(
            logs=logs or [],
            changes=[*changes, *_named(flag or [], "--flag"), *_given(flags)],
            current=_named(current or [], "--current"),
            release=release,
            model=model,
            card=card,
            num_blocks=num_blocks,
            length_tokens=length,
        )
    )
    print(_rendered(told, form))
    if fail_on is not None and _is_grave(told, fail_on):
        raise typer.Exit(1)


def _check(form: str, fail_on: str | None) -> None:
    from hpuwatch.advise.finding import SEVERITIES
    from hpuwatch.errors import UsageError

    if form not in _FORMATS:
        raise UsageError(f"--format {form!r} is not one of {', '.join(_FORMATS)}")
    if fail_on is not None and fail_on not in SEVERITIES:
        raise UsageError(f"--fail-on {fail_on!r} is not one of {', '.join(SEVERITIES)}")


def _is_grave(told: Prediction, fail_on: str) -> bool:
    from hpuwatch.advise.finding import SEVERITIES

    grave = SEVERITIES[SEVERITIES.index(fail_on) :]
    remarks = (*told.asked.refusals, *told.asked.cautions)
    return any(each.severity in grave for each in remarks)


def _variables(
    files: Sequence[str], given: Sequence[str], bucket_file: str | None
) -> list[Change]:
    from hpuwatch.app.bucket_sources import changes_of_env, changes_of_env_file
    from hpuwatch.gaudi.planning import Change
    from hpuwatch.gaudi.resolve import FILE_VARIABLE

    changes = [change for path in files for change in changes_of_env_file(path)]
    changes += changes_of_env(given, inherit=False)
    if bucket_file is not None:
        changes.append(Change(FILE_VARIABLE, bucket_file))
    return [Change(each.name, each.value or None) for each in changes]


def _named(given: Sequence[str], option: str) -> list[Change]:
    """Return NAME=VALUE as changes; a name that isn't in capitals is a flag."""
    from hpuwatch.errors import UsageError
    from hpuwatch.gaudi.planning import Change

    changes = []
    for text in given:
        name, sign, value = text.partition("=")
        if not sign:
            name, sign, value = text.strip().partition(" ")
        if not sign or not name:
            raise UsageError(f"{option} {text!r} is not NAME=VALUE")
        if not name.isupper():
            name = f"--{name.strip().lstrip('-').replace('_', '-')}"
        changes.append(Change(name, value.strip() or None))
    return changes


def _given(flags: Mapping[str, object]) -> list[Change]:
    from hpuwatch.gaudi.planning import Change

    return [
        Change(name, str(value)) for name, value in flags.items() if value is not None
    ]


def _rendered(told: Prediction, form: str) -> str:
    if form == "json":
        from hpuwatch.app.predict_document import document

        return json.dumps(document(told), indent=2, ensure_ascii=False)
    from hpuwatch.cli.predict_page import markdown_page, text_page

    return text_page(told) if form == "text" else markdown_page(told)
