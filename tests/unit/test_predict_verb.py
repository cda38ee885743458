"""``hpuwatch predict``: two columns and a repair, as a page and as a document."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from hpuwatch.advise.baseline import baseline_of
from hpuwatch.cli.main import build
from hpuwatch.errors import (
    ConfigError,
    HpuwatchError,
    InputError,
    MissingFileError,
    UsageError,
)
from hpuwatch.gaudi.buckets import DECODE, PROMPT, Bucket
from hpuwatch.gaudi.planning import Change
from hpuwatch.gaudi.warmuptime import RECIPES, Rates
from hpuwatch.testing.logs import start_of_text

pytestmark = pytest.mark.unit

SMALL = ["--release", "plugin-0.26", "--max-model-len", "40960", "--num-blocks", "7593"]
CONFIG = {
    "model_type": "qwen3",
    "num_hidden_layers": 28,
    "hidden_size": 1024,
    "intermediate_size": 3072,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "max_position_embeddings": 40960,
    "vocab_size": 151936,
    "tie_word_embeddings": True,
}


@pytest.fixture
def log(checkout: Path) -> str:
    return str(checkout / "tests/data/logs/llama8b-gaudi2.log")


def call(*argv: str) -> Result:
    result = CliRunner().invoke(build(), ["predict", *argv])
    if isinstance(result.exception, HpuwatchError):
        raise result.exception
    return result


def document(*argv: str) -> dict[str, Any]:
    result = call("--format", "json", *argv)
    assert result.exit_code == 0, result.output
    loaded: dict[str, Any] = json.loads(result.output)
    assert loaded["schema"] == "hpuwatch.predict/1"
    return loaded


def test_now_and_proposed_side_by_side(log: str) -> None:
    found = document(log, "--env", "VLLM_GRAPH_RESERVED_MEM=0.2")
    now, then = found["current"], found["proposed"]
    assert now["kv"]["blocks"]["origin"] == "measured"
    assert now["kv"]["blocks"]["value"] == 4107
    # A tenth of 71.3 GiB usable is 456.3 blocks of 64.17 GiB / 4107.
    assert then["kv"]["blocks"] == {
        "value": 3650,
        "low": 3649,
        "high": 3651,
        "origin": "predicted",
    }
    assert then["kv"]["tokens"] == 3650 * 128
    assert then["memory"]["reserve_bytes"] == pytest.approx(14.26 * 2**30, rel=1e-3)
    assert now["warmup_seconds"]["value"] == 32
    assert now["buckets"][PROMPT]["new"] == now["buckets"][PROMPT]["gone"] == 0
    assert found["repaired"] is None
    assert found["simulated"] is False
    use = found["warmup_use"]
    assert (
        use["peak_bytes"] >= use["steady_bytes"] == pytest.approx(92.77 * 2**20, 1e-4)
    )


def test_only_a_log_tells_of_the_running_server(log: str) -> None:
    found = document(log)
    assert found["proposed"] is None
    assert found["current"]["works"]
    parts = {each["name"]: each for each in found["current"]["downtime"]["parts"]}
    assert parts["load"]["seconds"]["value"] == 45
    assert parts["drain"]["seconds"] is None
    assert found["current"]["downtime"]["known_seconds"]["value"] == 77


def test_what_goes_and_what_is_new(log: str) -> None:
    found = document(log, "--max-num-seqs", "4", "--max-num-prefill-seqs", "2")
    buckets = found["proposed"]["buckets"]
    # 1 to 8 blocks of query for 1 and 2 prompts; three of the sixteen were there.
    assert buckets[PROMPT] == {
        "count": 16,
        "graphs": 16,
        "new": 13,
        "gone": 0,
        "origin": "predicted",
    }


def test_a_refused_plan_comes_with_the_nearest_that_works() -> None:
    found = document(*SMALL)
    (refusal,) = found["proposed"]["refusals"]
    assert refusal["code"] == "decode-above-cache"
    assert refusal["numbers"] == {"largest_bucket_blocks": 81920, "kv_blocks": 7593}
    assert found["repaired"]["works"]
    assert found["repaired"]["changes"] == [{"name": "--max-num-seqs", "value": "71"}]
    assert found["current"] is None
    again = document(*SMALL, "--max-num-seqs", "71")
    assert again["proposed"]["works"]


def test_the_commands_of_the_page_print_what_it_shows(checkout: Path) -> None:
    page = (checkout / "docs/predicting.md").read_text(encoding="utf-8")
    shown = re.findall(r"```console\n\$ (hpuwatch .*?)\n(.*?)```", page, re.DOTALL)
    assert len(shown) == 3
    for command, output in shown:
        words = command.replace("hpuwatch", f"{sys.executable} -m hpuwatch", 1)
        said = subprocess.run(
            ["bash", "-c", words],
            cwd=checkout,
            capture_output=True,
            text=True,
            check=True,
        )
        assert said.stdout == output


def test_fail_on_gives_one() -> None:
    assert call(*SMALL).exit_code == 0
    assert call(*SMALL, "--fail-on", "error").exit_code == 1
    fine = [*SMALL, "--max-num-seqs", "8"]
    assert call(*fine, "--fail-on", "error").exit_code == 0
    assert call(*fine, "--fail-on", "warning").exit_code == 1
    whole = [*fine, "--max-model-len", "2048", "--max-num-batched-tokens", "2048"]
    whole += ["--no-enable-prefix-caching", "--env", "VLLM_ENGINE_READY_TIMEOUT_S=9999"]
    assert call(*whole, "--fail-on", "warning").exit_code == 0


def test_a_model_and_a_card_stand_in_for_a_log(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    given = ["--model", str(tmp_path), "--card", "gaudi2", "--tp", "1"]
    found = document(*given, "--max-num-seqs", "16", "--length", "2000")
    side = found["proposed"]
    assert side["kv"]["blocks"]["origin"] == "prior"
    assert side["memory"]["graphs"]["origin"] == "prior"
    assert side["configuration"]["max_model_len"] == 40960
    # 2 * 28 layers * 8 heads * 128 * 2 bytes * 128 tokens = 14 MiB; about 76 GiB.
    assert side["kv"]["blocks"]["value"] == pytest.approx(76 * 1024 / 14, rel=0.02)
    usual = side["concurrency"]["observed_length"]
    assert usual["value"] == round(side["kv"]["blocks"]["value"] / 16, 2)
    assert usual["from"] == "given"


def test_scales_of_an_fp8_cache_count_beside_it(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    given = ["--model", str(tmp_path), "--card", "gaudi2", "--max-num-seqs", "16"]
    given += ["--kv-cache-dtype", "fp8_inc"]
    plain = document(*given)["proposed"]
    scaled = document(*given, "--env", "VLLM_DYNAMIC_KV_QUANT=1")["proposed"]
    # 28 layers * 8 heads * (2 * 128 tokens + 128 channels) * 2 bytes.
    scales = plain["kv"]["blocks"]["value"] * 28 * 8 * (2 * 128 + 128) * 2
    assert (plain["memory"]["kv_scale_bytes"], scales) == (
        0,
        scaled["memory"]["kv_scale_bytes"],
    )
    more = scaled["memory"]["need"]["value"] - plain["memory"]["need"]["value"]
    assert more == pytest.approx(scales, abs=1)
    assert scaled["kv"] == plain["kv"]


def test_env_files_flags_and_options_say_the_same(tmp_path: Path) -> None:
    file = tmp_path / "best.env"
    file.write_text("# found by somebody\nVLLM_BUCKETING_STRATEGY=pad\n")
    base = [*SMALL, "--max-num-batched-tokens", "4096"]
    given = [
        [*base, "--env-file", str(file), "--max-num-seqs", "8"],
        [*base, "--env", "VLLM_BUCKETING_STRATEGY=pad", "--flag", "max-num-seqs=8"],
        [*base, "--strategy", "pad", "--flag", "--max-num-seqs 8"],
    ]
    sides = [document(*each)["proposed"] for each in given]
    assert sides[0] == sides[1]
    assert sides[2]["buckets"] == sides[0]["buckets"]


def test_a_bucket_file_is_read(tmp_path: Path) -> None:
    file = tmp_path / "buckets.txt"
    file.write_text("(1, [128, 256], 0)\n([1, 2], 1, 64)\n")
    found = document(*SMALL, "--bucket-file", str(file))["proposed"]
    assert found["configuration"]["strategy"] == "file"
    assert found["buckets"][PROMPT]["count"] == 2
    holes = found["uncovered"]["holes"]
    assert {"prompt", "decode"} == {each["phase"] for each in holes}


def test_buckets_from_a_file_that_no_line_lists_are_read_from_it(
    checkout: Path, tmp_path: Path
) -> None:
    file, log = tmp_path / "buckets.txt", tmp_path / "log"
    file.write_text("(1, [128, 256], 0)\n([1, 2], 1, 64)\n")
    whole = (checkout / "tests/golden/start-plugin-0.26/log").read_text("utf-8")
    head, flags, rest = whole.partition(" User flags:\n")
    before = head.splitlines()[-1]
    named = f"{before}     VLLM_BUCKETING_FROM_FILE: {file}\n"
    kept = [each for each in rest.splitlines() if "Generated" not in each]
    log.write_text(head + flags + named + "\n".join(kept), encoding="utf-8")
    now = document(str(log))["current"]
    assert now["configuration"]["strategy"] == "file"
    assert {name: each["count"] for name, each in now["buckets"].items()} == {
        PROMPT: 2,
        DECODE: 2,
    }
    file.unlink()
    with pytest.raises(MissingFileError, match=r"buckets\.txt"):
        call(str(log))


def test_the_page_names_refusal_repair_and_what_isn_t_known() -> None:
    page = call(*SMALL).output
    assert "81,920 blocks" in page
    assert "The nearest plan that works: --max-num-seqs 71." in page
    assert "settle" in page
    assert max(map(len, page.splitlines())) < 140
    markdown = call(*SMALL, "--format", "markdown").output
    assert markdown.startswith("# predict: without a log\n")
    rows = [line for line in markdown.splitlines() if line.startswith("|")]
    assert {row.count("|") for row in rows} == {4}


def test_secrets_of_the_environment_stay_out(log: str) -> None:
    secret = "hf_abcdefghijklmnopqrstuvwxyz0123"  # noqa: S105  made up
    for form in ("text", "json", "markdown"):
        said = call(log, "--env", f"HF_TOKEN={secret}", "--format", form).output
        assert secret not in said


@pytest.mark.parametrize(
    ("argv", "error", "said"),
    [
        ([], UsageError, "--max-model-len"),
        (["--max-model-len", "4096"], UsageError, "--num-blocks"),
        ([*SMALL, "--format", "yaml"], UsageError, "yaml"),
        ([*SMALL, "--fail-on", "worse"], UsageError, "worse"),
        ([*SMALL, "--flag", "max-num-seqs"], UsageError, "NAME=VALUE"),
        ([*SMALL, "--flag", "port=8000"], ConfigError, "--port"),
        ([*SMALL, "--strategy", "foo"], ConfigError, "is not exp, lin or pad"),
        ([*SMALL, "--release", "cuda"], ConfigError, "cuda"),
        ([*SMALL, "--card", "gaudi2"], UsageError, "--model"),
        ([*SMALL, "--current", "A=1"], UsageError, "--current"),
        ([*SMALL, "--card", "GAUDI9"], ConfigError, "choose from gaudi, gaudi2"),
        (["a.log", "--card", "gaudi2"], UsageError, "stand in for a log"),
    ],
)
def test_what_makes_no_sense_is_said(
    argv: list[str], error: type[HpuwatchError], said: str
) -> None:
    with pytest.raises(error, match=said):
        call(*argv)


def test_a_model_that_is_none(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text("{")
    with pytest.raises(InputError, match=r"config\.json"):
        call("--model", str(file), "--card", "gaudi2")


def test_a_model_in_brackets_without_end(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text("[" * 100_000)
    with pytest.raises(InputError, match="is no JSON"):
        call("--model", str(file), "--card", "gaudi2")


def test_a_model_behind_a_byte_order_mark(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps(CONFIG), encoding="utf-8-sig")
    assert document("--model", str(file), "--card", "gaudi2")["model"] == "qwen3"


def test_weights_that_do_not_fit_leave_nothing_to_tell(tmp_path: Path) -> None:
    large = CONFIG | {"num_hidden_layers": 4000, "hidden_size": 8192}
    (tmp_path / "config.json").write_text(json.dumps(large))
    given = ["--model", str(tmp_path), "--card", "gaudi2"]
    found = document(*given)
    assert found["free_bytes"]["value"] < 0 < found["weights_bytes"]["value"]
    side = found["proposed"]
    assert [each["code"] for each in side["refusals"]] == ["weights-too-large"]
    assert (side["warmup_seconds"], side["buckets"]) == (None, None)
    assert side["memory"] == {"graphs": None}
    assert side["cautions"] == []
    assert found["repaired"] is None
    rows = call(*given).output.splitlines()
    for name in ("graph reserve", "margin", "graphs", "warm-up", "prompt buckets"):
        assert next(row for row in rows if row.startswith(name)).split()[-1] == "-"


def test_no_reserve_is_advised_that_the_card_does_not_have(tmp_path: Path) -> None:
    wide = CONFIG | {"num_hidden_layers": 4, "hidden_size": 8192}
    (tmp_path / "config.json").write_text(json.dumps(wide))
    given = ["--model", str(tmp_path), "--card", "gaudi2", "--max-model-len", "8192"]
    found = document(*given)["proposed"]
    said = {each["code"]: each["text"] for each in found["cautions"]}
    need = found["memory"]["need"]["high"]
    assert need > found["memory"]["usable_bytes"]
    assert "no reserve holds that" in said["graphs-uncertain"]
    text = call(*given).output
    assert "unknown (prior: " in text
    assert "Unknown before a first log" in text


def test_an_env_file_of_another_server_is_refused(log: str, tmp_path: Path) -> None:
    file = tmp_path / "best.env"
    file.write_text("# card: gaudi2\nVLLM_GRAPH_RESERVED_MEM=0.2\n")
    found = document(log, "--env-file", str(file))
    assert found["proposed"]["configuration"]["graph_reserved_mem"] == 0.2
    for line in ("card: gaudi3", "release: plugin-0.26", "model: other", "tp: 8"):
        file.write_text(f"# {line}\nVLLM_GRAPH_RESERVED_MEM=0.2\n")
        with pytest.raises(ConfigError, match=f"{line.split()[-1]}; here it is"):
            call(log, "--env-file", str(file))
    file.write_text("# tp: 8\nVLLM_GRAPH_RESERVED_MEM=0.2\n")
    with pytest.raises(ConfigError, match="cards 8; here it is 1"):
        call(*SMALL, "--env", str(file))


def test_a_command_is_proposed(log: str, monkeypatch: pytest.MonkeyPatch) -> None:
    command = ["--", "A=1", "vllm", "serve", "m", "--max-num-seqs", "8", "--port", "1"]
    found = document("--max-model-len", "2048", log, *command)["proposed"]
    told = found["configuration"]
    assert (told["max_num_seqs"], told["max_model_len"]) == (8, 2048)
    assert told["env"]["A"] == "1"
    monkeypatch.setenv("VLLM_GRAPH_RESERVED_MEM", "0.3")
    found = document(log, "--inherit")["proposed"]
    assert found["configuration"]["graph_reserved_mem"] == 0.3


def test_starts_of_another_server_are_counted(log: str, tmp_path: Path) -> None:
    other = tmp_path / "other.log"
    text = Path(log).read_text(encoding="utf-8")
    other.write_text(text.replace("Llama-3.1-8B", "Llama-3.1-9B"), encoding="utf-8")
    found = document(str(other), log)
    assert (found["starts"], found["starts_passed_over"]) == (1, 1)
    assert "1 start of the logs had another" in call(str(other), log).output
    assert document(log)["starts_passed_over"] == 0


def test_the_page_says_of_what_it_speaks(log: str) -> None:
    text = call(log, "--max-num-seqs", "9000").output
    assert "model: meta-llama/Meta-Llama-3.1-8B-Instruct, card: gaudi2" in text
    assert re.search(r"^max_num_seqs +256 +9,000 +\d", text, re.MULTILINE)
    assert ", repaired plan): " in text


def test_a_log_that_tells_too_little(checkout: Path) -> None:
    with pytest.raises(InputError, match="cuda"):
        call(str(checkout / "tests/data/logs/cuda.log"))


def test_what_a_log_teaches(log: str) -> None:
    start = start_of_text(Path(log).read_text(encoding="utf-8"))
    found = baseline_of([start], [Change(RECIPES, "/cache,false,1024")])
    assert found is not None
    assert found.basis.load_seconds == (45.0,)
    assert found.basis.recipes is not None
    assert found.basis.recipes.num_blocks == 4107
    assert found.basis.warmup.newest is not None
    assert found.basis.warmup.newest.counts == {PROMPT: 3, DECODE: 1}
    assert isinstance(found.basis.warmup.likely, Rates)
    printed = found.basis.printed
    assert printed is not None
    assert printed.lists[DECODE] == (Bucket(4, 1, 128),)
    assert printed.plan.env[RECIPES] == "/cache,false,1024"
