"""``hpuwatch buckets``: the documented commands say what the page says, errors are sentences."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from hpuwatch.cli.main import build
from hpuwatch.errors import (
    ConfigError,
    HpuwatchError,
    InputError,
    MissingFileError,
    ResourceError,
    UsageError,
)
from hpuwatch.gaudi.buckets import BucketError
from hpuwatch.gaudi.releases import NEWEST

pytestmark = pytest.mark.unit

SMALL = ["--max-model-len", "4096", "--num-blocks", "4107"]
HEAD = [
    *("--release", "plugin-head", "--strategy", "exp", "--max-num-seqs", "128"),
    *("--max-model-len", "4096", "--max-num-batched-tokens", "8192"),
    *("--block-size", "128", "--num-blocks", "4107", "--contiguous-pa", "off"),
]


def run(*argv: str) -> str:
    result = CliRunner().invoke(build(), ["buckets", *argv])
    if isinstance(result.exception, HpuwatchError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.output


def document(*argv: str) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(run(*argv, "--format", "json"))
    assert told["schema"] == "hpuwatch.buckets/1"
    return told


def examples(page: str) -> list[tuple[str, str]]:
    """Commands of the page's consoles, each with what it shows below."""
    consoles = "".join(re.findall(r"```console\n(.*?)```", page, re.DOTALL))
    parts = re.split(r"^\$ hpuwatch buckets (.+)\n", consoles, flags=re.MULTILINE)
    return list(zip(parts[1::2], parts[2::2], strict=True))


def test_the_page_shows_what_the_commands_print(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (checkout / "docs" / "buckets.md").read_text(encoding="utf-8")
    file = re.search(r"This is `mine.txt`:\n\n```text\n(.*?)```", page, re.DOTALL)
    assert file is not None
    (tmp_path / "mine.txt").write_text(file[1], encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    shown = examples(page)
    assert len(shown) == 7
    for command, output in shown:
        assert run(*shlex.split(command)) == output


def test_count_as_json() -> None:
    told = document("count", *HEAD)
    assert (told["prompt"], told["decode"]) == (70, 45)
    assert (told["release"], told["dialect"]) == ("plugin-head", "gaudi-plugin-head")
    assert told["assumed_like"] is None
    assert told["prompt_shapes_warmed"] == 62


def test_list_holds_what_count_counts() -> None:
    told = document("list", *HEAD)
    assert len(told["buckets"]["prompt"]) == told["prompt"]
    assert len(told["buckets"]["decode"]) == told["decode"]
    assert told["buckets"]["decode"][0] == [1, 1, 1]


def test_a_list_is_a_bucket_file(tmp_path: Path) -> None:
    path = tmp_path / "buckets.txt"
    path.write_text(run("list", *HEAD), encoding="utf-8")
    again = document("list", *HEAD, "--bucket-file", str(path))
    assert again["strategy"] == "file"
    assert again["buckets"] == document("list", *HEAD)["buckets"]
    named = document("list", *HEAD, "--env", f"VLLM_BUCKETING_FROM_FILE={path}")
    assert named["buckets"] == again["buckets"]


@pytest.mark.parametrize(
    ("shape", "phase", "bucket", "prepared", "warm"),
    [
        ("1,300,2", "prompt", [1, 384, 2], True, True),
        ("1,8192,31", "prompt", [1, 4096, 32], False, False),
        ("1,4096,31", "prompt", [1, 4096, 31], True, False),
        ("decode:20,1,700", "decode", [22, 1, 704], True, True),
        ("(3, 200, 1)", "prompt", [4, 384, 1], False, False),
    ],
)
def test_explain(
    shape: str, phase: str, bucket: list[int], prepared: bool, warm: bool
) -> None:
    flags = [*HEAD, "--release", "plugin-0.26", "--max-num-batched-tokens", "4096"]
    told = document("explain", shape, *flags)["shape"]
    assert told["phase"] == phase
    assert told["bucket"] == bucket
    assert told["prepared"] is prepared
    assert told["warm"] is warm


def test_explain_in_words() -> None:
    flags = [*SMALL, "--max-num-batched-tokens", "4096"]
    assert "warmed up\npadding   22%" in run("explain", "1,300,2", *flags)
    assert "listed, but not warmed up" in run("explain", "1,4096,31", *flags)
    assert "made up for this request" in run("explain", "3,200,1", *flags)


@pytest.mark.parametrize(
    ("shape", "exceeds"),
    [
        ("1,1,99999", {"max_model_len": 4096}),
        ("300,1,700", {"max_num_seqs": 256}),
        ("1,9000,0", {"max_num_batched_tokens": 2048, "max_model_len": 4096}),
        ("1,100,99", {"max_model_len": 4096}),
    ],
)
def test_a_shape_above_a_limit_has_no_padding(
    shape: str, exceeds: dict[str, int]
) -> None:
    told = document("explain", shape, *SMALL)["shape"]
    assert (told["holds"], told["padding"]) == (False, None)
    assert told["exceeds"] == exceeds
    text = " ".join(run("explain", shape, *SMALL).split())
    assert "padding" not in text
    assert "it does not hold the shape " in text
    for name, value in exceeds.items():
        assert f"{name} ({value})" in text
    assert text.endswith(": no such step comes")


def test_the_pool_is_a_limit_where_the_bucket_ends_at_it() -> None:
    fork = [*SMALL, "--release", "fork-1.20"]
    assert document("explain", "250,1,5000", *fork)["shape"]["exceeds"] == {
        "num_blocks": 4107
    }
    paged = document("explain", "1,1,9999", *SMALL, "--contiguous-pa", "on")["shape"]
    assert (paged["holds"], paged["exceeds"]) == (False, {"num_blocks": 4107})
    told = document("explain", "250,1,5000", *SMALL)["shape"]
    assert (told["holds"], told["exceeds"]) == (True, {})


@pytest.mark.parametrize("shape", ["1,2048,16", "1,1,32", "256,1,8192"])
def test_the_largest_shapes_exceed_nothing(shape: str) -> None:
    told = document("explain", shape, *SMALL)["shape"]
    assert (told["holds"], told["exceeds"]) == (True, {})
    assert told["padding"] >= 0


def test_an_old_fork_looks_at_two_numbers() -> None:
    told = document("explain", "1,300,9", *SMALL, "--release", "fork-1.20")["shape"]
    assert told["wanted"] == [1, 300, 0]
    assert told["bucket"] == [1, 384, 0]
    told = document("explain", "decode:3,7,9", *SMALL, "--release", "fork-1.20")
    assert told["shape"]["wanted"] == [3, 1, 9]


def notes(*argv: str) -> str:
    return " | ".join(document("count", *SMALL, *argv)["notes"])


def test_notes_tell_what_an_operator_should_know() -> None:
    assert "assumed like plugin-0.17" in notes("--release", "0.18.1")
    assert "VLLM_DECODE_BS_BUCKET_STEP" in notes(
        "--env", "VLLM_DECODE_BS_BUCKET_STEP=4"
    )
    assert "shapes run as they come" in notes("--env", "VLLM_ENABLE_BUCKETING=no")
    assert "no bucket is warmed up" in notes("--env", "VLLM_SKIP_WARMUP=1")
    assert "has no --max-num-prefill-seqs" in notes("--max-num-prefill-seqs", "4")
    assert "without prefix caching" in notes("--release", "fork-1.22")
    assert "1 prompt bucket stays cold" in notes()


def test_an_old_fork_knows_one_spelling_of_true() -> None:
    fork = ("--release", "fork-1.20", "--env")
    assert "warmed up" not in notes(*fork, "VLLM_SKIP_WARMUP=1")
    assert "warmed up" in notes(*fork, "VLLM_SKIP_WARMUP=true")


def test_the_environment_is_heeded_when_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_BUCKETING_STRATEGY", "pad")
    monkeypatch.setenv("VLLM_CONTIGUOUS_PA", "true")
    assert document("count", *SMALL)["strategy"] == "exp"
    told = document("count", *SMALL, "--from-env", "--env", "VLLM_CONTIGUOUS_PA=0")
    assert told["strategy"] == "pad"
    assert told["contiguous_pa"] is False


def test_the_newest_proven_release_is_taken_where_none_is_named() -> None:
    assert document("count", *SMALL)["release"] == NEWEST


def test_a_fork_takes_the_length_of_the_model_for_its_budget() -> None:
    assert document("count", *SMALL)["max_num_batched_tokens"] == 2048
    told = document("count", *SMALL, "--release", "fork-1.21")
    assert told["max_num_batched_tokens"] == 4096


@pytest.mark.parametrize(
    ("argv", "error", "said"),
    [
        (("--env", "X"), MissingFileError, "is neither NAME=VALUE nor an env file"),
        (("--contiguous-pa", "maybe"), UsageError, "is not on or off"),
        (("--strategy", "EXP"), ConfigError, "is not exp, lin or pad"),
        (("--format", "xml"), UsageError, "is not text or json"),
        (("--bucket-file", "/nowhere/b"), MissingFileError, "/nowhere/b can't be read"),
        (("--env", "VLLM_BUCKETING_STRATEGY=EXP"), BucketError, "is not a strategy"),
        (("--env", "VLLM_PROMPT_SEQ_BUCKET_MAX=x"), BucketError, "is not an integer"),
        (("--strategy", "pad", "--release", "0.19"), BucketError, "has no bucketing"),
    ],
)
def test_errors(argv: tuple[str, ...], error: type[HpuwatchError], said: str) -> None:
    with pytest.raises(error, match=said):
        run("count", *SMALL, *argv)


@pytest.mark.parametrize(
    "option",
    [
        *("--attn-block-size=0", "--num-speculative-tokens=-1", "--max-num-seqs=0"),
        *("--mamba-chunk-size=-1", "--max-num-prefill-seqs=-1", "--max-model-len=0"),
        *("--num-blocks=0", "--block-size=0", "--max-num-batched-tokens=0"),
    ],
)
def test_sizes_that_make_no_sense(option: str) -> None:
    result = CliRunner().invoke(build(), ["buckets", "count", *SMALL, option])
    assert result.exit_code == 2
    assert option.partition("=")[0] in result.output


def test_a_command_says_what_the_server_gets() -> None:
    command = ["--", "VLLM_CONTIGUOUS_PA=true", "vllm", "serve", "m"]
    json_first = ["count", "--format=json", *SMALL, *command]
    told = json.loads(run(*json_first, "--max-num-seqs", "8"))
    assert (told["max_num_seqs"], told["contiguous_pa"]) == (8, True)
    speculation = ["--speculative-config", '{"num_speculative_tokens": 3}']
    drafting = json.loads(run(*json_first, *speculation))
    assert drafting["decode"] != json.loads(run(*json_first))["decode"]


def test_a_long_note_is_wrapped() -> None:
    name = "VLLM_PROMPT_BS_BUCKET_"
    given = [
        f"--env={name}{part}={n}" for n, part in enumerate(("MIN", "STEP", "MAX"), 1)
    ]
    lines = run("count", *SMALL, *given).splitlines()
    assert any("set without effect" in line for line in lines)
    assert max(map(len, lines)) <= 90


@pytest.mark.parametrize(
    "shape", ["1,2", "a,b,c", "1,2,3,4", "image:1,2,3", "0,5,1", "1,5,-1", ":1,2,3"]
)
def test_what_is_no_shape(shape: str) -> None:
    with pytest.raises(UsageError, match="is not a shape like"):
        run("explain", shape, *SMALL)


def test_a_configuration_that_stops_the_server_exits_with_78() -> None:
    command = [sys.executable, "-m", "hpuwatch", "buckets", "count", *SMALL]
    said = subprocess.run(
        [*command, "--env", "VLLM_BUCKETING_STRATEGY=linear"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert said.returncode == 78
    assert said.stdout == ""
    assert said.stderr.count("\n") == 1
    assert "set one of exp, lin, pad" in said.stderr


GOLDEN = "tests/data/logs/llama70b-tp2-load.log"


def test_what_a_log_prints_beats_prediction(checkout: Path) -> None:
    log = str(checkout / GOLDEN)
    told = document("list", log)
    assert told["origin"] == {"prompt": "printed", "decode": "printed"}
    assert told["buckets"]["decode"] == [
        *([16, 1, 512], [16, 1, 1024], [64, 1, 512], [64, 1, 1024])
    ]
    assert (told["max_num_seqs"], told["num_blocks"]) == (64, 3316)
    assert "lists 4 prompt buckets" in " ".join(told["notes"])
    assert "buckets as printed" in run("count", log)
    changed = document("count", log, "--max-num-seqs", "32")
    assert changed["origin"] == {"prompt": "predicted", "decode": "predicted"}
    assert changed["notes"][0].startswith("predicted:")
    assert document("count", log, "--max-num-seqs", "64")["decode"] == 4


def test_explain_reads_a_log_too(checkout: Path) -> None:
    told = document("explain", "64,1,600", str(checkout / GOLDEN))["shape"]
    assert told["bucket"] == [64, 1, 1024]


def test_a_saved_list_is_read_like_a_log(tmp_path: Path) -> None:
    path = tmp_path / "saved.json"
    path.write_text(run("list", *HEAD, "--format", "json"), encoding="utf-8")
    again = document("list", str(path))
    assert again["origin"]["prompt"] == "printed"
    assert again["buckets"] == document("list", *HEAD)["buckets"]
    path.write_text('{"schema": "hpuwatch.buckets/1"}', encoding="utf-8")
    with pytest.raises(InputError, match="is no document of hpuwatch buckets list"):
        run("count", str(path))


def test_vllm_s_own_configuration_file(tmp_path: Path) -> None:
    path = tmp_path / "vllm.yaml"
    path.write_text(
        "model: m\nmax-model-len: 4k\nmax_num_seqs: 32\nblock-size: 256\n"
        "max-num-batched-tokens: 8K\nenable-prefix-caching: false\n"
        "speculative-config: {method: ngram, num_speculative_tokens: 2}\n",
        encoding="utf-8",
    )
    told = document("count", "--config", str(path), "--num-blocks", "900")
    sizes = ("max_model_len", "max_num_seqs", "max_num_batched_tokens", "block_size")
    assert [told[name] for name in sizes] == [4000, 32, 8192, 256]
    assert told["decode"] > document("count", *SMALL, "--max-num-seqs", "32")["decode"]
    again = document(
        "count", "--config", str(path), "--num-blocks", "900", "--max-num-seqs", "8"
    )
    assert again["max_num_seqs"] == 8
    path.write_text("max-model-len: auto\n", encoding="utf-8")
    with pytest.raises(UsageError, match="nothing tells --max-model-len"):
        run("count", "--config", str(path), "--num-blocks", "900")
    for broken in ("[1", "d: 2024-13-45", f"n: {'1' * 5000}"):
        path.write_text(broken, encoding="utf-8")
        with pytest.raises(InputError, match="is no YAML"):
            run("count", "--config", str(path))


def test_an_env_file_and_what_is_given_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "best.env"
    path.write_text(
        "# mine\nexport VLLM_BUCKETING_STRATEGY=pad\nVLLM_CONTIGUOUS_PA='true'\n",
        encoding="utf-8",
    )
    told = document("count", *SMALL, "--env-file", str(path))
    assert (told["strategy"], told["contiguous_pa"]) == ("pad", True)
    told = document(
        "count", *SMALL, "--env-file", str(path), "--env", "VLLM_CONTIGUOUS_PA=0"
    )
    assert told["contiguous_pa"] is False


def test_a_variable_without_a_value_is_unset(tmp_path: Path) -> None:
    path = tmp_path / "best.env"
    path.write_text("VLLM_CONTIGUOUS_PA=true\nVLLM_BUCKETING_STRATEGY=pad\n")
    file = ("--env-file", str(path))
    told = document("count", *SMALL, *file, "--env", "VLLM_CONTIGUOUS_PA=")
    assert told == document("count", *SMALL, "--env", "VLLM_BUCKETING_STRATEGY=pad")


def test_a_size_that_a_log_does_not_print_follows_what_is_changed(
    checkout: Path,
) -> None:
    log = str(checkout / "tests/golden/tensor-parallel-v0/log")
    told = document("count", log, "--max-model-len", "8192")
    assert told["max_num_batched_tokens"] == 8192


def test_only_a_release_that_reads_a_file_is_given_one(tmp_path: Path) -> None:
    path = tmp_path / "buckets.txt"
    named = ("--env", f"VLLM_BUCKETING_FROM_FILE={path}")
    told = document("count", *SMALL, "--release", "fork-1.22", *named)
    assert told["strategy"] == "exp"
    with pytest.raises(MissingFileError, match=r"buckets\.txt can't be read"):
        run("count", *SMALL, *named)
    path.write_bytes(b"\xff\xfe(1, 128, 0)")
    with pytest.raises(InputError, match="is no text in UTF-8"):
        run("count", *SMALL, *named)
    path.write_text("(1, 128, 0)\n(1, 1, 4)\n", encoding="utf-8")
    assert document("count", *SMALL, *named)["strategy"] == "file"


def difference(*argv: str) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(run("diff", *argv, "--format", "json"))
    assert told["schema"] == "hpuwatch.bucketdiff/1"
    return told


def test_diff_of_two_releases() -> None:
    told = difference("plugin-0.20", "plugin-0.21", *SMALL, "--max-num-seqs", "128")
    assert told["before"]["release"] == "plugin-0.20"
    assert told["after"]["release"] == "plugin-0.21"
    for phase in ("prompt", "decode"):
        change = told[phase]
        assert change["kept"] + len(change["added"]) == told["after"][phase]
        assert change["kept"] + len(change["removed"]) == told["before"][phase]
    assert told["decode"]["added"]
    assert not told["prompt"]["added"]


def test_diff_of_settings_and_of_files(checkout: Path, tmp_path: Path) -> None:
    log = str(checkout / GOLDEN)
    told = difference(log, "max-num-seqs=32,VLLM_PROMPT_BS_BUCKET_MAX=2")
    assert told["before"]["origin"]["prompt"] == "printed"
    assert (told["after"]["max_num_seqs"], told["after"]["max_num_prefill_seqs"]) == (
        32,
        2,
    )
    file, env, yaml = (tmp_path / name for name in ("b.txt", "b.env", "b.yaml"))
    file.write_text("(1, 512, 0)\n(16, 1, 512)\n", encoding="utf-8")
    env.write_text("VLLM_BUCKETING_STRATEGY=lin\n", encoding="utf-8")
    yaml.write_text("max-num-seqs: 16\n", encoding="utf-8")
    told = difference(log, str(file))
    assert told["after"]["strategy"] == "file"
    assert told["prompt"] == {
        "added": [],
        "removed": [[1, 1024, 0], [1, 2048, 0], [1, 8192, 0]],
        "kept": 1,
    }
    assert difference(str(env), str(yaml), *SMALL)["before"]["strategy"] == "lin"
    assert difference(str(env), str(yaml), *SMALL)["after"]["max_num_seqs"] == 16


def test_diff_in_words() -> None:
    argv = (*SMALL, "--max-num-seqs", "128")
    said = run("diff", "plugin-head", "VLLM_CONTIGUOUS_PA=1", *argv)
    assert re.search(
        r"decode +\d+ → \d+ buckets: \d+ kept, \d+ added, \d+ removed", said
    )
    assert re.search(r"\n\+ +\(1, 1, .*… \d+ more\n", said)
    with pytest.raises(UsageError, match="is no file, no release, and no NAME=VALUE"):
        run("diff", "nowhere.log", "plugin-head", *argv)
    with pytest.raises(UsageError, match="is not NAME=VALUE"):
        run("diff", "A=1,B", "plugin-head", *argv)


def test_what_nothing_tells_is_asked_for() -> None:
    with pytest.raises(UsageError, match="nothing tells --max-model-len"):
        run("count", "--num-blocks", "9")
    with pytest.raises(UsageError, match="nothing tells --num-blocks"):
        run("count", "--max-model-len", "900")


def test_check_names_lines_and_may_fail(tmp_path: Path) -> None:
    path = tmp_path / "b.txt"
    path.write_text("(1, 512, 0)\n(1, 2 * 128, 0)\n(16, 1, 512)\n", encoding="utf-8")
    said = run("check", str(path), *SMALL)
    assert f"error {path}:2: The" in " ".join(said.split())
    assert "the server does not start with this file" in said
    told = json.loads(run("check", str(path), *SMALL, "--format", "json"))
    assert (told["schema"], told["starts"]) == ("hpuwatch.bucketcheck/1", False)
    assert told["remarks"][0]["line"] == 2
    argv = ["buckets", "check", str(path), *SMALL, "--fail-on", "error"]
    assert CliRunner().invoke(build(), argv).exit_code == 1
    told = json.loads(
        run("check", str(path), *SMALL, "--release", "0.16", "--format", "json")
    )
    assert (told["starts"], told["prompt"], told["decode"]) == (True, 2, 1)
    assert told["holes"]


@pytest.mark.parametrize("sizes", [SMALL, []])
def test_check_says_so_of_a_line_that_it_can_t_tell(
    tmp_path: Path, sizes: list[str]
) -> None:
    path = tmp_path / "b.txt"
    path.write_text("(1, [128] * 2, 0)\n(1, 1, 512)\n", encoding="utf-8")
    argv = [str(path), *sizes, "--release", "plugin-0.16"]
    said = run("check", *argv)
    assert "buckets   unknown" in said
    assert "the server may start with it or not" in said
    told = json.loads(run("check", *argv, "--format", "json"))
    assert (told["starts"], told["prompt"], told["decode"]) == (True, None, None)


def test_a_heatmap_says_in_words_what_it_shows(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    for name, begin in (("b.png", b"\x89PNG"), ("b.svg", b"<?xml")):
        path = tmp_path / name
        said = run("heatmap", *HEAD, "--out", str(path))
        assert path.read_bytes().startswith(begin)
        assert "prompt: 70 buckets (predicted)" in said
        assert "decode: 45 buckets (predicted)" in said
    picture = (tmp_path / "b.svg").read_text(encoding="utf-8")
    assert "decode: 45 buckets" in picture
    with pytest.raises(UsageError, match=r"doesn't end in \.png or \.svg"):
        run("heatmap", *HEAD, "--out", "b.gif")
    with pytest.raises(ResourceError, match="can't be written"):
        run("heatmap", *HEAD, "--out", str(tmp_path / "none" / "b.svg"))
