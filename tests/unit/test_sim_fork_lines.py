"""What the simulated fork says is what the catalogue's fork of that release says."""

from __future__ import annotations

import gzip
import re
import string
from pathlib import Path

import pytest

from hpuwatch.sim.talk.script import Template, load_script, releases
from tests.catalogue import Catalogue, fork_points, shape_of

pytestmark = pytest.mark.unit

_FORKS = [name for name in releases() if name.startswith("fork-")]
_ANY_TEXT = {"trace", "engine_failed"}
"""Lines of a traceback, whose last lines are compared on their own."""

_VAGUE = {"bridge", "uvicorn_running"}
"""The catalogue tells no release of these, and a real log of the older ones has them."""

_ELSEWHERE = {
    "access": "uvicorn's own, seen with other releases",
    "waiting_connections": "uvicorn's own, seen with other releases",
    "request_received": "hpuwatch.parse.mask knows it; the catalogue has no traffic",
    "request_added": "the same",
}
"""Lines that the catalogue leaves out."""

_NOT_IN_CATALOGUE = {
    ("fork-1.21", "arguments"): "the catalogue ends at 1.21.1; vLLM 0.8.5 still has it",
    ("fork-1.18", "no_buckets"): "the catalogue begins with 1.19, whose code is 1.18's",
    ("fork-1.23", "no_buckets"): "nobody has its extension; 1.22's is the nearest",
}
_SAMPLES: dict[str, object] = {
    "added": (1, 960, 1),
    "address": "http://127.0.0.1:8000",
    "arguments": "{'port': 1}",
    "buckets": [(1, 128)],
    "cached": False,
    "client": "127.0.0.1:9",
    "config": "model='m', seed=0",
    "elapsed": "00:01",
    "feature": "--num-scheduler-steps",
    "flag": "VLLM_DECODE_BS_BUCKET_STEP",
    "flags": "+gaudi2 -gaudi3",
    "key": "hw",
    "left": "00:59",
    "method": "GET",
    "methods": "GET",
    "mode": "RECOMPUTE",
    "model": "m",
    "name": "VLLM_DECODE_BS_BUCKET_STEP",
    "path": "/health",
    "phase": "decode",
    "place": "hpu:0",
    "rate": " 1.25it/s",
    "request": "cmpl-9-0",
    "section": "Features",
    "status": "200 OK",
    "text": "",
    "version": "0.9.0",
    "wanted": (1, 772, 1),
}
_AMOUNTS = {"device", "used", "total", "host", "host_used", "host_total", "free"}
_AMOUNTS |= {"usable", "reserve", "cache", "graphs"}
_NUMBERS = {"percent", "seconds", "generation", "kv", "cpu_kv", "times", "gpu", "cpu"}
_NUMBERS |= {"ratio", "utilisation"}
_OF_RANGES = {"over_budget_exp", "over_budget_lin", "merged_prefill", "no_buckets"}
_BY_LINE: dict[str, dict[str, object]] = {
    "graph_budget": {"prompt": "1.5 GiB", "decode": "1.5 GiB"},
    "graphs_multimodal": {"buckets": [1600, 3136]},
    "image_warmup": {"total": 70},
    "loading": {"device": "hpu"},
    "multimodal_buckets": {"buckets": [1600, 3136]},
    "stats": {"prompt": 12.5},
    "warmup_": {"total": 70},
    "graph_": {"total": 70},
    "shards": {"total": 70},
    "bucketing_skipped": {"phase": "prompt"},
    "step_compilation": {
        "metric": [("TotalNumber", 1), ("TotalTime", 7), ("AvgTime", 7.0)],
        "is_prompt": True,
    },
    "step_fallback": {
        "metric": [("TotalNumber", 1), ("FallbackOps", {"aten::multinomial"})],
        "is_prompt": False,
    },
}
"""Samples of fields that have another type in lines whose name begins so."""
_RANGES = {"bs", "seq", "blocks", "old_bs", "new_bs", "old_seq", "new_seq"}


@pytest.fixture(scope="module")
def catalogue(shared: Path) -> Catalogue:
    return Catalogue(shared / "reference")


@pytest.fixture(scope="module")
def real_messages(shared: Path) -> list[str]:
    """Messages of a real server of the fork, without prefix and header."""
    start = re.compile(
        r"^(?:\([^)]*\) )?(?:[A-Z]+ \d\d-\d\d [\d:]+ \S+\] |(?:INFO|WARNING): +)?"
    )
    (file,) = (shared / "corpus").glob("*-fork-0.6.3-*.log.gz")
    text = re.sub(r"\x1b\[[\d;]*m", "", gzip.decompress(file.read_bytes()).decode())
    return sorted({start.sub("", line) for line in text.split("\n")})


def _sample(name: str, field: str) -> object:
    for start, fields in _BY_LINE.items():
        if name.startswith(start) and field in fields:
            return fields[field]
    if field in _RANGES and ("_config" in name or name in _OF_RANGES):
        return [1, 2, 3]
    if field in _AMOUNTS:
        return "79.22 GiB"
    return 12.5 if field in _NUMBERS else _SAMPLES.get(field, 7)


def _rendered(name: str, text: str) -> list[str]:
    fields = [field for _, field, _, _ in string.Formatter().parse(text) if field]
    return text.format(**{field: _sample(name, field) for field in fields}).split("\n")


def _form(template: Template, release: str) -> str:
    if template.form == "header":
        return load_script(release).style.header
    return {"bare": "none"}.get(template.form, template.form)


@pytest.mark.parametrize("release", _FORKS)
def test_every_line_is_one_that_the_release_prints(
    release: str, catalogue: Catalogue, real_messages: list[str]
) -> None:
    script = load_script(release)
    points = fork_points(script.version)
    wrong = []
    for name, template in script.said.items():
        if template.ours or name in _ANY_TEXT | _ELSEWHERE.keys():
            continue
        if (release, name) in _NOT_IN_CATALOGUE:
            continue
        form = _form(template, release)
        place = {"header": form, "stream": template.stream, "level": template.level}
        place["file"] = template.origin.partition(":")[0]
        texts = template.text.split("\n")
        for message, text in zip(_rendered(name, template.text), texts, strict=True):
            if not message or catalogue.kinds(message, points, **place):
                continue
            elsewhere = catalogue.kinds(message, header=form) and name not in _VAGUE
            if elsewhere or not any(map(shape_of(text).fullmatch, real_messages)):
                wrong.append((name, message))
    assert not wrong


@pytest.mark.parametrize("release", _FORKS)
def test_every_exception_is_one_that_the_release_raises(
    release: str, catalogue: Catalogue, shared: Path
) -> None:
    faults = (shared / "reference" / "faults.yaml").read_text(encoding="utf-8")
    known = re.sub(r"\d+", "", faults)
    script = load_script(release)
    points = fork_points(script.version)
    for name, text in script.errors.items():
        if (release, name) in _NOT_IN_CATALOGUE:
            continue
        message = _rendered(name, text)[0]
        assert (
            not message
            or catalogue.kinds(message, points, header="traceback")
            or re.sub(r"\d+", "", message) in known
        ), message


def test_what_the_catalogue_says_of_one_release_is_not_said_of_all(
    catalogue: Catalogue,
) -> None:
    """The test above would let a line of another release pass if this failed."""
    message = "# GPU blocks: 4830, # CPU blocks: 409"
    told = {
        release
        for release in _FORKS
        if catalogue.kinds(
            message, fork_points(load_script(release).version), header="nobracket"
        )
    }
    assert told == {"fork-1.18", "fork-1.19"}


_UNTOLD = {
    "habana_profiler": "no profiler",
    "warmup_misc": "the simulated bridge can do everything",
    "kv_capacity": "1.18 tells it of no server; the catalogue's words are vague",
    "warnings_env": "1.18 tells of no such thing; the catalogue's words are vague",
    "bucket_config": "1.21 loses it",
    "bucket_env_echo": "1.21 loses it",
    "buckets_generated": "1.21 loses it",
    "buckets_omitted": "1.21 loses it, and 1.22 tells it only where nothing is left",
    "bucket_fallback": "1.21 tells it of ranges that end too early, which never happens",
    "graph_budget": "since 1.22 of pooling models only",
}
"""Kinds of lines that real forks print and some or all simulated ones never do."""


def test_only_what_is_named_is_missing(catalogue: Catalogue) -> None:
    missing: set[str] = set()
    for release in _FORKS:
        script = load_script(release)
        points = fork_points(script.version)
        told = {
            kind
            for name, template in script.said.items()
            for message in _rendered(name, template.text)
            for kind in catalogue.kinds(message, header=_form(template, release))
        } | {
            kind
            for name, text in script.errors.items()
            for kind in catalogue.kinds(_rendered(name, text)[0], header="traceback")
        }
        missing |= catalogue.of_release(points) - told
    assert missing == set(_UNTOLD)


@pytest.mark.parametrize(("release", "name"), _NOT_IN_CATALOGUE)
def test_what_is_allowed_to_be_unknown_is_said(release: str, name: str) -> None:
    script = load_script(release)
    assert name in {*script.said, *script.errors}
