"""The simulator's start beside real ones: same flags, same environment, same events.

What a process says is compared event by event: kinds, order, counts, and every value that
follows from the settings (bucket lists, ranges, the settings dump, shapes).  Amounts of
memory and durations are not: other tests hold them against real ones.  Each difference that
remains stands here with its reason.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from hpuwatch.events import Event
from hpuwatch.sim.talk.script import Script, load_script, releases
from hpuwatch.units import Amount
from tests.catalogue import Catalogue, points_of, shape_of
from tests.simulated import events_of, start

pytestmark = pytest.mark.unit

Told = tuple[str, frozenset[tuple[str, str]]]
"""An event as it is compared: its kind and its fields, as text."""

_UNCOMPARED = frozenset({"s", "seconds", "ver", "model", "config", "args"})
"""Durations, versions, where a checkpoint lies, and texts whose parts are fields too."""

_LAST = "engine_init_time"

_STAND_IN = {
    "bridge_banner": "the stand-in has no native bridge, which prints its settings",
    "fault": "a kernel that the stand-in lacks",
    "simulated_server": "ours says what it is",
    "kv_capacity": "the stand-in's free memory is made up, so the blocks are",
    "kv_alloc_v1": "the stand-in's free memory is made up, so the blocks are",
    "runtime_config_dump hw": "the stand-in calls itself gaudi3, with a gaudi2's memory",
}
_REAL_0_15 = {
    "simulated_server": "ours says what it is",
    "bridge_banner cores": "another host",
    "runtime_config_dump vllm_gaudi_commit": "a checkout; images of releases have none",
}


@dataclass(frozen=True)
class Case:
    """A real log, the settings that it was made with, and what differs all the same.

    Attributes:
        differs: kind, or kind and key of the dump or field, with the reason.
        ends_early: the real server died before its warm-up was over.
    """

    log: str
    arguments: Sequence[str]
    env: Mapping[str, str]
    differs: Mapping[str, str] = field(default_factory=dict)
    ends_early: bool = False


_SMALL = (
    *("serve", "/models/small-llama", "--host", "127.0.0.1"),
    *("--served-model-name", "tiny"),
)
_SMALL_CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "vocab_size": 512,
    "max_position_embeddings": 2048,
    "torch_dtype": "bfloat16",
}
_SHORT = ("--max-model-len", "512", "--max-num-batched-tokens", "512")
_LAZY = {"PT_HPU_LAZY_MODE": "1"}
_DEVELOPER = _LAZY | {"VLLM_DEVELOPER_MODE": "1"}
_VISION = (
    *("--model", "qwen3-vl-32b", "--card", "gaudi3"),
    *("--max-model-len", "32768", "--max-num-batched-tokens", "32768"),
    *("--gpu-memory-utilization", "0.75", "--host", "localhost", "--port", "12346"),
)
_LINEAR = {
    "VLLM_LOGGING_LEVEL": "DEBUG",
    "VLLM_GRAPH_RESERVED_MEM": "0.4",
    "VLLM_GRAPH_PROMPT_RATIO": "0.4",
    "VLLM_EXPONENTIAL_BUCKETING": "False",
    "VLLM_CONTIGUOUS_PA": "true",
    "VLLM_DEFRAG": "true",
    "EXPERIMENTAL_WEIGHT_SHARING": "0",
    **{
        f"VLLM_{axis}_BUCKET_{part}": str(value)
        for axis, values in {
            "PROMPT_BS": (1, 1, 1),
            "PROMPT_SEQ": (5120, 1024, 20480),
            "PROMPT_CTX": (0, 12, 24),
            "DECODE_BS": (1, 4, 64),
            "DECODE_BLOCK": (256, 128, 1152),
        }.items()
        for part, value in zip(("MIN", "STEP", "MAX"), values, strict=True)
    },
}
_CASES = {
    "exponential": Case(
        "plugin-on-stand-in/plugin-0.26-exponential.log",
        (
            *(*_SMALL, "--port", "18100", "--max-num-seqs", "8"),
            *("--max-model-len", "1024", "--max-num-batched-tokens", "1024"),
        ),
        _LAZY,
        _STAND_IN,
    ),
    "developer mode": Case(
        "plugin-on-stand-in/plugin-0.26-developer-mode.log",
        (*_SMALL, "--port", "18111", "--max-num-seqs", "4", *_SHORT),
        _DEVELOPER | {"VLLM_GRAPH_RESERVED_MEM": "0.3"},
        _STAND_IN,
    ),
    "two ranks": Case(
        "plugin-on-stand-in/plugin-0.26-tp2.log",
        (*_SMALL, "--port", "18116", "--max-num-seqs", "4", *_SHORT, "-tp", "2"),
        _DEVELOPER
        | {"VLLM_PROMPT_QUERY_BUCKET_STEP": "256", "VLLM_PROMPT_CTX_BUCKET_MAX": "1"},
        _STAND_IN,
    ),
    "vision on gaudi3": Case(
        "gaudi3-qwen3vl32b-plugin-0.15-start-and-traffic.log.gz",
        ("--release", "plugin-0.16", *_VISION),
        _LINEAR,
        _REAL_0_15
        | {
            "buckets_generated tuples": "this development build still let contexts end"
            " where the model does, as 0.14; 0.15.1 heeds VLLM_PROMPT_CTX_BUCKET_MAX",
            "warmup_bucket width": "this build began with another picture",
            "warmup_bucket height": "this build began with another picture",
        },
    ),
    "vision that died": Case(
        "gaudi3-qwen3vl32b-plugin-0.15-dies-in-warmup.log.gz",
        (
            *("--release", "plugin-0.14", *_VISION),
            *("--served-model-name", "Qwen/Qwen3-VL-32B-Instruct-FP8"),
        ),
        _LINEAR,
        _REAL_0_15
        | {
            "engine_death": "a mistake in this build's own code ended it",
            "fault": "a mistake in this build's own code ended it",
        },
        ends_early=True,
    ),
}


def _processes(events: Sequence[Event]) -> dict[int | None, str]:
    """Name every process by what it is called in the end; pid → name."""
    names: dict[int | None, str] = {None: "no prefix"}
    for event in events:
        speaker = event.speaker
        if speaker.pid is not None:
            rank = f" {speaker.rank}" if speaker.process == "Worker" else ""
            names[speaker.pid] = f"{speaker.process}{rank}"
    return names


def _fields(event: Event, case: Case) -> frozenset[tuple[str, str]]:
    key = str(event.fields.get("key", ""))
    return frozenset(
        (name, str(value))
        for name, value in event.fields.items()
        if name not in _UNCOMPARED
        and not isinstance(value, Amount)
        and f"{event.kind} {name}" not in case.differs
        and not (name == "value" and f"{event.kind} {key}" in case.differs)
    )


def _streams(events: Sequence[Event], case: Case) -> dict[str, list[Told]]:
    """Return what each process tells up to the end of the start.

    Bars have no prefix where another process has begun the line, so they make a stream of
    their own, in which each counts once.
    """
    names = _processes(events)
    streams: dict[str, list[Told]] = {}
    for event in _of_the_start(events):
        if event.kind in case.differs:
            continue
        if event.kind == "warmup_progress":
            bar = (event.kind, frozenset({("bar", _bar(event))}))
            bars = streams.setdefault("bars", [])
            if bar not in bars:
                bars.append(bar)
            continue
        told = (event.kind, _fields(event, case))
        streams.setdefault(names[event.speaker.pid], []).append(told)
    return streams


def _bar(event: Event) -> str:
    phase, total = event.fields.get("phase"), event.fields.get("n")
    return f"{phase} of {total}"


def _of_the_start(events: Iterable[Event]) -> Iterator[Event]:
    for event in events:
        yield event
        if event.kind == _LAST:
            return


@pytest.mark.parametrize("case", _CASES.values(), ids=_CASES)
def test_a_start_tells_what_the_real_one_told(
    case: Case, shared: Path, tmp_path: Path
) -> None:
    data = (shared / "corpus" / case.log).read_bytes()
    if case.log.endswith(".gz"):
        data = gzip.decompress(data)
    arguments = list(case.arguments)
    if "serve" in arguments:
        config = tmp_path / "config.json"
        config.write_text(json.dumps(_SMALL_CONFIG), encoding="utf-8")
        arguments += ["--config", str(config)]
    started = start(*arguments, **case.env)
    assert started.engine is not None
    real = _streams(events_of(data), case)
    simulated = _streams(events_of(started.output), case)
    assert simulated.keys() == real.keys()
    for process, told in real.items():
        said = simulated[process]
        assert (said[: len(told)] if case.ends_early else said) == told, process


def test_every_difference_that_is_told_is_one(shared: Path) -> None:
    """A reason that explains nothing any more has to go."""
    case = _CASES["vision on gaudi3"]
    data = gzip.decompress((shared / "corpus" / case.log).read_bytes())
    real, simulated = (
        events_of(data),
        events_of(start(*case.arguments, **case.env).output),
    )
    strict = Case(case.log, case.arguments, case.env)
    for differing in case.differs:
        kind = differing.split()[0]
        pair = [
            [e for stream in _streams(events, strict).values() for e in stream]
            for events in (real, simulated)
        ]
        assert len({str([e for e in told if e[0] == kind]) for told in pair}) == 2


@pytest.fixture(scope="module")
def catalogue(shared: Path) -> Catalogue:
    return Catalogue(shared / "reference")


_UNLISTED = {
    *("simulated", "weight_format", "no_plugins", "supported_tasks", "ipc_path"),
    *("arguments", "architecture", "max_model_len", "chunked_prefill", "asynchronous"),
    *("banner", "unknown_variable", "plugins", "plugin", "plugin_loading"),
    *("plugin_active", "triton", "world", "rank", "threads", "block_size"),
    *("no_quantisation", "bridge_end"),
}
"""Lines that the catalogue leaves out: test_sim_lines finds them in real logs."""

_VAGUE = "HABANA PT BRIDGE CONFIGURATION"
"""The catalogue tells no release of it, and a real log of the older ones has it."""


@pytest.mark.parametrize("release", releases())
def test_each_line_of_a_start_is_one_of_the_release_in_its_place(
    release: str, catalogue: Catalogue
) -> None:
    """Every line as it is written: text, level, file and stream."""
    env = _DEVELOPER | {
        "VLLM_CONTIGUOUS_PA": "true",
        "VLLM_DEFRAG": "1",
        "VLLM_EXPONENTIAL_BUCKETING": "0",
    }
    arguments = ("--model", "qwen3-vl-32b", *_SHORT, "--max-num-seqs", "2")
    started = start("--release", release, *arguments, **env)
    assert started.engine is not None
    script = load_script(release)
    points = points_of(script.version)
    headers = (script.style.header, "uvicorn", "none")
    wrong, walked = [], 0
    for stream, text in started.streams.items():
        for line in re.split(r"[\r\n]+", re.sub(r"\x1b\[[\d;]*m", "", text)):
            message, header, level, file = catalogue.placed(line, *headers)
            place = {"stream": stream, "level": level, "file": file}
            if not message.strip() or _VAGUE in message:
                continue
            if catalogue.kinds(message, points, header=header, **place):
                walked += 1
            elif (
                catalogue.kinds(message, header=header)
                or not _names(script, message) & _UNLISTED
            ):
                wrong.append((stream, line))
    assert not wrong
    assert walked > 60


def _names(script: Script, message: str) -> set[str]:
    """Return the names of the lines of which a message may be one, or a part."""
    return {
        name
        for name, template in script.said.items()
        for text in template.text.split("\n")
        if shape_of(text).fullmatch(message)
    }
