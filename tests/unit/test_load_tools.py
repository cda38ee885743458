"""Other load generators: what they are asked for, and what is told when they have changed."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hpuwatch.errors import ResourceError, UsageError
from hpuwatch.load.endpoint import endpoint_of
from hpuwatch.load.guidellm import GuideLlm
from hpuwatch.load.order import Order
from hpuwatch.load.target import Target
from hpuwatch.load.tools import Tool, run_tool
from hpuwatch.load.vllm_bench import VllmBench
from hpuwatch.load.workload import Span

pytestmark = pytest.mark.unit

URL = "http://127.0.0.1:8000"
TARGET = Target(endpoint_of(URL, "secret-key"), "m")
ORDER = Order(URL, concurrency=8, inputs=Span(64, 192), outputs=Span(16, 48), limit=40)

BENCH_FLAGS = (
    "--backend --base-url --endpoint --model --tokenizer --dataset-name --num-prompts"
    " --random-input-len --random-output-len --random-range-ratio --request-rate"
    " --burstiness --max-concurrency --ignore-eos --seed --percentile-metrics"
    " --metric-percentiles --goodput --save-result --save-detailed --result-dir"
    " --result-filename"
)
BENCH_RESULT = {
    "date": "20260101-000000", "backend": "openai", "model_id": "m", "num_prompts": 40,
    "request_rate": "inf", "burstiness": 1.0, "max_concurrency": 8, "duration": 5.0,
    "completed": 39, "total_input_tokens": 5000, "total_output_tokens": 1200,
    "request_throughput": 7.8, "request_goodput": None, "output_throughput": 240.0,
    "total_token_throughput": 1240.0, "mean_ttft_ms": 110.0, "p99_e2el_ms": 167.0,
}  # fmt: skip

# What stands for the tool: it tells its help, or notes its words and writes a result.
STUB = """\
#!{python} -IS
import json, os, sys
words = sys.argv[1:]
if "--help" in words or "--help=all" in words:
    width = int(os.environ.get("COLUMNS", "80"))
    known = " ".join(word[:width] for word in {help}.split(" "))
    if "--help=all" in words and not {lists_all}:
        sys.exit("error: ignored explicit argument 'all'")
    print(known if "--help=all" in words or not {lists_all} else "Config Groups: ...")
    sys.exit(0)
with open({note!r}, "w") as out:
    json.dump([words, os.environ.get("OPENAI_API_KEY")], out)
{then}
sys.exit({code})
"""
BENCH_WRITES = """\
folder = words[words.index("--result-dir") + 1]
name = words[words.index("--result-filename") + 1]
open(os.path.join(folder, name), "w").write({result!r})
"""
GUIDE_WRITES = """\
scenario = json.load(open(words[words.index("--config") + 1]))
open({note!r}, "w").write(json.dumps(scenario))
open(scenario["spec"]["outputs"][0]["path"], "w").write({result!r})
"""


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that holds the tools."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


def install(
    path: Path, name: str, help_text: str, then: str = "", *, code: int = 0, **more: Any
) -> Path:
    note = path.parent / "note.json"
    parts = {
        "help": repr(help_text),
        "note": str(note),
        "code": code,
        "lists_all": True,
    }
    parts |= {"python": sys.executable, "then": then, **more}
    program = path / name
    program.write_text(STUB.format_map(parts))
    program.chmod(0o755)
    return note


def done(tool: Tool, order: Order = ORDER) -> dict[str, Any]:
    return run_tool(tool, TARGET, order, os.environ)


def bench(path: Path, result: Mapping[str, Any] = BENCH_RESULT, **more: Any) -> Path:
    writes = BENCH_WRITES.format(result=json.dumps(result))
    return install(path, "vllm", more.pop("help_text", BENCH_FLAGS), writes, **more)


def value(words: list[str], flag: str) -> str:
    return words[words.index(flag) + 1]


def test_vllm_s_result_is_taken_as_it_is(path: Path) -> None:
    note = bench(path)
    told = done(VllmBench(), replace(ORDER, limits={"ttft": 200.0}))
    assert told == {**BENCH_RESULT, "failed": 1}
    words, key = json.loads(note.read_text())
    assert words[:2] == ["bench", "serve"]
    assert value(words, "--random-input-len") == "128"
    assert value(words, "--random-range-ratio") == "0.5"
    assert value(words, "--request-rate") == "inf"
    assert value(words, "--max-concurrency") == "8"
    assert value(words, "--goodput") == "ttft:200"
    assert key == "secret-key"
    assert "secret-key" not in " ".join(words)


def test_an_older_vllm_is_spoken_to_in_its_own_words(path: Path) -> None:
    older = BENCH_FLAGS.replace("--backend", "--endpoint-type")
    note = bench(path, help_text=older, lists_all=False)
    done(VllmBench(), replace(ORDER, concurrency=None, constant=True, rate=2.5))
    words, _ = json.loads(note.read_text())
    assert value(words, "--endpoint-type") == "openai"
    assert value(words, "--request-rate") == "2.5"
    assert float(value(words, "--burstiness")) > 1000


def test_a_vllm_that_has_changed_says_so_before_anything_is_sent(path: Path) -> None:
    note = bench(path, help_text=BENCH_FLAGS.replace("--request-rate", "--qps"))
    with pytest.raises(ResourceError, match=r"has changed: .*--request-rate.*tool own"):
        done(VllmBench())
    assert not note.exists()


def test_a_result_of_another_form_is_refused(path: Path) -> None:
    bench(path, {"num_prompts": 40, "duration": 1.0, "finished": 3})
    with pytest.raises(ResourceError, match=r"has changed: .*completed"):
        done(VllmBench())


@pytest.mark.parametrize(
    ("key", "value"), [("completed", "39"), ("p99_ttft_ms", []), ("duration", True)]
)
def test_a_figure_that_is_no_number_is_refused(
    path: Path, key: str, value: object
) -> None:
    bench(path, {**BENCH_RESULT, key: value})
    with pytest.raises(ResourceError, match=f"{key} is no number"):
        done(VllmBench())


def test_what_an_older_vllm_misspells_or_can_t_divide_is_mended(path: Path) -> None:
    older = {**BENCH_RESULT, "request_goodput:": 3.0, "mean_ttft_ms": float("nan")}
    del older["request_goodput"]
    bench(path, older)
    told = done(VllmBench())
    assert (told["request_goodput"], told["mean_ttft_ms"]) == (3.0, None)
    assert "request_goodput:" not in told


def test_a_coloured_help_of_a_narrow_terminal_names_its_flags(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "12")
    red = " ".join(f"\x1b[1;31m{flag}\x1b[0m" for flag in BENCH_FLAGS.split())
    bench(path, help_text=red)
    assert done(VllmBench())["completed"] == 39


def test_a_tool_that_fails_or_writes_nothing_is_told(path: Path) -> None:
    bench(path, code=3)
    with pytest.raises(ResourceError, match="ended with code 3"):
        done(VllmBench())
    install(path, "vllm", BENCH_FLAGS)
    with pytest.raises(ResourceError, match="wrote no result"):
        done(VllmBench())


def test_one_ratio_can_t_spread_two_ranges(path: Path) -> None:
    bench(path)
    with pytest.raises(UsageError, match="by one ratio"):
        done(VllmBench(), replace(ORDER, outputs=Span(16, 16)))


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("tool", [VllmBench(), GuideLlm()])
def test_a_tool_that_is_not_there_is_told(tool: Tool) -> None:
    with pytest.raises(ResourceError, match="on the PATH: install it"):
        done(tool)


GUIDE_HELP = """\
Usage: guidellm run [OPTIONS]
  -c, --config, --scenario [file|...]
  --backend kind=[openai_http|vllm_python],...
  --profile kind=[async|constant|poisson|concurrent|sweep],...
  --constraint kind=[max_errors|max_duration|max_requests],...
  --data kind=[text_file|synthetic_text],...
  --seed kind=[static],...
  --output kind=[console|csv|json],...
  --disable-console-interactive, --disable-progress
"""


def distribution(mean: float, **more: float) -> dict[str, Any]:
    percentiles = {f"p{percent}": mean + percent for percent in (50, 90, 95, 99)}
    figures = {"mean": mean, "median": mean + 50, "std_dev": 2.0, **more}
    return {"successful": {**figures, "percentiles": percentiles}}


GUIDE_REPORT = {
    "benchmarks": [
        {
            "duration": 4.0,
            "metrics": {
                "request_totals": {"successful": 38, "errored": 1, "incomplete": 1},
                "request_concurrency": distribution(7.0, max=8.0),
                "prompt_token_count": distribution(128.0, total_sum=4800.0),
                "output_token_count": distribution(32.0, total_sum=1200.0),
                "time_to_first_token_ms": distribution(100.0),
                "time_per_output_token_ms": distribution(9.0),
                "inter_token_latency_ms": distribution(5.0),
                "request_latency": distribution(0.25),
            },
        }
    ]
}


def guide(path: Path, report: object = GUIDE_REPORT, text: str = GUIDE_HELP) -> Path:
    note = path.parent / "note.json"
    writes = GUIDE_WRITES.format(note=str(note), result=json.dumps(report))
    return install(path, "guidellm", text, writes, lists_all=False)


def test_guidellm_s_report_is_told_in_our_fields(path: Path) -> None:
    note = guide(path)
    told = done(GuideLlm(), replace(ORDER, concurrency=None, rate=3.0))
    assert (told["completed"], told["failed"], told["unfinished"]) == (38, 1, 1)
    assert (told["output_throughput"], told["request_throughput"]) == (300.0, 9.5)
    assert (told["mean_ttft_ms"], told["p99_ttft_ms"]) == (100.0, 199.0)
    assert told["mean_tpot_ms"] == 5.0
    assert (told["mean_e2el_ms"], told["std_e2el_ms"]) == (250.0, 2000.0)
    assert "mean_itl_ms" not in told
    spec = json.loads(note.read_text())["spec"]
    assert spec["profile"] == {"kind": "poisson", "rate": [3.0]}
    assert spec["constraints"] == [{"kind": "max_requests", "count": 40}]
    assert spec["data"][0]["prompt_tokens_min"] == 64
    assert spec["backend"]["api_key"] == "secret-key"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Error: No such command 'run'.", "--config"),
        (GUIDE_HELP.replace("|concurrent", "|streams"), "name concurrent,"),
        (GUIDE_HELP.replace("openai_http", "openai"), "name openai_http,"),
    ],
)
def test_a_guidellm_that_has_changed_says_so(path: Path, text: str, words: str) -> None:
    note = guide(path, text=text)
    with pytest.raises(ResourceError, match="installed guidellm has changed") as error:
        done(GuideLlm())
    assert words in str(error.value)
    assert not note.exists()


EMPTY = json.loads(json.dumps(GUIDE_REPORT).replace('"duration": 4.0', '"duration": 0'))


@pytest.mark.parametrize(
    "report", [{"benchmarks": []}, {"benchmarks": [{}]}, {}, EMPTY]
)
def test_a_report_of_another_form_is_refused(path: Path, report: object) -> None:
    guide(path, report)
    with pytest.raises(ResourceError, match="report of another form"):
        done(GuideLlm())


def test_guidellm_is_not_asked_for_goodput(path: Path) -> None:
    guide(path)
    with pytest.raises(UsageError, match="can't be asked of guidellm"):
        done(GuideLlm(), replace(ORDER, limits={"ttft": 1.0}))
