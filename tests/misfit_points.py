"""How far predictions are off at each misfit, so that a claim about them can state all three.

The predictors are hpuwatch's own laws, which learn from a part of what one server does and
are asked for the rest.  Each error is a mean of the absolute ones of some seeds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import fmean

from hpuwatch.gaudi.buckets import DECODE, PROMPT, Bucket
from hpuwatch.gaudi.graphlaw import fit
from hpuwatch.gaudi.graphseen import Observation
from hpuwatch.gaudi.warmuptime import TimedStart, learn
from hpuwatch.sim.config.options import parse_options
from hpuwatch.sim.server import Server
from hpuwatch.sim.world import World
from hpuwatch.testing.clock import FakeClock

MISFITS = (0, 1, 2)
_SEEDS = range(8)
_PROMPTS = [Bucket(1, 128 * n, 0) for n in range(1, 65)]
_DECODES = [Bucket(2 * n, 1, 32 * n) for n in range(1, 65)]
_SHAPES = {PROMPT: _PROMPTS, DECODE: _DECODES}


@dataclass(frozen=True, slots=True)
class Row:
    """What is predicted, and how far off that is at each of :data:`MISFITS`, as a share."""

    what: str
    errors: tuple[float, ...]


def rows() -> Iterator[Row]:
    """Yield the errors of each prediction."""
    predictions = {
        "memory of 32 prompt graphs, from 32 shorter ones": graph_memory,
        "seconds to make 64 graphs, from 64 smaller ones": warmup_seconds,
        "seconds of a step, by the public law": step_seconds,
    }
    for what, error in predictions.items():
        yield Row(what, tuple(_mean(error, misfit) for misfit in MISFITS))


def _mean(error: Callable[[World], float], misfit: int) -> float:
    return fmean(error(_world(misfit, seed)) for seed in _SEEDS)


def _world(misfit: int, seed: int) -> World:
    told = ("--noise", "0", "--misfit", str(misfit), "--seed", str(seed))
    return Server(parse_options(told, {}), FakeClock(), {}).world


def graph_memory(world: World) -> float:
    """Return the error of a law of graphs on longer prompts than it was fitted to."""
    seen = [
        Observation(PROMPT, (bucket,), world.truth.graph_bytes(PROMPT, bucket), 0.0)
        for bucket in _PROMPTS[:32]
    ]
    rest = _PROMPTS[32:]
    actual = sum(world.truth.graph_bytes(PROMPT, bucket) for bucket in rest)
    return abs(fit(seen).bytes_of({PROMPT: rest}).value / actual - 1)


def warmup_seconds(world: World) -> float:
    """Return the error of a law of warm-up on larger buckets than those that were timed."""
    spent = {
        phase: [_graph_seconds(world, phase, shape) for shape in shapes]
        for phase, shapes in _SHAPES.items()
    }
    timed = {phase: sum(seconds[:32]) for phase, seconds in spent.items()}
    counts = dict.fromkeys(_SHAPES, 32)
    law = learn([TimedStart(counts, sum(timed.values()), phase_seconds=timed)])
    rest = {phase: shapes[32:] for phase, shapes in _SHAPES.items()}
    actual = sum(sum(seconds[32:]) for seconds in spent.values())
    return abs(law.seconds(rest).value / actual - 1)


def _graph_seconds(world: World, phase: str, shape: Bucket) -> float:
    return world.times.compile_seconds(phase, shape, first=False, cached=False)


def step_seconds(world: World) -> float:
    """Return how far steps lie from the public law on average."""
    public = _world(0, 0).times
    return fmean(
        abs(
            public.step_seconds(phase, shape) / world.times.step_seconds(phase, shape)
            - 1
        )
        for phase, shapes in _SHAPES.items()
        for shape in shapes
    )
