"""Carries out a workload: who is sent when, and what is noted of each request.

In an open loop a request is sent when it is due, however many are in flight.  One that is
late is sent late, never left out, and by how much is noted: the sender's own lag.  In a closed
loop a number of askers each send their next request when the last was answered.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace

from hpuwatch.clock import Clock
from hpuwatch.load.client import Client, Exhausted, Outcome
from hpuwatch.load.workload import Arrivals, Request, Workload

_LOOK_SECONDS = 0.05

Ask = Callable[[Request], Awaitable[Outcome]]


@dataclass(slots=True)
class Record:
    """One request that was sent.

    Attributes:
        request: what was asked.
        due: when it was to be sent, None in a closed loop; all three in the clock's seconds.
        sent: when it was.
        ended: when its end was noted.
        outcome: what came of it, None if the run was stopped before.
    """

    request: Request
    due: float | None
    sent: float
    ended: float = 0.0
    outcome: Outcome | None = None


@dataclass(slots=True)
class Run:
    """What has been noted so far.

    Attributes:
        planned: requests of the workload, None for one without end.
        records: all that were sent, in this order.
        answered: how many have ended, well or badly.
        failed: how many badly.
        first_failure: how the first of them failed, empty without one.
        begun: when the first was sent, in the clock's seconds.
        ended: when the last ended, likewise.
        cpu_seconds: processor time of our own between the two.
        stopped: why the run ended early, empty if it didn't.
        exhausted: our own machine was why.
    """

    planned: int | None
    records: list[Record] = field(default_factory=list)
    answered: int = 0
    failed: int = 0
    first_failure: str = ""
    begun: float = 0.0
    ended: float = 0.0
    cpu_seconds: float = 0.0
    stopped: str = ""
    exhausted: bool = False

    @property
    def seconds(self) -> float:
        """Return how long it took."""
        return self.ended - self.begun


Watch = Callable[[Run], str | None]
"""Called many times a second; a text stops the run and says why."""


def carry_out(workload: Workload, client: Client, clock: Clock, watch: Watch) -> Run:
    """Carry out a workload in an event loop of its own; the client is closed then."""

    async def carried_out() -> Run:
        try:
            return await drive(workload, client.ask, clock, watch)
        finally:
            client.close()

    return asyncio.run(carried_out())


async def drive(
    workload: Workload,
    ask: Ask,
    clock: Clock,
    watch: Watch = lambda _: None,
    cpu: Callable[[], float] = time.process_time,
) -> Run:
    """Carry out a workload and return what was noted.

    Args:
        workload: what is asked when.
        ask: sends one request and waits for its end.
        clock: where stamps come from; waiting is the event loop's.
        watch: looks on, and may stop the run.
        cpu: our own processor time, in seconds.
    """
    driver = _Driver(workload, ask, clock)
    return await driver.run(watch, cpu)


class _Driver:
    def __init__(self, workload: Workload, ask: Ask, clock: Clock) -> None:
        self._workload = workload
        self._ask = ask
        self._clock = clock
        self._left = iter(workload.requests)
        self._tasks: list[asyncio.Task[None]] = []
        self._noted = Run(workload.planned)

    async def run(self, watch: Watch, cpu: Callable[[], float]) -> Run:
        noted, spent = self._noted, cpu()
        noted.begun = self._clock.boottime()
        is_closed = self._workload.arrivals is Arrivals.CLOSED
        sending = asyncio.ensure_future(self._closed() if is_closed else self._open())
        watching = asyncio.ensure_future(self._look_on(watch))
        await asyncio.wait({sending, watching}, return_when=asyncio.FIRST_COMPLETED)
        for task in (sending, watching, *self._tasks):
            task.cancel()
        ends = await asyncio.gather(
            sending, watching, *self._tasks, return_exceptions=True
        )
        noted.ended = self._clock.boottime()
        noted.cpu_seconds = cpu() - spent
        for end in ends:
            if isinstance(end, Exception):
                raise end
        return noted

    async def _look_on(self, watch: Watch) -> None:
        """Return when the run is to be stopped."""
        noted = self._noted
        while not noted.stopped:
            noted.stopped = watch(noted) or ""
            await asyncio.sleep(_LOOK_SECONDS)

    async def _open(self) -> None:
        for request in self._left:
            due = self._noted.begun + request.due_seconds
            if self._is_over(request.due_seconds):
                break
            # Even late ones leave the loop a moment to read what has come.
            await asyncio.sleep(max(0.0, due - self._clock.boottime()))
            self._tasks.append(asyncio.ensure_future(self._one(request, due)))
        await asyncio.gather(*self._tasks)

    async def _closed(self) -> None:
        askers = self._workload.concurrency or 1
        if self._workload.planned is not None:
            askers = min(askers, self._workload.planned)
        self._tasks += [asyncio.ensure_future(self._ask_on()) for _ in range(askers)]
        await asyncio.gather(*self._tasks)

    async def _ask_on(self) -> None:
        for request in self._left:
            if self._is_over(self._clock.boottime() - self._noted.begun):
                return
            await self._one(request, None)

    def _is_over(self, seconds: float) -> bool:
        limit = self._workload.seconds
        return bool(self._noted.stopped) or (limit is not None and seconds >= limit)

    async def _one(self, request: Request, due: float | None) -> None:
        noted = self._noted
        record = Record(request, due, self._clock.boottime())
        noted.records.append(record)
        try:
            outcome = await self._ask(request)
        except Exhausted as error:
            noted.stopped, noted.exhausted = str(error), True
            return
        if self._workload.strict:
            outcome = _whole(outcome, request)
        record.ended, record.outcome = self._clock.boottime(), outcome
        noted.answered += 1
        if outcome.failure:
            noted.failed += 1
            noted.first_failure = noted.first_failure or outcome.failure
            if self._workload.strict:
                noted.stopped = noted.stopped or outcome.failure


def _whole(outcome: Outcome, request: Request) -> Outcome:
    """Return the outcome, as a failure where the answer is too short."""
    if outcome.failure or outcome.tokens >= request.output_tokens:
        return outcome
    short = f"{outcome.tokens} tokens came where {request.output_tokens} were asked for"
    return replace(outcome, failure=short)
