"""The engine while it serves: steps in simulated time, tokens handed to whoever waits.

A step's time is that of the graphs that it runs, and a graph runs at its bucket's size: so
padding costs time.  A shape that is not warm costs its compilation and its memory first,
and each shape's first use is slower than later ones.

Clients live in real time.  Where simulated time runs faster, a client that takes 10 ms to
ask again would seem to think for seconds, the longer the busier the machine is.  So the
engine holds its next step for a moment while requests are coming in, and while clients that
got an answer have not asked again; simulated time stands still meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from hpuwatch.gaudi.buckets import DECODE, PROMPT, Bucket
from hpuwatch.sim.serve.metrics import Tally
from hpuwatch.sim.serve.schedule import Plan, Request, Scheduler
from hpuwatch.sim.serve.shapes import Padded, Warmed, WarmShapes
from hpuwatch.sim.truth.device import DeviceFull
from hpuwatch.sim.world import World

_SLICE_SECONDS = 0.02  # real seconds that a row of equal steps may last
_QUIET_SECONDS = 0.06  # real seconds without a request after which nobody is waited for
_HOLD_SECONDS = 1.0  # the same, however many come
_EAGER_FACTOR = 1.7


@dataclass(slots=True, eq=False)
class Job:
    """A request and the one who waits for it.

    Attributes:
        request: its place in the batch.
        streams: whether the client wants each token at once.
        is_gone: tells whether the client has hung up.
        finish_reason: None until the job is over.
        news: set when the job is over, and when tokens came for one that streams.
    """

    request: Request
    reason_at_end: str
    streams: bool
    is_gone: Callable[[], bool]
    arrived: float
    started: float | None = None
    first_token: float | None = None
    finish_reason: str | None = None
    news: asyncio.Event = field(default_factory=asyncio.Event)


class Engine:
    """Serves requests until it is told to stop or runs out of device memory."""

    def __init__(self, world: World, warmed: Warmed, tally: Tally) -> None:
        """Take the warmed server."""
        options = world.options
        self.scheduler = Scheduler(
            options.max_num_seqs,
            options.max_num_batched_tokens,
            warmed.blocks,
            options.block_size,
        )
        self.tally = tally
        self.jobs: dict[Request, Job] = {}
        self.broken: str | None = None
        self._world = world
        self._shapes = warmed.shapes
        self._warm = warmed.warm
        self._used: WarmShapes = set()
        self._work = asyncio.Event()
        self._idle = asyncio.Event()
        self._step_seconds = 0.01
        self._busy_seconds = 0.0
        self._came = asyncio.Event()
        self._answered = 0  # clients that are expected to ask again
        self._expects = True
        self._holds = options.serving_speed > 1

    def submit(
        self,
        prompt_tokens: int,
        end_tokens: int,
        reason_at_end: str,
        *,
        streams: bool,
        is_gone: Callable[[], bool],
    ) -> Job:
        """Queue a request and return what to wait on."""
        if not self.scheduler.has_work:
            self._world.pace.pass_idle()
        job = Job(
            Request(prompt_tokens, end_tokens),
            reason_at_end,
            streams,
            is_gone,
            self._world.pace.passed,
        )
        self.jobs[job.request] = job
        self.scheduler.add(job.request)
        self._work.set()
        self._came.set()
        self._answered = max(0, self._answered - 1)
        self._expects = True
        return job

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
            Stopped: the server was asked to stop.
            DeviceFull: a graph didn't fit; the engine is dead.
        """
        while True:
            while not self.scheduler.has_work:
                self._idle.set()
                self._work.clear()
                await self._work.wait()
                self._world.pace.pass_idle()
                await self._let_in(burst=True)
            await self._step()
            await self._let_in(burst=False)

    async def _let_in(self, *, burst: bool) -> None:
        """Hold until requests stop coming (a burst), or who got an answer has asked again.

        Once somebody has not, nobody is expected to before the next request: a window of
        load ends so, and each of its last answers would cost a hold.
        """
        now = asyncio.get_running_loop().time
        until = now() + _HOLD_SECONDS
        while self._holds and (burst or self._answered) and now() < until:
            self._came.clear()
            try:
                await asyncio.wait_for(self._came.wait(), timeout=_QUIET_SECONDS)
            except asyncio.TimeoutError:
                self._answered, self._expects = 0, burst
                return

    async def _step(self) -> None:
        pace = self._world.pace
        budget = _SLICE_SECONDS * self._world.options.serving_speed
        plan = self.scheduler.plan(max(1, int(budget / self._step_seconds)))
        for request, _ in plan.prefills:
            job = self.jobs[request]
            if job.started is None:
                job.started = pace.passed
                self.tally.observe(
                    "request_queue_time_seconds", pace.passed - job.arrived
                )
        try:
            seconds = sum(
                self._run(phase, p, n) for phase, p, n in self._shapes_of(plan)
            )
        except DeviceFull:
            self.broken = "device"
            raise
        await pace.spend(seconds)
        self._busy_seconds += seconds
        self._count_step(plan)
        followers = 0
        for request, tokens in self.scheduler.apply(plan):
            job = self.jobs[request]
            if job.first_token is None:
                job.first_token = pace.passed
                first = pace.passed - job.arrived
                self.tally.prompt_tokens += request.prompt_tokens
                self.tally.observe("time_to_first_token_seconds", first)
            else:
                followers += tokens
            self._hand_over(job, tokens)
        each = seconds / plan.steps
        self.tally.observe("inter_token_latency_seconds", each, followers)
        self._forget_the_gone()

    def _shapes_of(self, plan: Plan) -> Iterator[tuple[str, Padded, int]]:
        for batch in self._prefill_batches(plan):
            query = max(tokens for _, tokens in batch)
            context = max(request.computed for request, _ in batch)
            blocks = -(-context // self._world.options.block_size)
            yield PROMPT, self._shapes.prompt(len(batch), query, blocks), 1
        if plan.decodes:
            blocks = sum(request.blocks for request in plan.decodes)
            padded = self._shapes.decode(len(plan.decodes), blocks)
            yield DECODE, padded, plan.steps

    def _prefill_batches(self, plan: Plan) -> Iterator[list[tuple[Request, int]]]:
        """Merge fresh prompts as far as the prefill batch and the token budget allow."""
        settings = self._shapes.settings
        batch: list[tuple[Request, int]] = []
        for request, tokens in plan.prefills:
            longest = max([tokens, *(t for _, t in batch)])
            fits = (
                len(batch) < settings.max_num_prefill_seqs
                and (len(batch) + 1) * longest <= settings.max_num_batched_tokens
                and request.computed == 0
                and all(other.computed == 0 for other, _ in batch)
            )
            if batch and not fits:
                yield batch
                batch = []
            batch.append((request, tokens))
        if batch:
            yield batch

    def _run(self, phase: str, padded: Padded, steps: int) -> float:
        """Return the seconds of running one graph, compilation included."""
        world, bucket = self._world, padded.bucket
        if padded.wanted is not None:
            world.each_rank(
                f"not_prepared_{phase}",
                wanted=tuple(padded.wanted),
                added=tuple(bucket),
            )
        seconds = 0.0
        key = (phase, bucket)
        if world.options.enforce_eager:
            steps_factor = _EAGER_FACTOR
        else:
            steps_factor = 1.0
            if key not in self._warm:
                seconds += self._compile(phase, bucket)
            elif key not in self._used:
                seconds += world.times.first_use_seconds(phase)
        self._used.add(key)
        each = world.times.step_seconds(phase, bucket) * steps_factor
        if phase == DECODE:
            self._step_seconds = each
        return seconds + each * steps

    def _compile(self, phase: str, bucket: Bucket) -> float:
        world = self._world
        world.each_rank(
            "not_warmed",
            phase=phase,
            batch=bucket.batch,
            query=bucket.query,
            context=bucket.context,
        )
        world.memory.capture(
            phase,
            world.truth.graph_bytes(phase, bucket),
            world.truth.activation_bytes(phase, bucket),
        )
        first = not any(name == phase for name, _ in self._warm)
        self._warm.add((phase, bucket))
        return world.compile_seconds(phase, bucket, first=first)

    def _count_step(self, plan: Plan) -> None:
        prompt = sum(tokens for _, tokens in plan.prefills)
        self.tally.observe(
            "iteration_tokens_total", prompt + len(plan.decodes), plan.steps
        )
        self.tally.preemptions = self.scheduler.preemptions

    def _hand_over(self, job: Job, tokens: int) -> None:
        self.tally.generation_tokens += tokens
        if job.request.is_complete:
            self._answered += self._expects
            self._finish(job, job.reason_at_end)
        elif job.streams:
            job.news.set()

    def _finish(self, job: Job, reason: str) -> None:
        self.scheduler.drop(job.request)
        self.jobs.pop(job.request, None)
        job.finish_reason = reason
        self.tally.finished[reason] += 1
        if reason != "abort" and job.first_token is not None:
            self._count_request(job, job.first_token)
        job.news.set()

    def _count_request(self, job: Job, first: float) -> None:
        now, made = self._world.pace.passed, job.request.generated
        observe = self.tally.observe
        observe("e2e_request_latency_seconds", now - job.arrived)
        observe("request_prefill_time_seconds", first - (job.started or job.arrived))
        observe("request_decode_time_seconds", now - first)
        observe("request_prompt_tokens", job.request.prompt_tokens)
        observe("request_generation_tokens", made)
        if made > 1:
            each = (now - first) / (made - 1)
            observe("request_time_per_output_token_seconds", each)

    def _forget_the_gone(self) -> None:
        for job in [job for job in self.jobs.values() if job.is_gone()]:
            self._finish(job, "abort")

    def gauges(self) -> None:
        """Bring the tally's gauges up to date."""
        if not self.scheduler.has_work:
            self._world.pace.pass_idle()
        self.tally.gauges = {
            "num_requests_running": len(self.scheduler.running),
            "num_requests_waiting": len(self.scheduler.waiting),
            "kv_cache_usage_perc": self.scheduler.usage,
            "simulated_seconds": self._world.pace.passed,
            "busy_seconds": self._busy_seconds,
        }
