"""``hpuwatch load``: from what was asked for to the document of a run.

The server is asked which model it has and how it counts tokens, its counters are read, the
workload is carried out, and the counters are read again.  Nothing is printed here.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from hpuwatch.clock import Clock
from hpuwatch.errors import UsageError
from hpuwatch.load.calibrate import calibrated, served_model
from hpuwatch.load.client import Client, Question, Route
from hpuwatch.load.counters import between, read
from hpuwatch.load.drive import Run, drive
from hpuwatch.load.endpoint import Endpoint, endpoint_of, get
from hpuwatch.load.figures import detail
from hpuwatch.load.guidellm import GuideLlm
from hpuwatch.load.openfiles import allow_connections
from hpuwatch.load.prompts import TOKEN_IDS
from hpuwatch.load.result import About, document, tool_document
from hpuwatch.load.tools import Job, Tool, run_tool
from hpuwatch.load.vllm_bench import VllmBench
from hpuwatch.load.workload import (
    Arrivals,
    Request,
    Span,
    Workload,
    asked_of,
    at_rate,
    drawn_lengths,
    read_trace,
    warped,
)

OWN = "own"
PLAN_SCHEMA = "hpuwatch.load-plan/1"
TOOLS: Mapping[str, Callable[[], Tool]] = {"vllm": VllmBench, "guidellm": GuideLlm}
DEFAULT_REQUESTS = 1000
_DEFAULT_INPUTS, _DEFAULT_OUTPUTS = Span(1024, 1024), Span(128, 128)
_KEYS = ("VLLM_API_KEY", "OPENAI_API_KEY")


@dataclass(frozen=True, slots=True)
class Order:
    """What was asked for; None where nothing was said.

    Attributes:
        trace: the file to replay.
        warp: how many times as fast.
        rate: requests per second.
        constant: they come evenly, not as a Poisson process.
        concurrency: a closed loop of so many instead.
        inputs: lengths of prompts, where no trace gives them; ``outputs`` likewise.
        prefix_tokens: how much of each prompt all share, where no trace says it.
        limit: how many requests at most.
        seconds: how long requests are sent at most.
        prompts: ``ids`` or ``words``, None for what the server takes.
        limits: of a good request, in milliseconds.
        timeout_seconds: an answer that takes longer has failed.
    """

    url: str
    trace: Path | None = None
    warp: float | None = None
    rate: float | None = None
    constant: bool = False
    concurrency: int | None = None
    inputs: Span | None = None
    outputs: Span | None = None
    prefix_tokens: int = 0
    limit: int | None = None
    seconds: float | None = None
    model: str | None = None
    route: Route = Route.COMPLETIONS
    prompts: str | None = None
    limits: Mapping[str, float] = field(default_factory=dict)
    timeout_seconds: float = 600.0
    seed: int = 0
    tool: str = OWN
    tokenizer: str | None = None
    detailed: bool = False

    @property
    def arrivals(self) -> Arrivals:
        """Return what decides when requests are sent."""
        if self.concurrency is not None:
            return Arrivals.CLOSED
        if self.rate is None:
            return Arrivals.TRACE
        return Arrivals.CONSTANT if self.constant else Arrivals.POISSON


def check_order(order: Order) -> None:
    """Check that what was asked for goes together.

    Raises:
        UsageError: it doesn't.
    """
    if order.rate is not None and order.concurrency is not None:
        raise UsageError(
            "--rate and --concurrency exclude each other: an open loop sends when a "
            "request is due, a closed one when another has ended"
        )
    if order.trace is None and order.rate is None and order.concurrency is None:
        raise UsageError(
            "say when requests are sent: --trace FILE, --rate R or --concurrency N"
        )
    _check_finite(order)
    if order.trace is not None:
        _check_trace(order)
    elif order.warp is not None:
        raise UsageError("--warp is for the arrivals of a --trace")
    if order.constant and order.rate is None:
        raise UsageError("--constant is for a --rate")
    if order.tool != OWN:
        _check_tool(order)


def _check_finite(order: Order) -> None:
    given = {
        "--rate": order.rate,
        "--warp": order.warp,
        "--seconds": order.seconds,
        "--timeout": order.timeout_seconds,
    }
    for name, value in given.items():
        if value is not None and not math.isfinite(value):
            raise UsageError(f"{name} {value:g} is no number that a run could have")


def _check_trace(order: Order) -> None:
    if order.inputs or order.outputs or order.prefix_tokens:
        raise UsageError(
            "the lengths come from the --trace: leave out --input-tokens, "
            "--output-tokens and --prefix-tokens"
        )
    if order.warp is not None and order.arrivals is not Arrivals.TRACE:
        raise UsageError(
            "--warp is for the arrivals of the trace: leave it out with --rate or "
            "--concurrency, which take only its lengths"
        )


def _check_tool(order: Order) -> None:
    """Check that another tool can do this.

    Raises:
        UsageError: only our own can.
    """
    given = {
        "--trace": order.trace,
        "--prefix-tokens": order.prefix_tokens,
        "--seconds": order.seconds,
        "--prompts": order.prompts,
    }
    for name, value in given.items():
        if value:
            raise UsageError(f"{name} needs --tool own")


def workload_of(order: Order) -> Workload:
    """Return all requests of an order.

    Raises:
        MissingFileError: there is no such trace.
        InputError: it can't be used.
    """
    requests = _timed(order, _lengths(order))
    is_closed = order.arrivals is Arrivals.CLOSED
    limit = order.limit
    if order.trace is None and order.seconds is None and limit is None:
        limit = DEFAULT_REQUESTS
    if limit is not None:
        requests = itertools.islice(requests, limit)
    if order.seconds is not None and not is_closed:
        last = order.seconds
        requests = itertools.takewhile(lambda one: one.due_seconds < last, requests)
    # Only a closed loop that ends with the time can't be listed before it runs.
    if not is_closed or order.trace is not None or limit is not None:
        requests = tuple(requests)
    return Workload(
        requests, order.arrivals, order.concurrency, order.rate, order.seconds
    )


def _lengths(order: Order) -> Iterable[Request]:
    if order.trace is not None:
        return read_trace(order.trace)
    inputs = order.inputs or _DEFAULT_INPUTS
    outputs = order.outputs or _DEFAULT_OUTPUTS
    return drawn_lengths(inputs, outputs, order.prefix_tokens, order.seed)


def _timed(order: Order, requests: Iterable[Request]) -> Iterable[Request]:
    if order.arrivals is Arrivals.TRACE:
        return warped(requests, order.warp or 1.0)
    if order.rate is not None:
        return at_rate(requests, order.rate, order.arrivals, order.seed)
    return requests


def plan_of(order: Order) -> dict[str, object]:
    """Return what would be sent; ``requests`` is None where only answers decide that.

    Raises:
        MissingFileError: there is no such trace.
        InputError: it can't be used.
    """
    workload = workload_of(order)
    listed = workload.requests if isinstance(workload.requests, tuple) else ()
    asked = asked_of(listed)
    return {
        "schema": PLAN_SCHEMA,
        "url": order.url,
        "requests": workload.planned,
        "arrivals": order.arrivals.value,
        "concurrency": order.concurrency,
        "rate": asked.rate if order.rate is None else order.rate,
        "input_tokens": asked.input_tokens,
        "output_tokens": asked.output_tokens,
        "prefix_tokens": asked.prefix_tokens,
        "sending_seconds": asked.seconds,
        "ends_after_seconds": order.seconds,
    }


def measure(
    order: Order,
    environment: Mapping[str, str],
    clock: Clock,
    watch: Callable[[Run], str | None],
) -> tuple[dict[str, object], Run | None]:
    """Carry out an order and return the document, and what our own client noted.

    Args:
        order: what was asked for.
        environment: where the server's key is looked for, and what another tool gets.
        clock: where time comes from.
        watch: looks on, many times a second; a text stops the run and says why.

    Raises:
        UsageError: the order makes no sense.
        MissingFileError: there is no such trace.
        InputError: it can't be used.
        ResourceError: the server or the tool can't be had.
    """
    check_order(order)
    endpoint = endpoint_of(order.url, key_headers(environment))
    if order.tool != OWN:
        return _measured_by(
            TOOLS[order.tool](), order, endpoint, environment, clock
        ), None
    workload = workload_of(order)
    allow_connections(order.concurrency or 1)
    model = order.model or served_model(endpoint)
    # Prompts of an earlier run lie in the server's cache: the moment makes them new.
    seed = f"{order.seed}/{clock.now()}"
    prompts = calibrated(endpoint, model, order.route, seed, order.prompts)
    question = Question(endpoint, model, order.route, prompts)
    before = read(endpoint, clock.boottime)
    run = asyncio.run(_carried_out(question, workload, order, clock, watch))
    counted = between(before, read(endpoint, clock.boottime))
    about = replace(
        _about(order, endpoint, model),
        prompts="token ids" if prompts.units is TOKEN_IDS else "words",
        tokens_each=prompts.units.tokens_each,
    )
    told = document(about, workload, run, counted, clock.now())
    return told | (detail(run) if order.detailed else {}), run


async def _carried_out(
    question: Question,
    workload: Workload,
    order: Order,
    clock: Clock,
    watch: Callable[[Run], str | None],
) -> Run:
    client = Client(question, clock.boottime, order.timeout_seconds)
    try:
        return await drive(workload, client.ask, clock, watch)
    finally:
        client.close()


def _measured_by(
    tool: Tool,
    order: Order,
    endpoint: Endpoint,
    environment: Mapping[str, str],
    clock: Clock,
) -> dict[str, object]:
    model = order.model or served_model(endpoint)
    job = Job(
        endpoint,
        model,
        order.route,
        order.inputs or _DEFAULT_INPUTS,
        order.outputs or _DEFAULT_OUTPUTS,
        order.limit or DEFAULT_REQUESTS,
        order.arrivals,
        order.rate,
        order.concurrency,
        order.seed,
        order.limits,
        order.tokenizer,
        order.detailed,
    )
    before = read(endpoint, clock.boottime)
    told = run_tool(tool, job, environment)
    counted = between(before, read(endpoint, clock.boottime))
    about = _about(order, endpoint, model)
    return tool_document(about, tool.name, told, counted, clock.now())


def _about(order: Order, endpoint: Endpoint, model: str) -> About:
    said = _said_version(endpoint)
    version = said.get("version")
    return About(
        model,
        order.route,
        endpoint.url,
        str(order.trace) if order.trace else None,
        order.warp or 1.0,
        order.limits,
        version=None if version is None else str(version),
        is_simulated=said.get("simulated") is True,
    )


def _said_version(endpoint: Endpoint) -> Mapping[str, object]:
    """Return what the server says of its version, empty where it doesn't."""
    try:
        told = json.loads(get(endpoint, "/version") or b"null")
    except ValueError:
        return {}
    return told if isinstance(told, dict) else {}


def key_headers(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the header of the server's key, from VLLM_API_KEY or OPENAI_API_KEY."""
    key = next((environment[name] for name in _KEYS if environment.get(name)), None)
    return {} if key is None else {"Authorization": f"Bearer {key}"}
