"""Published memory figures beside those of a simulated start with the same settings.

Each start of :mod:`tests.memory_starts` has the model, card, release and settings of one
public log.  Its figures are those that it *prints*, read back by the parser.  Nothing is
given to it from the log: what no setting tells stands there with its error and the reason.
A figure that something of the simulator was set from proves nothing, and says so.

The figures of ``numbers.yaml`` that stand beside no start are named with the reason, so that
none can be left out in silence.
"""

from __future__ import annotations

import asyncio
import io
import json
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from hpuwatch.gaudi.buckets import Bucket
from hpuwatch.sim.config.options import parse_options
from hpuwatch.sim.server import Server
from hpuwatch.sim.world import EngineFailed
from hpuwatch.state.model import DECODE, MULTIMODAL, PROMPT, Start
from hpuwatch.testing.clock import FakeClock
from hpuwatch.testing.logs import start_of_text
from hpuwatch.units import GIB, MIB
from tests.memory_starts import DIFFERENCES, SET_FROM, STARTS

SETTINGS = frozenset(
    (
        *("src", "model", "dev", "total", "tp", "util", "frac", "block", "mode"),
        *("max_len", "max_num_seqs", "max_num_batched_tokens", "skipped"),
        *("prompt_bs", "decode_bs", "decode_block"),
    )
)
"""What ``numbers.yaml`` tells of a start beside its figures."""


@dataclass(frozen=True, slots=True)
class Row:
    """One published figure and the simulator's.

    Attributes:
        figure: the name in ``numbers.yaml``.
        published: GiB, MiB of a graph, or a number of blocks, buckets, tokens or steps.
        simulated: the same, None where the start printed none.
        set_from: what of the simulator was set from it, empty of a prediction.
        why: what it is off for, empty where nothing has to be told.
    """

    source: str
    model: str
    figure: str
    published: float
    simulated: float | None
    set_from: str = ""
    why: str = ""

    @property
    def error(self) -> float | None:
        """How far off the simulator is, as a share of what was published."""
        if self.simulated is None or not self.published:
            return None
        return self.simulated / self.published - 1


def rows(shared: Path) -> Iterator[Row]:
    """Yield every figure that a start simulates."""
    models = {}
    for point in points(shared):
        source = point["src"]
        models[source] = point.get("model", "")
        if source in STARTS:
            found = figures_of(source)
            for figure, published in _published(point):
                yield _row(source, point["model"], figure, published, found.get(figure))
    for curve in CURVES:
        free = free_of(curve.source, curve.phase)
        model = models[curve.source]
        yield _row(curve.source, model, curve.figure, curve.published, curve.pick(free))
    for preset, (model, megabytes) in graph_sizes(shared).items():
        simulated_mib = decode_graph_mib(preset)
        yield _row(
            "autocalc_table", model, "decode_graph_mib", megabytes, simulated_mib
        )


def _row(
    source: str, model: str, figure: str, published: float, found: float | None
) -> Row:
    key = source, figure
    fitted, why = SET_FROM.get(key, ""), DIFFERENCES.get(key, "")
    return Row(source, model, figure, published, found, fitted, why)


def numbers(shared: Path) -> dict[str, Any]:
    """Return all published numbers, by section."""
    text = (shared / "reference/numbers.yaml").read_text(encoding="utf-8")
    found: dict[str, Any] = yaml.safe_load(text)
    return found


def points(shared: Path) -> list[dict[str, Any]]:
    """Return the memory points, and what graphs alone are known to take."""
    told = numbers(shared)
    # A note may follow the source after a comma.
    return [
        point | {"src": str(point["src"]).partition(",")[0]}
        for point in [*told["memory_points"], *told["graph_memory_published"]]
    ]


_SPELLINGS = {
    # All of warm-up; GB and MB mean GiB and MiB in these logs.
    "full_capture_gb": ("warmup_alloc", 1.0),
    "decode_399": ("decode_graph_used", 1.0),
    "decode_mb_per_bucket_bs512": ("largest_decode_graph_mib", 1.0),
}
_UNITS = {"_mib": 1 / 1024, "_kib": 1 / 1024**2, "_gb": 1.0}


def spelled(key: str) -> tuple[str, float]:
    """Return the figure that a key of ``numbers.yaml`` means, and its unit's factor."""
    if key in _SPELLINGS:
        return _SPELLINGS[key]
    for suffix, factor in _UNITS.items():
        if key.endswith(suffix):
            return key.removesuffix(suffix), factor
    return key, 1.0


def _published(point: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    for key, value in point.items():
        figure, factor = spelled(key)
        if figure in FIGURES:
            yield figure, _number(value) * factor


def _number(value: object) -> float:
    # "14.03 (15 of 24)" says how many of the graphs were captured; of several the last
    # counts, see NOT_COMPARED.
    told = value[-1] if isinstance(value, list) else value
    return float(str(told).split()[0])


FIGURES = (
    "weights",
    "profile",
    "free",
    "usable",
    "graph",
    "dummy_block",
    "kv",
    "blocks",
    "tokens",
    "cpu_blocks",
    "cache_engine",
    "used_after_cache",
    "prompt_buckets",
    "decode_buckets",
    "top_decode_bucket_blocks",
    "mm_steps",
    "prompt_graph_used",
    "decode_graph_used",
    "largest_decode_graph_mib",
    "warmup_alloc",
)
"""What is compared, as ``numbers.yaml`` spells it without the unit."""


def figures_of(source: str) -> dict[str, float]:
    """Return what a start printed, by the names of :data:`FIGURES`."""
    start = simulated(source)
    memory, kv = start.memory[0], start.kv
    amounts = {
        "weights": memory.weights,
        "profile": memory.profile_run,
        "free": memory.free,
        "usable": memory.usable,
        "graph": memory.reserve,
        "dummy_block": memory.dummy_block,
        "kv": memory.kv_cache,
        "used_after_cache": memory.used_after_kv,
        "prompt_graph_used": start.graphs_used.get(PROMPT),
        "decode_graph_used": start.graphs_used.get(DECODE),
        "warmup_alloc": start.warmup.allocated,
    }
    found = {name: known.value.bytes / GIB for name, known in amounts.items() if known}
    counts = {"blocks": kv.blocks, "cpu_blocks": kv.cpu_blocks, "tokens": kv.tokens}
    found |= {name: float(known.value) for name, known in counts.items() if known}
    for phase in (PROMPT, DECODE):
        listed = start.buckets.get(phase)
        if listed:
            found[f"{phase}_buckets"] = float(listed.value.count)
            blocks = [shape[-1] for shape in listed.value.shapes or ()]
            found[f"top_{phase}_bucket_blocks"] = float(max(blocks, default=0))
    images = start.warmup.progress.get(MULTIMODAL)
    if images:
        found["mm_steps"] = float(images.total)
    return found | _unparsed(source)


def _unparsed(source: str) -> dict[str, float]:
    """Return the figures that no line tells, or that the state doesn't keep."""
    text, server = _started(source, 0)
    world = server.world
    largest = Bucket(world.options.max_num_seqs, 1, 0)
    graph = world.truth.graph_bytes(DECODE, largest) * world.truth.compiled_share
    found = {"largest_decode_graph_mib": graph / MIB}
    line = re.search(r"Initializing cache engine took ([\d.]+) GiB", text)
    if line:
        found["cache_engine"] = float(line[1])
    return found


@dataclass(frozen=True, slots=True)
class Curve:
    """A figure of the free memory that the lines of a phase tell, one after the other.

    Attributes:
        source: the start.
        told: the source that ``free_mem_steps`` names for it.
        phase: as the lines spell it.
        pick: finds the figure in the curve, in GiB.
    """

    source: str
    told: str
    phase: str
    figure: str
    published: float
    pick: Callable[[Sequence[float]], float]


CURVES = (
    Curve(
        *("corpus/011", "corpus/012", "Prompt"),
        *("free_before_first_step", 79.16, lambda c: c[0]),
    ),
    Curve(
        *("corpus/011", "corpus/012", "Prompt"),
        *("free_after_first_step", 55.43, lambda c: c[1]),
    ),
    Curve("corpus/011", "corpus/012", "Decode", "free_of_decodes", 55.43, min),
    Curve(
        *("corpus/011", "corpus/011", "Graph/Prompt"),
        *("free_after_11_graphs", 48.77, lambda c: c[10]),
    ),
    Curve(
        *("corpus/011", "corpus/011", "Graph/Prompt"),
        *("free_after_15_graphs", 43.03, lambda c: c[14]),
    ),
    Curve(
        *("corpus/001", "corpus/001", "Graph/Multimodal(image)"),
        *("most_free_of_images", 44.73, max),
    ),
    Curve(
        *("corpus/001", "corpus/001", "Graph/Multimodal(image)"),
        *("least_free_of_images", 43.93, min),
    ),
)


def free_of(source: str, phase: str) -> list[float]:
    """Return the free memory that each line of a phase of warm-up tells, in GiB."""
    line = rf"\[Warmup\]\[{re.escape(phase)}\].*free_mem:([\d.]+) GiB"
    return [float(amount) for amount in re.findall(line, log_of(source))]


_CALCULATED = {
    "llama-3.1-8b": "Llama-3.1-8B",
    "llama-3.3-70b": "Llama-3.x-70B TP4",
    "llama-3.1-405b": "Llama-3.1-405B TP8",
    "mixtral-8x7b": "Mixtral-8x7B TP2",
    "qwen2.5-32b": "Qwen2.5-32B",
    "qwen3-0.6b": "Qwen3-0.6B",
    "qwen3-30b-a3b": "Qwen3-30B-A3B",
}
"""The presets that Intel's calculator has a row of, and its name of them."""


def graph_sizes(shared: Path) -> dict[str, tuple[str, float]]:
    """Return by preset what Intel's calculator takes a graph for, in MiB, and its name."""
    table = numbers(shared)["autocalc_table"]
    return {
        preset: (name, float(table[name][0])) for preset, name in _CALCULATED.items()
    }


def decode_graph_mib(preset: str) -> float:
    """Return the mean size of the decode graphs of a start with the release's own lists.

    They are run, as those that the calculator counts; its length is 4,352 tokens.
    """
    text, _ = _run(
        (
            *("--model", preset, "--card", "gaudi3", "--release", "fork-1.22"),
            *("--max-model-len", "4352", "--max-num-seqs", "256"),
        ),
        {"PT_COMPILE_ONLY_MODE": "0"},
    )
    start = start_of_text(text)
    used, count = start.graphs_used[DECODE].value, start.buckets[DECODE].value.count
    return used.bytes / count / MIB


@cache
def simulated(source: str, misfit: int = 0) -> Start:
    """Return what the parser makes of :func:`log_of`."""
    return start_of_text(log_of(source, misfit))


def log_of(source: str, misfit: int = 0) -> str:
    """Return what a simulated start with a public start's settings prints."""
    return _started(source, misfit)[0]


@cache
def _started(source: str, misfit: int) -> tuple[str, Server]:
    public = STARTS[source]
    return _run(public.arguments, public.env, public.config, misfit)


def _run(
    arguments: Sequence[str],
    env: Mapping[str, str],
    config: str = "",
    misfit: int = 0,
) -> tuple[str, Server]:
    """Start a server in this process; return what it prints, and itself."""
    words = [*arguments, "--misfit", str(misfit), "--speed", "1e12"]
    output = io.StringIO()
    with ExitStack() as stack:
        if config:
            words += ["--config", str(_config_file(config, stack))]
        options = parse_options(words, env)
        server = Server(options, FakeClock(), {"stdout": output, "stderr": output})
        with suppress(EngineFailed):
            asyncio.run(server.start())
    return output.getvalue(), server


def _config_file(name: str, stack: ExitStack) -> Path:
    text = (Path(__file__).parent / "data/models.yaml").read_text(encoding="utf-8")
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    file = folder / "config.json"
    file.write_text(json.dumps(yaml.safe_load(text)[name]), encoding="utf-8")
    return file
