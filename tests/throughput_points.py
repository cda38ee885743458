"""Published throughputs beside those of the simulator, and the fit of its cost of a step.

Each point is a batch of equal requests that all come at once.  :func:`fit` takes the points
marked ``fitted`` and finds the efficiency with which sums of unpadded steps come closest,
in logarithms; the rest is prediction.  :func:`run` then serves a point with the scheduler,
the buckets and the engine of the simulator, so that padding and queues count too.
"""

from __future__ import annotations

import asyncio
import io
import math
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from hpuwatch.sim.config.options import Options, parse_options
from hpuwatch.sim.models.model import Model
from hpuwatch.sim.models.presets import MODELS
from hpuwatch.sim.serve.engine import Engine, Job
from hpuwatch.sim.serve.schedule import Request
from hpuwatch.sim.server import Server
from hpuwatch.sim.truth.tempo import FITTED, PEAKS, Efficiency, StepLaw, work_of
from hpuwatch.testing.clock import FakeClock

PUBLISHED = Path(__file__).parent / "data" / "published_speed.yaml"

_BLOCK = 128
_BUDGET = 8192  # tokens of one prefill step
_PRIOR_WEIGHT = 0.05
_BYTES = {"fp8": 1, "bf16": 2}


@dataclass(frozen=True, slots=True)
class Point:
    """One published throughput.

    Attributes:
        weight_bytes: of one weight, and of one number of the KV cache.
        words: flags that the point needs beside those that its other figures make.
        tokens_per_second: output tokens.
        is_fitted: the laws are set from it.
        latencies_ms: mean times to the first token and of each further one, if published.
    """

    source: str
    card: str
    weight_bytes: int
    release: str
    words: str
    env: tuple[tuple[str, str], ...]
    model: str
    cards: int
    input_tokens: int
    output_tokens: int
    batch: int
    tokens_per_second: float
    is_fitted: bool
    latencies_ms: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Served:
    """What the simulator made of a point; seconds are simulated."""

    tokens_per_second: float
    first_token_seconds: float
    token_seconds: float


def points() -> list[Point]:
    """Return the published points in the order of their file."""
    document = yaml.safe_load(PUBLISHED.read_text(encoding="utf-8"))
    return [
        _point(name, group, row)
        for name, group in document["throughput"].items()
        for row in group["points"]
    ]


def _point(name: str, group: Mapping[str, Any], row: Sequence[Any]) -> Point:
    model, cards, given, made, batch, rate, use, *latencies = row
    return Point(
        source=group["source"],
        card=group["card"],
        weight_bytes=_BYTES[name.rpartition("_")[2]],
        release=group["release"],
        words=group["words"],
        env=tuple(group["env"].items()),
        model=model,
        cards=cards,
        input_tokens=given,
        output_tokens=made,
        batch=batch,
        tokens_per_second=rate,
        is_fitted=use == "fitted",
        latencies_ms=tuple(latencies),
    )


def law(point: Point, efficiency: Efficiency = FITTED) -> float:
    """Return the tokens per second of unpadded steps: all prompts, then all tokens."""
    model = _model(point)
    per_token = (
        2 * model.layers * model.shape.kv_heads * model.head_dim * point.weight_bytes
    ) / min(point.cards, model.shape.kv_heads)
    steps = StepLaw(
        work_of(model, per_token, point.weight_bytes),
        PEAKS[point.card],
        point.cards,
        efficiency,
    )
    together = max(1, _BUDGET // point.input_tokens)
    prompts = math.ceil(point.batch / together)
    held = point.batch * (point.input_tokens + point.output_tokens / 2)
    seconds = (
        prompts * steps.prompt(together, point.input_tokens, 0).seconds
        + point.output_tokens * steps.decode(point.batch, held).seconds
    )
    return point.batch * point.output_tokens / seconds


def fit(known: Sequence[Point]) -> Efficiency:
    """Return the efficiency that comes closest to the known points.

    Seven points can't hold six figures: each is drawn weakly to where it would be without
    any point, half to most of the peak and microseconds on the host.
    """
    from scipy.optimize import least_squares  # type: ignore[import-untyped]  # noqa: PLC0415

    usual = [math.log(x) for x in (0.4, 0.7, 0.5, 1e-4, 1e-5, 1e-5)]

    def misses(logs: Sequence[float]) -> list[float]:
        efficiency = Efficiency(*(math.exp(x) for x in logs))
        found = [math.log(law(p, efficiency) / p.tokens_per_second) for p in known]
        drawn = zip(logs, usual, strict=True)
        return found + [_PRIOR_WEIGHT * (x - usual) for x, usual in drawn]

    return Efficiency(*(math.exp(x) for x in least_squares(misses, usual).x))


def figures(efficiency: Efficiency) -> tuple[float, ...]:
    """Return the figures of an efficiency, rounded as ``tempo`` states them."""
    return tuple(float(f"{x:.3g}") for x in astuple(efficiency))


async def run(point: Point) -> Served:
    """Serve a point twice, and return how the second time went: shapes were used then."""
    output = io.StringIO()
    streams = {"stdout": output, "stderr": output}
    server = Server(_options(point), FakeClock(), streams)
    engine = await server.start()
    running = asyncio.ensure_future(engine.run())
    try:
        await _served(server, engine, running, point)
        return await _served(server, engine, running, point)
    finally:
        running.cancel()


async def _served(
    server: Server, engine: Engine, running: asyncio.Future[None], point: Point
) -> Served:
    began = server.world.pace.passed
    jobs = list(_submit(engine, point))
    ended = asyncio.ensure_future(_ended(jobs))
    await asyncio.wait([running, ended], return_when=asyncio.FIRST_COMPLETED)
    if running.done():
        running.result()
    seconds = server.world.pace.passed - began
    firsts = [job.first_token - began for job in jobs if job.first_token is not None]
    first = sum(firsts) / len(firsts)
    return Served(
        tokens_per_second=point.batch * point.output_tokens / seconds,
        first_token_seconds=first,
        token_seconds=(seconds - first) / max(1, point.output_tokens - 1),
    )


async def _ended(jobs: Sequence[Job]) -> None:
    await asyncio.wait([job.over for job in jobs])


def _submit(engine: Engine, point: Point) -> Iterator[Job]:
    for _ in range(point.batch):
        yield engine.submit(Request(point.input_tokens, point.output_tokens))


def _model(point: Point) -> Model:
    model = MODELS[point.model]
    return replace(model, checkpoint_bytes=model.parameters * point.weight_bytes)


def _options(point: Point) -> Options:
    words = (
        *("--model", point.model, "--card", point.card, "--misfit", "0"),
        *("--tensor-parallel-size", str(point.cards), "--noise", "0"),
        *("--max-num-seqs", str(point.batch), "--speed", "1e12"),
        *("--max-model-len", str(point.input_tokens + point.output_tokens)),
        *("--max-num-batched-tokens", str(_BUDGET), "--release", point.release),
        *shlex.split(point.words),
    )
    # What the first run has to compile is no matter for the second.
    env = {"VLLM_GRAPH_RESERVED_MEM": "0.02", "VLLM_SKIP_WARMUP": "true"}
    return replace(parse_options(words, env | dict(point.env)), model=_model(point))
