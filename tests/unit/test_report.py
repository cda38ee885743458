"""The document ``report/1`` and what is drawn from it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hpuwatch.advise.document import Report
from hpuwatch.advise.report import build_report, model_name
from hpuwatch.advise.share import masked, without_site
from hpuwatch.advise.text import SIMULATED, render_env, render_markdown, render_text
from hpuwatch.testing.logs import state_of_text
from hpuwatch.units import GIB

pytestmark = pytest.mark.unit

SAMPLE, LOADED, DEAD = (
    "llama8b-gaudi2.log",
    "llama70b-tp2-load.log",
    "warmup-out-of-memory.log",
)
GOLDEN = (SAMPLE, LOADED, DEAD)
SIMULATION = "hpuwatch sim: this server is simulated, none of its figures was measured on a Gaudi\n"


def golden(checkout: Path, name: str) -> str:
    return (checkout / "tests/data/golden" / name).read_text(encoding="utf-8")


def report(*logs: tuple[str, str]) -> Report:
    return build_report([(file, state_of_text(text)) for file, text in logs])


def document(of: Report) -> dict[str, Any]:
    """The only report, as a script reads it."""
    whole = json.loads(of.model_dump_json(by_alias=True))
    assert whole["schema"] == "hpuwatch.report/1"
    (only,) = whole["reports"]
    assert isinstance(only, dict)
    return only


def test_the_public_sample(checkout: Path) -> None:
    """Idle 7.0 GiB, about 450 blocks or 11 %; the first step takes at most half."""
    only = document(report(("s.log", golden(checkout, SAMPLE))))
    memory = only["memory"]
    assert memory["free"] == round(79.22 * GIB)
    assert memory["printed"]["usable"] == "71.3 GiB"
    assert memory["printed"]["reserve"] == "7.13 GiB"
    assert memory["printed"]["kv_cache"] == "64.17 GiB"
    assert only["kv"] == {
        "blocks": 4107,
        "tokens": 4107 * 128,
        "block_size": 128,
        "block_size_assumed": True,
        "cpu_blocks": 256,
        "max_concurrency": None,
    }
    assert only["graphs"]["printed"] == {
        "prompt_used_bytes": "67.72 MiB",
        "decode_used_bytes": "64 KiB",
    }
    assert only["warmup"]["seconds"] == 32
    assert only["warmup"]["finished"]
    assert only["server"]["card"] == "gaudi2"
    (idle,) = only["findings"]
    assert idle["code"] == "reserve-idle"
    assert round(idle["numbers"]["idle_bytes"] / GIB, 1) == 7.0
    assert idle["numbers"]["idle_kv_blocks"] == 450
    assert round(idle["numbers"]["idle_kv_blocks_percent"]) == 11
    proposal = only["proposal"]
    assert proposal["env"] == {"VLLM_GRAPH_RESERVED_MEM": "0.051"}
    assert proposal["proven"] is False
    assert proposal["expected"]["kv_blocks_won"] <= 225
    text = render_text(report(("s.log", golden(checkout, SAMPLE))))
    assert "7.0 GiB of the 7.13 GiB graph reserve lie idle" in text
    assert "about 450 KV blocks, 11 % more" in text
    assert "not proven under load" in text
    assert "This step wins 223 KV blocks (5.4 %), 28,544 tokens" in text
    assert "s.log:11:" in text


def test_a_loaded_server_on_two_cards(checkout: Path) -> None:
    only = document(report(("s.log", golden(checkout, LOADED))))
    assert only["server"]["release"] == "plugin-0.26"
    assert only["server"]["tp"] == 2
    assert only["memory"]["rank"] == 1
    assert only["memory"]["ranks"] == 2
    assert only["traffic"] == {
        "busy_lines": 4,
        "kv_use_peak_percent": 99.1,
        "running_peak": 60,
        "waiting_peak": 12,
        "preemptions": 4,
        "shown": True,
    }
    codes = [each["code"] for each in only["findings"]]
    assert codes == ["reserve-idle", "kv-tight", "bucket-miss"]
    assert only["proposal"]["expected"]["kv_blocks_won"] > 0
    assert only["proposal"]["margin"]["activation_allowance_bytes"] == 9 * GIB


def test_a_warm_up_that_died_of_memory(checkout: Path) -> None:
    only = document(report(("s.log", golden(checkout, DEAD))))
    assert only["findings"][0]["code"] == "warmup-oom"
    root = next(each for each in only["faults"] if each["root"])
    assert root["class"] == "device_oom_devmem"
    assert root["phase"] == "warming"
    assert root["at"] == "prompt bucket 3 of 48"
    assert (only["warmup"]["done"], only["warmup"]["total"]) == (2, 68)
    assert float(only["proposal"]["env"]["VLLM_GRAPH_RESERVED_MEM"]) > 0.05
    assert only["proposal"]["expected"]["kv_blocks_won"] < 0


@pytest.mark.parametrize("name", GOLDEN)
def test_a_report_can_be_read_back(checkout: Path, name: str) -> None:
    made = report((name, golden(checkout, name)))
    assert Report.model_validate_json(made.model_dump_json(by_alias=True)) == made


def test_the_last_start_is_the_subject_and_the_earlier_ones_are_kept(
    checkout: Path,
) -> None:
    both = golden(checkout, DEAD) + golden(checkout, LOADED)
    made = report(("s.log", both))
    only = document(made)
    assert only["source"] == {"file": "s.log", "start": 2}
    (earlier,) = only["earlier"]
    assert earlier["source"]["start"] == 1
    assert earlier["findings"][0]["code"] == "warmup-oom"
    assert "earlier start 1 in this log ended failed: The server died" in (
        render_text(made)
    )


def test_several_logs_give_several_reports(checkout: Path) -> None:
    made = report(*((name, golden(checkout, name)) for name in GOLDEN))
    assert [each.source.file for each in made.reports] == list(GOLDEN)


def test_simulated_figures_are_labelled_everywhere(checkout: Path) -> None:
    made = report(("s.log", SIMULATION + golden(checkout, SAMPLE)))
    assert document(made)["origin"] == "simulated"
    for text in (render_text(made), render_markdown(made), render_env(made)):
        assert SIMULATED in text
    measured = report(("s.log", golden(checkout, SAMPLE)))
    assert document(measured)["origin"] == "measured"
    assert SIMULATED not in render_text(measured)


@pytest.mark.parametrize("name", GOLDEN)
def test_an_env_file_is_settings_and_comments(checkout: Path, name: str) -> None:
    lines = render_env(report((name, golden(checkout, name)))).splitlines()
    settings = [line for line in lines if not line.startswith("# ")]
    assert len(settings) == 1
    assert re.fullmatch(r"VLLM_GRAPH_RESERVED_MEM=0\.\d{2,3}", settings[0])


def test_an_env_file_without_a_proposal_is_nothing_but_comments() -> None:
    said = (
        "INFO 01-02 03:04:05 [c.py:1] Initializing a V1 LLM engine (v0.26.0) with "
        "config: model='m', max_seq_len=1\nINFO:     Application startup complete.\n"
    )
    lines = render_env(report(("s.log", said))).splitlines()
    assert lines
    assert all(line.startswith("# ") for line in lines)


@pytest.mark.parametrize("name", GOLDEN)
def test_text_is_shortened_only_to_a_width(checkout: Path, name: str) -> None:
    made = report((name, golden(checkout, name)))
    whole = render_text(made)
    assert "…" not in whole
    for start in made.reports:
        for finding in start.findings:
            assert all(line.text in whole for line in finding.evidence)
    short = render_text(made, width=100)
    quoted = [line for line in short.splitlines() if line.startswith(f"      {name}:")]
    assert quoted
    assert all(len(line) <= 100 for line in quoted)


@pytest.mark.parametrize("name", GOLDEN)
def test_markdown_has_everything_that_the_text_has(checkout: Path, name: str) -> None:
    made = report((name, golden(checkout, name)))
    markdown = render_markdown(made)
    for start in made.reports:
        assert start.headline.do in markdown
        for finding in start.findings:
            assert f"`{finding.code}`" in markdown
        for printed in start.memory.printed.values():
            assert f"| {printed} |" in markdown


def test_sharing_masks_the_site_and_keeps_the_figures(checkout: Path) -> None:
    text = golden(checkout, DEAD).replace(
        "core.py:1330] RuntimeError",
        "core.py:1330] "
        "RuntimeError: host node7.lab.internal at 10.1.2.3:8000 via http://gw:9/x",
    )
    made = report(("/logs/node7.log", text))
    shared = without_site(made)
    whole = shared.model_dump_json(by_alias=True)
    for secret in ("node7", "10.1.2.3", "http://gw", "/srv/models", "/logs"):
        assert secret not in whole
    assert shared.reports[0].source.file == "log1"
    assert shared.reports[0].memory == made.reports[0].memory
    assert shared.reports[0].proposal == made.reports[0].proposal


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("took 15 GiB (15.05 GiB/94.62 GiB used)", None),
        ("at 12.5 tokens/s, 3.00s/item", None),
        ("02-09 19:44:52 [v1/engine/core.py:96] size::268435456", None),
        ("meta-llama/Llama-3.1-8B and 0.9.0.1+Gaudi-1.22.0", None),
        ('File "/opt/vllm/x.py", line 3', 'File "<path>", line 3'),
        ("tcp://10.0.0.1:59559 backend=hccl", "<url> backend=hccl"),
        ("host='10.2.3.4', port=80", "host='<address>', port=80"),
        ("[fe80:0:0:0:1:2:3:4]:80 asked", "<address>:80 asked"),
        ("on gaudi-7.lab.internal now", "on <host> now"),
        ("~/models/x and ./run", "<path> and ./run"),
    ],
)
def test_what_is_masked(text: str, shown: str | None) -> None:
    assert masked(text) == (text if shown is None else shown)


@given(st.text(alphabet="ab./:0-9 ~[]", max_size=40))
@example("/.:::")
def test_masking_twice_changes_nothing(text: str) -> None:
    assert masked(masked(text)) == masked(text)


def test_a_model_in_the_hubs_cache_is_called_by_its_name() -> None:
    folder = "/cache/hub/models--org--Some-Model-FP8/snapshots/4bf2/"
    assert model_name(folder) == "org/Some-Model-FP8"
    assert model_name("org/m") == "org/m"
