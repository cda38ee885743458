"""``hpuwatch load``: give a server a known load, and measure what it makes of it."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hpuwatch.cli.options import check_choice

if TYPE_CHECKING:
    from hpuwatch.clock import Clock
    from hpuwatch.load.drive import Run
    from hpuwatch.load.order import Order
    from hpuwatch.load.target import Route
    from hpuwatch.load.workload import Span

_FORMATS = ("text", "markdown", "json")
_ROUTES = ("completions", "chat")
_PROMPTS = ("ids", "words")
_TOOLS = ("own", "vllm", "guidellm")
_INTERRUPTED = "interrupted"
_ONE_WISH_SECONDS = 0.5

_Url = Annotated[str, typer.Option(help="Where the server listens.")]
_Trace = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Replay a CSV file (.gz too): arrival_s, input_tokens, output_tokens and "
        "perhaps cached_prefix_tokens.",
    ),
]
_Warp = Annotated[
    float | None,
    typer.Option(min=1e-6, help="Replay the trace so many times as fast. [1]"),
]
_Rate = Annotated[
    float | None,
    typer.Option(min=1e-6, help="Requests per second, however many are in flight."),
]
_Constant = Annotated[
    bool, typer.Option("--constant", help="Evenly spaced, not as a Poisson process.")
]
_Concurrency = Annotated[
    int | None,
    typer.Option(min=1, max=100_000, help="Keep so many requests in flight instead."),
]
_Inputs = Annotated[
    str | None,
    typer.Option("--input-tokens", metavar="N|N-M", help="Length of a prompt. [1024]"),
]
_Outputs = Annotated[
    str | None,
    typer.Option("--output-tokens", metavar="N|N-M", help="Length of an answer. [128]"),
]
_Prefix = Annotated[
    int, typer.Option("--prefix-tokens", min=0, help="Beginning that prompts share.")
]
_Limit = Annotated[
    int | None,
    typer.Option(
        min=1, help="Requests at most. [1000, unless a trace or --seconds ends it]"
    ),
]
_Seconds = Annotated[
    float | None, typer.Option(min=0.001, help="Send for so long at most.")
]
_Model = Annotated[
    str | None, typer.Option(help="Its name. [the server's first model]")
]
_Endpoint = Annotated[str, typer.Option(help="completions or chat.")]
_Prompts = Annotated[
    str | None,
    typer.Option(
        help="ids (exact lengths) or words. [ids where the server takes them]"
    ),
]
_Goodput = Annotated[
    list[str] | None,
    typer.Option(
        metavar="KEY:MS",
        help="Count requests that keep these limits: ttft:2000, tpot:50, e2el:30000.",
    ),
]
_MoreLimits = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[KEY:MS]...",
        help="More limits, as they follow --goodput in vLLM's spelling.",
        show_default=False,
    ),
]
_Timeout = Annotated[
    float, typer.Option(min=0.1, help="Seconds after which an answer has failed.")
]
_Seed = Annotated[int, typer.Option(help="Of drawn lengths and arrivals.")]
_Tool = Annotated[
    str,
    typer.Option(help="own, vllm (vllm bench serve) or guidellm, where installed."),
]
_Tokenizer = Annotated[
    str | None, typer.Option(help="For another tool: the model's tokenizer.")
]
_Detailed = Annotated[
    bool, typer.Option("--save-detailed", help="JSON: a row for each request too.")
]
_Out = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Write the JSON here as well."),
]
_DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Say what would be sent, and send nothing.")
]
_Format = Annotated[
    str, typer.Option("--format", help=f"One of {', '.join(_FORMATS)}.")
]


def load(
    limits: _MoreLimits = None,
    url: _Url = "http://127.0.0.1:8000",
    trace: _Trace = None,
    warp: _Warp = None,
    rate: _Rate = None,
    constant: _Constant = False,
    concurrency: _Concurrency = None,
    input_tokens: _Inputs = None,
    output_tokens: _Outputs = None,
    prefix_tokens: _Prefix = 0,
    limit: _Limit = None,
    seconds: _Seconds = None,
    model: _Model = None,
    endpoint: _Endpoint = "completions",
    prompts: _Prompts = None,
    goodput: _Goodput = None,
    timeout: _Timeout = 600.0,
    seed: _Seed = 0,
    tool: _Tool = "own",
    tokenizer: _Tokenizer = None,
    save_detailed: _Detailed = False,
    out: _Out = None,
    dry_run: _DryRun = False,
    form: _Format = "text",
) -> None:
    """Give a server a known load and measure what it makes of it.

    Say when requests are sent: as a --trace has them, at a --rate, or as fast as
    answers come (--concurrency). Any OpenAI-compatible server will do; its key is
    taken from VLLM_API_KEY or OPENAI_API_KEY.
    """
    from hpuwatch.load.order import Order

    order = Order(
        url,
        trace=trace,
        warp=warp,
        rate=rate,
        constant=constant,
        concurrency=concurrency,
        inputs=_span("--input-tokens", input_tokens),
        outputs=_span("--output-tokens", output_tokens),
        prefix_tokens=prefix_tokens,
        limit=limit,
        seconds=seconds,
        model=model,
        route=_route(endpoint),
        prompts=prompts,
        limits=_limits([*(goodput or []), *(limits or [])]),
        timeout_seconds=timeout,
        seed=seed,
        tool=tool,
        tokenizer=tokenizer,
        detailed=save_detailed,
    )
    _carry_out(order, out, form, dry_run=dry_run)


def _carry_out(order: Order, out: Path | None, form: str, *, dry_run: bool) -> None:
    from hpuwatch.app.load import measure
    from hpuwatch.clock import SystemClock
    from hpuwatch.load.order import check_order

    check_choice("--format", form, _FORMATS)
    check_choice("--prompts", order.prompts, _PROMPTS)
    check_choice("--tool", order.tool, _TOOLS)
    check_order(order)
    if dry_run:
        print(_planned(order, form))
        return
    _check_writable(out)
    clock = SystemClock()
    with stoppable(clock) as signals, _screen() as show:

        def watch(run: Run) -> str | None:
            signals.running = True
            show(run)
            return _INTERRUPTED if signals.asked else None

        told, run = measure(order, os.environ, clock, watch)
    if out is not None:
        out.write_text(_json(told) + "\n", encoding="utf-8")
    print(_rendered(told, form))
    if signals.asked:
        raise typer.Exit(128 + signals.asked)
    if run is not None:
        _judge(told, run)


def _route(endpoint: str) -> Route:
    from hpuwatch.load.target import Route

    check_choice("--endpoint", endpoint, _ROUTES)
    return Route(endpoint)


def _limits(words: Sequence[str]) -> Mapping[str, float]:
    from hpuwatch.load.figures import read_limits

    return read_limits(words)


def _span(option: str, text: str | None) -> Span | None:
    """Read a length or a range of lengths.

    Raises:
        UsageError: it is neither.
    """
    from hpuwatch.errors import UsageError
    from hpuwatch.load.workload import Span

    if text is None:
        return None
    least, _, most = text.partition("-")
    try:
        span = Span(int(least), int(most or least))
    except ValueError:
        span = Span(0, 0)
    if not 1 <= span.least <= span.most <= 10_000_000:
        raise UsageError(
            f"{option} {text!r} is no length: give tokens, 1 or more, as 128 or 64-256"
        )
    return span


def _planned(order: Order, form: str) -> str:
    from hpuwatch.app.load import plan_of
    from hpuwatch.cli.load_page import plan_page

    plan = plan_of(order)
    return _json(plan) if form == "json" else plan_page(plan)


def _check_writable(out: Path | None) -> None:
    """Find out before the run whether its result can be kept.

    Raises:
        ResourceError: it can't.
    """
    from hpuwatch.errors import ResourceError

    if out is None:
        return
    try:
        out.touch()
    except OSError as error:
        raise ResourceError(f"--out {out} can't be written: {error.strerror}") from None


@dataclass
class Signals:
    """What we were told meanwhile.

    Attributes:
        running: requests are being sent.
        asked: the signal that asked us to stop, 0 for none.
        at: when, in the clock's seconds.
    """

    running: bool = False
    asked: int = 0
    at: float = 0.0


@contextmanager
def stoppable(clock: Clock) -> Iterator[Signals]:
    """Note Ctrl-C and SIGTERM, so that the figures so far are told.

    Before the run there are none, and they end us at once, and another tool with us.  The
    second time they do so in the run too, unless both came together: ``timeout`` signals us
    and then our group.
    """
    signals = Signals()

    def note(number: int, _frame: object) -> None:
        if not signals.running:
            sys.exit(128 + number)
        if not signals.asked:
            signals.asked, signals.at = number, clock.boottime()
        elif clock.boottime() - signals.at > _ONE_WISH_SECONDS:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    before = {
        number: signal.signal(number, note)
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield signals
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _screen() -> Iterator[Callable[[Run], None]]:
    """Show a bar where stderr is a terminal, and nothing elsewhere."""
    if not (sys.stderr and sys.stderr.isatty()):
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[detail]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("load", total=None, detail="asking the server")

        def show(run: Run) -> None:
            flying = len(run.records) - run.answered
            detail = f"{run.answered:,} answered, {flying:,} in flight"
            if run.failed:
                detail += f", {run.failed:,} failed"
            bar.update(task, completed=run.answered, total=run.planned, detail=detail)

        yield show


def _rendered(told: Mapping[str, Any], form: str) -> str:
    from hpuwatch.cli.load_page import markdown_page, text_page

    if form == "json":
        return _json(told)
    return text_page(told) if form == "text" else markdown_page(told)


def _json(told: Mapping[str, Any]) -> str:
    return json.dumps(told, indent=2, ensure_ascii=False)


def _judge(told: Mapping[str, Any], run: Run) -> None:
    """End with an error where the figures say nothing of the server.

    Raises:
        ResourceError: nothing succeeded, or our own machine was the limit.
    """
    from hpuwatch.errors import ResourceError

    if run.exhausted:
        raise ResourceError(f"the run was ended: {run.stopped}")
    if not told["completed"]:
        raise ResourceError(f"no request succeeded: {run.first_failure}")
    client = told["client"]
    if client["is_bottleneck"]:
        raise ResourceError(
            f"the client was the bottleneck ({client['cpu_share']:.0%} of its core): "
            "these figures are not the server's; spread the load over several clients, "
            "or send less of it"
        )
