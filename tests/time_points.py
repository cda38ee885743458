"""Published times of starts and of first requests, beside those of the simulator.

Each start of ``data/published_speed.yaml`` is made in this process and in no time, with
misfit and noise at 0: what comes out are the public laws.  Phases are timed by the moments
at which a fault could strike, totals by the lines that the server prints.
"""

from __future__ import annotations

import asyncio
import io
import re
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
from hpuwatch.sim.hooks import Faults, Moment
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
_BEGIN_WITH = {
    "sampler": "sampler_start",
    "defragmenter": "defragmenter",
    "graphs": "graph_budget",
}
"""Phases at whose begin no fault can strike, and the line that tells of it."""
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


@dataclass(frozen=True, slots=True)
class Told:
    """A figure of the shared list of numbers that the tables tell of.

    Attributes:
        source: as the list names it.
        figure: its key there.
        seconds: what stands beside a simulated time; None where nothing is simulated, or
            where the time was made from the figure, or from several.
    """

    source: str
    figure: str
    seconds: float | None


def told() -> Iterator[Told]:
    """Yield every figure that has a row or a reason."""
    published = _published()
    for start in published["starts"]:
        for what, name in start["numbers"].items():
            yield _told(name, start["seconds"][what])
    for row in published["traffic"]:
        # The seconds of a warm step were made from a rate.
        one = len(row["numbers"]) == 1 and row["meets"] != "warm"
        seconds = row["seconds"] if one else None
        yield from (_told(name, seconds) for name in row["numbers"])
    for names in (
        *(group["numbers"] for group in published["throughput"].values()),
        *(row[3] for row in published["not_simulated"]),
    ):
        yield from (_told(name) for name in names)


def _told(name: str, seconds: float | None = None) -> Told:
    source, _, figure = name.rpartition(" ")
    return Told(source, figure, seconds)


SECTIONS = frozenset(
    (
        *("per_bucket_time_s", "runtime_recompile_cost_s"),
        *("warmup_times_published", "throughput"),
    )
)
"""The sections of the list of numbers that tell times."""

_SETTINGS = frozenset(
    (
        *("src", "model", "dev", "tp", "in", "out", "conc", "n", "cols", "note"),
        *("max_len", "max_num_seqs", "decode_buckets", "unique_shapes"),
        *("buckets_at_32k_seqs256", "kv_use_peak_pct", "hccl_bw_gb_s"),
    )
)
_OF_MEMORY_POINTS = ("warmup_s", "load_s", "init_engine_s", "profile_s")


def is_time(key: str) -> bool:
    """Tell whether a key of a memory point is a time."""
    return key.endswith(_OF_MEMORY_POINTS)


def published_times(numbers: Mapping[str, Any]) -> Iterator[tuple[str, str, Any]]:
    """Yield (source, figure, value) of every time in the shared list of numbers."""
    for point in numbers["memory_points"]:
        yield from ((point["src"], k, v) for k, v in point.items() if is_time(k))
    for section in sorted(SECTIONS):
        for row in map(_mended, numbers[section]):
            yield from (
                (row["src"], k, v) for k, v in row.items() if k not in _SETTINGS
            )


def _mended(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row of which YAML has taken no comma of a text for the end of it."""
    whole: dict[str, Any] = {}
    for key, value in row.items():
        if value is None:
            last = next(reversed(whole))
            whole[last] = f"{whole[last]}, {key}"
        else:
            whole[key] = value
    return whole


_UNIT_SECONDS = {"min": 60.0, "ms": 0.001, "h": 3600.0}
_NUMBER = r"\d+(?:\.\d+)?"


def holds(figure: str, value: object, seconds: float) -> bool:
    """Tell whether a published value has these seconds in it, or in a range of it."""
    unit = _UNIT_SECONDS.get(figure.rpartition("_")[2], 1.0)
    text = str(value)
    ranges = [
        *re.findall(rf"({_NUMBER})-({_NUMBER})", text),
        *((each, each) for each in re.findall(_NUMBER, text)),
    ]
    return any(
        float(least) * unit <= seconds <= float(most) * unit for least, most in ranges
    )


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
    for phase, line in _BEGIN_WITH.items():
        if line in heard.passed:
            began[phase] = heard.passed[line]
    moments = sorted(began.items(), key=lambda moment: moment[1])
    for (phase, at), (_, then) in pairwise(moments):
        found[phase] = then - at
    for phase in ("prompt", "decode"):
        if watch.buckets(phase):
            found[f"{phase}_bucket"] = found[phase] / watch.buckets(phase)
    if (second := watch.passed.get(Moment("prompt", 2))) is not None:
        found["first_prompt"] = second - began["prompt"]
    return found


def _totals(output: str) -> Iterator[tuple[str, float]]:
    parser, assembler = Parser(shipped_rules()), Assembler()
    lines = [*assembler.feed(output.encode(), None), *assembler.close()]
    for line in lines:
        for event in parser.feed(line):
            seconds = event.fields.get("s")
            if event.kind in _TOTALS and isinstance(seconds, int | float):
                yield _TOTALS[event.kind], float(seconds)
