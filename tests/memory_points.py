"""Published memory figures beside those of a simulated start with the same settings.

Each :class:`PublicStart` is the model, card, release and settings of one public log.  Its
figures are those that the start *prints*, read back by the parser.  What no setting tells
(a profile run that once took 9 GiB and once nothing, a checkpoint loaded differently) is
given from the log itself and named with the reason; such a figure proves nothing and is no
row of its own.
"""

from __future__ import annotations

import asyncio
import io
import json
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import yaml

from hpuwatch.sim.config.options import parse_options
from hpuwatch.sim.server import Server
from hpuwatch.sim.truth.memory import MemoryTruth
from hpuwatch.sim.world import EngineFailed
from hpuwatch.state.model import DECODE, MULTIMODAL, PROMPT, Start
from hpuwatch.testing.clock import FakeClock
from hpuwatch.testing.logs import start_of_text
from hpuwatch.units import GIB, MIB

_VISION = (
    *("--model", "qwen3-vl-32b", "--card", "gaudi3", "--release", "plugin-0.15"),
    *("--max-model-len", "32768", "--max-num-batched-tokens", "32768"),
    *("--max-num-seqs", "64", "--gpu-memory-utilization", "0.75"),
)
_VISION_ENV = {
    "VLLM_GRAPH_RESERVED_MEM": "0.4",
    "VLLM_CONTIGUOUS_PA": "true",
    "VLLM_EXPONENTIAL_BUCKETING": "False",
    "VLLM_PROMPT_BS_BUCKET_MIN": "1",
    "VLLM_PROMPT_BS_BUCKET_STEP": "1",
    "VLLM_PROMPT_BS_BUCKET_MAX": "1",
    "VLLM_PROMPT_QUERY_BUCKET_MIN": "5120",
    "VLLM_PROMPT_QUERY_BUCKET_STEP": "1024",
    "VLLM_PROMPT_QUERY_BUCKET_MAX": "20480",
    "VLLM_PROMPT_CTX_BUCKET_MIN": "0",
    "VLLM_PROMPT_CTX_BUCKET_STEP": "12",
    "VLLM_PROMPT_CTX_BUCKET_MAX": "24",
    "VLLM_DECODE_BS_BUCKET_MIN": "1",
    "VLLM_DECODE_BS_BUCKET_STEP": "4",
    "VLLM_DECODE_BS_BUCKET_MAX": "64",
    "VLLM_DECODE_BLOCK_BUCKET_MIN": "256",
    "VLLM_DECODE_BLOCK_BUCKET_STEP": "128",
    "VLLM_DECODE_BLOCK_BUCKET_MAX": "1152",
}
_CAPTURE = "full_capture_gb"
_SKIP = {"VLLM_SKIP_WARMUP": "true"}
_LLAMA = ("--model", "llama-3.1-8b", "--block-size", "128")
_FOUR_PROMPTS = {
    "VLLM_PROMPT_BS_BUCKET_MIN": "1",
    "VLLM_PROMPT_BS_BUCKET_STEP": "32",
    "VLLM_PROMPT_BS_BUCKET_MAX": "4",
    "VLLM_PROMPT_SEQ_BUCKET_MIN": "128",
    "VLLM_PROMPT_SEQ_BUCKET_STEP": "128",
    "VLLM_PROMPT_SEQ_BUCKET_MAX": "1024",
}
_PROFILE_UNKNOWN = (
    "the profile run of the same model took 9.042 GiB in one start and nothing in another, "
    "which no setting tells apart"
)


@dataclass(frozen=True, slots=True)
class PublicStart:
    """The settings of one public start.

    Attributes:
        config: the model's name in ``tests/data/models.yaml`` where it is no preset.
        own: figures that are taken from the log itself, in bytes: ``weights``, ``profile``.
        why: why nothing else tells them.
    """

    arguments: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    config: str = ""
    own: Mapping[str, int] = field(default_factory=dict)
    why: str = ""


STARTS: Mapping[str, PublicStart] = {
    "corpus/001": PublicStart(_VISION, _VISION_ENV),
    "corpus/002": PublicStart(_VISION, _VISION_ENV | _SKIP),
    "corpus/003+004+006": PublicStart(
        _VISION,
        _VISION_ENV | _SKIP,
        own={"weights": int(33.88 * GIB), "profile": 0},
        why=f"0.9 GiB less was loaded of the same checkpoint; {_PROFILE_UNKNOWN}",
    ),
    "corpus/005": PublicStart(
        _VISION, _VISION_ENV | _SKIP, own={"profile": 0}, why=_PROFILE_UNKNOWN
    ),
    "corpus/007": PublicStart(
        (
            *("--model", "llama-3.1-70b", "--release", "fork-1.19"),
            *("--block-size", "128", "--gpu-memory-utilization", "0.9"),
        ),
        _SKIP | {"VLLM_PROMPT_BS_BUCKET_MAX": "256"},
    ),
    "corpus/008-010": PublicStart(
        (*_LLAMA, "--release", "plugin-0.16", "--gpu-memory-utilization", "0.8"),
        _SKIP,
    ),
    "corpus/011": PublicStart(
        (
            *(*_LLAMA, "--release", "fork-1.18", "--gpu-memory-utilization", "0.5"),
            *("--max-num-seqs", "4", "--max-model-len", "4096"),
        ),
        _FOUR_PROMPTS
        | {
            "VLLM_GRAPH_RESERVED_MEM": "0.4",
            "VLLM_DECODE_BS_BUCKET_MIN": "1",
            "VLLM_DECODE_BS_BUCKET_MAX": "4",
            "VLLM_DECODE_BLOCK_BUCKET_MAX": "2048",
            "PT_HPUGRAPH_DISABLE_TENSOR_CACHE": "false",
            "PT_COMPILE_ONLY_MODE": "0",
        },
        own={"weights": int(14.97 * GIB), "profile": 504 * MIB},
        why="a build before fork-1.18, with shorter tables of positions",
    ),
    "corpus/013": PublicStart(
        (
            *(*_LLAMA, "--release", "fork-1.18", "--gpu-memory-utilization", "0.9"),
            *("--max-num-seqs", "4", "--max-model-len", "4096"),
        ),
        _FOUR_PROMPTS
        | {
            "VLLM_GRAPH_RESERVED_MEM": "0.1",
            "VLLM_DECODE_BS_BUCKET_MIN": "4",
            "VLLM_DECODE_BS_BUCKET_MAX": "4",
            "VLLM_DECODE_BLOCK_BUCKET_MAX": "128",
        },
    ),
    "corpus/021": PublicStart(
        (
            *(*_LLAMA, "--release", "fork-1.20", "--gpu-memory-utilization", "0.9"),
            *("--max-num-seqs", "256", "--max-num-prefill-seqs", "64"),
        ),
        {"VLLM_GRAPH_RESERVED_MEM": "0.4", "VLLM_PROMPT_BS_BUCKET_MAX": "64"},
    ),
    "corpus/040": PublicStart(
        ("--release", "fork-1.20", "--block-size", "128"), _SKIP, config="Qwen2-7B"
    ),
    "corpus/041": PublicStart(
        ("--model", "deepseek-r1", "--release", "fork-1.21", "--block-size", "128"),
        _SKIP,
    ),
    "corpus/055": PublicStart(
        (
            *("--release", "fork-1.18", "--block-size", "128"),
            *("--tensor-parallel-size", "2"),
        ),
        _SKIP,
        config="Llama-3-8B",
    ),
    "corpus/061": PublicStart(
        (
            *(*_LLAMA, "--card", "gaudi3", "--release", "fork-1.21"),
            *("--max-model-len", "4096", "--max-num-batched-tokens", "4096"),
            *("--gpu-memory-utilization", "0.9"),
        ),
        _SKIP | {"VLLM_GRAPH_RESERVED_MEM": "0"},
    ),
    "vllm-fork#292": PublicStart((*_LLAMA, "--release", "fork-1.18")),
    "vllm-gaudi#1700": PublicStart(
        ("--model", "qwen3-0.6b", "--card", "gaudi3", "--release", "plugin-0.26"), _SKIP
    ),
    "vllm-gaudi#1736": PublicStart(
        ("--model", "qwen3.6-27b", "--card", "gaudi3", "--release", "plugin-0.26"),
        _SKIP,
    ),
}

NOT_STARTED: Mapping[str, str] = {
    "corpus/022": "its flags are not published, and its KV cache alone says nothing of them",
    "corpus/030": "its flags are not published",
    "corpus/031": "its flags and its bucket lists are not published",
    "corpus/035": "gaudi1 is no card of the simulator",
    "corpus/042": "its model is not published",
    "corpus/043": "its model is not published",
    "vllm-gaudi#1146": "tells what one request needs, no start",
    "vllm-gaudi 6cd91242": "tells of block references, no start",
}
"""Memory points that no start stands beside."""


@dataclass(frozen=True, slots=True)
class Row:
    """One published figure and the simulator's.

    Attributes:
        figure: the name in ``numbers.yaml``.
        published: GiB, or a number of blocks, buckets or steps.
        simulated: the same, None where the start printed none.
        why: what of this start is given, not simulated; empty where nothing is.
    """

    source: str
    model: str
    figure: str
    published: float
    simulated: float | None
    why: str = ""

    @property
    def error(self) -> float | None:
        """How far off the simulator is, as a share of what was published."""
        if self.simulated is None or not self.published:
            return None
        return self.simulated / self.published - 1


def rows(shared: Path) -> Iterator[Row]:
    """Return every figure of the memory points that a start simulates."""
    for point in points(shared):
        source = point["src"]
        if source in STARTS:
            public, found = STARTS[source], figures_of(simulated(source))
            for name, value in _published(point):
                if name not in public.own:
                    figure = found.get(name)
                    yield Row(source, point["model"], name, value, figure, public.why)


def points(shared: Path) -> list[dict[str, Any]]:
    """Return the memory points, and what graphs alone are known to take."""
    text = (shared / "reference/numbers.yaml").read_text(encoding="utf-8")
    numbers = yaml.safe_load(text)
    found = []
    for point in [*numbers["memory_points"], *numbers["graph_memory_published"]]:
        # "full_capture_gb" is what all of warm-up allocated; GB means GiB in these logs.
        whole = {"warmup_alloc": point[_CAPTURE]} if _CAPTURE in point else {}
        # A note may follow the source after a comma.
        found.append(point | whole | {"src": str(point["src"]).partition(",")[0]})
    return found


def _published(point: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    for name in FIGURES:
        if name in point:
            yield name, _number(point[name])
        elif f"{name}_mib" in point:
            yield name, float(point[f"{name}_mib"]) / 1024
        elif f"{name}_kib" in point:
            yield name, float(point[f"{name}_kib"]) / 1024**2
        elif f"{name}_gb" in point:
            yield name, float(point[f"{name}_gb"])


def _number(value: object) -> float:
    # "14.03 (15 of 24)" says how many of the graphs were captured.
    return float(str(value).split()[0])


FIGURES = (
    "weights",
    "profile",
    "free",
    "usable",
    "graph",
    "kv",
    "blocks",
    "cpu_blocks",
    "used_after_cache",
    "prompt_buckets",
    "decode_buckets",
    "mm_steps",
    "prompt_graph_used",
    "decode_graph_used",
    "warmup_alloc",
)
"""What is compared, as ``numbers.yaml`` spells it without the unit."""


def figures_of(start: Start) -> dict[str, float]:
    """Return what a start printed, by the names of :data:`FIGURES`."""
    memory, kv = start.memory[0], start.kv
    amounts = {
        "weights": memory.weights,
        "profile": memory.profile_run,
        "free": memory.free,
        "usable": memory.usable,
        "graph": memory.reserve,
        "kv": memory.kv_cache,
        "used_after_cache": memory.used_after_kv,
        "prompt_graph_used": start.graphs_used.get(PROMPT),
        "decode_graph_used": start.graphs_used.get(DECODE),
        "warmup_alloc": start.warmup.allocated,
    }
    found = {name: known.value.bytes / GIB for name, known in amounts.items() if known}
    counts = {"blocks": kv.blocks, "cpu_blocks": kv.cpu_blocks}
    found |= {name: float(known.value) for name, known in counts.items() if known}
    for phase in (PROMPT, DECODE):
        listed = start.buckets.get(phase)
        if listed:
            found[f"{phase}_buckets"] = float(listed.value.count)
    images = start.warmup.progress.get(MULTIMODAL)
    if images:
        found["mm_steps"] = float(images.total)
    return found


@cache
def simulated(source: str, misfit: int = 0) -> Start:
    """Return what the parser makes of :func:`log_of`."""
    return start_of_text(log_of(source, misfit))


@cache
def log_of(source: str, misfit: int = 0) -> str:
    """Return what a simulated start with a public start's settings prints."""
    public = STARTS[source]
    arguments = [*public.arguments, "--misfit", str(misfit), "--speed", "1e12"]
    output = io.StringIO()
    with ExitStack() as stack:
        if public.config:
            arguments += ["--config", str(_config_file(public.config, stack))]
        options = parse_options(arguments, public.env)
        own = public.own
        if "profile" in own:
            stack.enter_context(
                mock.patch.object(
                    MemoryTruth, "profile_bytes", return_value=own["profile"]
                )
            )
        server = Server(options, FakeClock(), {"stdout": output, "stderr": output})
        if "weights" in own:
            server.world.truth.weights_bytes = own["weights"]
        with suppress(EngineFailed):
            asyncio.run(server.start())
    return output.getvalue()


def _config_file(name: str, stack: ExitStack) -> Path:
    text = (Path(__file__).parent / "data/models.yaml").read_text(encoding="utf-8")
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    file = folder / "config.json"
    file.write_text(json.dumps(yaml.safe_load(text)[name]), encoding="utf-8")
    return file
