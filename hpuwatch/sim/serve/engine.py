"""The engine while it serves: steps in simulated time, tokens handed to whoever waits.

Clients live in real time.  Where simulated time runs faster, a client that takes 10 ms to
ask again would seem to think for seconds, the longer the busier the machine is.  So the
engine holds its next step for a moment while requests are coming in, and while clients that
got an answer have not asked again; simulated time stands still meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field

from hpuwatch.gaudi.spans import covers
from hpuwatch.sim.hooks import Moment
from hpuwatch.sim.serve.blocks import BlockPool
from hpuwatch.sim.serve.runner import Runner
from hpuwatch.sim.serve.schedule import Limits, Plan, Request, Scheduler
from hpuwatch.sim.serve.schedule_v0 import OlderScheduler
from hpuwatch.sim.serve.tally import Tally
from hpuwatch.sim.shapes import Warmed
from hpuwatch.sim.truth.device import DeviceFull
from hpuwatch.sim.world import EngineFailed, World

_SLICE_SECONDS = 0.02  # real seconds that a row of equal steps may last
_QUIET_SECONDS = 0.06  # real seconds without a request after which nobody is waited for
_HOLD_SECONDS = 1.0  # the same, however many come
_ADMITS_WHOLE_PROMPTS = "plugin-0.20.."  # before, a prompt's first chunk had to fit


@dataclass(slots=True, eq=False)
class Job:
    """A request and the one who waits for it.

    Attributes:
        arrived: simulated seconds since the start, in the midst of a step perhaps.
        told: called with the number of new tokens, and with 0 when it ended without any.
        finish_reason: None until the job is over.
        over: done when the job is.
    """

    request: Request
    told: Callable[[Job, int], None]
    arrived: float
    over: asyncio.Future[None]
    started: float | None = None
    first_token: float | None = None
    finish_reason: str | None = None


def _ignore(_job: Job, _tokens: int) -> None:
    """Wait for the end only."""


@dataclass(slots=True)
class _Clients:
    """Who is expected to ask again, so that simulated time waits for them."""

    came: asyncio.Event = field(default_factory=asyncio.Event)
    answered: int = 0
    expected: bool = True

    def asks(self) -> None:
        """Take note of a request."""
        self.came.set()
        self.answered = max(0, self.answered - 1)
        self.expected = True

    async def let_in(self, *, burst: bool) -> None:
        """Hold until requests stop coming (a burst), or who got an answer has asked again.

        Once somebody has not, nobody is expected to before the next request: a window of
        load ends so, and each of its last answers would cost a hold.
        """
        now = asyncio.get_running_loop().time
        until = now() + _HOLD_SECONDS
        while (burst or self.answered) and now() < until:
            self.came.clear()
            try:
                await asyncio.wait_for(self.came.wait(), timeout=_QUIET_SECONDS)
            except asyncio.TimeoutError:
                self.answered, self.expected = 0, burst
                return


class Engine:
    """Serves requests until it is told to stop or runs out of device memory.

    Attributes:
        steps: how many it has run.
        broken: why the engine is dead, None while it lives.
        refuses: what new requests are told while the server drains, None while it serves.
    """

    def __init__(self, world: World, warmed: Warmed, tally: Tally) -> None:
        """Take the warmed server."""
        self.scheduler = _scheduler(world, warmed)
        self.tally = tally
        self.jobs: dict[Request, Job] = {}
        self.broken: str | None = None
        self.refuses: str | None = None
        self._world = world
        self._runner = Runner(world, warmed, self.scheduler.pool.first)
        self._work = asyncio.Event()
        self._idle = asyncio.Event()
        self._clients = _Clients()
        self._holds = world.options.serving_speed > 1
        self.steps = 0
        self._busy_seconds = 0.0

    def submit(
        self, request: Request, told: Callable[[Job, int], None] = _ignore
    ) -> Job:
        """Queue a new request; ``told`` hears of its tokens as they are made."""
        self.pass_idle()
        over = asyncio.get_running_loop().create_future()
        job = Job(request, told, self._world.pace.present, over)
        self.jobs[request] = job
        self.scheduler.add(request)
        self._work.set()
        self._clients.asks()
        return job

    def pass_idle(self) -> None:
        """Let the time pass that went by, if there was nothing to do."""
        if not self.scheduler.has_work:
            self._world.pace.pass_idle()

    def cancel(self, job: Job) -> None:
        """End a job whose client has gone."""
        if job.finish_reason is None:
            self._finish(job, "abort")
            self._work.set()

    def abort(self, reason: str = "abort") -> int:
        """End all requests and return how many there were."""
        jobs = list(self.jobs.values())
        for job in jobs:
            self._finish(job, reason)
        return len(jobs)

    async def drained(self, seconds: float) -> None:
        """Return when no request is left, or after that many real seconds."""
        self._idle.clear()
        if not self.jobs:
            return
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._idle.wait(), timeout=seconds)

    async def run(self) -> None:
        """Serve for ever.

        Raises:
            DeviceFull: a graph didn't fit; the engine is dead.
            EngineFailed: a fault struck; the engine is dead.
        """
        try:
            while True:
                while not self.scheduler.has_work:
                    self._idle.set()
                    await self._wait_for_work()
                    await self._let_in(burst=True)
                await self._step()
                await self._let_in(burst=False)
        except (DeviceFull, EngineFailed) as error:
            self.broken = str(error)
            raise

    async def _wait_for_work(self) -> None:
        self._work.clear()
        await self._work.wait()
        self._world.pace.pass_idle()

    async def _let_in(self, *, burst: bool) -> None:
        if self._holds:
            await self._clients.let_in(burst=burst)

    async def _step(self) -> None:
        pace = self._world.pace
        await self._world.faults.at(Moment("serve", self.steps + 1))
        budget = _SLICE_SECONDS * self._world.options.serving_speed
        plan = self.scheduler.plan(max(1, int(budget / self._runner.decode_seconds)))
        self.tally.preemptions = self.scheduler.preemptions
        if isinstance(self.scheduler, OlderScheduler):
            self._tell_older(self.scheduler)
        if plan.is_empty:
            # Too few blocks for anybody: only a new or a cancelled request changes that.
            if self.scheduler.has_work:
                await self._wait_for_work()
            return
        self._begin(plan)
        seconds = self._runner.run(plan)
        await pace.spend(seconds)
        self.steps += plan.steps
        self._busy_seconds += seconds
        self._count_step(plan)
        self._hand_out(plan, seconds / plan.steps)

    def _begin(self, plan: Plan) -> None:
        now = self._world.pace.passed
        for request, _ in plan.prefills:
            job = self.jobs[request]
            if job.started is None:
                job.started = now
                self.tally.observe("request_queue_time_seconds", now - job.arrived)

    def _hand_out(self, plan: Plan, step_seconds: float) -> None:
        """Give each job its new tokens."""
        now, tally = self._world.pace.passed, self.tally
        total = followers = 0
        for request, tokens in self.scheduler.apply(plan):
            job = self.jobs.get(request)
            if job is None:
                continue  # cancelled while the step ran
            total += tokens
            if job.first_token is None:
                self._first_token(job, now)
            else:
                followers += tokens
            if request.is_complete:
                self._clients.answered += self._clients.expected
                self._finish(job, request.reason_at_end, tokens)
            else:
                job.told(job, tokens)
        tally.generation_tokens += total
        if followers:
            tally.observe("inter_token_latency_seconds", step_seconds, followers)

    def _first_token(self, job: Job, now: float) -> None:
        job.first_token = now
        self.tally.prompt_tokens += job.request.prompt_tokens
        self.tally.cached_tokens += job.request.cached or 0
        self.tally.observe("time_to_first_token_seconds", now - job.arrived)

    def _count_step(self, plan: Plan) -> None:
        prompt = sum(tokens for _, tokens in plan.prefills)
        tokens = prompt + len(plan.decodes)
        self.tally.observe("iteration_tokens_total", tokens, plan.steps)

    def _tell_older(self, scheduler: OlderScheduler) -> None:
        """Print what V0 tells of preemptions, and end what could never run."""
        say, engine = self._world.voice.say, self._world.speakers.engine
        for each in scheduler.told:
            name, count = each.request.identity, each.count
            say(engine, "preempted", request=name, mode=each.mode, count=count)
        scheduler.told.clear()
        while scheduler.refused:
            request = scheduler.refused.pop()
            say(engine, "cannot_fit", request=request.identity)
            self._finish(self.jobs[request], "length")

    def _finish(self, job: Job, reason: str, tokens: int = 0) -> None:
        self.scheduler.drop(job.request)
        self.jobs.pop(job.request, None)
        job.finish_reason = reason
        self.tally.finished[reason] += 1
        if reason != "abort" and job.first_token is not None:
            self._count_request(job, job.first_token)
        job.told(job, tokens)
        if not job.over.done():
            job.over.set_result(None)

    def _count_request(self, job: Job, first: float) -> None:
        now, request = self._world.pace.passed, job.request
        started, made = job.started or job.arrived, request.generated
        observe = self.tally.observe
        observe("e2e_request_latency_seconds", now - job.arrived)
        observe("request_inference_time_seconds", now - started)
        observe("request_prefill_time_seconds", first - started)
        observe("request_decode_time_seconds", now - first)
        observe("request_prompt_tokens", request.prompt_tokens)
        observe("request_generation_tokens", made)
        observe("request_max_num_generation_tokens", request.max_tokens or made)
        if request.max_tokens:
            observe("request_params_max_tokens", request.max_tokens)
        observe("request_params_n", request.siblings)
        computed = request.prompt_tokens - (request.cached or 0)
        observe("request_prefill_kv_computed_tokens", computed)
        each = (now - first) / (made - 1) if made > 1 else 0.0
        observe("request_time_per_output_token_seconds", each)

    def gauges(self) -> None:
        """Bring the tally's gauges up to date."""
        self.pass_idle()
        scheduler, tally = self.scheduler, self.tally
        tally.prefix_queries = scheduler.prefix.queries
        tally.prefix_hits = scheduler.prefix.hits
        tally.gauges = {
            "running": len(scheduler.running),
            "waiting": len(scheduler.waiting),
            "kv_use": scheduler.usage,
            "prefix_rate": scheduler.prefix.recent_rate,
            "simulated_seconds": self._world.pace.passed,
            "busy_seconds": self._busy_seconds,
        }
        if isinstance(scheduler, OlderScheduler):
            tally.gauges["swapped"] = len(scheduler.swapped)
            tally.gauges["host_use"] = scheduler.host_usage


def _scheduler(world: World, warmed: Warmed) -> Scheduler:
    """Return the scheduler of the release: V1's, or V0's for the fork."""
    options, knobs = world.options, world.knobs
    limits = Limits(
        max_num_seqs=options.max_num_seqs,
        max_num_batched_tokens=options.max_num_batched_tokens,
        chunked_prefill=options.chunked_prefill,
        whole_prompts=covers(_ADMITS_WHOLE_PROMPTS, options.point),
        long_prefill_tokens=options.long_prefill_tokens,
        max_num_prefill_seqs=options.max_num_prefill_seqs,
        padding_aware=options.padding_aware_scheduling,
    )
    caches = knobs.prefix_caching
    if options.point.is_v0:
        lowest = knobs.contiguous_pa and not caches
        pool = BlockPool(
            warmed.blocks, options.block_size, caches=caches, lowest=lowest
        )
        return OlderScheduler(limits, pool, swap_blocks=world.truth.swap_blocks)
    pool = BlockPool(warmed.blocks - 1, options.block_size, first=1, caches=caches)
    return Scheduler(limits, pool)
