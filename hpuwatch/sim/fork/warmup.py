"""Warm-up of a V0 server: up to 1.21 two passes and a budget, since 1.22 one pass and none.

The older forks first run every bucket once to compile it, then capture as many as HPU graphs
as the budget holds, and tell which.  Later every bucket is captured; what doesn't fit is the
end of the engine.
"""

from __future__ import annotations

from collections.abc import Sequence

from hpuwatch.gaudi.buckets import DECODE, PROMPT, Bucket
from hpuwatch.sim.fork.budget import Budget, Captures
from hpuwatch.sim.fork.images import tell_patches, warm_images
from hpuwatch.sim.hooks import Moment
from hpuwatch.sim.shapes import Shapes, WarmShapes
from hpuwatch.sim.truth.compiling import During
from hpuwatch.sim.truth.device import DeviceFull
from hpuwatch.sim.world import World
from hpuwatch.units import format_bytes


async def warm_up(world: World, shapes: Shapes, margin_bytes: int) -> WarmShapes:
    """Warm the lists, unless that is switched off; return the shapes that ran.

    Args:
        world: the server.
        shapes: its lists.
        margin_bytes: what the budget leaves free, outside of vLLM's share.

    Raises:
        EngineFailed: not enough device memory, an unknown strategy, or patches that are
            no numbers.
    """
    tell_patches(world)
    if world.knobs.skip_warmup:
        world.each_rank("warmup_skipped")
        return set()
    began = world.pace.passed
    run = _Run(world)
    if world.voice.script.facts["graph_passes"] == 1:
        if not world.options.enforce_eager:
            await warm_images(world, shapes)
            for phase in (PROMPT, DECODE):
                await run.capture_all(phase, shapes.buckets[phase])
    else:
        for phase in (PROMPT, DECODE):
            await run.compile_all(phase, shapes.buckets[phase])
        if world.knobs.lazy and not world.options.enforce_eager:
            await _capture_within_budget(world, run, shapes, margin_bytes)
    world.memory.finish_warmup()
    world.each_rank(
        "warmup_done",
        seconds=world.pace.passed - began,
        used=format_bytes(world.memory.warmup_bytes),
    )
    return run.warm


async def _capture_within_budget(
    world: World, run: _Run, shapes: Shapes, margin_bytes: int
) -> None:
    free, ratio = world.memory.free_bytes, world.knobs.prompt_ratio
    budget = Budget.of(free, margin_bytes, ratio)
    world.each_rank(
        "graph_budget",
        graphs=format_bytes(budget.graph_bytes),
        free=format_bytes(free),
        prompt=format_bytes(budget.prompt_bytes),
        decode=format_bytes(budget.decode_bytes),
        ratio=ratio,
    )
    world.check("graphs", "warmup_graphs")
    orders = world.knobs.prompt_graph_order, world.knobs.decode_graph_order
    prompts = Captures.ordered(PROMPT, shapes.buckets[PROMPT], orders[0])
    await run.capture(prompts, budget.prompt_bytes)
    decodes = Captures.ordered(DECODE, shapes.buckets[DECODE], orders[1])
    await run.capture(decodes, budget.decode_bytes)
    # What the one leaves over, the other may have, if only it is short of memory.
    for short, done in ((prompts, decodes), (decodes, prompts)):
        left = budget.graph_bytes - short.taken_bytes - done.taken_bytes
        if left > 0 and done.complete and not short.complete:
            await run.capture(short, left)
    for captures in (prompts, decodes):
        _summarise(world, captures)


def _summarise(world: World, captures: Captures) -> None:
    pairs = sorted((b.batch, max(b.query, b.context)) for b in captures.captured)
    world.each_rank(
        f"graphs_{captures.phase}",
        count=len(pairs),
        percent=captures.percent,
        used=format_bytes(captures.taken_bytes),
        buckets=pairs,
    )


class _Run:
    """The warm-up of one server: which shapes ran, and how many of each phase."""

    def __init__(self, world: World) -> None:
        self.warm: WarmShapes = set()
        self._world = world
        self._done = {PROMPT: 0, DECODE: 0}

    async def compile_all(self, phase: str, buckets: Sequence[Bucket]) -> None:
        """Run every bucket, the largest first, and keep nothing but what compiling keeps."""
        for index, bucket in enumerate(reversed(buckets), 1):
            await self._begin(f"warmup_{phase}", phase, index, len(buckets), bucket)
            self._take(phase, bucket, is_graph=False)
            await self._end(phase, bucket, is_graph=False)

    async def capture_all(self, phase: str, buckets: Sequence[Bucket]) -> None:
        """Capture every bucket, the largest first, and sum up."""
        for index, bucket in enumerate(reversed(buckets), 1):
            await self._begin(f"graph_{phase}", phase, index, len(buckets), bucket)
            self._take(phase, bucket, is_graph=True)
            await self._end(phase, bucket, is_graph=True)
        self._world.each_rank(
            f"graphs_{phase}",
            count=len(buckets),
            percent=100.0 if buckets else 0.0,
            used=format_bytes(self._graph_bytes(phase)),
        )

    async def capture(self, captures: Captures, budget_bytes: float) -> None:
        """Capture what a budget holds."""
        phase, total = captures.phase, len(captures.buckets)
        for index, bucket in captures.due(budget_bytes):
            await self._begin(f"graph_{phase}", phase, index, total, bucket)
            before = self._graph_bytes(phase)
            self._take(phase, bucket, is_graph=True)
            await self._end(phase, bucket, is_graph=True)
            captures.took(bucket, self._graph_bytes(phase) - before)

    def _graph_bytes(self, phase: str) -> int:
        return self._world.memory.graph_bytes.get(phase, 0)

    async def _begin(
        self, line: str, phase: str, index: int, total: int, bucket: Bucket
    ) -> None:
        world = self._world
        self._done[phase] += 1
        await world.faults.at(Moment(phase, self._done[phase]))
        free = format_bytes(world.memory.free_bytes)
        fields = bucket._asdict()
        world.each_rank(line, index=index, total=total, free=free, **fields)

    def _take(self, phase: str, bucket: Bucket, *, is_graph: bool) -> None:
        memory = self._world.memory
        try:
            (memory.warm if is_graph else memory.rehearse)(phase, bucket)
        except DeviceFull as error:
            raise self._world.full(error, "initialize_cache") from None

    async def _end(self, phase: str, bucket: Bucket, *, is_graph: bool) -> None:
        first = self._done[phase] == 1
        during: During = "warmup" if is_graph else "rehearsal"
        seconds = self._world.compile_seconds(phase, bucket, first=first, during=during)
        self.warm.add((phase, bucket))
        await self._world.pace.spend(seconds)
