"""The simulator's lines are those of the catalogue of real lines, or of real logs."""

from __future__ import annotations

import gzip
import re
import string
from pathlib import Path

import pytest

from hpuwatch.gaudi.releases import release_of
from hpuwatch.sim.talk.script import Template, load_script, releases
from tests.catalogue import Catalogue, covers, plugin_points, shape_of

pytestmark = pytest.mark.unit

_FORMS = {"header": "bracket", "bare": "none", "uvicorn": "uvicorn"}
_PLUGINS = [name for name in releases() if name.startswith("plugin-")]
_ANY_TEXT = {"trace", "trace_engine", "trace_worker", "trace_front"}
"""Lines of a traceback: any text; their last lines are compared on their own."""

_SAMPLES: dict[str, object] = {
    "arguments": {"port": 1},
    "batches": [1, 2],
    "buckets": [(1, 128, 0)],
    "changed": True,
    "config": "model='m', seed=0",
    "phase": "Prompt",
    "rate": " 1.25item/s",
    "added": (1, 960, 1),
    "address": "http://127.0.0.1:8000",
    "architecture": "LlamaForCausalLM",
    "backend": "HPUAttentionV1",
    "bar": "█▎        ",
    "client": "127.0.0.1:9",
    "compact": "1",
    "elapsed": "00:01",
    "file": "linear.py",
    "key": "hw",
    "left": "00:59",
    "method": "GET",
    "methods": "GET",
    "mode": "abort",
    "model": "meta-llama/Llama-3.1-8B-Instruct",
    "name": "VLLM_DECODE_BS_BUCKET_STEP",
    "new_strategy": "lin",
    "path": "/health",
    "section": "Features",
    "signal": "SIGTERM",
    "resolutions": [(864, 480, None)],
    "sliding": True,
    "status": "200 OK",
    "strategy": "exp",
    "thresholds": [8, 16],
    "version": "0.26.0",
    "wanted": (1, 772, 1),
}
_AMOUNTS = {"device", "used", "total", "host", "host_used", "host_total", "free"}
_AMOUNTS |= {"usable", "reserve", "dummy", "cache", "page", "attention", "state"}
_NUMBERS = {"percent", "seconds", "gib", "prompt", "generation", "kv", "times"}
_NUMBERS |= {"needed", "available", "hit_rate", "factor"}
_RANGES = {"bs", "query", "blocks", "old_bs", "old_query", "old_blocks"}
_BY_LINE: dict[str, dict[str, object]] = {
    "graph_compilation": {
        "site": "HPUWorker.execute_model",
        "metric": [("TotalNumber", 1), ("TotalTime", 7), ("AvgTime", 7.0)],
    },
    "bucketing_skipped": {"phase": "prompt"},
    "no_buckets": {"phase": "prompt"},
    "not_warmed": {"phase": "decode"},
    "multimodal_buckets": {"buckets": [196, 256]},
    "seq_for_query": {
        "query": "VLLM_PROMPT_QUERY_BUCKET_MIN",
        "seq": "VLLM_PROMPT_SEQ_BUCKET_MIN",
    },
}


@pytest.fixture(scope="module")
def catalogue(shared: Path) -> Catalogue:
    return Catalogue(shared / "reference")


@pytest.fixture(scope="module")
def real_messages(shared: Path) -> list[str]:
    """Messages of real servers of the plugin, without prefix and header.

    Those that an observer quotes between quotation marks count too.
    """
    start = re.compile(
        r"^(?:\([^)]*\) )?(?:[A-Z]+ \d\d-\d\d [\d:]+ \[[^\]]*\] |(?:INFO|WARNING): +)?"
    )
    folder = shared / "corpus"
    texts = [
        *(f.read_bytes() for f in folder.glob("plugin-on-stand-in/plugin-0.26-*.log")),
        *(gzip.decompress(f.read_bytes()) for f in folder.glob("*-plugin-0.15-*.gz")),
    ]
    lines = {
        re.sub(r"\x1b\[[\d;]*m", "", line).rstrip("\r")
        for text in texts
        for line in text.decode().split("\n")
        if "processing:" not in line
    }
    observed = (shared / "reference" / "real-vllm-lifecycle.md").read_text("utf-8")
    quoted = set(re.findall(r'"([^"\n]+)"', observed))
    return sorted({start.sub("", line) for line in lines} | quoted)


def _sample(field: str) -> object:
    if field in _AMOUNTS:
        return "79.22 GiB"
    return 12.5 if field in _NUMBERS else _SAMPLES.get(field, 7)


def _rendered(name: str, text: str) -> list[str]:
    """Return a line with values, as one message for each physical line."""
    fields = [field for _, field, _, _ in string.Formatter().parse(text) if field]
    values = {field: _sample(field) for field in fields}
    if "config (min, step" in text or name == "merged_prefill":
        values |= {axis: [1, 2, 3] for axis in _RANGES if axis in values}
    if "total" in values and "{total} used" not in text:
        values["total"] = 70
    return text.format(**values | _BY_LINE.get(name, {})).split("\n")


def _wrong(
    name: str, template: Template, catalogue: Catalogue, release: str, real: list[str]
) -> list[str]:
    """Return what of a line the release doesn't print, as far as anybody knows."""
    form = _FORMS[template.form]
    points = plugin_points(load_script(release).version)
    place = {"header": form, "stream": template.stream, "level": template.level}
    (origin,) = _rendered(name, template.origin)
    place["file"] = origin.partition(":")[0]
    wrong = []
    for message, text in zip(
        _rendered(name, template.text), template.text.split("\n"), strict=True
    ):
        if catalogue.kinds(message, points, **place):
            continue
        # A line of another release would be found in the catalogue, but not at this one.
        elsewhere = catalogue.kinds(message, header=form)
        if elsewhere or not any(map(shape_of(text).fullmatch, real)):
            wrong.append(f"{name}: {message!r} {elsewhere}")
    return wrong


@pytest.mark.parametrize("release", _PLUGINS)
def test_every_line_is_one_that_the_release_prints(
    release: str, catalogue: Catalogue, real_messages: list[str]
) -> None:
    wrong = [
        text
        for name, template in load_script(release).said.items()
        if not template.ours and name not in _ANY_TEXT
        for text in _wrong(name, template, catalogue, release, real_messages)
    ]
    assert wrong == []


@pytest.mark.parametrize("release", _PLUGINS)
def test_every_exception_is_one_that_the_release_raises(
    release: str, catalogue: Catalogue, shared: Path
) -> None:
    script = load_script(release)
    points = plugin_points(script.version)
    faults = (shared / "reference" / "faults.yaml").read_text(encoding="utf-8")
    numberless = re.sub(r"\d+", "", faults)
    for name, text in script.errors.items():
        (message,) = _rendered(name, text)
        if not catalogue.kinds(message, points, header="traceback"):
            assert not catalogue.kinds(message, header="traceback"), message
            assert re.sub(r"\d+", "", message) in numberless, message


def test_a_line_of_another_release_is_noticed(
    catalogue: Catalogue, real_messages: list[str]
) -> None:
    older = load_script("plugin-0.19").said["engine_ready"]
    assert _wrong("engine_ready", older, catalogue, "plugin-0.26", real_messages)
    assert not _wrong("engine_ready", older, catalogue, "plugin-0.19", real_messages)


@pytest.mark.parametrize(
    ("where", "first", "last"),
    [
        ("vllm-gaudi 0.11.2~0.27, exponential", "0.11.2", "0.27.0"),
        ("fork V1 v1.21.0~v1.22.2; vllm-gaudi 0.10.0~0.18.1", "0.11.2", "0.17.1"),
        ("vllm-gaudi with core 0.10~0.19", "0.11.2", "0.19.1"),
        ("core 0.21.0~0.26 (vllm-gaudi 0.21+)", "0.21.0", "0.27.0"),
        ("all to core 0.13; fork (all)", "0.11.2", "0.16.0"),
        (
            "enforce_eager (fork v1.17.0~v1.23.0, vllm-gaudi 0.17~0.27)",
            "0.17.1",
            "0.27.0",
        ),
        ("every vllm-gaudi (core 0.10~0.26)", "0.11.2", "0.27.0"),
        ("V1, all releases", "0.11.2", "0.27.0"),
        ("V0, all releases", "", ""),
        ("fork V0 v1.21.2~v1.23.0 (core 0.8+)", "", ""),
        ("ext ≥1.22, vllm-gaudi 0.10.x", "", ""),
    ],
)
def test_the_words_of_the_catalogue_cover_releases(
    where: str, first: str, last: str
) -> None:
    """Where the catalogue's author looked at neither, a release is like its neighbours."""
    versions = [load_script(release).version for release in _PLUGINS]
    written = where.replace("~", "\N{EN DASH}")
    covered = [v for v in sorted(versions) if covers(written, plugin_points(v))]
    assert (covered or [""])[0] == first
    assert (covered or [""])[-1].removesuffix("rc1") == last


@pytest.mark.parametrize("release", _PLUGINS)
def test_a_release_is_spelt_as_everywhere(release: str) -> None:
    assert release_of(release).name == release
    assert release_of(load_script(release).version).name in {release, "plugin-0.27"}


def test_lines_of_our_own_are_few_and_say_so() -> None:
    ours = {name: line for name, line in load_script().said.items() if line.ours}
    assert "simulated" in ours
    for line in ours.values():
        assert "simulated" in line.text


def test_a_file_tells_only_what_differs_from_the_one_that_it_is_like() -> None:
    newer, older = load_script("plugin-0.26"), load_script("plugin-0.11")
    assert older.lines.keys() == newer.lines.keys()
    assert older.lines["stop_triggered"] is None
    assert "stop_triggered" not in older.said
    assert older.said["prompt_buckets"] == newer.said["prompt_buckets"]


_UNTOLD = {
    "buckets_omitted": "filters are gaudi's, which doesn't name what they drop",
    "habana_profiler": "no profiler",
    "sleep_and_model_switch": "no sleep mode, no model switching",
}
"""Kinds of lines that real servers of the plugin print and simulated ones never do."""


def test_only_what_is_named_is_missing(catalogue: Catalogue) -> None:
    script = load_script()
    told = {
        kind
        for name, template in script.said.items()
        for message in _rendered(name, template.text)
        for kind in catalogue.kinds(message, header=_FORMS[template.form])
    } | {
        kind
        for name, text in script.errors.items()
        for kind in catalogue.kinds(_rendered(name, text)[0], header="traceback")
    }
    assert catalogue.of_release(plugin_points(script.version)) - told == set(_UNTOLD)
