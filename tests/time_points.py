"""Published times of starts and of first requests, beside those of the simulator.

Each start of ``data/published_speed.yaml`` is made in this process and in no time, with
misfit and noise at 0: what comes out are the public laws.  Phases are timed by the moments
at which a fault could strike, totals by the lines that the server prints.
"""

from __future__ import annotations

import asyncio
import io
import shlex
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from typing import Any

import yaml

from hpuwatch.app.rules import shipped_rules
from hpuwatch.gaudi.buckets import Bucket
from hpuwatch.parse.parser import Parser
from hpuwatch.sim.config.options import Options, parse_options
from hpuwatch.sim.faults.hooks import Faults, Moment
from hpuwatch.sim.pace import Pace
from hpuwatch.sim.server import Server
from hpuwatch.sim.talk.voice import Voice
from hpuwatch.source.assemble import Assembler
from hpuwatch.testing.clock import FakeClock
from tests.throughput_points import PUBLISHED

_EXACT = ("--misfit", "0", "--noise", "0", "--speed", "1e12")
_PATIENCE = (
    "VLLM_ENGINE_READY_TIMEOUT_S"  # how long a front end waits is no figure here
)
_TOTALS = {"warmup_finished": "warmup", "engine_init_time": "init"}


@dataclass(frozen=True, slots=True)
class Row:
    """One published time.

    Attributes:
        what: which time, as ``warmup`` or ``prompt``.
        settings: how far the settings behind it are known.
        simulated: the simulator's seconds.
        why: what explains a large error, empty where nothing has to be told.
    """

    source: str
    what: str
    settings: str
    published: float
    simulated: float
    why: str = ""

    @property
    def error(self) -> float:
        """How far the simulator is off, as a share of the published time."""
        return self.simulated / self.published - 1


class _Stopwatch(Faults):
    """No fault ever strikes; keeps when each moment came."""

    def __init__(self, pace: Pace) -> None:
        super().__init__()
        self._pace = pace
        self.passed: dict[Moment, float] = {}

    async def at(self, moment: Moment) -> None:
        """Take the time."""
        self.passed.setdefault(moment, self._pace.passed)

    def began(self, phase: str) -> float | None:
        """Return when a phase began, None where there was none."""
        found = [at for moment, at in self.passed.items() if moment.phase == phase]
        return min(found, default=None)

    def buckets(self, phase: str) -> int:
        """Return how many buckets a phase had."""
        return len({m.index for m in self.passed if m.phase == phase and m.index})


class _Heard(Voice):
    """Speaks as another voice does, and keeps when each line was first said."""

    def __init__(self, voice: Voice, pace: Pace) -> None:
        self.__dict__.update(vars(voice))
        self._pace = pace
        self.passed: dict[str, float] = {}

    def say(self, speaker: str, name: str, /, **values: object) -> None:
        """Print one line and take the time."""
        self.passed.setdefault(name, self._pace.passed)
        super().say(speaker, name, **values)


def starts(names: frozenset[str] | None = None) -> Iterator[Row]:
    """Yield a row for each published time of a start; ``names`` chooses sources."""
    for start in _published()["starts"]:
        if names is not None and start["source"] not in names:
            continue
        found = _measured(start)
        for what, seconds in start["seconds"].items():
            yield Row(
                start["source"],
                what,
                start["settings"],
                seconds,
                found[what],
                start.get("why", {}).get(what, ""),
            )


def first_requests() -> Iterator[Row]:
    """Yield a row for each published time of a request that met a cold graph."""
    for found in _published()["traffic"]:
        words = ("--model", found["model"], "--card", "gaudi3", *_EXACT)
        times = Server(parse_options(words, {}), FakeClock(), {}).world.times
        shape = found["phase"], Bucket(*found["bucket"])
        if found["meets"] == "first_use":
            seconds = times.first_use_seconds(*shape)
        elif found["meets"] == "warm":
            seconds = times.step_seconds(*shape)
        else:
            first = found["meets"] == "unwarmed"
            seconds = times.step_seconds(*shape) + times.compile_seconds(
                *shape, first=first, cached=False, during="traffic"
            )
        source, why = found["source"], found.get("why", "")
        yield Row(source, "first request", "", found["seconds"], seconds, why)


def not_simulated() -> list[tuple[str, str, str]]:
    """Return (model, what is published, why it has no row)."""
    return [tuple(row[:3]) for row in _published()["not_simulated"]]


def sources() -> set[str]:
    """Return the names, in the shared folder's list of numbers, of all that is told."""
    published = _published()
    groups = (
        *published["throughput"].values(),
        *published["starts"],
        *published["traffic"],
    )
    named = [group["numbers"] for group in groups]
    named += [row[3] for row in published["not_simulated"]]
    return {name for names in named for name in names}


@cache
def _published() -> Any:
    return yaml.safe_load(PUBLISHED.read_text(encoding="utf-8"))


def _measured(start: Mapping[str, Any]) -> dict[str, float]:
    env = {_PATIENCE: "100000"} | start["env"]
    if "against" in start:
        one, other = (_timed(_options(start, e)) for e in (env, env | start["against"]))
        return {"ratio": one["warmup"] / other["warmup"]}
    if "cached" not in start["seconds"]:
        return _timed(_options(start, env))
    with tempfile.TemporaryDirectory() as folder:
        env["PT_HPU_RECIPE_CACHE_CONFIG"] = f"{folder},false,"
        fresh, cached = (_timed(_options(start, env)) for _ in range(2))
    return {**fresh, "cached": cached["warmup"]}


def _options(start: Mapping[str, Any], env: Mapping[str, str]) -> Options:
    words = shlex.split(start["words"])
    options = parse_options([*words, "--release", start["release"], *_EXACT], env)
    model, weight_bytes = options.model, start.get("weight_bytes")
    if weight_bytes is None:
        return options
    served = replace(model, checkpoint_bytes=model.parameters * weight_bytes)
    return replace(options, model=served)


def _timed(options: Options) -> dict[str, float]:
    """Start a server and return its seconds by what they were spent on."""
    output = io.StringIO()
    server = Server(options, FakeClock(), {"stdout": output, "stderr": output})
    world = server.world
    watch = world.faults = _Stopwatch(world.pace)
    heard = world.voice = _Heard(world.voice, world.pace)
    asyncio.run(server.start())
    found = dict(_totals(output.getvalue()))
    order = ["load", "profile", "kv", "multimodal", "prompt", "decode", "ready"]
    began = {phase: at for phase in order if (at := watch.began(phase)) is not None}
    if "sampler_start" in heard.passed:
        began["sampler"] = heard.passed["sampler_start"]
    moments = sorted(began.items(), key=lambda moment: moment[1])
    for (phase, at), (_, then) in pairwise(moments):
        found[phase] = then - at
    for phase in ("prompt", "decode"):
        if watch.buckets(phase):
            found[f"{phase}_bucket"] = found[phase] / watch.buckets(phase)
    return found


def _totals(output: str) -> Iterator[tuple[str, float]]:
    parser, assembler = Parser(shipped_rules()), Assembler()
    lines = [*assembler.feed(output.encode(), None), *assembler.close()]
    for line in lines:
        for event in parser.feed(line):
            seconds = event.fields.get("s")
            if event.kind in _TOTALS and isinstance(seconds, int | float):
                yield _TOTALS[event.kind], float(seconds)
