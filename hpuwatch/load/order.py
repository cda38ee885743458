"""What was asked for: checked, and made into a workload."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from hpuwatch.errors import UsageError
from hpuwatch.load.target import Route
from hpuwatch.load.workload import (
    Arrivals,
    Request,
    Span,
    Workload,
    at_rate,
    drawn_lengths,
    read_trace,
    warped,
)

OWN = "own"
DEFAULT_REQUESTS = 1000
_DEFAULT_INPUTS, _DEFAULT_OUTPUTS = Span(1024, 1024), Span(128, 128)


@dataclass(frozen=True, slots=True)
class Order:
    """What was asked for; None where nothing was said.

    Attributes:
        trace: the file to replay.
        warp: how many times as fast.
        rate: requests per second.
        constant: they come evenly, not as a Poisson process.
        concurrency: a closed loop of so many instead.
        inputs: lengths of prompts; ``outputs`` likewise.
        prefix_tokens: how much of each prompt all share, where no trace says it.
        limit: how many requests at most; see ``requests``.
        seconds: how long requests are sent at most.
        prompts: ``ids`` or ``words``, None for what the server takes.
        limits: of a good request, in milliseconds.
        timeout_seconds: an answer that takes longer has failed.
        tool: which generator sends them.
        tokenizer: for another tool: its name or folder, None for the model's name.
        detailed: keep what is known of each request.
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
        """Return what decides when they are sent."""
        if self.concurrency is not None:
            return Arrivals.CLOSED
        if self.rate is None:
            return Arrivals.TRACE
        return Arrivals.CONSTANT if self.constant else Arrivals.POISSON

    @property
    def requests(self) -> int | None:
        """Return how many there are at most, None where only trace or time end them."""
        ends = self.trace is not None or self.seconds is not None
        return self.limit if self.limit is not None or ends else DEFAULT_REQUESTS

    @property
    def lengths(self) -> tuple[Span, Span]:
        """Return the lengths of prompts and answers, where no trace gives them."""
        return self.inputs or _DEFAULT_INPUTS, self.outputs or _DEFAULT_OUTPUTS


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
    if order.requests is not None:
        requests = itertools.islice(requests, order.requests)
    if order.seconds is not None and not is_closed:
        last = order.seconds
        requests = itertools.takewhile(lambda one: one.due_seconds < last, requests)
    # Only a closed loop that ends with the time can't be listed before it runs.
    if not is_closed or order.trace is not None or order.requests is not None:
        requests = tuple(requests)
    return Workload(
        requests, order.arrivals, order.concurrency, order.rate, order.seconds
    )


def _lengths(order: Order) -> Iterable[Request]:
    if order.trace is not None:
        return read_trace(order.trace)
    return drawn_lengths(*order.lengths, order.prefix_tokens, order.seed)


def _timed(order: Order, requests: Iterable[Request]) -> Iterable[Request]:
    if order.arrivals is Arrivals.TRACE:
        return warped(requests, order.warp or 1.0)
    if order.rate is not None:
        return at_rate(requests, order.rate, order.arrivals, order.seed)
    return requests
