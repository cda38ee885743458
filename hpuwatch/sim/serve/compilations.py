"""What the bridge's metrics say of a step that compiled, where a variable asks for it.

V0 tells it together with the step's requests, and with the ``_ALL`` variables of every step;
V1 tells that a worker compiled, and nothing else.  No operation of the simulated card ever
falls back to the CPU.  Of several equal steps in a row only the first is told.
"""

from __future__ import annotations

from collections.abc import Sequence

from hpuwatch.sim.serve.schedule import Plan
from hpuwatch.sim.world import World

_MICROSECONDS = 1_000_000
_SITE = "HPUWorker.execute_model"


class CompilationLog:
    """Tells of each step what a variable asks for."""

    def __init__(self, world: World) -> None:
        """Take the server."""
        self._world = world

    def tell(self, plan: Plan, compiled_seconds: Sequence[float]) -> None:
        """Tell of a step in which so many graphs were compiled, each in its seconds."""
        world, knobs = self._world, self._world.knobs
        compilations = self._compilations(compiled_seconds)
        if compiled_seconds and knobs.gc_details:
            world.each_rank("graph_compilation", site=_SITE, metric=compilations)
        step = self._step(plan)
        if knobs.step_compilations_all or (
            compiled_seconds and knobs.step_compilations
        ):
            world.each_rank("step_compilation", metric=compilations, **step)
        if knobs.step_fallbacks_all:
            fallbacks = [("TotalNumber", 0), ("FallbackOps", set[str]())]
            world.each_rank("step_fallback", metric=fallbacks, **step)

    def _compilations(self, seconds: Sequence[float]) -> list[tuple[str, object]]:
        count, total = len(seconds), round(sum(seconds) * _MICROSECONDS)
        metric: list[tuple[str, object]] = [
            ("TotalNumber", count),
            ("TotalTime", total),
            ("AvgTime", total / max(1, count)),
        ]
        return [*metric, ("recipes", [])] if self._world.knobs.gc_details else metric

    def _step(self, plan: Plan) -> dict[str, object]:
        requests = plan.decodes or tuple(request for request, _ in plan.prefills)
        longest = max((request.tokens for request in requests), default=1)
        return {
            "is_prompt": bool(plan.prefills),
            "num_seqs": len(requests),
            "max_context_len": longest,
            "max_num_blocks": -(-longest // self._world.options.block_size),
        }
