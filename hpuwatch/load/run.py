"""One window of load: a closed loop of streamed completions, always the same.

``concurrency`` threads ask for completions one after the other until the window's requests
are used up.  Prompts are made of short words (about one token each), different for every
request so that no prefix cache helps, and the same for every trial of a study.  Each
answer has exactly ``output_tokens`` tokens, so that all trials do the same work.

The first error ends the window: a trial with errors has failed anyway, and downtime is
dear.  A window is bounded in requests and in time.
"""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException, HTTPResponse
from math import ceil
from socket import SHUT_RDWR

from hpuwatch.clock import Clock
from hpuwatch.errors import UsageError
from hpuwatch.load.endpoint import Endpoint
from hpuwatch.tune.trial import LoadPlan, Window

_WORDS = tuple(
    word
    for line in (
        "the of and to in is that it was for on are as with his they be at one have this",
        "from or had by but what some we can out other were all there when up use your",
        "how said an each she which do their time if will way about many then them write",
    )
    for word in line.split()
)
_MOST = {
    "concurrency": 4096,
    "requests": 100_000,
    "prompt_tokens": 1_000_000,
    "output_tokens": 1_000_000,
    "windows": 100,
}
_MOST_TOKENS = 50_000_000
_LOOK_SECONDS = 0.05
_GRACE_SECONDS = 10.0  # the window's limit comes first, a connection's own after it


class LoadError(Exception):
    """A request failed; the message says how."""


@dataclass(frozen=True, slots=True)
class Target:
    """Who is asked.

    Attributes:
        endpoint: where the server listens.
        model: its model's name.
    """

    endpoint: Endpoint
    model: str


@dataclass(frozen=True, slots=True)
class _Answer:
    """When the pieces of an answer came, and how many tokens it had."""

    begun: float
    arrivals: tuple[float, ...]
    tokens: int


@dataclass(slots=True)
class _Work:
    """What the threads of a window share."""

    target: Target
    plan: LoadPlan
    clock: Clock
    prompts: list[str]
    lock: threading.Lock = field(default_factory=threading.Lock)
    open: set[HTTPConnection] = field(default_factory=set)
    answers: list[_Answer] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def take(self) -> str | None:
        """Return the next request's prompt, None when there is no more to do."""
        with self.lock:
            return self.prompts.pop() if self.prompts and not self.errors else None

    def abort(self, why: str) -> None:
        """End the window: cut every connection, so that no thread waits on."""
        with self.lock:
            self.errors.append(why)
            cut = list(self.open)
        for connection in cut:
            if connection.sock is not None:
                _shut(connection)


def check_plan(plan: LoadPlan) -> None:
    """Check that one machine could give this load: a thread a client, prompts in memory.

    Raises:
        UsageError: a figure is out of bounds.
    """
    for figure, most in _MOST.items():
        value = getattr(plan, figure)
        if not 0 < value <= most:
            raise UsageError(
                f"the load's {figure.replace('_', ' ')} must lie between 1 and {most:,}"
            )
    if plan.requests * plan.prompt_tokens > _MOST_TOKENS:
        raise UsageError(
            f"the load's requests times prompt tokens must not exceed {_MOST_TOKENS:,}"
        )


def run_load(
    target: Target,
    plan: LoadPlan,
    clock: Clock,
    *,
    window: int = 0,
    look: Callable[[], bool] = lambda: False,
) -> Window:
    """Run one window and return what it measured; failed requests are counted in it.

    Args:
        target: who is asked.
        plan: the load.
        clock: where time comes from.
        window: which window, so that no two share a prompt.
        look: called now and then while the window lasts; True ends it early, with an
            error that says so.
    """
    # Made before the clock runs: it is our work, not the server's.
    prompts = [prompt_of(plan, f"{window}/{number}") for number in range(plan.requests)]
    work = _Work(target, plan, clock, prompts)
    threads = [
        threading.Thread(target=_ask_on, args=(work,), daemon=True)
        for _ in range(min(plan.concurrency, plan.requests))
    ]
    begun = clock.boottime()
    for thread in threads:
        thread.start()
    for thread in threads:
        while thread.is_alive():
            thread.join(_LOOK_SECONDS)
            if look() and not work.errors:
                work.abort("interrupted")
            if clock.boottime() - begun > plan.window_limit_seconds and not work.errors:
                work.abort(f"no end within {plan.window_limit_seconds:g} s")
    return _summary(work, clock.boottime() - begun)


def _ask_on(work: _Work) -> None:
    """Ask for completions until there is no more to do (one thread of the window)."""
    while (prompt := work.take()) is not None:
        connection = work.target.endpoint.connect(
            work.plan.window_limit_seconds + _GRACE_SECONDS
        )
        with work.lock:
            work.open.add(connection)
        try:
            work.answers.append(_complete(work, connection, prompt))
        except (OSError, HTTPException, LoadError, ValueError) as error:
            with work.lock:
                work.errors.append(str(error) or type(error).__name__)
        finally:
            with work.lock:
                work.open.discard(connection)
            connection.close()


def prompt_of(plan: LoadPlan, name: str) -> str:
    """Return a prompt of about ``plan.prompt_tokens`` tokens, fixed by seed and name."""
    chance = random.Random(f"{plan.seed}/{name}")  # noqa: S311  no secret
    return " ".join(chance.choices(_WORDS, k=max(1, plan.prompt_tokens)))


def _complete(work: _Work, connection: HTTPConnection, prompt: str) -> _Answer:
    """Ask for one completion and read its stream.

    Raises:
        LoadError: the server refused, broke off or gave fewer tokens than asked for.
    """
    plan = work.plan
    body = json.dumps(
        {
            "model": work.target.model,
            "prompt": prompt,
            "max_tokens": plan.output_tokens,
            "ignore_eos": True,
            "temperature": 0.0,
            "seed": plan.seed,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
    )
    headers = {"Content-Type": "application/json", **work.target.endpoint.headers}
    begun = work.clock.boottime()
    connection.request("POST", "/v1/completions", body, headers)
    response = connection.getresponse()
    if response.status != 200:
        raise LoadError(f"HTTP {response.status}: {response.read(200)!r}")
    arrivals, tokens = _read_stream(response, work.clock)
    if tokens < plan.output_tokens:
        raise LoadError(
            f"{tokens} tokens came where {plan.output_tokens} were asked for"
        )
    return _Answer(begun, arrivals, tokens)


def _read_stream(response: HTTPResponse, clock: Clock) -> tuple[tuple[float, ...], int]:
    """Return when the pieces came, and the tokens: as the server counts them, if it does.

    Raises:
        LoadError: the stream ended with an error.
    """
    arrivals: list[float] = []
    tokens = None
    for raw in response:
        if not raw.startswith(b"data:"):
            continue
        data = raw[5:].strip()
        if data == b"[DONE]":
            break
        event = json.loads(data)
        if "error" in event:
            raise LoadError(f"the stream broke off: {str(event['error'])[:200]}")
        if event.get("choices"):
            arrivals.append(clock.boottime())
        usage = event.get("usage")
        tokens = usage.get("completion_tokens") if usage else tokens
    return tuple(arrivals), len(arrivals) if tokens is None else tokens


def _summary(work: _Work, seconds: float) -> Window:
    answers = work.answers
    first = sorted(each.arrivals[0] - each.begun for each in answers if each.arrivals)
    between = sorted(
        (each.arrivals[-1] - each.arrivals[0]) / (each.tokens - 1)
        for each in answers
        if each.arrivals and each.tokens > 1
    )
    return Window(
        seconds=seconds,
        requests=len(answers) + len(work.errors),
        errors=len(work.errors),
        output_tokens=sum(each.tokens for each in answers),
        first_error=work.errors[0] if work.errors else "",
        ttft_p50_seconds=percentile(first, 50),
        ttft_p99_seconds=percentile(first, 99),
        itl_p50_seconds=percentile(between, 50),
        itl_p99_seconds=percentile(between, 99),
    )


def percentile(ordered: Sequence[float], percent: float) -> float | None:
    """Return the smallest value that ``percent`` of them don't exceed (nearest rank).

    ``ordered`` must be sorted; None where it is empty.
    """
    if not ordered:
        return None
    return ordered[max(0, ceil(len(ordered) * percent / 100) - 1)]


def _shut(connection: HTTPConnection) -> None:
    try:
        connection.sock.shutdown(SHUT_RDWR)
    except (OSError, AttributeError):
        # The thread that owns it closed it at this very moment.
        return
