"""The document ``report/1`` and what is drawn from it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hpuwatch.advise.document import Headline, LeftPart, Report
from hpuwatch.advise.render.settings import (
    render_compose,
    render_diff,
    render_docker,
    render_env,
    render_helm,
)
from hpuwatch.advise.render.share import masked, without_site
from hpuwatch.advise.render.text import render_markdown, render_text
from hpuwatch.advise.render.words import SIMULATED
from hpuwatch.advise.report import build_report, model_name
from hpuwatch.app.catalogue import shipped_findings
from hpuwatch.testing.logs import state_of_text
from hpuwatch.units import GIB, format_bytes

pytestmark = pytest.mark.unit

SAMPLE, LOADED, DEAD = (
    "llama8b-gaudi2.log",
    "llama70b-tp2-load.log",
    "warmup-out-of-memory.log",
)
GOLDEN = (SAMPLE, LOADED, DEAD)
SIMULATION = "hpuwatch sim: this server is simulated, none of its figures was measured on a Gaudi\n"


def golden(checkout: Path, name: str) -> str:
    return (checkout / "tests/data/logs" / name).read_text(encoding="utf-8")


def report(*logs: tuple[str, str]) -> Report:
    return build_report(
        [(file, state_of_text(text)) for file, text in logs], shipped_findings()
    )


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
        "block_size_from": "assumed",
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
    assert idle["name"] == "reserve-idle"
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
        "preemptions_printed": True,
        "prompt_tokens_per_second_peak": 4100.0,
        "generation_tokens_per_second_peak": 1200.0,
        "shown": True,
    }
    codes = [each["name"] for each in only["findings"]]
    # The sample's lists were cut by hand, and no configuration makes them.
    assert codes == [
        "reserve-idle",
        "kv-tight",
        "bucket-miss",
        "buckets-differ",
        "buckets-open",
        "padding-wide",
    ]
    assert only["proposal"]["expected"]["kv_blocks_won"] > 0
    assert only["proposal"]["margin"]["activation_allowance_bytes"] == 9 * GIB


def test_a_warm_up_that_died_of_memory(checkout: Path) -> None:
    only = document(report(("s.log", golden(checkout, DEAD))))
    assert only["findings"][0]["name"] == "warmup-oom"
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
    assert only["source"] == {"file": "s.log", "start": 2, "broken_events": 0}
    (earlier,) = only["earlier"]
    assert earlier["source"]["start"] == 1
    assert earlier["findings"][0]["name"] == "warmup-oom"
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
        for figure in start.memory.printed:
            assert f"| {format_bytes(getattr(start.memory, figure))} |" in markdown


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
        ("~/models/x and ./run", "<path> and <path>"),
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


def log(name: str, value: str, *, lines: str = "") -> str:
    """A start with one user flag, up to the end of its warm-up."""
    at = "INFO 01-02 03:04:05 [x.py:1]"
    return (
        f"{at} Initializing a V1 LLM engine (v0.26.0) with config: model='m', "
        "max_seq_len=2048, tensor_parallel_size=1, device_config=hpu\n"
        f"{at} User flags:\n{at}     {name}: {value}\n{lines}"
        "INFO:     Application startup complete.\n"
    )


def test_a_long_line_is_cut_for_people_and_whole_for_scripts() -> None:
    listed = ", ".join(f"({batch}, 1, 4096)" for batch in range(1, 80))
    at = "INFO 01-02 03:04:05 [x.py:1]"
    lines = (
        f"{at} Generated 79 decode buckets [bs, query, num_blocks]: [{listed}]\n"
        f"{at} Usable num_blocks: 500, actual allocated num_blocks: 9 "
        "(_PAD_BLOCK_ID=0, _PAD_SLOT_ID=-1)\n"
    )
    made = report(("s.log", log("VLLM_X", "1", lines=lines)))
    (finding,) = (f for f in made.reports[0].findings if f.name == "buckets-above-kv")
    whole = next(line.text for line in finding.evidence if "Generated" in line.text)
    assert f"[{listed}]" in whole
    for text in (render_text(made), render_markdown(made)):
        assert whole not in text
        assert whole[:300] in text
        assert f"… ({len(whole) - 300:,} more characters)" in text


def test_a_masked_path_stays_visible_in_markdown(checkout: Path) -> None:
    made = without_site(report(("s.log", golden(checkout, DEAD))))
    prose = re.sub(r"```.*?```", "", render_markdown(made), flags=re.DOTALL)
    assert "## log1: &lt;path&gt;, on gaudi2" in prose
    assert "<" not in prose


MARKED = "a</script><img src=x onerror=alert(1)>[x](http://y)|`b`*c*"


def test_what_a_log_says_is_no_markup_in_markdown(checkout: Path) -> None:
    """A renderer of CommonMark finds text in it, and no tag, link, cell or emphasis."""
    made = report(("s.log", golden(checkout, DEAD)))
    (start,) = made.reports
    (finding, *_) = start.findings
    quoted = finding.evidence[0].model_copy(update={"text": f"``` {MARKED}"})
    evil = start.model_copy(
        update={
            "headline": Headline(do=MARKED, why=MARKED),
            "server": start.server.model_copy(update={"model": MARKED}),
            "findings": [
                finding.model_copy(
                    update={"title": MARKED, "why": MARKED, "evidence": [quoted]}
                )
            ],
            "left": [LeftPart(name=MARKED, why=MARKED)],
            "not_established": [MARKED],
        }
    )
    text = render_markdown(Report(reports=[evil]))
    (block,) = re.findall(r"^````text$.*?^````$", text, re.DOTALL | re.MULTILINE)
    assert MARKED in block
    rest = text.replace(block, "").replace(f"`` {MARKED} ``", "")
    assert MARKED not in rest
    safe = (
        r"a&lt;/script&gt;&lt;img src=x onerror=alert(1)&gt;\[x\](http://y)\|\`b\`\*c\*"
    )
    assert rest.count(safe) == 7


@pytest.mark.parametrize(
    "name", ["a\ntouch PWNED #.log", "\x1b]0;x\x07.log", "a\u2028b"]
)
def test_a_file_s_name_is_one_line_of_plain_text(checkout: Path, name: str) -> None:
    """Whatever a file is called, no shell and no terminal obeys it."""
    made = report((name, golden(checkout, SAMPLE)))
    renders = (render_text, render_markdown, render_env, render_docker)
    for render in (*renders, render_compose, render_helm, render_diff):
        said = render(made)
        assert name not in said
        assert not re.search(r"^touch", said, re.MULTILINE)
        assert said.replace("\n", "").isprintable()
    settings = [each for each in render_env(made).splitlines() if each[:1] != "#"]
    assert settings == ["VLLM_GRAPH_RESERVED_MEM=0.051"]


def test_piped_input_is_called_standard_input(checkout: Path) -> None:
    made = report(("-", golden(checkout, SAMPLE)))
    for text in (render_text(made), render_markdown(made), render_env(made)):
        assert "standard input" in text
        assert not re.search(r"^[# ]*-:", text, flags=re.MULTILINE)
    assert "standard input:11: " in render_text(made)
    assert document(made)["source"]["file"] == "-"
    assert document(made)["findings"][0]["evidence"][0]["file"] == "-"


def test_the_bridge_mode_is_no_riddle(checkout: Path) -> None:
    made = report(("s.log", golden(checkout, LOADED)))
    assert "torch.compile (PT_HPU_LAZY_MODE=0)" in render_text(made)
    assert "eager" not in render_text(made)
    assert document(made)["server"]["bridge_mode"] == "eager"


def test_amounts_have_four_digits_and_the_document_the_logs_own(
    checkout: Path,
) -> None:
    made = report(("s.log", golden(checkout, LOADED)))
    assert document(made)["memory"]["printed"]["weights"] == "34.2500 GiB"
    ledger = render_text(made).partition("Findings")[0]
    assert "34.25 GiB" in ledger
    assert "34.2500" not in ledger
    assert "1024 MiB" not in ledger


def test_what_stays_is_told_in_two_lines(checkout: Path) -> None:
    made = report(("s.log", golden(checkout, SAMPLE)))
    reserve, activations = document(made)["proposal"]["kept"]
    assert reserve == (
        "The reserve keeps 3.636 GiB: 92.77 MiB for graphs + 3.546 GiB spare."
    )
    assert activations == (
        "11.5 GiB stay free for the work of real requests: 3.5 GiB of the reserve, and "
        "7.9 GiB that --gpu-memory-utilization leaves. At least 7.9 GiB should (10 % of "
        "the free memory); nobody has measured what they need."
    )
    assert f"  {reserve}\n  {activations}\n" in render_text(made)


def test_the_step_s_own_gain_its_price_and_the_way_back_come_first(
    checkout: Path,
) -> None:
    made = report(("s.log", golden(checkout, SAMPLE)))
    do = document(made)["headline"]["do"]
    assert do.startswith(
        "Set VLLM_GRAPH_RESERVED_MEM=0.051 (now 0.1): room for 5.4 % more tokens at once. "
        "Worth a restart only if the KV cache fills up (vllm:gpu_cache_usage_perc near 1"
    )
    for text in (render_text(made), render_markdown(made)):
        price = text.index("- One restart, no answers meanwhile: ready again after")
        back = text.index("- To go back: VLLM_GRAPH_RESERVED_MEM=0.1.")
        assert price < back < text.index("about 450 KV blocks, 11 % more")
    full = document(report(("s.log", golden(checkout, LOADED))))["headline"]["do"]
    assert "more tokens at once. Then run normal traffic" in full
    dead = report(("s.log", golden(checkout, DEAD)))
    assert document(dead)["headline"]["do"].endswith(", then start again.")
    assert "To go back" not in render_text(dead)


def test_an_unfinished_warm_up_counts_its_phases(checkout: Path) -> None:
    made = report(("s.log", golden(checkout, DEAD)))
    assert document(made)["warmup"]["phase_done"] == {"prompt": 2}
    assert "not finished (2 prompt done)" in render_text(made)


def test_a_text_ends_with_where_its_words_are_explained(checkout: Path) -> None:
    made = report(("s.log", golden(checkout, SAMPLE)))
    assert render_text(made).splitlines()[-1].endswith("hpuwatch explain WORD")


STATS = (
    "INFO 01-02 03:04:05 [loggers.py:1] Engine 000: Avg prompt throughput: 9.0 tokens/s, "
    "Avg generation throughput: 1250.0 tokens/s, Running: {running} reqs, Waiting: 0 "
    "reqs,{preemptions} GPU KV cache usage: 0.0%, Prefix cache hit rate: 0.0%\n"
)


@pytest.mark.parametrize(
    ("running", "preemptions", "said"),
    [
        (
            0,
            "",
            (
                "Load: a few short requests only; at most KV use 0 %, 1,250 generated "
                "tokens/s; no preemptions reported"
            ),
        ),
        (
            3,
            " Preemptions: 0,",
            "Load: at most 3 running, KV use 0 %, 1,250 generated tokens/s; 0 preemptions",
        ),
    ],
)
def test_load_is_told_as_far_as_the_log_shows_it(
    running: int, preemptions: str, said: str
) -> None:
    lines = STATS.format(running=running, preemptions=preemptions) * 4
    assert said in render_text(report(("s.log", log("VLLM_X", "1") + lines)))


def test_a_warm_up_that_never_began_was_not_reached() -> None:
    at = "INFO 01-02 03:04:05 [x.py:1]"
    text = f"{at} Loading model weights took 14.5000 GB\n"
    said = render_text(report(("s.log", log("VLLM_X", "1").split("INFO: ")[0] + text)))
    assert "Warm-up: not reached" in said


ECHO = "VLLM_PROMPT_SEQ_BUCKET_MIN=256 (default:{})\n"
RANGES = (
    "Prompt bucket config (min, step, max_warmup, limit) bs:[1, 2, 4, 3], "
    "query:[{}, 128, 2048, 11], blocks:[0, 1, 15, 5]\n"
)


@pytest.mark.parametrize(
    ("line", "size", "known"),
    [
        (ECHO.format(64), 64, "derived"),
        (RANGES.format(256), 256, "derived"),
        (RANGES.format(1), 128, "assumed"),
        ("", 128, "assumed"),
    ],
)
def test_the_block_size_says_how_it_is_known(line: str, size: int, known: str) -> None:
    at = "INFO 01-02 03:04:05 [x.py:1]"
    lines = (
        f"{at} {line}{at} Usable num_blocks: 500, actual allocated num_blocks: 9 "
        "(_PAD_BLOCK_ID=0, _PAD_SLOT_ID=-1)\n"
    )
    made = report(("s.log", log("VLLM_X", "1", lines=lines)))
    kv = document(made)["kv"]
    assert (kv["block_size"], kv["block_size_from"]) == (size, known)
    assert kv["block_size_assumed"] is (known == "assumed")
    assert f"of {size} tokens ({known}" in render_text(made)
