"""``suggest`` on logs of real servers, against the answers that people wrote down.

Figures agree within print rounding: four significant digits where a log prints them so.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

import pytest
import yaml

from hpuwatch.advise.report import build_report
from hpuwatch.app.catalogue import shipped_findings
from hpuwatch.app.report import report_of, state_of
from hpuwatch.app.rules import shipped_rules
from hpuwatch.errors import InputError
from hpuwatch.life.phases import Phase
from hpuwatch.state.model import Kv, Progress, Warmup
from hpuwatch.state.warmup_left import estimate_left
from hpuwatch.testing.logs import state_of_text
from hpuwatch.units import GIB, MIB

TRAFFIC = "gaudi3-qwen3vl32b-plugin-0.15-start-and-traffic.log.gz"
DIES = "gaudi3-qwen3vl32b-plugin-0.15-dies-in-warmup.log.gz"
FORK = "gaudi2-llama70b-tp4-fork-0.6.3-skip-warmup.log.gz"

Read = Callable[[Mapping[str, Any]], object]


def inside(*path: str) -> Read:
    """Return a reader of one place in the document."""

    def read(report: Mapping[str, Any]) -> object:
        value: Any = report
        for name in path:
            value = value[name]
        return value

    return read


def memory(name: str, unit: int = GIB) -> Read:
    return lambda report: report["memory"][name] / unit


FIGURES: dict[str, Read] = {
    "weights_gib": memory("weights"),
    "weights_gib_per_card": memory("weights"),
    "profile_run_gib": memory("profile_run"),
    "profile_secs": inside("memory", "profile_seconds"),
    "free_gib": memory("free"),
    "usable_gib": memory("usable"),
    "util": inside("memory", "utilisation"),
    "graph_reserved_gib": memory("reserve"),
    "reserved_frac": inside("memory", "reserve_ratio"),
    "dummy_block_mib": memory("dummy_block", MIB),
    "kv_gib": memory("kv_cache"),
    "kv_blocks": inside("kv", "blocks"),
    "kv_tokens": inside("kv", "tokens"),
    "cpu_blocks": inside("kv", "cpu_blocks"),
    "block_size": inside("kv", "block_size"),
    "prompt_buckets": inside("buckets", "prompt"),
    "decode_buckets": inside("buckets", "decode"),
    "multimodal_steps": inside("buckets", "multimodal"),
    "sampler_warmup_s": inside("warmup", "sampler_seconds"),
    "defrag_warmup_s": inside("warmup", "defragmenter_seconds"),
    "prompt_graph_used_gib": lambda report: report["graphs"]["prompt_used_bytes"] / GIB,
    "decode_graph_used_gib": lambda report: report["graphs"]["decode_used_bytes"] / GIB,
    "warmup_secs": inside("warmup", "seconds"),
    "warmup_skipped": inside("warmup", "skipped"),
    "init_engine_secs": inside("warmup", "init_seconds"),
    "prompt_phase_s": inside("warmup", "phase_seconds", "prompt"),
    "decode_phase_s": inside("warmup", "phase_seconds", "decode"),
    "max_concurrency": lambda report: (
        f"{report['kv']['max_concurrency']}x @{report['server']['max_model_len']}"
    ),
}
IN_WORDS = {"finding", "cause"}
"""Answers that are sentences; tests of their own compare them."""


def reported(shared: Path, name: str) -> dict[str, Any]:
    whole = report_of([str(shared / "corpus" / name)]).model_dump_json(by_alias=True)
    (only,) = json.loads(whole)["reports"]
    assert isinstance(only, dict)
    return only


def answers(shared: Path, name: str) -> dict[str, Any]:
    text = (shared / "corpus" / "answers.yaml").read_text(encoding="utf-8")
    entry = next(each for each in yaml.safe_load(text) if each["file"] == name)
    return dict(entry)


@pytest.mark.parametrize("name", [TRAFFIC, DIES, FORK])
def test_every_figure_of_the_answers(shared: Path, name: str) -> None:
    report, entry = reported(shared, name), answers(shared, name)
    wrong = {}
    for figure, right in entry["answers"].items():
        if figure in IN_WORDS:
            continue
        said = FIGURES[figure](report)
        if said != (
            right if isinstance(right, str) else pytest.approx(right, rel=5e-4)
        ):
            wrong[figure] = (said, right)
    assert not wrong
    assert report["server"]["card"] == entry["device"]
    assert report["server"]["tp"] == entry["cards_tp"]
    assert entry["model"] in report["server"]["model"]
    version = re.match(r"[\d.]+\d(?:rc\d)?", report["server"]["version"])
    assert version is not None
    assert version[0] in entry["version"]
    assert report["origin"] == "measured"
    assert report["earlier"] == []


def test_an_idle_reserve_that_nobody_needs_is_information_not_advice(
    shared: Path,
) -> None:
    report = reported(shared, TRAFFIC)
    right = answers(shared, TRAFFIC)["answers"]["finding"]
    by_name = {each["name"]: each for each in report["findings"]}
    idle = by_name["reserve-idle"]
    assert {
        by_name[name]["severity"] for name in ("reserve-idle", "buckets-differ")
    } == {"info"}
    assert report["proposal"] is None
    used, reserve, free, peak = re.findall(r"\d+\.\d+", right)[:4]
    assert report["graphs"]["printed"]["prompt_used_bytes"] == f"{used} GiB"
    assert report["memory"]["printed"]["reserve"] == f"{reserve} GiB"
    assert f"{free} GiB" in idle["title"]
    assert idle["numbers"]["kv_use_peak_percent"] == float(peak)
    assert idle["numbers"]["preemptions"] == 0
    assert report["headline"]["do"].startswith("Change nothing")
    texts = [line["text"] for line in idle["evidence"]]
    assert any(f"{reserve} GiB reserved for HPUGraphs" in text for text in texts)
    assert any(f"{peak}%" in text for text in texts)
    # The profile run's own shape came before there was any traffic.
    assert "bucket-miss" not in {each["name"] for each in report["findings"]}


def test_the_buckets_of_a_real_server_have_holes_and_some_nobody_finds(
    shared: Path,
) -> None:
    by_name = {each["name"]: each for each in reported(shared, TRAFFIC)["findings"]}
    holes = by_name["buckets-open"]
    assert holes["severity"] == "info"
    assert holes["numbers"]["prompt_open_from_tokens"] == 20_481
    assert holes["numbers"]["prompt_open_to_tokens"] == 32_768
    assert holes["numbers"]["decode_open_from_requests"] == 65
    # Contiguous attention turns prefix caching off: no prompt has context there.
    never = by_name["buckets-unreachable"]
    assert never["figures"]["unreachable_buckets"]["value"] == 32
    assert never["confidence"] == "predicted"
    assert "memory-unexplained" not in by_name


def test_memory_that_no_line_of_a_real_log_explains(shared: Path) -> None:
    report = reported(shared, DIES)
    seen = next(x for x in report["findings"] if x["name"] == "memory-unexplained")
    assert seen["severity"] == "info"
    assert seen["cure"] == ""
    full = seen["figures"]["unexplained_bytes"]
    assert 2.6 < full["low"] / 2**30 < full["high"] / 2**30 < 2.9
    # Another start of the same model died of a code bug: no word of a reserve.
    assert not {"warmup-short", "reserve-short"} & {
        x["name"] for x in report["findings"]
    }


def test_a_code_bug_in_warm_up_is_no_matter_of_memory(shared: Path) -> None:
    report = reported(shared, DIES)
    right = answers(shared, DIES)["answers"]["cause"]
    gravest = report["findings"][0]
    assert (gravest["name"], gravest["severity"]) == ("warmup-failed", "error")
    cause, _, bracket = right.partition(" (")
    assert cause in gravest["title"]
    assert "prompt bucket 1 of 48" in gravest["title"]
    assert bracket.rstrip(")") in gravest["why"]
    assert report["proposal"] is None
    root = [each for each in report["faults"] if each["root"]]
    assert [each["text"] for each in root] == [cause]
    assert root[0]["phase"] == "warming"


def test_a_skipped_warm_up_is_told_and_proves_nothing_of_the_reserve(
    shared: Path,
) -> None:
    report = reported(shared, FORK)
    skipped, reachable = report["findings"]
    assert (skipped["name"], reachable["name"]) == ("warmup-skipped", "open-to-all")
    assert "host='0.0.0.0'" in reachable["evidence"][0]["text"]
    assert report["proposal"]["unset"] == ["VLLM_SKIP_WARMUP"]
    assert report["proposal"]["env"] == {}
    assert report["memory"]["ranks"] == 4
    assert report["memory"]["rank"] == 0
    assert report["server"]["assumed_like"]


@pytest.mark.parametrize(
    "name",
    [
        "plugin-0.26-developer-mode.log",
        "plugin-0.26-exponential.log",
        "plugin-0.26-tp2.log",
    ],
)
def test_the_real_plugin_on_a_stand_in_is_one_life_without_a_grave_finding(
    shared: Path, name: str
) -> None:
    report = reported(shared, f"plugin-on-stand-in/{name}")
    assert report["server"]["release"] == "plugin-0.26"
    assert report["server"]["phase"] == "stopped"
    assert report["earlier"] == []
    assert report["warmup"]["finished"]
    assert report["warmup"]["done"] == report["warmup"]["total"]
    assert not [each for each in report["findings"] if each["severity"] == "error"]


def test_two_real_lives_in_one_log_are_two_starts(shared: Path) -> None:
    texts = [
        gzip.decompress((shared / "corpus" / name).read_bytes()).decode(
            errors="replace"
        )
        for name in (DIES, TRAFFIC)
    ]
    (whole,) = build_report(
        [("both", state_of_text("".join(texts)))], shipped_findings()
    ).reports
    (earlier,) = whole.earlier
    assert earlier.findings[0].name == "warmup-failed"
    assert whole.source.start == 2
    assert whole.kv.blocks == 1189
    assert not whole.faults


@pytest.mark.parametrize(
    "name",
    [
        TRAFFIC,
        "plugin-on-stand-in/plugin-0.26-exponential.log",
        "plugin-on-stand-in/plugin-0.26-tp2.log",
    ],
)
def test_the_time_left_would_have_been_told_well(shared: Path, name: str) -> None:
    """Cut every phase at each bucket that was timed: the bounds hold nine of ten."""
    start = state_of(str(shared / "corpus" / name), shipped_rules()).starts[-1]
    held = asked = 0
    for phase in ("prompt", "decode"):
        points = start.warmup.progress[phase].points
        total = start.warmup.progress[phase].total
        for place in range(4, len(points)):
            done, at = points[place]
            progress = {phase: Progress(done, total, points=points[: place + 1])}
            cut = replace(
                start,
                phase=Phase.WARMING,
                buckets={},
                kv=Kv(),  # without blocks no decode bucket can be foretold
                warmup=Warmup(progress=progress),
            )
            left = estimate_left(cut, at)
            if left.low is None or left.high is None:
                continue
            asked += 1
            held += left.low - 1 <= points[-1][1] - at <= left.high + 1
    assert asked > 10
    assert held / asked >= 0.9


@pytest.mark.parametrize("name", [TRAFFIC, DIES, FORK])
def test_the_head_of_a_log_is_never_called_one_of_cuda(
    shared: Path, tmp_path: Path, name: str
) -> None:
    whole = gzip.decompress((shared / "corpus" / name).read_bytes())
    head = tmp_path / "head.log"
    for size in range(1024, 17 * 1024, 1024):
        head.write_bytes(whole[:size])
        said = ""
        try:
            report_of([str(head)])
        except InputError as error:
            said = str(error)
        assert "CUDA" not in said


def test_a_log_with_a_gap_or_without_its_head_is_not_called_good(
    shared: Path, tmp_path: Path
) -> None:
    whole = gzip.decompress((shared / "corpus" / TRAFFIC).read_bytes())
    for cut in (whole[180_000:], whole[:200_000] + whole[300_000:]):
        log = tmp_path / "cut.log"
        log.write_bytes(cut)
        (only,) = report_of([str(log)]).reports
        assert "log-incomplete" in {finding.name for finding in only.findings}
        assert "from the server's start" in only.headline.do


def found(report: Mapping[str, Any]) -> dict[str, Any]:
    return {each["name"]: each for each in report["findings"]}


def test_a_long_warm_up_is_told_by_what_it_took_and_what_a_cache_would_save(
    shared: Path,
) -> None:
    findings = found(reported(shared, TRAFFIC))
    unset = findings["recipes-unset"]
    assert unset["numbers"]["warmup_seconds"] == 429
    then = unset["figures"]["warmup_seconds_then"]
    assert (then["origin"], unset["confidence"]) == ("prior", "prior")
    assert 0 < then["low"] < then["value"] < then["high"] < 429
    assert unset["evidence"][0]["text"].startswith("PT_HPU_RECIPE_CACHE_CONFIG = ,")
    near = findings["warmup-long"]
    assert near["severity"] == "info"
    # From 19:43:55 of the first line to 19:52:02, when it listens.
    assert near["figures"]["ready_seconds"]["value"] == 487
    assert near["numbers"]["limit_seconds"] == 600
    assert "COMPILE_ONLY" in findings["first-pass"]["evidence"][0]["text"]


def test_every_finding_on_a_real_log_has_evidence(shared: Path) -> None:
    names = [TRAFFIC, DIES, FORK]
    folder = shared / "corpus" / "plugin-on-stand-in"
    names += [f"{folder.name}/{log.name}" for log in sorted(folder.glob("*.log"))]
    for name in names:
        for each in reported(shared, name)["findings"]:
            assert each["evidence"], (name, each["code"])
            assert all(line["line"] > 0 for line in each["evidence"])


def text_of(shared: Path, name: str) -> str:
    whole = gzip.decompress((shared / "corpus" / name).read_bytes())
    return whole.decode(errors="replace")


def test_what_served_before_and_breaks_now_is_told(shared: Path) -> None:
    text = text_of(shared, TRAFFIC) + text_of(shared, DIES)
    (whole,) = build_report([("both", state_of_text(text))], shipped_findings()).reports
    (seen,) = (each for each in whole.findings if each.name == "worked-before")
    assert "KeyError: 0" in seen.title
    assert seen.evidence[0].text.endswith("Application startup complete.")


def test_two_real_servers_in_one_file_are_told(shared: Path) -> None:
    logs = [text_of(shared, name).splitlines(keepends=True) for name in (TRAFFIC, DIES)]
    text = "".join(chain.from_iterable(zip_longest(*logs, fillvalue="")))
    (whole,) = build_report([("both", state_of_text(text))], shipped_findings()).reports
    findings = {each.name: each for each in whole.findings}
    assert "65602" in findings["log-mixed"].title
    assert "91.74 GiB and 82.7 GiB" in findings["log-contradicts"].title
    assert whole.not_established[0].startswith("Whose figures")
    assert "days" not in " ".join(each.why for each in whole.findings)
