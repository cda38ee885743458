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
from hpuwatch.errors import HpuwatchError, MissingFileError, UsageError
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
    found = re.findall(
        r"```console\n\$ hpuwatch buckets (.+?)\n(.*?)```", page, re.DOTALL
    )
    return [(command, output) for command, output in found]


def test_the_page_shows_what_the_commands_print(checkout: Path) -> None:
    page = (checkout / "docs" / "buckets.md").read_text(encoding="utf-8")
    shown = examples(page)
    assert len(shown) == 4
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
    text = run("explain", shape, *SMALL)
    assert "padding" not in text
    assert "it does not hold the shape\n" in text
    for name, value in exceeds.items():
        assert f"{name} ({value})" in text
    assert text.endswith(": no such step comes\n")


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
    assert "stay cold" in notes()


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
        (("--env", "X"), UsageError, "is not KEY=VALUE"),
        (("--contiguous-pa", "maybe"), UsageError, "is not on or off"),
        (("--strategy", "EXP"), UsageError, "is not exp, lin or pad"),
        (("--format", "xml"), UsageError, "is not text or json"),
        (("--bucket-file", "/nowhere/b"), MissingFileError, "/nowhere/b can't be read"),
        (("--env", "VLLM_BUCKETING_STRATEGY=EXP"), BucketError, "is not a strategy"),
        (("--strategy", "pad", "--release", "0.19"), BucketError, "has no bucketing"),
    ],
)
def test_errors(argv: tuple[str, ...], error: type[HpuwatchError], said: str) -> None:
    with pytest.raises(error, match=said):
        run("count", *SMALL, *argv)


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
